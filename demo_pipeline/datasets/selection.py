"""Selects the trajectories of a training export.

Belongs here: the rules that leave out a whole trajectory. The rules that leave out a single step
are in the exporters.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.datasets.heads import EPOCH, Head, read_heads
from demo_pipeline.datasets.hidden_actions import NOTHING_HIDDEN, HiddenActions
from demo_pipeline.datasets.trajectory_files import (
    DatasetTrajectory,
    load,
    load_hidden_actions,
    load_provenance,
    sorted_by_id,
)
from demo_pipeline.problems import DemonstrationError, Problem

__all__ = [
    "EPOCH",
    "Candidate",
    "DatasetTrajectory",
    "LeftOut",
    "Selection",
    "load",
    "load_hidden_actions",
    "load_provenance",
    "newest_recording",
    "select",
    "sorted_by_id",
]
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory that may take part in a training export, with what decides its split.

    Attributes:
        source: where it is.
        instruction: of task.json.
        application: of task.json.
        split_groups: of its provenance.
        hidden: its hidden actions.
        incomplete: steps before which too many actions are hidden for exports of steps; the number
            of steps stands for the end.
        gives_steps: some step, or the end, is not incomplete.
        stretch: the steps that an export of whole trajectories takes; None: too few without a gap.
    """

    source: DatasetTrajectory
    instruction: str
    application: str
    split_groups: tuple[str, ...]
    hidden: HiddenActions = NOTHING_HIDDEN
    incomplete: frozenset[int] = frozenset()
    gives_steps: bool = True
    stretch: range | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A trajectory that takes no part: why, and the group that its split would be decided by."""

    reason: str
    split_group: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The trajectories of a training export.

    Attributes:
        chosen: the trajectories that take part, in the order of their ids.
        excluded: how many were left out, by reason: failed, aborted, contaminated, incomplete,
            unreadable.
        problems: why unreadable trajectories could not be read.
        newest: see `newest_recording`.
        left_out: trajectory → why it takes no part; the unreadable ones are not in it.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Choose trajectories for training.

    Failed and aborted demonstrations and those of a benchmark task are left out unless the settings
    include them; each is counted under the first reason that holds. A trajectory that cannot be
    read is left out and reported; the others are not affected. Which of the chosen have too many
    hidden actions depends on the export; `export_loop.plan_export` leaves them out.
    """
    chosen: list[Candidate] = []
    problems: list[Problem] = []
    left_out: dict[str, LeftOut] = {}
    newest = EPOCH
    reasons = ("failed", "aborted", "contaminated", "incomplete", "unreadable")
    excluded: Counter[str] = Counter(dict.fromkeys(reasons, 0))
    for source, head in read_heads(sorted_by_id(trajectories)):
        if isinstance(head, DemonstrationError):
            problems.extend(head.problems)
            excluded["unreadable"] += 1
            _LOG.debug("%s takes no part: unreadable", source.id)
            continue
        newest = max(newest, head.recorded)
        if reason := _left_out(head, settings):
            excluded[reason] += 1
            left_out[source.id] = LeftOut(reason, head.split_groups[0])
            _LOG.debug("%s takes no part: %s", source.id, reason)
        else:
            chosen.append(_candidate(source, head, settings))
    return Selection(tuple(chosen), excluded, tuple(problems), newest, left_out)


def _candidate(source: DatasetTrajectory, head: Head, settings: DatasetSettings) -> Candidate:
    incomplete = head.hidden.incomplete_steps(head.steps, head.waits, settings.max_hidden_share)
    return Candidate(
        source=source,
        instruction=head.instruction,
        application=head.application,
        split_groups=head.split_groups,
        hidden=head.hidden,
        incomplete=incomplete,
        gives_steps=len(incomplete) <= head.steps,
        stretch=head.hidden.whole_stretch(head.steps, settings.min_steps),
    )


def _left_out(head: Head, settings: DatasetSettings) -> str:
    """Why a trajectory takes no part; empty when it does.

    A demonstration whose `status` is not `completed` is aborted, whatever its `reason` is.
    """
    aborted = head.status is not None and head.status != "completed"
    included = settings.include_aborted if aborted else settings.include_failed
    if not head.success and not included:
        return "aborted" if aborted else "failed"
    if head.osworld_task_id and not settings.include_contaminated:
        return "contaminated"
    return ""


def newest_recording(trajectories: Sequence[DatasetTrajectory]) -> datetime:
    """When the newest readable recording was made, in UTC; the epoch when none has a time."""
    heads = (head for _, head in read_heads(sorted_by_id(trajectories)))
    known = (head.recorded for head in heads if isinstance(head, Head))
    return max(known, default=EPOCH)
