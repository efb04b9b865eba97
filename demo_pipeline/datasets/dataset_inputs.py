"""Defines the inputs of dataset stages. `runs/` reads the inputs from the store."""

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
    """The trajectories in the store from which datasets are built.

    Attributes:
        trajectories: the trajectories, sorted by id.
        versions: maps trajectory ids to versions of the trajectories.
        records: maps trajectory ids to versions of the output of the stage `records`.
        left_out: number of demonstrations without a usable trajectory, by reason.
        damaged: names of the damaged outputs, which `left_out` counts under `broken`.
        notices: sentences for the user about duplicate uploads, and about demonstrations that moved
            to another split.
        privacy: sentences about the search for private text, and about redactions. Empty if no
            search was made and nothing was redacted.
        memory: the splits to store for the next build, so that trajectories keep their splits.
    """

    trajectories: tuple[DatasetTrajectory, ...] = ()
    versions: Mapping[str, VersionName] = field(default_factory=dict)
    records: Mapping[str, VersionName] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    privacy: str = ""
    memory: SplitMemory = field(default_factory=SplitMemory)

    @cached_property  # because both the card and the check of a dataset use it
    def provenance(self) -> Provenance:
        """The provenance rows for the statistics of a dataset.

        The rows come from the outputs of the stage `records` or, if any is missing, from
        provenance.parquet.
        """
        kept = counted_provenance(self.trajectories)
        if kept is not None:
            return kept
        files = [trajectory.provenance for trajectory in self.trajectories]
        return [file for file in files if file.is_file()]


@dataclass(frozen=True, kw_only=True)
class DatasetInputs(Inputs):
    """The inputs of a dataset stage.

    Attributes:
        committed: the trajectories. Empty for a stage that does not depend on the stage `records`.
        views: SQL views over all outputs of the store. Empty for a stage that needs no views.
        published: maps the names of the stage's outputs to their current versions. Empty for a
            stage that can have only one output.
        code_version: code version of the stage.
        exports: the state of every training export, for a stage that is built after all exports.
    """

    committed: CommittedTrajectories = field(default_factory=CommittedTrajectories)
    views: tuple[View, ...] = ()
    published: Mapping[str, Version] = field(default_factory=dict)
    code_version: str = ""
    exports: tuple[ExportState, ...] = ()
