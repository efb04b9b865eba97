"""What the stages of the datasets read.

Belongs here: the committed trajectories, and the types that dataset stages get. Opening them is in
`runs/`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from demo_pipeline.datasets.index import ExportState
from demo_pipeline.datasets.selection import counted_provenance
from demo_pipeline.datasets.sql_views import View
from demo_pipeline.stage import Inputs
from demo_pipeline.store.split_memory import SplitMemory
from demo_pipeline.store.versions import Version, VersionName
from demo_pipeline.trajectories.provenance import Provenance
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory


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
        views: over every output of the store, for a stage that needs them.
        published: the stage's published outputs by name, for a stage with several.
        code_version: of the stage.
        exports: the state of every training export, for a stage that follows them.
    """

    committed: CommittedTrajectories = field(default_factory=CommittedTrajectories)
    views: tuple[View, ...] = ()
    published: Mapping[str, Version] = field(default_factory=dict)
    code_version: str = ""
    exports: tuple[ExportState, ...] = ()
