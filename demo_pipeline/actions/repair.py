"""Repairs of known recorder faults: passes over input events, and dropping what was logged twice.

Belongs here: the order of the passes, phantom modifiers, two Shift keys with one name, missing
positions, and events that several input hooks logged for one input. Each pass takes inputs in time
order, returns the remaining inputs and records what it did. Missing releases are handled in
keyboard.py and grouping.py, where the effect of the press is known.

Some recorders log every position cut to the main display. While the pointer is on another display,
its logged positions run along the border, as they do when it is thrown against the border of a
single screen. Presses, releases and wheel events after such a run are found here. Whether they were
on another display is decided where the video is looked at.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from msgspec.structs import replace

from demo_pipeline.actions.inputs import Input, distance, late_lines
from demo_pipeline.recording.input_log import BUTTON_EVENTS, KEY_EVENTS, POINTER_EVENTS, EventType
from demo_pipeline.recording.key_names import begins_pair, join_halves, lookup
from demo_pipeline.settings import ActionSettings

MIN_FACTOR_SHARE = 0.8  # of a kind's groups must have a multiple of n events for factor n
MIN_GROUPS = 3  # of a kind; with fewer, its factor is taken from the other kinds
LATE_WINDOWS = 3  # with a factor above 1, a duplicate may come this many windows later
_PRESSES_AND_RELEASES = BUTTON_EVENTS | KEY_EVENTS


@dataclass
class Repairs:
    """What the passes did.

    Attributes:
        dropped: line number → reason, for every input that was dropped.
        duplicate_factors: event kind → how often each event was logged, where more than once.
        filled_positions: presses and releases whose position was taken from the moves around them.
        late_lines: inputs that the log contains after an input with a later time.
        second_shifts: presses of a second Shift key that was logged with the name of the first.
        second_presses: releases of modifiers that were logged as presses.
    """

    dropped: dict[int, str] = field(default_factory=dict)
    duplicate_factors: dict[str, int] = field(default_factory=dict)
    filled_positions: int = 0
    late_lines: int = 0
    second_shifts: int = 0
    second_presses: int = 0


@dataclass
class _Group:
    """Identical events close to the first of them."""

    time: int
    size: int = 1


def drop_duplicates(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """Keep the first of each event that several hooks logged.

    The factor n is decided per kind of event, from how often an identical event follows within
    `window_ms`; a kind whose events do not decide it takes the factor of the others. A press of a
    button directly after a press, or a release after a release, is a duplicate with any factor: no
    person is that fast. A press of a key directly after a press is one only if the hooks doubled
    releases as well, in the recording or at the end of this press. Otherwise it is auto-repeat that
    a stalled recorder stamped late.
    """
    factors = _factors(_group_sizes(inputs, window_ms))
    doubled = _doubled_holds(inputs, window_ms)
    groups: dict[Hashable, _Group] = {}
    last_kind: dict[str, str] = {}
    kept = []
    kinds = set()
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
            kinds.add(item.kind)
            repairs.dropped[item.index] = "hook_copy"
            continue
        groups[_identity(item)] = _Group(item.time)
        last_kind[item.name] = item.kind
        kept.append(item)
    repairs.duplicate_factors = {
        kind: factors[kind] for kind in sorted(kinds) if factors.get(kind, 1) > 1
    }
    return kept


def _identity(item: Input) -> Hashable:
    return (item.kind, item.name, item.x, item.y, item.delta)


def _factors(sizes: Mapping[str, Counter[int]]) -> dict[str, int]:
    """The factor of each kind, from the sizes of its groups.

    Presses of keys alone prove nothing: a stalled recorder stamps auto-repeat with one time. They
    count if releases of keys were doubled or, without enough of those, other kinds were.
    """
    factors = {kind: _factor(counter) for kind, counter in sizes.items()}
    others = sum((n for kind, n in sizes.items() if kind != EventType.KEYDOWN), Counter[int]())
    doubled = not others or (others.total() - others[1]) * 2 > others.total()
    if (releases := factors.get(EventType.KEYUP)) is not None:
        doubled = releases > 1
    if (factors.get(EventType.KEYDOWN) or 1) > 1 and not doubled:
        factors[EventType.KEYDOWN] = 1
    smallest = min(filter(None, factors.values()), default=1)
    return {kind: factor or smallest for kind, factor in factors.items()}


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


BORDER_RUN = "border_run"  # flag of an action after motion along the log's outermost line
# Of 4,000 simulated approaches to a point on the border 0.03 % moved along it for so long or so
# far; of 4,000 to points at least 20 pixels beyond it, cut to the border, 99.98 %. So did 18 % of
# those that the border of a single screen stopped 5 pixels early.
_MOVED_MS = 60
_MOVED_UNITS = 10.0
_REST_MS = 100  # from one position to the next; in a longer time the pointer rested


def after_border_runs(inputs: Sequence[Input]) -> set[int]:
    """Line numbers of presses, releases and wheel events on a border, after motion along it.

    The borders are x = 0, y = 0 and the log's largest x and y; a log with a position left of or
    above 0 is not cut there.

    Args:
        inputs: in time order, with the positions of presses filled in.
    """
    placed = [item for item in inputs if item.x is not None and item.y is not None]
    found: set[int] = set()
    for axis in (0, 1):
        values = [_point(item)[axis] for item in placed]
        for border in {max(values, default=0.0), min(values, default=0.0)}:
            if border >= 0 and (border == 0 or border == max(values)):
                found.update(_after_runs(placed, axis, border))
    return found


def _after_runs(placed: Sequence[Input], axis: int, border: float) -> Iterator[int]:
    """Those at one border: where coordinate number `axis` is `border`."""
    for on_border, group in groupby(placed, key=lambda item: _point(item)[axis] == border):
        run = list(group)
        moved = _moved(run, 1 - axis) if on_border else len(run)
        # Before the log's first position, only what follows shows where the pointer was.
        begins = run[0] is placed[0] and moved < len(run)
        for item in run[0 if begins else moved :]:
            if item.kind != EventType.MOUSEMOVE:
                yield item.index


def _moved(run: Sequence[Input], axis: int) -> int:
    """How many positions of a run it takes until the pointer moved enough; all: it never did."""
    moved_ms = 0
    moved_units = 0.0
    for count, (before, after) in enumerate(pairwise(run), 1):
        if after.kind == EventType.MOUSEMOVE and after.time - before.time <= _REST_MS:
            moved_ms += after.time - before.time
        moved_units += abs(_point(after)[axis] - _point(before)[axis])
        if moved_ms >= _MOVED_MS or moved_units >= _MOVED_UNITS:
            return count
    return len(run)


def _point(item: Input) -> tuple[float, float]:
    return item.x or 0.0, item.y or 0.0


# A press without logged moves was a drag if it was this long, or if the next move is this far away.
DRAG_HOLD_MS = 200
DRAG_JUMP_PX = 50.0
# macOS logs no moves while a button is held. An unknown platform may be macOS.
_PLATFORMS_WITHOUT_DRAG_MOVES = frozenset({"macos", ""})
_WITH_POSITION = BUTTON_EVENTS | {EventType.MOUSEWHEEL}
_PRESSES = frozenset({EventType.KEYDOWN, EventType.MOUSEDOWN, EventType.MOUSEWHEEL})
_SHIFT = "Shift"
_OTHER_SHIFT = "RightShift"


def repair(
    inputs: list[Input], platform: str, settings: ActionSettings
) -> tuple[list[Input], Repairs]:
    """Run all passes, in the order in which they depend on each other."""
    repairs = Repairs(late_lines=late_lines(inputs))
    inputs = join_emoji_halves(inputs, repairs)
    inputs = drop_phantom_modifiers(inputs, repairs, settings.duplicate_window_ms)
    inputs = drop_duplicates(inputs, repairs, settings.duplicate_window_ms)
    inputs = release_second_presses(inputs, repairs, platform)
    inputs = separate_shifts(inputs, repairs)
    inputs = fill_positions(inputs, repairs, platform, settings)
    return inputs, repairs


def join_emoji_halves(inputs: list[Input], repairs: Repairs) -> list[Input]:
    """Give the press of the first half of an emoji the whole; the second half's is dropped.

    Windows sends a character above U+FFFF as two keys, one for each UTF-16 unit. They are
    neighbours: no other key is pressed between them. Hooks that log twice give both halves twice.
    """
    joined: dict[int, Input] = {}
    waiting: list[int] = []
    for position, item in enumerate(inputs):
        if item.kind != EventType.KEYDOWN:
            continue
        if item.half and begins_pair(item.half):
            waiting.append(position)
        elif item.half and waiting:
            first = inputs[waiting.pop(0)]
            typed = join_halves(first.half, item.half)
            joined[first.index] = replace(first, char=typed.text, half="")
            repairs.dropped[item.index] = "second_half"
        else:
            waiting = []
    kept = (item for item in inputs if item.index not in repairs.dropped)
    return [joined.get(item.index, item) for item in kept]


def drop_phantom_modifiers(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """Drop a modifier's keydown within `window_ms` after its keyup if it has no release of its own.

    Some recorders log the duplicate of a keyup as a keydown; the modifier would then seem to be
    held until the end. A real press can follow as soon, because Windows logs both Shift keys with
    one name, or because a program pressed the keys; but it is released.
    """
    released = _released_presses(inputs, window_ms)
    ups: dict[str, int] = {}
    for item in inputs:
        if item.kind == EventType.KEYUP:
            ups[item.name] = item.time
        elif item.kind == EventType.KEYDOWN and (up := ups.get(item.name)) is not None:
            key = lookup(item.name)
            soon = item.time - up <= window_ms
            modifier = key.modifier or key.name == "capslock"
            if modifier and soon and item.index not in released:
                repairs.dropped[item.index] = "phantom_modifier"
    return [item for item in inputs if item.index not in repairs.dropped]


def _released_presses(inputs: list[Input], window_ms: int) -> set[int]:
    """Line numbers of the keydowns whose key's next event is their own keyup.

    Between them may be duplicates of the keydown. A keyup within `window_ms` is the keydown's own
    only if something was pressed or turned before it; else it is a late duplicate of another keyup.
    """
    released: set[int] = set()
    following: dict[str, tuple[Input, int]] = {}
    presses_after = 0
    for item in reversed(inputs):
        if item.kind in KEY_EVENTS:
            after, presses = following.get(item.name, (None, 0))
            following[item.name] = (item, presses_after)
            if after is not None and item.kind == EventType.KEYDOWN:
                soon = after.time - item.time <= window_ms
                if after.kind == EventType.KEYUP:
                    own = not soon or presses_after > presses
                else:
                    own = soon and after.index in released
                if own:
                    released.add(item.index)
        presses_after += item.kind in _PRESSES
    return released


# Recorders there take a modifier's state from flags, and report some releases as presses.
_SECOND_PRESS_RELEASES = frozenset({"macos", "linux"})
_REPEAT_MS = 150  # auto-repeat comes sooner, nobody presses a modifier again as soon
_LONGEST_HOLD_MS = 10_000  # a modifier pressed again later had lost its release


def release_second_presses(inputs: list[Input], repairs: Repairs, platform: str) -> list[Input]:
    """Make the second press of a modifier that is down its release, as macOS and Linux log it.

    Not one that has a release of its own, nor auto-repeat.
    """
    if platform not in _SECOND_PRESS_RELEASES:
        return inputs
    modifiers = [
        position
        for position, item in enumerate(inputs)
        if item.kind in KEY_EVENTS and lookup(item.name).modifier
    ]
    following: dict[int, Input] = {}
    latest: dict[str, Input] = {}
    for position in reversed(modifiers):
        item = inputs[position]
        if item.name in latest:
            following[position] = latest[item.name]
        latest[item.name] = item
    released = list(inputs)
    held: dict[str, int] = {}
    for position in modifiers:
        item = inputs[position]
        after = following.get(position)
        pressed = held.pop(item.name, None)
        if item.kind == EventType.KEYUP:
            continue
        again = after and (after.kind == EventType.KEYUP or after.time - item.time <= _REPEAT_MS)
        if pressed is None or again or item.time - pressed > _LONGEST_HOLD_MS:
            held[item.name] = item.time
            continue
        released[position] = replace(item, kind=EventType.KEYUP)
        repairs.second_presses += 1
    return released


def separate_shifts(inputs: list[Input], repairs: Repairs) -> list[Input]:
    """Give the second of two Shift keys its own name: Windows recorders log both as `Shift`.

    Two presses followed by two releases are two keys. With one name, the first release would end
    both, and what is typed before the second release would lose its Shift.
    """
    shifts = [n for n, item in enumerate(inputs) if item.name == _SHIFT and item.kind in KEY_EVENTS]
    renamed: list[int] = []
    pressed: list[int] = []
    for number, position in enumerate(shifts):
        if inputs[position].kind == EventType.KEYDOWN:
            pressed.append(position)
        elif (
            len(pressed) > 1
            and number + 1 < len(shifts)
            and inputs[shifts[number + 1]].kind == EventType.KEYUP
        ):
            renamed += [pressed[1], position]
            pressed = pressed[:1]
        else:
            pressed = []
    repairs.second_shifts = len(renamed) // 2
    separated = list(inputs)
    for position in renamed:
        separated[position] = replace(inputs[position], name=_OTHER_SHIFT)
    return separated


def fill_positions(
    inputs: list[Input], repairs: Repairs, platform: str, settings: ActionSettings
) -> list[Input]:
    """Give presses, releases and wheel events without a position the position of the pointer.

    That is the position of the last move; before the first move, of the next. On macOS no moves are
    logged while a button is held: there a release takes the position of the next move if it is
    beyond the click radius and the press was long or the jump far. Such a drag has no path.
    """
    following = _next_positions(inputs)
    filled: list[Input] = []
    pointer: Input | None = None
    pressed: dict[str, Input] = {}
    for item, after in zip(inputs, following, strict=True):
        current = item
        if item.kind in _WITH_POSITION and item.x is None:
            source = pointer or after
            if item.kind == EventType.MOUSEUP and platform in _PLATFORMS_WITHOUT_DRAG_MOVES:
                source = _drag_end(item, after, pressed.get(item.name), pointer, settings)
            if source is not None:
                current = replace(item, x=source.x, y=source.y)
                repairs.filled_positions += item.kind in BUTTON_EVENTS
        if current.kind == EventType.MOUSEDOWN:
            pressed[item.name] = current
        if current.kind in POINTER_EVENTS and current.x is not None:
            pointer = current
        filled.append(current)
    return filled


def _next_positions(inputs: list[Input]) -> list[Input | None]:
    """For each input, the next pointer event after it that has a position."""
    following: list[Input | None] = []
    latest: Input | None = None
    for item in reversed(inputs):
        following.append(latest)
        if item.kind in POINTER_EVENTS and item.x is not None:
            latest = item
    return following[::-1]


def _drag_end(
    release: Input,
    following: Input | None,
    press: Input | None,
    pointer: Input | None,
    settings: ActionSettings,
) -> Input | None:
    if pointer is None or press is None or pointer.index != press.index:
        return pointer or following
    if following is None:
        return pointer
    jump = distance(press, following)
    held = release.time - press.time
    if jump > settings.click_radius_px and (held >= DRAG_HOLD_MS or jump > DRAG_JUMP_PX):
        return following
    return pointer
