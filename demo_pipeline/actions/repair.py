"""Repairs of what recorders get wrong, as separate passes that each say what they did.

Belongs here: the order of the passes, phantom modifiers, two Shift keys of one name, positions
joined from moves. Each pass
takes inputs in time order and returns the inputs that stay. Copies are found in copies.py, keys and
buttons that never came up in holds.py and pointer.py, where their effect is known.
"""

from dataclasses import dataclass, field
from math import hypot

from msgspec.structs import replace

from demo_pipeline.actions.dedupe import deduplicate
from demo_pipeline.actions.inputs import Input, late_lines
from demo_pipeline.formats.demonstration.event_types import (
    BUTTON_EVENTS,
    KEY_EVENTS,
    POINTER_EVENTS,
    EventType,
)
from demo_pipeline.recording.key_names import lookup
from demo_pipeline.settings import ActionSettings

_DRAG_HOLD_MS = 200  # with no move logged, a press this long or a jump this far was a drag
_DRAG_JUMP_PX = 50.0
_WITH_POSITION = BUTTON_EVENTS | {EventType.MOUSEWHEEL}
_SHIFT, _OTHER_SHIFT = "Shift", "RightShift"


@dataclass
class Repairs:
    """What the passes did.

    Attributes:
        dropped: event index → reason, for every input that was taken out.
        copy_factors: event kind → how often each event was logged, where more than once.
        joined_positions: presses and releases whose position came from the moves around them.
        late_lines: inputs that the log holds after later ones.
        second_shifts: times that both Shift keys, logged under one name, were told apart.
    """

    dropped: dict[int, str] = field(default_factory=dict)
    copy_factors: dict[str, int] = field(default_factory=dict)
    joined_positions: int = 0
    late_lines: int = 0
    second_shifts: int = 0


def repair(
    inputs: list[Input], platform: str, settings: ActionSettings
) -> tuple[list[Input], Repairs]:
    """All passes, in the order in which they depend on each other."""
    repairs = Repairs(late_lines=late_lines(inputs))
    inputs = drop_phantom_modifiers(inputs, repairs, settings.duplicate_window_ms)
    inputs = drop_duplicates(inputs, repairs, settings.duplicate_window_ms)
    inputs = separate_shifts(inputs, repairs)
    inputs = fill_positions(inputs, repairs, platform, settings)
    return inputs, repairs


def drop_phantom_modifiers(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """A modifier's second keyup copy that was logged as keydown in the same instant.

    Without this the modifier seems held for ever. No hand presses a modifier again within 3 ms.
    """
    ups: dict[str, int] = {}
    for item in inputs:
        if item.kind == EventType.KEYUP:
            ups[item.name] = item.time
        elif item.kind == EventType.KEYDOWN and _is_state(item.name):
            released = ups.get(item.name)
            if released is not None and item.time - released <= window_ms:
                repairs.dropped[item.index] = "phantom_modifier"
    return [item for item in inputs if item.index not in repairs.dropped]


def _is_state(name: str) -> bool:
    key = lookup(name)
    return key.modifier or key.name == "capslock"


def drop_duplicates(inputs: list[Input], repairs: Repairs, window_ms: int) -> list[Input]:
    """Every event logged n times, because n hooks were alive: keep the first of each n."""
    copies = deduplicate(inputs, window_ms)
    repairs.dropped.update(dict.fromkeys(copies.dropped, "hook_copy"))
    repairs.copy_factors = copies.factors
    return copies.kept


def separate_shifts(inputs: list[Input], repairs: Repairs) -> list[Input]:
    """Give the second of two Shift keys a name of its own: Windows recorders call both `Shift`.

    Two presses followed by two releases are two keys. The one name would end both holds with the
    first release, and what is typed until the second would lose its Shift.
    """
    shifts = [n for n, item in enumerate(inputs) if item.name == _SHIFT and item.kind in KEY_EVENTS]
    renamed: list[int] = []
    pressed: list[int] = []
    for at, position in enumerate(shifts):
        if inputs[position].kind == EventType.KEYDOWN:
            pressed.append(position)
        elif (
            len(pressed) > 1
            and at + 1 < len(shifts)
            and inputs[shifts[at + 1]].kind == EventType.KEYUP
        ):
            renamed += [pressed[1], position]
            pressed = pressed[:1]
        else:
            pressed = []
    repairs.second_shifts = len(renamed) // 2
    parted = list(inputs)
    for position in renamed:
        parted[position] = replace(inputs[position], name=_OTHER_SHIFT)
    return parted


def fill_positions(
    inputs: list[Input], repairs: Repairs, platform: str, settings: ActionSettings
) -> list[Input]:
    """Give each press, release and wheel turn without a position the pointer's.

    It is that of the last move; before the first move, of the first. A release on macOS, where no
    moves are logged while a button is held, takes the next move when that lies beyond the click
    radius: an end-points-only drag.
    """
    following = _next_positions(inputs)
    joined: list[Input] = []
    pointer: Input | None = None
    pressed: dict[str, Input] = {}
    for item, after in zip(inputs, following, strict=True):
        current = item
        if item.kind in _WITH_POSITION and item.x is None:
            source = pointer or after
            if item.kind == EventType.MOUSEUP and platform in {"macos", ""}:
                source = _drag_end(item, after, pressed.get(item.name), pointer, settings)
            if source is not None:
                current = replace(item, x=source.x, y=source.y)
                repairs.joined_positions += item.kind in BUTTON_EVENTS
        if current.kind == EventType.MOUSEDOWN:
            pressed[item.name] = current
        if current.kind in POINTER_EVENTS and current.x is not None:
            pointer = current
        joined.append(current)
    return joined


def _next_positions(inputs: list[Input]) -> list[Input | None]:
    """For each input the next later one that says where the pointer is."""
    following: list[Input | None] = []
    seen: Input | None = None
    for item in reversed(inputs):
        following.append(seen)
        if item.kind in POINTER_EVENTS and item.x is not None:
            seen = item
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
    if jump > settings.click_radius_px and (held >= _DRAG_HOLD_MS or jump > _DRAG_JUMP_PX):
        return following
    return pointer


def distance(a: Input, b: Input) -> float:
    """Pixels between two inputs; 0 where either has no position."""
    if a.x is None or a.y is None or b.x is None or b.y is None:
        return 0.0
    return hypot(a.x - b.x, a.y - b.y)
