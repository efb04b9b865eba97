"""Which trajectories train, validate, test or stay apart.

Belongs here: grouping demonstrations of one task and placing groups by a stable hash, so that no
demonstration and no task lies in two splits and a new demonstration never moves an old one
(formats notes, section 4).
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from demo_pipeline.formats.osworld.task import normalise_app
from demo_pipeline.settings import DatasetSettings

FEW_GROUPS = 20


class Split(StrEnum):
    """A part of a dataset; `held_out` is chosen by application, the others by hash."""

    TRAIN = "train"
    VAL = "val"
    TEST = "test"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Where everything goes.

    Attributes:
        splits: split of every trajectory.
        groups: split of every group.
        members: group of every trajectory.
        filled: groups that were moved to a split that would have been empty, in order. Only
            datasets of fewer than `FEW_GROUPS` groups have any; only they may move groups later.
        empty: wanted splits that stay empty because there are too few groups.
        absent: held-out applications that no trajectory has.
    """

    splits: Mapping[str, Split]
    groups: Mapping[str, Split]
    members: Mapping[str, str]
    filled: tuple[tuple[str, Split], ...]
    empty: tuple[Split, ...]
    absent: tuple[str, ...]


def connected_groups(links: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Trajectory → group: trajectories that share any link, directly or through others.

    Args:
        links: trajectory → its split groups (one, unless its provenance names several); a
            trajectory without any is a group of its own.

    Returns:
        Every trajectory's group, named after the smallest of the group's links.
    """
    parent: dict[str, str] = {}

    def root(link: str) -> str:
        parent.setdefault(link, link)
        while parent[link] != link:
            parent[link] = parent[parent[link]]
            link = parent[link]
        return link

    named = {key: sorted(set(values)) or [f"trajectory:{key}"] for key, values in links.items()}
    for names in named.values():
        for name in names:
            low, high = sorted((root(names[0]), root(name)))
            parent[high] = low
    return {key: root(names[0]) for key, names in named.items()}


def assign_splits(
    groups: Mapping[str, str],
    settings: DatasetSettings,
    applications: Mapping[str, str] | None = None,
) -> SplitPlan:
    """Place every group.

    A group with a trajectory of a held-out application is held out whole. Any other goes where its
    hash falls among the cumulative ratios of train, val and test. With fewer than `FEW_GROUPS` such
    groups, a wanted split (ratio above 0) that is empty takes the group whose hash is nearest to
    it, unless that would empty another split.

    Args:
        groups: trajectory → group.
        settings: seed, ratios and held-out applications, by any name that `normalise_app` knows.
        applications: trajectory → application, for the held-out ones.
    """
    held = {normalise_app(name): name for name in settings.held_out_applications}
    used = {key: normalise_app(name) for key, name in (applications or {}).items()}
    apart = {group for key, group in groups.items() if used.get(key) in held}
    intervals = _intervals(settings)
    position = {
        group: stable_position(settings.seed, group)
        for group in sorted(set(groups.values()) - apart)
    }
    placed = {group: _place(at, intervals) for group, at in position.items()}
    filled = _fill(placed, position, intervals) if len(placed) < FEW_GROUPS else ()
    present = set(placed.values())
    placed.update(dict.fromkeys(apart, Split.HELD_OUT))
    return SplitPlan(
        splits={key: placed[group] for key, group in sorted(groups.items())},
        groups=dict(sorted(placed.items())),
        members=dict(sorted(groups.items())),
        filled=filled,
        empty=tuple(split for split in intervals if split not in present),
        absent=tuple(sorted(held[name] for name in held.keys() - set(used.values()))),
    )


def stable_position(seed: int, group: str) -> float:
    """A group's place in [0, 1): the first 53 bits of SHA-256 over seed and group."""
    digest = hashlib.sha256(f"{seed}:{group}".encode(errors="surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53


def _intervals(settings: DatasetSettings) -> dict[Split, tuple[float, float]]:
    """The part of [0, 1) that belongs to each split with a ratio above 0."""
    ratios = {
        Split.TRAIN: settings.train_ratio,
        Split.VAL: settings.val_ratio,
        Split.TEST: settings.test_ratio,
    }
    bounds, total = {}, 0.0
    for split, ratio in ratios.items():
        if ratio > 0:
            bounds[split] = (total, total + ratio)
            total += ratio
    return bounds


def _place(at: float, intervals: Mapping[Split, tuple[float, float]]) -> Split:
    """The split whose part holds the place; the last one takes what rounding leaves over."""
    return next((split for split, (_, high) in intervals.items() if at < high), list(intervals)[-1])


def _fill(
    placed: dict[str, Split],
    position: Mapping[str, float],
    intervals: Mapping[Split, tuple[float, float]],
) -> tuple[tuple[str, Split], ...]:
    """Move one group into each empty split where another split can spare it; changes `placed`."""
    moves = []
    for split, (low, high) in intervals.items():
        if split in placed.values():
            continue
        spare = _can_spare(placed)
        if not spare:
            continue
        nearest = min(spare, key=lambda g: (max(low - position[g], position[g] - high), g))
        placed[nearest] = split
        moves.append((nearest, split))
    return tuple(moves)


def _can_spare(placed: Mapping[str, Split]) -> Collection[str]:
    """Groups whose split has another group left."""
    members = list(placed.values())
    return [group for group, split in placed.items() if members.count(split) > 1]
