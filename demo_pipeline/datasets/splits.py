"""Assigns trajectories to splits, and plans which trajectories an export is made of.

Demonstrations of the same task form a group, and a stable hash assigns every group to a split. So
no task is in two splits, and a new demonstration moves an old one only if it joins two tasks.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from demo_pipeline.datasets.selection import Candidate, Selection, select
from demo_pipeline.osworld.task import normalise_app
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_LOG = logging.getLogger(__package__)


class Split(StrEnum):
    """A part of a dataset; `held_out` is assigned by application, the others by hash."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The split of every trajectory and of every group.

    Attributes:
        splits: split of every trajectory.
        groups: split of every group.
        members: group of every trajectory.
        filled: new groups that were moved to a split that would have been empty, in order.
        empty: splits with a ratio above 0 that stay empty because there are too few groups.
        absent: held-out applications that no trajectory has.
    """

    splits: Mapping[str, Split]
    groups: Mapping[str, Split]
    members: Mapping[str, str]
    filled: tuple[tuple[str, Split], ...]
    empty: tuple[Split, ...]
    absent: tuple[str, ...]

    def only(self, trajectories: AbstractSet[str]) -> "SplitPlan":
        """The plan for some of the trajectories."""
        members = {key: group for key, group in self.members.items() if key in trajectories}
        present = set(members.values())
        return replace(
            self,
            splits={key: self.splits[key] for key in members},
            groups={group: split for group, split in self.groups.items() if group in present},
            members=members,
        )


def connected_groups(
    split_groups: Mapping[str, Sequence[str]], names: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Join trajectories that share a split group, directly or through others.

    Args:
        split_groups: trajectory → its split groups, oldest trajectory first; a trajectory without
            any is a group of its own.
        names: trajectory → the group that it was in at the last build, if it took part in it.

    Returns:
        Trajectory → group. The oldest trajectory of a group names it: by its group at the last
        build, else by its first split group. So the name stays when younger ones join.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    groups_of = {key: [*groups] or [f"trajectory:{key}"] for key, groups in split_groups.items()}
    for groups in groups_of.values():
        for group in groups:
            parent[root(group)] = root(groups[0])
    names_before = names or {}
    name_of_root: dict[str, str] = {}
    for trajectory, groups in groups_of.items():
        name = names_before.get(trajectory, groups[0])
        name_of_root.setdefault(root(groups[0]), name)
    return {trajectory: name_of_root[root(groups[0])] for trajectory, groups in groups_of.items()}


def assign_splits(
    groups: Mapping[str, str],
    settings: DatasetSettings,
    applications: Mapping[str, str] | None = None,
    besides: AbstractSet[str] = frozenset(),
    placed: Mapping[str, Split] | None = None,
) -> SplitPlan:
    """Assign every group to a split.

    A group with a trajectory of a held-out application is held out as a whole. The hash of any
    other group is compared with the cumulative ratios of train, val and test. An empty split with a
    ratio above 0 takes the new group whose hash is nearest to it, unless that would empty another
    split. A group that was placed by an earlier build stays in its split.

    Args:
        groups: trajectory → group.
        settings: seed, ratios and held-out applications (any name that `normalise_app` knows).
        applications: trajectory → application; needed for held-out applications.
        besides: trajectories that get a split but affect no other trajectory: a group of nothing
            else fills no split, and a split that holds nothing else is empty.
        placed: group → its split at an earlier build.
    """
    placed = placed or {}
    held_names = {normalise_app(name): name for name in settings.held_out_applications}
    used = {key: normalise_app(name) for key, name in (applications or {}).items()}
    held_out = {group for key, group in groups.items() if used.get(key) in held_names}
    intervals = split_intervals(settings)
    position = {
        group: stable_position(settings.seed, group)
        for group in sorted(set(groups.values()) - held_out)
    }
    hashed: dict[str, Split] = {}
    for group, value in position.items():
        hashed[group] = placed.get(group) or split_at(value, intervals)
    counted_groups = {group for key, group in groups.items() if key not in besides}
    assigned: dict[str, Split] = {}
    new_positions: dict[str, float] = {}
    for group, split in hashed.items():
        if group in counted_groups:
            assigned[group] = split
        if group not in placed:
            new_positions[group] = position[group]
    filled = _fill(assigned, new_positions, intervals)
    present = set(assigned.values())
    assigned = hashed | assigned | dict.fromkeys(held_out, Split.HELD_OUT)
    return SplitPlan(
        splits={key: assigned[group] for key, group in sorted(groups.items())},
        groups=dict(sorted(assigned.items())),
        members=dict(sorted(groups.items())),
        filled=filled,
        empty=tuple(split for split in intervals if split not in present),
        absent=tuple(sorted(held_names[name] for name in held_names.keys() - set(used.values()))),
    )


def stable_position(seed: int, group: str) -> float:
    """A group's position in [0, 1): the first 53 bits of SHA-256 over seed and group."""
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def split_intervals(settings: DatasetSettings) -> dict[Split, tuple[float, float]]:
    """The interval of [0, 1) that belongs to each split with a ratio above 0."""
    ratios = {
        Split.TRAIN: settings.train_ratio,
        Split.VAL: settings.val_ratio,
        Split.TEST: settings.test_ratio,
    }
    bounds = {}
    total = 0.0
    for split, ratio in ratios.items():
        if ratio > 0:
            bounds[split] = (total, total + ratio)
            total += ratio
    return bounds


def split_at(position: float, intervals: Mapping[Split, tuple[float, float]]) -> Split:
    """The split whose interval holds the position; the last split also takes rounding errors."""
    for split, (_, high) in intervals.items():
        if position < high:
            return split
    return list(intervals)[-1]


def _fill(
    assigned: dict[str, Split],
    position: Mapping[str, float],
    intervals: Mapping[Split, tuple[float, float]],
) -> tuple[tuple[str, Split], ...]:
    """Move a group into each empty split, if its own split has another; changes `assigned`.

    `position`: of the groups that may be moved.
    """
    moves = []
    for split, (low, high) in intervals.items():
        if split in assigned.values():
            continue
        groups_of_split = Counter(assigned.values())
        distances: list[tuple[float, str]] = []
        for group, current in assigned.items():
            if groups_of_split[current] > 1 and group in position:
                distance = max(low - position[group], position[group] - high)
                distances.append((distance, group))
        if distances:
            _, nearest = min(distances)
            assigned[nearest] = split
            moves.append((nearest, split))
    return tuple(moves)


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """What an export is made of: the trajectories that take part, and the split of each."""

    selection: Selection
    splits: SplitPlan


def plan_splits(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[Selection, SplitPlan]:
    """The selected trajectories and their splits, which are the same for every export.

    Trajectories with too many hidden actions for some kind of export are among them.
    """
    selection = select(trajectories, settings)
    candidates = sorted(selection.chosen, key=_age)
    placed_sources = [candidate.source for candidate in candidates if candidate.source.group]
    names = {source.id: source.group for source in placed_sources}
    split_groups = {candidate.source.id: candidate.split_groups for candidate in candidates}
    groups = connected_groups(split_groups, names)
    placed: dict[str, Split] = {}
    for source in placed_sources:  # of a group that was joined from two, the oldest decides
        if source.split:
            placed.setdefault(source.group, Split(source.split))
    applications = {candidate.source.id: candidate.application for candidate in candidates}
    sparse = {candidate.source.id for candidate in candidates if not candidate.gives_steps}
    return selection, assign_splits(groups, settings, applications, besides=sparse, placed=placed)


def _age(candidate: Candidate) -> tuple[bool, datetime, str]:
    """Sorts by age: trajectories that an earlier build placed are older than new ones."""
    return not candidate.source.group, candidate.recorded, candidate.source.id


def plan_export(
    trajectories: Sequence[DatasetTrajectory],
    settings: DatasetSettings,
    *,
    whole_trajectories: bool = False,
) -> ExportPlan:
    """Select trajectories and split them; the splits of all exports agree.

    Trajectories with hidden actions are left out as `incomplete`: of exports of steps if every step
    has more than `max_hidden_share` before it, of exports of whole trajectories if no `min_steps`
    steps in a row are without a gap.

    Args:
        trajectories: committed and valid ones, in any order.
        settings: what takes part, and the splits.
        whole_trajectories: the export is of whole trajectories, not of steps.
    """
    selection, splits = plan_splits(trajectories, settings)
    if whole_trajectories:
        chosen = tuple(candidate for candidate in selection.chosen if candidate.stretch is not None)
    else:
        chosen = tuple(candidate for candidate in selection.chosen if candidate.gives_steps)
    for candidate in chosen:
        split = splits.splits[candidate.source.id]
        _LOG.debug("%s: split %s", candidate.source.id, split.value)
    incomplete = Counter(incomplete=len(selection.chosen) - len(chosen))
    excluded = Counter({**selection.excluded, **incomplete})
    return ExportPlan(
        replace(selection, chosen=chosen, excluded=excluded),
        splits.only({candidate.source.id for candidate in chosen}),
    )
