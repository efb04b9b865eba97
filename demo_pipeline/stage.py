"""The types that declare a stage.

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
RECORDS = "records"  # the stage from whose outputs the datasets are built
# Names of Dagster's jobs.
DEMONSTRATION_JOB = "process_demonstration"
DATASETS_JOB = "build_datasets"
TASKS_JOB = "read_osworld_tasks"
PROCESS_MANY = "process_many"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a build or a check.

    Attributes:
        folders: maps each input that was built to the folder with its content. The keys are stage
            names for an output of a demonstration, and output names for a dataset.
        source: the value of the stage's `SourceInput`; None if the stage has none.
    """

    settings: Settings
    folders: Mapping[str, Path] = field(default_factory=dict)
    source: Any = None


@dataclass(frozen=True)
class SourceInput:
    """An input of a stage that is not the output of another stage, such as uploaded files.

    Attributes:
        value: becomes `Inputs.source`.
        fingerprints: named fingerprints for the recipe of the output.
    """

    value: Any
    fingerprints: Mapping[str, str]


AnyInputs = TypeVar("AnyInputs", bound=Inputs)


@dataclass(frozen=True)
class Check(Generic[AnyInputs]):
    """A check of an output before it is published.

    Attributes:
        run: returns the problems of the output's folder. Any error fails the check.
        blocking: whether a failure prevents publication.
        compared: keys of the output's summary whose values count the compared items. A value is a
            number or a dictionary of numbers.
    """

    name: str
    description: str
    run: Callable[[AnyInputs, Path], Sequence[Problem]]
    blocking: bool = True
    compared: tuple[str, ...] = ()

    def counts(self, summary: Summary) -> dict[str, int]:
        """Returns the number of compared items for each key in `compared`."""
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
    """Combines several `Check.run` functions into one that returns all their problems."""
    return lambda inputs, out: [problem for run in runs for problem in run(inputs, out)]


@dataclass(frozen=True, kw_only=True)
class ValidatedFormat:
    """A format that `demo-pipeline validate` recognises and validates.

    Attributes:
        name: the value of `--kind`.
        files: the names of the files in a folder of this format.
        validate: returns the problems of a file or folder.
        decisive: whether a single file of `files` identifies the format.
        recognises: returns whether a folder has this format. Called only if the folder contains no
            file that any format lists in `files`. May be None.
        file_suffix: the suffix of single files of this format. Empty if no suffix identifies
            the format.
        line_key: a key that only JSON Lines files of this format have. Empty if no key identifies
            the format.
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
        EXPORTS: the stage reads the published outputs of all training exports, and runs after them,
            even if an export fails.
        LINKS: the stage's output contains links to the trajectories that were used to build it.
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
        name: name of the stage and its asset.
        folder: folder in the store, with an output `<folder>/<demonstration>` for each
            demonstration. The folder of a dataset stage is the output itself, or contains the
            outputs.
        description: says in the UI what the stage writes.
        kinds: tags of the asset in the UI.
        code_version: to be increased when the code writes different bytes for the same inputs.
        build: writes the output into a folder, and returns the output's summary.
        checks: checks of the output, in order. After a failed blocking check, no further checks
            run.
        inputs: names of the stages whose outputs the stage reads.
        section: returns the settings that affect the output; None if there are none.
        columns: schema of the output's main table; None if the output has no table.
        source: returns the `SourceInput`; None if the stage has none. It is called with the
            `Workspace`. For a stage of a demonstration, it also gets the demonstration's id and a
            dictionary from the names of the input stages to their versions.
        export: name in `datasets.exports`; empty if the stage is not a training export.
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
        """Returns the output's name in the store: `<folder>/<demonstration>`."""
        return f"{self.folder}/{demonstration}"

    def fingerprint(self, settings: Settings) -> str:
        """Returns the fingerprint of the settings that affect the output, or an empty text."""
        return self.section(settings).fingerprint() if self.section else ""

    @property
    def reads_trajectories(self) -> bool:
        """Whether the stage is built from the trajectories of all demonstrations."""
        return RECORDS in self.inputs

    @property
    def counts(self) -> tuple[str, ...]:
        """Keys of a dataset's summary that count its content.

        The command `run` does not list a dataset that has no such keys.
        """
        return self.checks[0].compared if self.reads_trajectories else ()


@dataclass(frozen=True, kw_only=True)
class TrainingExport(Generic[AnyInputs]):
    """A training export.

    Attributes:
        stage: its stage, built only if `datasets.exports` contains `name`.
        name: its name in `datasets.exports` and `demo-pipeline validate --kind`.
        kept: the name of the file that stores the export's records of one demonstration. The
            dataset is assembled from these files. Empty if the export stores no such records.
        validated_as: how `demo-pipeline validate` recognises and validates the output.
        hub_tables: the `HubTable`s in the layout for the Hugging Face Hub.
        views: the `View`s over the output's Parquet files, for `demo-pipeline stats`.
        subfolder: returns the output's name below the stage's folder. If None, the folder is the
            output.
        replaces: returns the published outputs that a new output replaces, given the inputs, the
            new output's name, and the names of the stage's published outputs. If None, nothing is
            replaced.
    """

    stage: Stage[AnyInputs]
    name: str
    validated_as: ValidatedFormat
    kept: str = ""
    hub_tables: tuple[Any, ...] = ()
    views: tuple[Any, ...] = ()
    subfolder: Callable[[AnyInputs], str] | None = None
    replaces: Callable[[AnyInputs, str, Collection[str]], Sequence[str]] | None = None
