"""The types that declare a stage: its inputs, its build function, its checks, and its description.

A stage either runs once for each demonstration, or builds a dataset from all demonstrations. Each
stage is declared once, in the package of its subject, and listed in `runs/stages.py`.
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
RECORDS = "records"  # name of the stage from whose outputs datasets are built
# Names of Dagster's jobs.
DEMONSTRATION_JOB = "process_demonstration"
DATASETS_JOB = "build_datasets"
TASKS_JOB = "read_osworld_tasks"
PROCESS_MANY = "process_many"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a build or a check. Subclasses add inputs for their kind of stage.

    Attributes:
        settings: all settings.
        folders: name of an input → folder with its content, for the inputs that were built. An
            output of a demonstration has the name of its stage, and a dataset its own name.
        source: the value of the stage's `SourceInput`; None if the stage has no such input.
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
        description: a sentence that says what the check verifies.
        run: reads the output's folder and returns the problems. The check fails if a problem is an
            error.
        blocking: whether a failure of the check prevents the publication of the output.
        compared: keys of the output's summary that count the compared items. The value of a key is
            a number, or a mapping to numbers.
    """

    name: str
    description: str
    run: Callable[[AnyInputs, Path], Sequence[Problem]]
    blocking: bool = True
    compared: tuple[str, ...] = ()

    def counts(self, summary: Summary) -> dict[str, int]:
        """Returns key in `compared` → number of compared items, read from an output's summary."""
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
    """Combines several `Check.run` functions into a function that returns all their problems."""
    return lambda inputs, out: [problem for run in runs for problem in run(inputs, out)]


@dataclass(frozen=True, kw_only=True)
class ValidatedFormat:
    """A format that `demo-pipeline validate` recognises and validates.

    Attributes:
        name: the value of `--kind`.
        files: names of files and folders in a folder of this format. A folder gets the format for
            which the largest share of these names exists in the folder.
        validate: returns the problems of a file or folder.
        decisive: whether a single name of `files` is enough to recognise the format.
        recognises: returns whether a folder has this format although it contains none of the
            `files` of any format. If None, such a folder never has this format.
        file_suffix: a single file with this suffix has this format. If empty, no single file has
            this format.
        line_key: a key that only lines of this format have; a JSON Lines file is recognised by this
            key. If empty, no JSON Lines file has this format.
    """

    name: str
    files: tuple[str, ...]
    validate: Callable[[Path, Settings], Sequence[Problem]]
    decisive: bool = False
    recognises: Callable[[Path], bool] | None = None
    file_suffix: str = ""
    line_key: str = ""


class Need(StrEnum):
    """An input or condition that a stage needs in addition to its `inputs`.

    Attributes:
        UPLOADS: the stage reads the uploaded files.
        TASK: the stage reads the matching OSWorld task, as `Inputs.source`.
        EXPORTS: the stage runs after all training exports and reads their published outputs. It
            also runs if an export fails.
        LINKS: the stage's output contains links to the exact versions of the trajectories from
            which it was built.
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
        folder: folder in the store. The output for a demonstration is `<folder>/<demonstration>`.
            The folder of a dataset stage is the output itself, or contains the outputs.
        description: says in the UI what the stage writes.
        kinds: tags of the asset in the UI.
        code_version: to be increased whenever the code writes different bytes for the same inputs.
        build: writes the output into a folder, and returns the output's summary.
        checks: checks of the output, in order. If a blocking check of a dataset fails, the checks
            after it do not run.
        inputs: names of the stages whose outputs the stage reads.
        section: returns the settings on which the output depends; None if no setting matters.
        columns: schema of the output's main table; None if the output has no table.
        source: reads the `SourceInput` from a `Workspace`. For a stage of a demonstration, further
            arguments are the id, and the versions of the inputs by stage. None if the stage has no
            `SourceInput`.
        needs: additional needs of the stage.
        export: name of the training export in `datasets.exports`. Empty if the stage is not an
            export.
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
        """Returns the fingerprint of the settings on which the output depends; empty if none do."""
        return self.section(settings).fingerprint() if self.section else ""

    @property
    def reads_trajectories(self) -> bool:
        """Whether the stage is built from the trajectories of all demonstrations."""
        return RECORDS in self.inputs

    @property
    def counts(self) -> tuple[str, ...]:
        """Keys of a dataset's summary that count its content.

        If there are no keys, `run` does not list the dataset.
        """
        return self.checks[0].compared if self.reads_trajectories else ()


@dataclass(frozen=True, kw_only=True)
class TrainingExport(Generic[AnyInputs]):
    """A training export: its stage, and declarations that other datasets do not need.

    Attributes:
        stage: the export's stage, which is built only if `datasets.exports` contains `name`.
        name: the export's name in `datasets.exports` and in `demo-pipeline validate --kind`.
        kept: name of the file that keeps the export's records of a single demonstration. The
            dataset is assembled from these files. Empty if there is no such file.
        validated_as: how `demo-pipeline validate` recognises and validates the output.
        hub_tables: the `HubTable`s in the layout for the Hugging Face Hub.
        views: the `View`s over the output's Parquet files, for `demo-pipeline stats`.
        subfolder: returns the output's name below the stage's folder. If None, the folder itself is
            the output.
        replaces: returns the published outputs that a new output replaces. They are unpublished
            once the new output is published. The arguments are the inputs, the name of the new
            output, and the names of the stage's published outputs. If None, no output is replaced.
    """

    stage: Stage[AnyInputs]
    name: str
    validated_as: ValidatedFormat
    kept: str = ""
    hub_tables: tuple[Any, ...] = ()
    views: tuple[Any, ...] = ()
    subfolder: Callable[[AnyInputs], str] | None = None
    replaces: Callable[[AnyInputs, str, Collection[str]], Sequence[str]] | None = None
