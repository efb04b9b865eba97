"""The types that declare a stage: its inputs, its build function, its checks, and its description.

A stage is either of a demonstration (it runs once for each) or of a dataset. Each stage is declared
once, in the package of its subject, and listed in `runs/stages.py`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from demo_pipeline.problems import Problem
from demo_pipeline.settings import Section, Settings

Summary = Mapping[str, Any]
RECORDS = "records"  # the stage of a demonstration whose outputs datasets are built from
# Names of Dagster's jobs.
DEMONSTRATION_JOB = "process_demonstration"
DATASETS_JOB = "build_datasets"
TASKS_JOB = "read_osworld_tasks"
PROCESS_MANY = "process_many"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a build or a check; subclasses add those of their kind of stage.

    Attributes:
        settings: all settings.
        folders: name of an input → folder with its content, for the inputs that were built. The
            name is that of a stage of a demonstration, or of the output of a dataset.
        source: the value of the stage's `SourceInput`; None: it has none.
    """

    settings: Settings
    folders: Mapping[str, Path] = field(default_factory=dict)
    source: Any = None


@dataclass(frozen=True)
class SourceInput:
    """An input of a stage that is not the output of another stage, such as uploaded files.

    Attributes:
        value: becomes `Inputs.source`.
        fingerprints: name → fingerprint, for the recipe of the output.
    """

    value: Any
    fingerprints: Mapping[str, str]


AnyInputs = TypeVar("AnyInputs", bound=Inputs)


@dataclass(frozen=True)
class Check(Generic[AnyInputs]):
    """A check of an output before it is published.

    Attributes:
        name: the check's name in the UI.
        description: one sentence: what it verifies.
        run: reads the output's folder and returns the problems; errors make the check fail.
        blocking: if the check fails, the output is not published.
        compared: keys of the output's summary whose numbers tell how much was compared. The value
            of a key is a number, or a mapping with numbers.
    """

    name: str
    description: str
    run: Callable[[AnyInputs, Path], Sequence[Problem]]
    blocking: bool = True
    compared: tuple[str, ...] = ()

    def counts(self, summary: Summary) -> dict[str, int]:
        """Returns key in `compared` → number of compared items of an output with this summary."""
        counts = dict[str, int]()
        for name in self.compared:
            value = summary.get(name, 0)
            if isinstance(value, Mapping):
                value = sum(value.values())
            counts[name] = value
        return counts


def joined(
    *runs: Callable[[AnyInputs, Path], Sequence[Problem]],
) -> Callable[[AnyInputs, Path], Sequence[Problem]]:
    """Joins several functions for `Check.run` into one, which returns the problems of all."""
    return lambda inputs, out: [problem for run in runs for problem in run(inputs, out)]


@dataclass(frozen=True, kw_only=True)
class ValidatedFormat:
    """A format that `demo-pipeline validate` recognises and validates.

    Attributes:
        name: the value of `--kind`.
        files: names of files and folders in a folder of this format. A folder is recognised as the
            format of which it has the largest share of these names.
        validate: returns the problems of a path.
        decisive: one of `files` is enough to recognise the format.
        recognises: decides about a folder that has none of the `files` of any format; None: such a
            folder is not in this format.
        file_suffix: a single file with this suffix is in this format; empty: no single file is.
        line_key: a key that only lines of this format have, to recognise a JSON Lines file; empty:
            no JSON Lines file is in this format.
    """

    name: str
    files: tuple[str, ...]
    validate: Callable[[Path, Settings], Sequence[Problem]]
    decisive: bool = False
    recognises: Callable[[Path], bool] | None = None
    file_suffix: str = ""
    line_key: str = ""


class Need(StrEnum):
    """An additional need of a stage, which a run satisfies.

    Attributes:
        UPLOADS: the stage reads the uploaded files.
        TASK: the stage reads the matching OSWorld task, as `Inputs.source`.
        EXPORTS: the stage runs after all training exports and reads their published outputs; it
            also runs if an export fails.
        LINKS: the stage's output links the exact versions of the trajectories that it was built
            from.
        VIEWS: the stage reads the definitions of all views over the store.
    """

    UPLOADS = "uploads"
    TASK = "task"
    EXPORTS = "exports"
    LINKS = "links"
    VIEWS = "views"


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[AnyInputs]):
    """The declaration of a stage, from which assets, jobs, checks and commands are derived.

    Attributes:
        name: name of the stage and of its asset.
        folder: folder in the store. Outputs of a demonstration are `<folder>/<demonstration>`. Of a
            dataset, it is the output itself, or contains its outputs.
        description: what it writes, for the UI.
        kinds: tags of the asset in the UI.
        code_version: increased whenever the code writes other bytes for the same inputs.
        build: writes the output into a folder, returns its summary.
        checks: checks of the output, in order. For a dataset, no check runs after a failed blocking
            one.
        inputs: names of the stages whose outputs it reads.
        section: returns the settings that its output depends on; None: it depends on no setting.
        columns: schema of its main table; None: it has none.
        source: reads the `SourceInput` from a `Workspace`. For a stage of a demonstration, further
            arguments are the id and the versions of the inputs by stage. None: there is none.
        needs: its additional needs.
        export: name of the training export in `datasets.exports`; empty: it is not an export.
    """

    name: str
    folder: str
    description: str
    kinds: frozenset[str]
    code_version: str
    build: Callable[[AnyInputs, Path], Summary]
    checks: tuple[Check[AnyInputs], ...]
    inputs: tuple[str, ...] = (RECORDS,)
    section: Callable[[Settings], Section] | None = None
    columns: pa.Schema | None = None
    source: Callable[..., SourceInput] | None = None
    needs: frozenset[Need] = frozenset()
    export: str = ""

    def output(self, demonstration: str) -> str:
        """Returns the name under which the store keeps the stage's output for a demonstration."""
        return f"{self.folder}/{demonstration}"

    def fingerprint(self, settings: Settings) -> str:
        """Returns the fingerprint of the settings that the output depends on; empty: of none."""
        return self.section(settings).fingerprint() if self.section else ""

    @property
    def reads_trajectories(self) -> bool:
        """Whether the stage is built from the trajectories of all demonstrations."""
        return RECORDS in self.inputs

    @property
    def counts(self) -> tuple[str, ...]:
        """Keys of a dataset's summary that count its content; empty: `run` does not list it."""
        return self.checks[0].compared if self.reads_trajectories else ()


@dataclass(frozen=True, kw_only=True)
class TrainingExport(Generic[AnyInputs]):
    """A training export: a stage of a dataset, and declarations that only exports have.

    Attributes:
        stage: the export's stage, which is built only if `datasets.exports` contains `name`.
        name: name in `datasets.exports`, and for `--kind` of `validate`.
        kept: name of the file with the records of a demonstration, from which the export is put
            together; empty: there is no such file.
        validated_as: how `demo-pipeline validate` recognises and validates the output.
        hub_tables: the `HubTable`s in the layout for the Hugging Face Hub.
        views: the `View`s over the output's Parquet files, for `demo-pipeline stats`.
        subfolder: returns the output's name below the stage's folder; None: the folder is the
            output.
        replaces: selects, from the names of the stage's published outputs (third argument), those
            that a new output (its name is the second argument) replaces. They are unpublished once
            the new output is published. None: no output is replaced.
    """

    stage: Stage[AnyInputs]
    name: str
    validated_as: ValidatedFormat
    kept: str = ""
    hub_tables: tuple[Any, ...] = ()
    views: tuple[Any, ...] = ()
    subfolder: Callable[[AnyInputs], str] | None = None
    replaces: Callable[[AnyInputs, str, Collection[str]], Sequence[str]] | None = None
