"""What a stage is: its inputs, its build function, its checks, and how people see it.

Belongs here: types only. Each stage is declared once, in the package of its subject, and listed in
`runs/stages.py`. Stages of a demonstration and of a dataset differ in what their inputs are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from demo_pipeline.files.comparison import differing_build
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Section, Settings

Summary = Mapping[str, Any]
RECORDS = "records"  # the demonstration stage that datasets are built from
DATASETS_JOB, DEMONSTRATION_JOB = "build_datasets", "process_demonstration"


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


def built_again(
    build: Callable[[AnyInputs, Path], object],
    verify: Callable[[AnyInputs, Path], Sequence[Problem]] = lambda _, _out: (),
) -> Callable[[AnyInputs, Path], Sequence[Problem]]:
    """The function of a check: `verify`, and that the build once more writes the same files."""
    return lambda inputs, out: [
        *verify(inputs, out),
        *differing_build(out, lambda again: build(inputs, again)),
    ]


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


@dataclass(frozen=True, kw_only=True)
class TrainingExport:
    """What makes a dataset stage a training export.

    Attributes:
        name: in `datasets.exports`.
        files: glob pattern of the files that `records` reads, below the output.
        records: trajectory → number of its records, from the output's folder.
        kept: the file of a demonstration's records that it is put together from; empty: none.
        hub_tables: each `HubTable` in the layout for the Hugging Face Hub; empty: it has none.
    """

    name: str
    files: str
    records: Callable[[Path], Mapping[str, int]]
    kept: str = ""
    hub_tables: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stage(Generic[AnyInputs]):
    """One stage: everything that any part of the package knows about it.

    Attributes:
        name: of the asset.
        folder: of its outputs in the store: `<folder>/<demonstration>`; of a dataset its output, or
            with `subfolder` the folder of its outputs.
        description: what it writes, for the UI.
        kinds: tags of the asset in the UI.
        code_version: increased whenever the code writes other bytes for the same inputs.
        build: writes into a folder, returns a summary.
        checks: of the written folder, in order; those of a dataset end with a failed blocking one.
        group: of the asset in the UI.
        inputs: names of the stages whose outputs it reads.
        section: the settings that its output depends on; None: none.
        columns: of its main table.
        exported: `demo-pipeline export` copies its outputs.
        job: the Dagster job that builds it.
        reads_uploads: it reads the uploaded files too.
        matches_task: it reads which OSWorld task the demonstration is of, as `Inputs.source`.
        source: reads what no stage wrote, from a `Workspace`; of a demonstration also from its id
            and the versions of the inputs by stage.
        limits: name in the recipe → further settings, which only checks depend on.
        subfolder: name of the output below `folder`; None: the output is `folder`.
        replaces: of the names of the stage's published outputs, those that a new one (its name is
            the second argument) replaces; they are unpublished once it is published.
        linked_input: input whose exact version the output links as a folder of its name, if any.
        parts: file of the output → what it is built from besides the inputs. A file whose entry and
            inputs did not change is copied from the version before; the build leaves it as it is.
        links_trajectories: the output holds `trajectories/<id>` links to the versions it was built
            from.
        validated_as: how `demo-pipeline validate` recognises and validates its output.
        views: each `View` over its Parquet files, for `demo-pipeline stats`.
        counts: keys of its summary in the closing table of `demo-pipeline run`; empty: not listed.
        export: set for a training export, which is built only when `datasets.exports` names it.
        follows_exports: it reads what is committed of every training export, after they were built;
            one that fails does not hold it up.
    """

    name: str
    folder: str
    description: str
    kinds: frozenset[str]
    code_version: str
    build: Callable[[AnyInputs, Path], Summary]
    checks: tuple[Check[AnyInputs], ...]
    group: str = "datasets"
    inputs: tuple[str, ...] = (RECORDS,)
    section: Callable[[Settings], Section] | None = None
    columns: pa.Schema | None = None
    exported: bool = True
    job: str = DATASETS_JOB
    reads_uploads: bool = False
    matches_task: bool = False
    source: Callable[..., SourceInput] | None = None
    limits: Mapping[str, Callable[[Settings], Section]] = field(default_factory=dict)
    subfolder: Callable[[AnyInputs], str] | None = None
    replaces: Callable[[AnyInputs, str, Collection[str]], Sequence[str]] | None = None
    linked_input: str = ""
    parts: Callable[[Settings], Mapping[str, str]] = lambda _: {}
    links_trajectories: bool = False
    validated_as: ValidatedFormat | None = None
    views: tuple[Any, ...] = ()
    counts: tuple[str, ...] = ()
    export: TrainingExport | None = None
    follows_exports: bool = False

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

    def is_built(self, settings: Settings) -> bool:
        """Whether the settings want it."""
        return self.export is None or self.export.name in settings.datasets.exports
