"""Assigns trajectories to splits, and decides which trajectories an export contains.

Demonstrations of the same task form a group, and a hash of the group's name selects the split of
the group. Therefore, no task is in two splits. In later builds, a demonstration usually keeps its
split. The split may change, for example, if a new demonstration joins two groups.
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
    """A split of a dataset. `held_out` is assigned by application, the other splits by hash."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The split of each trajectory and of each group.

    Attributes:
        splits: maps trajectory ids to splits.
        groups: maps group names to splits.
        members: maps trajectory ids to group names.
        filled: new groups that were moved into an otherwise empty split, as pairs (group, split) in
            the order of the splits.
        empty: splits with a ratio above 0 that have no group, because there are too few groups.
        absent: applications in the setting `held_out_applications` that no trajectory uses.
    """

    splits: Mapping[str, Split]
    groups: Mapping[str, Split]
    members: Mapping[str, str]
    filled: tuple[tuple[str, Split], ...]
    empty: tuple[Split, ...]
    absent: tuple[str, ...]

    def only(self, trajectories: AbstractSet[str]) -> "SplitPlan":
        """Returns the plan for a subset of the trajectories."""
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
    """Joins trajectories that share a split group, directly or through other trajectories.

    Args:
        split_groups: maps trajectory ids to split groups. The oldest trajectory comes first.
            A trajectory without a split group becomes a group of its own.
        names: maps the ids of trajectories in the last build to the names of their groups.

    Returns:
        A dictionary from trajectory ids to group names. If the oldest trajectory of a group was in
        the last build, the group keeps the name that this trajectory's group had there. Otherwise,
        the name is the first split group of the oldest trajectory.
    """
    parent: dict[str, str] = {}  # a forest (union-find) whose trees are the joined groups

    def root(name: str) -> str:
        """Returns the root of the tree that contains the split group `name`."""
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
    """Assigns each group to a split.

    1. A group with a trajectory of a held-out application is held out as a whole.
    2. A group that an earlier build assigned to a split stays in this split.
    3. The hash of any other group is compared with the cumulative ratios of train, val and test.
    4. If a split with a ratio above 0 is empty, the new group whose hash is nearest to the interval
       of the split is moved there, unless this would leave another split empty.

    Args:
        groups: maps trajectory ids to group names.
        settings: seed, ratios and held-out applications. Applications may have any name that
            `normalise_app` accepts.
        applications: maps trajectory ids to applications. Needed only for held-out applications.
        besides: ids of trajectories that get a split but do not influence other trajectories. A
            split that contains only such trajectories counts as empty.
        placed: the split that an earlier build assigned to each group.
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
    """Returns the hash of a group as a number in [0, 1), which decides the split.

    The number is the first 53 bits of the SHA-256 of seed and group.
    """
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def split_intervals(settings: DatasetSettings) -> dict[Split, tuple[float, float]]:
    """Returns the interval in [0, 1), as (low, high), of each split with a ratio above 0."""
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
    """Returns the split whose interval contains the position.

    The last split also contains positions above its interval, because ratios are rounded.
    """
    for split, (_, high) in intervals.items():
        if position < high:
            return split
    return list(intervals)[-1]


def _fill(
    assigned: dict[str, Split],
    position: Mapping[str, float],
    intervals: Mapping[Split, tuple[float, float]],
) -> tuple[tuple[str, Split], ...]:
    """Moves a group into each empty split, without leaving another split empty.

    Changes `assigned`, and returns the moved groups with their new splits. `position` contains only
    groups that may be moved.
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
    """The trajectories of an export, and their splits."""

    selection: Selection
    splits: SplitPlan


def plan_splits(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> tuple[Selection, SplitPlan]:
    """Selects trajectories and assigns their splits, which are the same for every export.

    `plan_export` then removes trajectories with too many actions that no screenshot shows.
    """
    selection = select(trajectories, settings)
    split_groups: dict[str, Sequence[str]] = {}
    applications: dict[str, str] = {}
    names: dict[str, str] = {}
    placed: dict[str, Split] = {}
    sparse: set[str] = set()
    for candidate in sorted(selection.chosen, key=_age):
        source = candidate.source
        split_groups[source.id] = candidate.split_groups
        applications[source.id] = candidate.application
        if source.group:
            names[source.id] = source.group
        # If groups were joined, the oldest trajectory decides the split.
        if source.group and source.split:
            placed.setdefault(source.group, Split(source.split))
        if not candidate.gives_steps:
            sparse.add(source.id)
    groups = connected_groups(split_groups, names)
    return selection, assign_splits(groups, settings, applications, besides=sparse, placed=placed)


def _age(candidate: Candidate) -> tuple[bool, datetime, str]:
    """Returns a key that sorts by age. Trajectories of the last build come before all others."""
    return not candidate.source.group, candidate.recorded, candidate.source.id


def plan_export(
    trajectories: Sequence[DatasetTrajectory],
    settings: DatasetSettings,
    *,
    whole_trajectories: bool = False,
) -> ExportPlan:
    """Returns the trajectories of an export and their splits, which are the same in all exports.

    Trajectories with too many hidden actions, which no screenshot shows, are left out as
    `incomplete`. An export of steps leaves out a trajectory if the share of hidden actions exceeds
    `max_hidden_share` before every step and before the end. An export of whole trajectories
    requires `min_steps` consecutive steps without a hidden action in between.

    Args:
        trajectories: committed and valid trajectories, in any order.
        whole_trajectories: whether the export has whole trajectories instead of steps.
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
