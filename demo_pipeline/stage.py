"""What a stage is: its inputs, its build function, its checks, and how people see it.

Belongs here: types. Each stage is declared once, in the package of its subject, and listed in
`runs/stages.py`. Stages of a demonstration and of a dataset differ in their inputs.
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
RECORDS = "records"  # the demonstration stage that datasets are built from
DEMONSTRATION_JOB = "process_demonstration"
DATASETS_JOB = "build_datasets"
TASKS_JOB = "read_osworld_tasks"
PROCESS_MANY = "process_many"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a stage reads; each kind of stage adds its own.

    Attributes:
        settings: every threshold.
        folders: input → folder with its content: stages of a demonstration by their names, datasets
            by their outputs, as far as they were built.
        source: the value of `SourceInput`, for a stage that reads what no stage wrote.
    """

    settings: Settings
    folders: Mapping[str, Path] = field(default_factory=dict)
    source: Any = None


@dataclass(frozen=True)
class SourceInput:
    """Something that a stage reads and that no stage wrote.

    Attributes:
        value: what the stage gets as `Inputs.source`.
        fingerprints: name → fingerprint, as the recipe records them.
    """

    value: Any
    fingerprints: Mapping[str, str]


AnyInputs = TypeVar("AnyInputs", bound=Inputs)


@dataclass(frozen=True)
class Check(Generic[AnyInputs]):
    """One check of a staged output.

    Attributes:
        name: of the check.
        description: what it verifies, one sentence.
        run: reads the staged folder and returns the problems; errors make the check fail.
        blocking: a failed check keeps the output from being published.
        compared: keys of the summary that count what it compares: numbers, or numbers by name.
    """

    name: str
    description: str
    run: Callable[[AnyInputs, Path], Sequence[Problem]]
    blocking: bool = True
    compared: tuple[str, ...] = ()

    def counts(self, summary: Summary) -> dict[str, int]:
        """What it compares in an output with this summary, by the summary's keys."""
        found = {name: summary.get(name, 0) for name in self.compared}
        return {
            name: sum(value.values()) if isinstance(value, Mapping) else value
            for name, value in found.items()
        }


def joined(
    *runs: Callable[[AnyInputs, Path], Sequence[Problem]],
) -> Callable[[AnyInputs, Path], Sequence[Problem]]:
    """The function of a check that says several things which are one to a person."""
    return lambda inputs, out: [problem for run in runs for problem in run(inputs, out)]


@dataclass(frozen=True, kw_only=True)
class ValidatedFormat:
    """A format that `demo-pipeline validate` recognises and validates.

    Attributes:
        name: the value of `--kind`.
        files: names in a folder of this format. A folder is in the format of whose names it has
            the largest share.
        validate: what is wrong with a path.
        decisive: one of `files` is enough to recognise the format.
        recognises: whether a folder without any of `files`, and of no other format, is in this one.
        file_suffix: a single file with this suffix is in this format; empty: only folders are.
        line_key: a key that every line of a file of JSON Lines of this format has, and of no other
            format; empty: no single file of lines is in this format.
    """

    name: str
    files: tuple[str, ...]
    validate: Callable[[Path, Settings], Sequence[Problem]]
    decisive: bool = False
    recognises: Callable[[Path], bool] | None = None
    file_suffix: str = ""
    line_key: str = ""


class Need(StrEnum):
    """What a run does for a stage besides opening its inputs.

    Attributes:
        UPLOADS: the stage reads the uploaded files too.
        TASK: it reads which OSWorld task the demonstration is of, as `Inputs.source`.
        EXPORTS: it reads what is committed of every training export, after they were built; one
            that fails does not hold it up.
        LINKS: its output links the exact versions of the trajectories that it was built from.
        VIEWS: it reads the definitions of all views over the store.
    """

    UPLOADS = "uploads"
    TASK = "task"
    EXPORTS = "exports"
    LINKS = "links"
    VIEWS = "views"


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[AnyInputs]):
    """One stage: everything that any part of the package knows about it.

    Attributes:
        name: of the asset.
        folder: of its outputs in the store: `<folder>/<demonstration>`; of a dataset its output, or
            the folder of its outputs.
        description: what it writes, for the UI.
        kinds: tags of the asset in the UI.
        code_version: increased whenever the code writes other bytes for the same inputs.
        build: writes into a folder, returns a summary.
        checks: of the written folder, in order; those of a dataset end with a failed blocking one.
        inputs: names of the stages whose outputs it reads.
        section: the settings that its output depends on; None: none.
        columns: of its main table.
        source: reads what no stage wrote, from a `Workspace`; of a demonstration also from its id
            and the versions of the inputs by stage.
        needs: what a run does for it besides.
        export: name of the training export in `datasets.exports`; empty: it is not one.
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
        """Name of the stage's output of a demonstration in the store."""
        return f"{self.folder}/{demonstration}"

    def fingerprint(self, settings: Settings) -> str:
        """Of the settings that the output depends on; empty without any."""
        return self.section(settings).fingerprint() if self.section else ""

    @property
    def reads_trajectories(self) -> bool:
        """Whether it is built from the committed trajectories of all demonstrations."""
        return RECORDS in self.inputs

    @property
    def counts(self) -> tuple[str, ...]:
        """Keys of the summary of a dataset that say what it holds; empty: it is not listed."""
        return self.checks[0].compared if self.reads_trajectories else ()


@dataclass(frozen=True, kw_only=True)
class TrainingExport(Generic[AnyInputs]):
    """A stage that is a training export, and what only such a one has.

    Attributes:
        stage: its stage, which is built only when `datasets.exports` has its name.
        name: in `datasets.exports`, and the value of `--kind` of `validate`.
        kept: the file of a demonstration's records that it is put together from; empty: none.
        validated_as: how `demo-pipeline validate` recognises and validates its output.
        hub_tables: each `HubTable` in the layout for the Hugging Face Hub; empty: it has none.
        views: each `View` over its Parquet files, for `demo-pipeline stats`.
        subfolder: name of the output below the stage's folder; None: the output is the folder.
        replaces: of the names of the stage's published outputs, those that a new one (its name is
            the second argument) replaces; they are unpublished once it is published.
    """

    stage: Stage[AnyInputs]
    name: str
    validated_as: ValidatedFormat
    kept: str = ""
    hub_tables: tuple[Any, ...] = ()
    views: tuple[Any, ...] = ()
    subfolder: Callable[[AnyInputs], str] | None = None
    replaces: Callable[[AnyInputs, str, Collection[str]], Sequence[str]] | None = None
