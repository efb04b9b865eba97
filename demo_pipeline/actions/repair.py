"""Repairs of known recorder faults, as separate passes over the input events.

Belongs here: the order of the passes, phantom modifiers, two Shift keys with one name, and missing
positions. Each pass takes inputs in time order, returns the remaining inputs and records what it
did. De-duplication is in dedupe.py. Missing releases are handled in modifiers.py and pointer.py,
where the effect of the press is known.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from demo_pipeline.actions.dedupe import deduplicate
from demo_pipeline.actions.inputs import Input, distance, late_lines
from demo_pipeline.formats.demonstration.event_types import (
    BUTTON_EVENTS,
    KEY_EVENTS,
    POINTER_EVENTS,
    EventType,
)
from demo_pipeline.recording.key_names import lookup
from demo_pipeline.settings import ActionSettings

# A press without logged moves was a drag if it was this long, or if the next move is this far away.
DRAG_HOLD_MS = 200
DRAG_JUMP_PX = 50.0
# macOS logs no moves while a button is held. An unknown platform may be macOS.
_PLATFORMS_WITHOUT_DRAG_MOVES = frozenset({"macos", ""})
_WITH_POSITION = BUTTON_EVENTS | {EventType.MOUSEWHEEL}
_PRESSES = frozenset({EventType.KEYDOWN, EventType.MOUSEDOWN, EventType.MOUSEWHEEL})
_SHIFT, _OTHER_SHIFT = "Shift", "RightShift"


@dataclass
class Repairs:
    """What the passes did.

    Attributes:
        dropped: line number → reason, for every input that was dropped.
        duplicate_factors: event kind → how often each event was logged, where more than once.
        filled_positions: presses and releases whose position was taken from the moves around them.
        late_lines: inputs that the log contains after an input with a later time.
        second_shifts: presses of a second Shift key that was logged with the name of the first.
    """

    dropped: dict[int, str] = field(default_factory=dict)
    duplicate_factors: dict[str, int] = field(default_factory=dict)
    filled_positions: int = 0
    late_lines: int = 0
    second_shifts: int = 0


def repair(
    inputs: list[Input], platform: str, settings: ActionSettings
) -> tuple[list[Input], Repairs]:
    """Run all passes, in the order in which they depend on each other."""
    repairs = Repairs(late_lines=late_lines(inputs))
    inputs = drop_phantom_modifiers(inputs, repairs, settings.duplicate_window_ms)
    inputs = drop_duplicates(inputs, repairs, settings.duplicate_window_ms)
    inputs = separate_shifts(inputs, repairs)
    inputs = fill_positions(inputs, repairs, platform, settings)
    return inputs, repairs


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
        elif item.kind == EventType.KEYDOWN and _is_modifier_or_capslock(item.name):
            up = ups.get(item.name)
            if up is not None and item.time - up <= window_ms and item.index not in released:
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


def _is_modifier_or_capslock(name: str) -> bool:
    key = lookup(name)
    return key.modifier or key.name == "capslock"


def drop_duplicates(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """Keep the first of each event that several input hooks logged; see `deduplicate`."""
    result = deduplicate(inputs, window_ms)
    repairs.dropped.update(dict.fromkeys(result.dropped, "hook_copy"))
    repairs.duplicate_factors = result.factors
    return result.kept


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
