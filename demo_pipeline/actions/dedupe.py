"""Events logged more than once because several hooks were alive: which are copies.

Belongs here: the copy factor of each kind of event, and the sweep that keeps one of each.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from demo_pipeline.actions.inputs import Input
from demo_pipeline.formats.demonstration.event_types import (
    BUTTON_EVENTS,
    KEY_EVENTS,
    EventType,
)
from demo_pipeline.recording.key_names import lookup

_SHARE_OF_COPIES = 0.8  # of an event kind's originals must come n times before n is its factor
_PRESSES = BUTTON_EVENTS | KEY_EVENTS
_MIN_ORIGINALS = 3
_LATE = 3  # once several hooks are known to be alive, their copies may come this much later


@dataclass(frozen=True)
class Deduplicated:
    """What is left, the lines that were copies, and the factor of each kind that had some."""

    kept: list[Input]
    dropped: tuple[int, ...]
    factors: dict[str, int]


@dataclass
class _Group:
    time: int
    size: int = 1


def deduplicate(inputs: list[Input], window_ms: int) -> Deduplicated:
    """Keep the first of each event that several hooks logged.

    The factor n is decided per kind of event, from how often an identical one follows within
    `window_ms`; a kind that cannot tell takes the others' factor. A press straight after
    a press of the same key, or a release after a release, is a copy at any factor: no hand and no
    auto-repeat is that fast.
    """
    factors = _factors(inputs, window_ms)
    groups: dict[Hashable, _Group] = {}
    last_kind: dict[str, str] = {}
    kept, dropped = [], []
    for item in inputs:
        factor = factors.get(item.kind, 1)
        reach = window_ms * (_LATE if factor > 1 else 1)
        group = groups.get(_identity(item))
        twice = item.kind in _PRESSES and last_kind.get(item.name) == item.kind
        if group and item.time - group.time <= reach and (group.size < factor or twice):
            group.size += 1
            dropped.append(item.index)
            continue
        groups[_identity(item)] = _Group(item.time)
        last_kind[item.name] = item.kind
        kept.append(item)
    gone = set(dropped)
    copied = sorted({item.kind for item in inputs if item.index in gone})
    reported = {kind: factors[kind] for kind in copied if factors.get(kind, 1) > 1}
    return Deduplicated(kept, tuple(dropped), reported)


def _identity(item: Input) -> Hashable:
    return (item.kind, item.name, item.x, item.y, item.delta)


def _factors(inputs: Iterable[Input], window_ms: int) -> dict[str, int]:
    sizes = _group_sizes(inputs, window_ms)
    factors = {kind: _factor(counter) for kind, counter in sizes.items()}
    common = min(filter(None, factors.values()), default=1)
    return {kind: factor or common for kind, factor in factors.items()}


def _group_sizes(inputs: Iterable[Input], window_ms: int) -> dict[str, Counter[int]]:
    """Event kind → how many groups of identical events have each size.

    Releases of modifiers say nothing: recorders log their second copy as a press.
    """
    open_groups: dict[Hashable, _Group] = {}
    all_groups: list[tuple[str, _Group]] = []
    for item in inputs:
        if item.kind == EventType.KEYUP and lookup(item.name).modifier:
            continue
        if item.kind == EventType.MOUSEWHEEL and not item.delta:
            continue
        group = open_groups.get(_identity(item))
        if group and item.time - group.time <= window_ms:
            group.size += 1
            continue
        group = open_groups[_identity(item)] = _Group(item.time)
        all_groups.append((item.kind, group))
    sizes: dict[str, Counter[int]] = {}
    for kind, group in all_groups:
        sizes.setdefault(kind, Counter())[group.size] += 1
    return sizes


def _factor(sizes: Counter[int]) -> int | None:
    """The copy factor that the groups' sizes agree on; None when they are too few or disagree."""
    total = sizes.total()
    if total < _MIN_ORIGINALS:
        return None
    for factor in sorted(sizes, reverse=True):
        share = sum(n for size, n in sizes.items() if size % factor == 0) / total
        if factor > 1 and share >= _SHARE_OF_COPIES:
            return factor
    return 1 if sizes[1] / total >= _SHARE_OF_COPIES else None
