"""De-duplication: drops repeated events that several input hooks logged for one input.

Belongs here: how often each kind of event was logged, and the pass that keeps one event of each.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from demo_pipeline.actions.inputs import Input
from demo_pipeline.formats.demonstration.event_types import BUTTON_EVENTS, KEY_EVENTS, EventType
from demo_pipeline.recording.key_names import lookup

MIN_FACTOR_SHARE = 0.8  # of a kind's groups must have a multiple of n events for factor n
MIN_GROUPS = 3  # of a kind; with fewer, its factor is taken from the other kinds
LATE_WINDOWS = 3  # with a factor above 1, a duplicate may come this many windows later
_PRESSES_AND_RELEASES = BUTTON_EVENTS | KEY_EVENTS


@dataclass(frozen=True)
class Deduplicated:
    """Result of the de-duplication.

    Attributes:
        kept: the remaining inputs, in time order.
        dropped: line numbers of the duplicates.
        factors: kind of event → how often each event was logged, where more than once.
    """

    kept: list[Input]
    dropped: tuple[int, ...]
    factors: dict[str, int]


@dataclass
class _Group:
    """Identical events close to the first of them."""

    time: int
    size: int = 1


def deduplicate(inputs: list[Input], window_ms: int) -> Deduplicated:
    """Keep the first of each event that several hooks logged.

    The factor n is decided per kind of event, from how often an identical event follows within
    `window_ms`; a kind whose events do not decide it takes the factor of the others. A press of a
    button directly after a press, or a release after a release, is a duplicate with any factor: no
    person is that fast. A press of a key directly after a press is one only if the hooks doubled
    releases as well, in the recording or at the end of this press. Otherwise it is auto-repeat that
    a stalled recorder stamped late.
    """
    factors = _factors(inputs, window_ms)
    doubled = _doubled_holds(inputs, window_ms)
    groups: dict[Hashable, _Group] = {}
    last_kind: dict[str, str] = {}
    kept, dropped = [], []
    for item in inputs:
        factor = factors.get(item.kind, 1)
        reach = window_ms * (LATE_WINDOWS if factor > 1 else 1)
        group = groups.get(_identity(item))
        repeated = (
            item.kind in _PRESSES_AND_RELEASES
            and last_kind.get(item.name) == item.kind
            and (item.kind != EventType.KEYDOWN or factor > 1 or item.index in doubled)
        )
        if group and item.time - group.time <= reach and (group.size < factor or repeated):
            group.size += 1
            dropped.append(item.index)
            continue
        groups[_identity(item)] = _Group(item.time)
        last_kind[item.name] = item.kind
        kept.append(item)
    dropped_set = set(dropped)
    kinds = sorted({item.kind for item in inputs if item.index in dropped_set})
    reported = {kind: factors[kind] for kind in kinds if factors.get(kind, 1) > 1}
    return Deduplicated(kept, tuple(dropped), reported)


def _identity(item: Input) -> Hashable:
    return (item.kind, item.name, item.x, item.y, item.delta)


def _factors(inputs: Iterable[Input], window_ms: int) -> dict[str, int]:
    sizes = _group_sizes(inputs, window_ms)
    factors = {kind: _factor(counter) for kind, counter in sizes.items()}
    if (factors.get(EventType.KEYDOWN) or 1) > 1 and not _others_are_doubled(sizes, factors):
        factors[EventType.KEYDOWN] = 1
    smallest = min(filter(None, factors.values()), default=1)
    return {kind: factor or smallest for kind, factor in factors.items()}


def _others_are_doubled(
    sizes: Mapping[str, Counter[int]], factors: Mapping[str, int | None]
) -> bool:
    """Whether releases of keys were doubled; without enough of them, whether other kinds were.

    Presses of keys alone prove nothing: a stalled recorder stamps auto-repeat with one time.
    """
    releases = factors.get(EventType.KEYUP)
    if releases is not None:
        return releases > 1
    groups = [
        size for kind, n in sizes.items() if kind != EventType.KEYDOWN for size in n.elements()
    ]
    return not groups or sum(size > 1 for size in groups) * 2 > len(groups)


def _doubled_holds(inputs: Sequence[Input], window_ms: int) -> set[int]:
    """Line numbers of the presses of keys whose own release was logged more than once."""
    doubled: set[int] = set()
    presses: dict[str, list[int]] = {}
    released: dict[str, Input] = {}
    for item in inputs:
        if item.kind == EventType.KEYDOWN:
            if item.name in released:
                del released[item.name]
                presses[item.name] = []
            presses.setdefault(item.name, []).append(item.index)
        elif item.kind == EventType.KEYUP:
            before = released.setdefault(item.name, item)
            if before is not item and item.time - before.time <= window_ms:
                doubled.update(presses.get(item.name, ()))
    return doubled


def _group_sizes(inputs: Iterable[Input], window_ms: int) -> dict[str, Counter[int]]:
    """Event kind → size of a group of identical events → number of such groups.

    Releases of modifiers are left out: recorders log the duplicate of such a release as a press.
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
    """The factor on which the sizes of the groups agree; None: too few groups, or no agreement."""
    total = sizes.total()
    if total < MIN_GROUPS:
        return None
    for factor in sorted(sizes, reverse=True):
        share = sum(n for size, n in sizes.items() if size % factor == 0) / total
        if factor > 1 and share >= MIN_FACTOR_SHARE:
            return factor
    return 1 if sizes[1] / total >= MIN_FACTOR_SHARE else None
