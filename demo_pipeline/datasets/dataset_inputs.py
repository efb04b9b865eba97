"""What the stages of the datasets read.

Belongs here: the committed trajectories, and the types that dataset stages get. Opening them is in
`runs/`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from demo_pipeline.datasets.index import ExportState
from demo_pipeline.datasets.selection import counted_provenance
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.sql_views import View
from demo_pipeline.files.atomic_write import FileDigest, read_digest
from demo_pipeline.files.comparison import files_below
from demo_pipeline.problems import Problem
from demo_pipeline.stage import Inputs
from demo_pipeline.store.split_memory import SplitMemory
from demo_pipeline.store.versions import Version, VersionName
from demo_pipeline.trajectories.provenance import Provenance
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory


@dataclass(slots=True)
class WrittenDataset:
    """The files of a training export, and what else its check asks.

    Attributes:
        files: path below the output → its digest, or the file that it is a link to; an empty text
            until all files are written.
        folders: below the output, whose files are all among these, and the output itself.
        ids: of the records, each with how often it was written.
        splits: of the trajectories that took part.
        rows: trajectory, step, application, kind of action and split of each, for the card.
        problems: of records that no stage of a demonstration has checked.
        longest: tokens of the longest chat, estimated; 0: there is none.
    """

    files: dict[str, FileDigest | str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {""})
    ids: Counter[str] = field(default_factory=Counter)
    splits: Mapping[str, Split] = field(default_factory=dict)
    rows: list[tuple[str, int, str, str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    longest: int = 0

    def note_files(self, out: Path, inputs: Iterable[Path]) -> None:
        """Note every file that is not known yet; called when all are written.

        `inputs`: the folders that its links may lead to.
        """
        others = (name for name, _ in files_below(out, self.folders))
        unread = [name for name in {*others, *self.files} if not self.files.get(name)]
        statuses = [(out / name).stat() for name in unread]
        digests: dict[int, FileDigest | str] = {}
        if any(status.st_nlink > 1 for status in statuses):
            for folder in inputs:
                if folder.stat().st_dev == out.stat().st_dev:
                    digests |= {inode: f"{folder}/{name}" for name, inode in files_below(folder)}
        for name, status in zip(unread, statuses, strict=True):
            if status.st_ino not in digests:
                digests[status.st_ino] = read_digest(out / name)
            self.files[name] = digests[status.st_ino]


@dataclass(frozen=True)
class CommittedTrajectories:
    """The committed trajectories that a dataset is built from.

    Attributes:
        trajectories: sorted by id.
        versions: id → the version of the trajectory.
        records: id → the version of its records.
        left_out: reason → number of demonstrations without a usable trajectory.
        damaged: the outputs that `left_out` counts as broken.
        told: sentences on ids of one upload, and on demonstrations that changed their split.
        privacy: sentences on what was looked for and found; empty: nothing was, and none redacted.
        memory: what is to be remembered of their splits.
    """

    trajectories: tuple[DatasetTrajectory, ...] = ()
    versions: Mapping[str, VersionName] = field(default_factory=dict)
    records: Mapping[str, VersionName] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    privacy: str = ""
    memory: SplitMemory = field(default_factory=SplitMemory)

    @cached_property  # for the card and for the check
    def provenance(self) -> Provenance:
        """What their statistics are counted from: kept rows, else the files that exist."""
        kept = counted_provenance(self.trajectories)
        if kept is not None:
            return kept
        files = [trajectory.provenance for trajectory in self.trajectories]
        return [file for file in files if file.is_file()]


@dataclass(frozen=True, kw_only=True)
class DatasetInputs(Inputs):
    """What the code of a dataset stage receives.

    Attributes:
        committed: the trajectories, for a stage with the input `records`.
        views: over every output of the store, for the stage that writes them down.
        published: the stage's published outputs by name, for a stage with several.
        code_version: of the stage.
        exports: the state of every training export, for a stage that follows them.
        written: what a training export has written, which it notes for its check.
    """

    committed: CommittedTrajectories = field(default_factory=CommittedTrajectories)
    views: tuple[View, ...] = ()
    published: Mapping[str, Version] = field(default_factory=dict)
    code_version: str = ""
    exports: tuple[ExportState, ...] = ()
    written: WrittenDataset = field(default_factory=WrittenDataset)
