"""Repairs known faults of recorders in the inputs of a log.

The passes drop copies of events, drop modifier presses that never happened, separate two Shift
keys that were logged under the same name, and fill in missing positions. Each pass takes inputs in
time order, returns the remaining inputs, and records its changes in `Repairs`.

Some recorders clamp every position to the main display. While the pointer is on another display,
the logged positions run along the border of the main display. The same happens when a person pushes
the pointer against the border of a single screen. `after_border_runs` finds the presses after such
motion.
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

# Recorders with n input hooks log each event n times. A factor n is accepted if at least 80 % of
# the groups of equal events have a size that is a multiple of n.
MIN_FACTOR_SHARE = 0.8
# A kind of events with fewer than three groups of equal events has no factor of its own. It gets
# the smallest factor of the other kinds.
MIN_GROUPS = 3
# If a kind of events was logged several times, copies may be up to three times `window_ms` late.
LATE_WINDOWS = 3
_PRESSES_AND_RELEASES = BUTTON_EVENTS | KEY_EVENTS


@dataclass
class Repairs:
    """The changes that the passes of `repair` made to the inputs.

    Attributes:
        dropped: maps line numbers of dropped inputs to the reason.
        duplicate_factors: maps event types to the number of times that each event was logged.
            Event types whose events were logged once are left out.
        filled_positions: number of presses and releases that got the position of another event.
        late_lines: number of inputs that are out of order in the log; see `late_lines`.
        second_shifts: number of presses of a second Shift key, logged under the name of the first.
        second_presses: number of modifier releases that were logged as presses.
    """

    dropped: dict[int, str] = field(default_factory=dict)
    duplicate_factors: dict[str, int] = field(default_factory=dict)
    filled_positions: int = 0
    late_lines: int = 0
    second_shifts: int = 0
    second_presses: int = 0


@dataclass
class _Group:
    """Equal events that follow each other closely.

    Attributes:
        time: time of the first event, epoch milliseconds.
        size: number of events.
    """

    time: int
    size: int = 1


def drop_duplicates(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """Drops the copies of events that several input hooks logged.

    For each kind of event, the number of copies is derived from the number of equal events within
    `window_ms`.

    Within `window_ms`, a second press of a button without a release in between is always a copy,
    and so is a second release without a press in between, because no person is that fast. A second
    press of a key may also be an auto-repeat. It counts as a copy only if key releases were logged
    twice as well, either in the whole recording or at the end of this press.

    Args:
        inputs: inputs in time order.
        repairs: records the dropped lines and the numbers of copies.
        window_ms: longest time between an event and its copy, milliseconds.
    """
    factors = _factors(_group_sizes(inputs, window_ms))
    doubled = _doubled_holds(inputs, window_ms)
    groups: dict[Hashable, _Group] = {}
    last_kind: dict[str, str] = {}
    remaining: list[Input] = []
    doubled_kinds: set[str] = set()
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
            doubled_kinds.add(item.kind)
            repairs.dropped[item.index] = "hook_copy"
            continue
        groups[_identity(item)] = _Group(item.time)
        last_kind[item.name] = item.kind
        remaining.append(item)
    repairs.duplicate_factors = {
        kind: factors[kind] for kind in sorted(doubled_kinds) if factors.get(kind, 1) > 1
    }
    return remaining


def _identity(item: Input) -> Hashable:
    """Returns the fields that are equal in copies of an event."""
    return (item.kind, item.name, item.x, item.y, item.delta)


def _factors(sizes: Mapping[str, Counter[int]]) -> dict[str, int]:
    """Returns how many times the hooks logged each event (the factor), for each kind of event.

    `sizes` is the result of `_group_sizes`. The factor of key presses is used only if key releases
    were logged several times too, because a stalled recorder gives all auto-repeats the same time.
    If the releases give no factor, all events other than key presses decide.
    """
    factors = {kind: _factor(counter) for kind, counter in sizes.items()}
    other_sizes: Counter[int] = Counter()
    for kind, counter in sizes.items():
        if kind != EventType.KEYDOWN:
            other_sizes.update(counter)
    are_doubled = (
        not other_sizes or (other_sizes.total() - other_sizes[1]) * 2 > other_sizes.total()
    )
    release_factor = factors.get(EventType.KEYUP)
    if release_factor is not None:
        are_doubled = release_factor > 1
    if (factors.get(EventType.KEYDOWN) or 1) > 1 and not are_doubled:
        factors[EventType.KEYDOWN] = 1
    smallest = min(filter(None, factors.values()), default=1)
    return {kind: factor or smallest for kind, factor in factors.items()}


def _doubled_holds(inputs: Sequence[Input], window_ms: int) -> set[int]:
    """Returns the lines of key presses whose release was logged more than once."""
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
    """Counts the groups of equal events that follow each other closely.

    Releases of modifiers are left out, because recorders log the copy of such a release as a press.

    Returns:
        For each event type, the number of groups of each size.
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
        group = _Group(item.time)
        open_groups[_identity(item)] = group
        all_groups.append((item.kind, group))
    sizes: dict[str, Counter[int]] = {}
    for kind, group in all_groups:
        sizes.setdefault(kind, Counter())[group.size] += 1
    return sizes


def _factor(sizes: Counter[int]) -> int | None:
    """Returns how many times the hooks logged each event of a kind.

    Returns None if there are too few groups, or if the groups disagree. `sizes` maps the size of a
    group to the number of such groups.
    """
    total = sizes.total()
    if total < MIN_GROUPS:
        return None
    for factor in sorted(sizes, reverse=True):
        agreeing = sum(count for size, count in sizes.items() if size % factor == 0)
        share = agreeing / total
        if factor > 1 and share >= MIN_FACTOR_SHARE:
            return factor
    return 1 if sizes[1] / total >= MIN_FACTOR_SHARE else None


BORDER_RUN = "border_run"  # flag for an action after motion along the border of the logged area
# An action is flagged if the pointer moved along the border for at least 60 ms, or by at least 10
# logged units. Measured with 4,000 simulated approaches to each kind of target: 0.03 % were
# flagged for a target on the border, 99.98 % for a target at least 20 pixels beyond the border, and
# 18 % if the border of a single screen stopped the pointer 5 pixels before the target.
_MOVED_MS = 60
_MOVED_UNITS = 10.0
_REST_MS = 100  # the pointer rested if more than 100 ms passed between two logged positions


def after_border_runs(inputs: Sequence[Input]) -> set[int]:
    """Returns the lines of presses, releases and wheel events that follow motion along a border.

    Borders are at the largest x and y of the log, unless these are negative, and at 0 for a
    coordinate that is never negative.

    Args:
        inputs: inputs in time order, after `fill_positions`.
    """
    placed = [item for item in inputs if item.x is not None and item.y is not None]
    lines: set[int] = set()
    for axis in (0, 1):
        values = [_point(item)[axis] for item in placed]
        largest = max(values, default=0.0)
        if largest >= 0:
            lines.update(_lines_after_runs(placed, axis, largest))
        if min(values, default=0.0) == 0:
            lines.update(_lines_after_runs(placed, axis, 0.0))
    return lines


def _lines_after_runs(placed: Sequence[Input], axis: int, border: float) -> Iterator[int]:
    """Yields the lines of presses, releases and wheel events after motion along a border.

    Args:
        placed: inputs with a position, in time order.
        axis: 0 for a vertical border at x = `border`; 1 for a horizontal border at y = `border`.
    """
    for is_on_border, group in groupby(placed, key=lambda item: _point(item)[axis] == border):
        if not is_on_border:
            continue
        run = list(group)
        first = _positions_until_moved(run, 1 - axis)
        if run[0] is placed[0] and first < len(run):
            first = 0  # the pointer may have moved along the border before the log began
        for item in run[first:]:
            if item.kind != EventType.MOUSEMOVE:
                yield item.index


def _positions_until_moved(run: Sequence[Input], axis: int) -> int:
    """Returns the index of the first input at which motion reaches `_MOVED_MS` or `_MOVED_UNITS`.

    Returns the length of `run` if it reaches neither.

    Args:
        run: consecutive inputs on the border.
        axis: the coordinate that changes along the border: 0 for x, 1 for y.
    """
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


# A press without logged moves was a drag if the press lasted at least `DRAG_HOLD_MS` milliseconds,
# or if the next position is more than `DRAG_JUMP_PX` screen pixels away.
DRAG_HOLD_MS = 200
DRAG_JUMP_PX = 50.0
# Platforms whose recorders log no moves while a button is held; "" is an unknown platform.
_PLATFORMS_WITHOUT_DRAG_MOVES = frozenset({"macos", ""})
_WITH_POSITION = BUTTON_EVENTS | {EventType.MOUSEWHEEL}
_PRESSES = frozenset({EventType.KEYDOWN, EventType.MOUSEDOWN, EventType.MOUSEWHEEL})
_SHIFT = "Shift"
_OTHER_SHIFT = "RightShift"


def repair(
    inputs: list[Input], platform: str, settings: ActionSettings
) -> tuple[list[Input], Repairs]:
    """Repairs the inputs of a log with all passes.

    Returns:
        The repaired inputs in time order, and the changes.
    """
    repairs = Repairs(late_lines=late_lines(inputs))
    inputs = join_emoji_halves(inputs, repairs)
    inputs = drop_phantom_modifiers(inputs, repairs, settings.duplicate_window_ms)
    inputs = drop_duplicates(inputs, repairs, settings.duplicate_window_ms)
    inputs = release_second_presses(inputs, repairs, platform)
    inputs = separate_shifts(inputs, repairs)
    inputs = fill_positions(inputs, repairs, platform, settings)
    return inputs, repairs


def join_emoji_halves(inputs: list[Input], repairs: Repairs) -> list[Input]:
    """Joins the two halves of an emoji in the first key press, and drops the second key press.

    Windows sends a character above U+FFFF as two key presses, one for each UTF-16 unit, with no
    other key in between.
    """
    joined: dict[int, Input] = {}
    first_halves: list[Input] = []
    for item in inputs:
        if item.kind != EventType.KEYDOWN:
            continue
        if item.half and begins_pair(item.half):
            first_halves.append(item)
        elif item.half and first_halves:
            first = first_halves.pop(0)
            typed = join_halves(first.half, item.half)
            joined[first.index] = replace(first, char=typed.text, half="")
            repairs.dropped[item.index] = "second_half"
        else:
            first_halves = []
    return [joined.get(item.index, item) for item in inputs if item.index not in repairs.dropped]


def drop_phantom_modifiers(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """Drops logged presses of modifiers that never happened.

    Some recorders log the copy of a release as a press. Such a press comes within `window_ms` after
    the release and has no release of its own.
    """
    released = _released_presses(inputs, window_ms)
    ups: dict[str, int] = {}
    for item in inputs:
        if item.kind == EventType.KEYUP:
            ups[item.name] = item.time
        elif item.kind == EventType.KEYDOWN and item.name in ups:
            key = lookup(item.name)
            is_modifier = key.modifier or key.name == "capslock"
            follows_release = item.time - ups[item.name] <= window_ms
            if is_modifier and follows_release and item.index not in released:
                repairs.dropped[item.index] = "phantom_modifier"
    return [item for item in inputs if item.index not in repairs.dropped]


def _released_presses(inputs: list[Input], window_ms: int) -> set[int]:
    """Returns the lines of key presses that have a release of their own.

    A release within `window_ms` after a press counts only if another press or turn of the wheel
    lies in between. Otherwise the release is a late copy of an earlier release.
    """
    released: set[int] = set()
    following: dict[str, tuple[Input, int]] = {}
    presses_after = 0
    for item in reversed(inputs):
        if item.kind in KEY_EVENTS:
            after, presses = following.get(item.name, (None, 0))
            following[item.name] = (item, presses_after)
            if after is not None and item.kind == EventType.KEYDOWN:
                is_soon = after.time - item.time <= window_ms
                if after.kind == EventType.KEYUP:
                    has_release = not is_soon or presses_after > presses
                else:
                    has_release = is_soon and after.index in released
                if has_release:
                    released.add(item.index)
        presses_after += item.kind in _PRESSES
    return released


# Platforms on which recorders log some releases of modifiers as presses.
_SECOND_PRESS_RELEASES = frozenset({"macos", "linux"})
# Longest time between two presses of a key in auto-repeat. People press keys more slowly.
_REPEAT_MS = 150
# If a modifier seems to be held for more than 10 s, its release is missing from the log.
_LONGEST_HOLD_MS = 10_000


def release_second_presses(inputs: list[Input], repairs: Repairs, platform: str) -> list[Input]:
    """Turns the second press of a held modifier into its release, on macOS and Linux.

    A second press is left unchanged if a release or an auto-repeat of the modifier follows.
    """
    if platform not in _SECOND_PRESS_RELEASES:
        return inputs
    modifiers: list[int] = []
    for position, item in enumerate(inputs):
        if item.kind in KEY_EVENTS and lookup(item.name).modifier:
            modifiers.append(position)
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
        is_press = after is not None and (
            after.kind == EventType.KEYUP or after.time - item.time <= _REPEAT_MS
        )
        if pressed is None or is_press or item.time - pressed > _LONGEST_HOLD_MS:
            held[item.name] = item.time
            continue
        released[position] = replace(item, kind=EventType.KEYUP)
        repairs.second_presses += 1
    return released


def separate_shifts(inputs: list[Input], repairs: Repairs) -> list[Input]:
    """Renames the second of two held Shift keys, because Windows recorders log both as `Shift`.

    Under the same name, the first release would end both presses, and the characters before the
    second release would lose their Shift.
    """
    shifts: list[int] = []
    for position, item in enumerate(inputs):
        if item.name == _SHIFT and item.kind in KEY_EVENTS:
            shifts.append(position)
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
    """Adds the position of the pointer to presses, releases and wheel events that have none.

    The added position is the last logged position or, if there is no earlier position, the next
    one. On macOS, recorders log no moves while a button is held. Therefore, the release of a drag
    gets the next logged position there.
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
    """Returns, for each input, the next pointer event with a position, or None."""
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
    """Returns the input from which a release without a position takes its position.

    Returns None if no pointer event with a position precedes or follows the release.

    Used on platforms whose recorders log no moves while a button is held. If the press was a drag,
    the release gets the next position.

    Args:
        release: the mouseup event.
        following: the next pointer event with a position, or None if none follows.
        press: the mousedown event of the same button, or None if it is missing.
        pointer: the last pointer event with a position before the release, or None.
    """
    if pointer is None or press is None or pointer.index != press.index:
        return pointer or following
    if following is None:
        return pointer
    jump = distance(press, following)
    held = release.time - press.time
    if jump > settings.click_radius_px and (held >= DRAG_HOLD_MS or jump > DRAG_JUMP_PX):
        return following
    return pointer
