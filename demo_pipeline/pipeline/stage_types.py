"""What a stage is: its inputs, its build function, its checks, and how people see it.

Belongs here: types only. The stages of a demonstration are registered in demonstration_stages.py,
the unpartitioned ones in dataset_stages.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from demo_pipeline.datasets.views import View
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.pipeline.context import DatasetContext, StageContext, Summary, Workspace
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Section, Settings

Context = TypeVar("Context")
TRAJECTORIES = "trajectories"  # the demonstration stage that datasets are built from
DATASETS_JOB = "build_datasets"


@dataclass(frozen=True)
class Check(Generic[Context]):
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
    run: Callable[[Context, Path], Sequence[Problem]]
    blocking: bool = True
    compared: tuple[str, ...] = ()

    def counts(self, summary: Mapping[str, Any]) -> dict[str, int]:
        """What it compares in an output with this summary, by the summary's keys."""
        found = {name: summary.get(name, 0) for name in self.compared}
        return {
            name: sum(value.values()) if isinstance(value, Mapping) else value
            for name, value in found.items()
        }


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a demonstration.

    Attributes:
        name: of the asset.
        folder: of its outputs in the store: `<folder>/<demonstration>`.
        description: what it writes, for the UI.
        group: of the asset in the UI.
        kinds: tags of the asset in the UI.
        code_version: increased whenever the code writes other bytes for the same inputs.
        inputs: names of the stages whose outputs it reads.
        section: the settings that its output depends on.
        build: writes into a folder, returns a summary.
        checks: of the written folder.
        columns: of its main table.
        reads_uploads: it reads the uploaded files too.
        matches_task: it reads which OSWorld task the demonstration is of.
        exported: `demo-pipeline export` copies its outputs.
    """

    name: str
    folder: str
    description: str
    group: str
    kinds: frozenset[str]
    code_version: str
    inputs: tuple[str, ...]
    section: Callable[[Settings], Section]
    build: Callable[[StageContext, Path], Summary]
    checks: tuple[Check[StageContext], ...]
    columns: pa.Schema | None = None
    reads_uploads: bool = False
    matches_task: bool = False
    exported: bool = False

    def output(self, demonstration: str) -> str:
        """Name of the stage's output in the store."""
        return f"{self.folder}/{demonstration}"


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


@dataclass(frozen=True)
class SourceInput:
    """Something that a dataset stage reads and that no stage wrote.

    Attributes:
        value: what the build function gets as `DatasetContext.source`.
        fingerprints: name → fingerprint, as the recipe records them.
    """

    value: Any
    fingerprints: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class TrainingExport:
    """What makes a dataset stage a training export.

    Attributes:
        name: in `datasets.exports`.
        files: glob pattern of the files that `records` reads, below the output.
        records: trajectory → number of its records, from the output's folder.
        hub_tables: its tables in the layout for the Hugging Face Hub; empty: it has none.
        all_written: `records` counts exactly what the exporter has written, so that the counts of
            the build can stand for it.
    """

    name: str
    files: str
    records: Callable[[Path], Mapping[str, int]]
    hub_tables: tuple[HubTable, ...] = ()
    all_written: bool = False


@dataclass(frozen=True, kw_only=True)
class DatasetStage:
    """One unpartitioned stage: everything that any part of the package knows about it.

    Attributes:
        name: of the asset.
        output: name of its output in the store; with `subfolder`, of the folder of its outputs.
        description: what it writes, for the UI.
        kinds: tags of the asset in the UI.
        code_version: increased whenever the code writes other bytes for the same inputs.
        build: writes into a folder, returns a summary.
        checks: of the written folder, in order; those after a failed blocking check do not run.
        group: of the asset in the UI.
        job: the Dagster job that builds it.
        inputs: names of the stages that it reads: `trajectories` and earlier dataset stages.
        source: reads what no stage wrote.
        section: the settings that its output depends on; None: none.
        limits: name in the recipe → further settings, which only checks depend on.
        subfolder: name of the output below `output`; None: the output is `output`.
        replaces: of the names of the stage's published outputs, those that a new one (its name is
            the second argument) replaces; they are unpublished once it is published.
        links_trajectories: the output holds `trajectories/<id>` links to the versions it was built
            from.
        columns: of its main table.
        exported: `demo-pipeline export` copies its output.
        validated_as: how `demo-pipeline validate` recognises and validates its output.
        views: over its Parquet files, for `demo-pipeline stats`.
        counts: keys of its summary in the closing table of `demo-pipeline run`; empty: not listed.
        export: set for a training export, which is built only when `datasets.exports` names it.
        follows_exports: it reads what is committed of every training export, after they were built;
            one that fails does not hold it up.
    """

    name: str
    output: str
    description: str
    kinds: frozenset[str]
    code_version: str
    build: Callable[[DatasetContext, Path], Summary]
    checks: tuple[Check[DatasetContext], ...]
    group: str = "datasets"
    job: str = DATASETS_JOB
    inputs: tuple[str, ...] = (TRAJECTORIES,)
    source: Callable[[Workspace], SourceInput] | None = None
    section: Callable[[Settings], Section] | None = None
    limits: Mapping[str, Callable[[Settings], Section]] = field(default_factory=dict)
    subfolder: Callable[[DatasetContext], str] | None = None
    replaces: Callable[[DatasetContext, str, Collection[str]], Sequence[str]] | None = None
    links_trajectories: bool = False
    columns: pa.Schema | None = None
    exported: bool = True
    validated_as: ValidatedFormat | None = None
    views: tuple[View, ...] = ()
    counts: tuple[str, ...] = ()
    export: TrainingExport | None = None
    follows_exports: bool = False

    @property
    def reads_trajectories(self) -> bool:
        """Whether it is built from the committed trajectories."""
        return TRAJECTORIES in self.inputs

    def is_built(self, settings: Settings) -> bool:
        """Whether the settings want it."""
        return self.export is None or self.export.name in settings.datasets.exports
