"""The loop of all training exports: select, split, load, guard, write and count.

Belongs here: what all exports have in common. How a trajectory becomes records, and where these are
written, is up to the exporter.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.export_run import ExportRun
from demo_pipeline.datasets.export_types import (
    SPLIT_LEAK,
    Excluded,
    Exporter,
    ExportPlan,
    ExportRecord,
    ExportSummary,
    PartedExporter,
    RecordT,
)
from demo_pipeline.datasets.selection import DatasetTrajectory, Selection, select
from demo_pipeline.datasets.splits import SplitPlan, assign_splits, connected_groups

__all__ = [
    "SPLIT_LEAK",
    "Excluded",
    "ExportPlan",
    "ExportRecord",
    "ExportSummary",
    "Exporter",
    "PartedExporter",
    "export_records",
    "plan_export",
    "plan_splits",
]
_LOG = logging.getLogger(__package__)


def plan_splits(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[Selection, SplitPlan]:
    """The selected trajectories and their splits, which are the same for every export.

    Those with too many hidden actions for some kind of export are among them.
    """
    selection = select(trajectories, settings)
    candidates = {candidate.source.id: candidate for candidate in selection.chosen}
    groups = connected_groups({key: candidates[key].split_groups for key in candidates})
    applications = {key: candidates[key].application for key in candidates}
    sparse = {key for key, candidate in candidates.items() if not candidate.gives_steps}
    return selection, assign_splits(groups, settings, applications, besides=sparse)


def plan_export(
    trajectories: Sequence[DatasetTrajectory],
    settings: DatasetSettings,
    *,
    whole_trajectories: bool = False,
) -> ExportPlan:
    """Select trajectories and split them; the splits of all exports agree.

    Trajectories with hidden actions are left out as `incomplete`: of exports of steps when every
    step has more than `max_hidden_share` before it, of exports of whole trajectories when no
    `min_steps` steps in a row are without a gap.

    Args:
        trajectories: committed and valid ones, in any order.
        settings: what takes part, and the splits.
        whole_trajectories: the export is of whole trajectories, not of steps.
    """
    selection, splits = plan_splits(trajectories, settings)
    chosen = tuple(
        candidate
        for candidate in selection.chosen
        if (candidate.stretch is not None if whole_trajectories else candidate.gives_steps)
    )
    for candidate in chosen:
        split = splits.splits[candidate.source.id]
        _LOG.debug("%s: split %s", candidate.source.id, split.value)
    incomplete = Counter(incomplete=len(selection.chosen) - len(chosen))
    excluded = Counter({**selection.excluded, **incomplete})
    return ExportPlan(
        replace(selection, chosen=chosen, excluded=excluded),
        splits.only({candidate.source.id for candidate in chosen}),
        whole_trajectories,
        settings.include_stale_trees,
    )


def export_records(plan: ExportPlan, exporter: Exporter[RecordT]) -> ExportSummary:
    """Write the records of all planned trajectories, by trajectory id and step.

    When the plan is of whole trajectories, the exporter gets the longest stretch of steps without a
    hidden action between them, as `candidate.stretch` says.

    One trajectory is in memory at a time. One that cannot be read is counted and costs the others
    nothing.
    """
    return ExportRun(plan, exporter).run()
