"""Declares inputs and gestures, from which actions are built.

An *input* is a logged event of the pointer, the wheel or the keyboard. A *gesture* is the smallest
part of an action, such as the press of a button with its release.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import hypot
from operator import attrgetter

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.recording.events import event_rows
from demo_pipeline.recording.input_log import INPUT_EVENTS, WITHHELD_EVENT, Event
from demo_pipeline.recording.key_names import read_typed_character

_INPUT_EVENTS = pa.array(sorted(INPUT_EVENTS))


class Input(msgspec.Struct, frozen=True, gc=False):
    """A logged event of the pointer, the wheel or the keyboard.

    Attributes:
        index: line number in input_log.jsonl.
        time: time of the event, epoch milliseconds.
        kind: one of `INPUT_EVENTS`.
        x, y: position in screen pixels, or None if no position was logged. If the recorder logged
            two positions, the position that is not clamped to the main display.
        name: button or key name as logged.
        delta: delta of a wheel event, in the recorder's unit and sign.
        char: typed character as logged, or empty if the recorder logged no character.
        dead: whether the recorder logged a dead key, which types nothing by itself.
        unreadable: whether the recorder logged a character in an unknown format.
        half: half of a surrogate pair, if the recorder logged a character as two keys, one for
            each UTF-16 unit. Otherwise empty.
    """

    index: int
    time: int
    kind: str
    x: float | None = None
    y: float | None = None
    name: str = ""
    delta: float = 0.0
    char: str = ""
    dead: bool = False
    unreadable: bool = False
    half: str = ""


def as_input(event: Event) -> Input:
    """Converts a logged event to an input."""
    typed = read_typed_character(event.actual_char)
    x = event.x
    y = event.y
    if event.raw_x is not None:
        x = event.raw_x
        y = event.raw_y
    return Input(
        event.event_index,
        event.time_ms,
        event.event,
        x,
        y,
        event.button or event.key or "",
        event.delta or 0.0,
        typed.text,
        typed.dead,
        typed.unreadable,
        typed.half,
    )


def inputs_of(events: pa.Table) -> list[Input]:
    """Returns the inputs of an events table, sorted by time, then by line."""
    chosen = events.filter(pc.is_in(events["event"], _INPUT_EVENTS))
    return in_order([as_input(event) for event in event_rows(chosen)])


def withheld_inputs(events: pa.Table) -> list[tuple[int, int]]:
    """Returns line number and time (epoch ms) of each place where the recorder withheld input."""
    lines = events.filter(pc.equal(events["event"], WITHHELD_EVENT))
    return list(zip(lines["event_index"].to_pylist(), lines["time_ms"].to_pylist(), strict=True))


def in_order(inputs: Sequence[Input]) -> list[Input]:
    """Sorts inputs by time, because the lines of a log are not always in time order."""
    return sorted(inputs, key=attrgetter("time", "index"))


def late_lines(inputs: Sequence[Input]) -> int:
    """Counts the inputs that are out of order, because an earlier line has a later time."""
    late = 0
    latest = None
    for item in sorted(inputs, key=attrgetter("index")):
        if latest is not None and item.time < latest:
            late += 1
        else:
            latest = item.time
    return late


def distance(a: "Input | Gesture | Action", b: "Input | Gesture") -> float:
    """Returns the distance between positions in screen pixels, or 0 if a position is unknown."""
    if a.x is None or a.y is None or b.x is None or b.y is None:
        return 0.0
    return hypot(a.x - b.x, a.y - b.y)


class GestureKind(StrEnum):
    """The kind of a gesture."""

    CLICK = "click"
    DRAG = "drag"
    WHEEL = "wheel"
    CHAR = "char"
    BACKSPACE = "backspace"
    HOTKEY = "hotkey"
    UNKNOWN = "unknown"  # an unknown key or button, or withheld input; never becomes an action


@dataclass
class Gesture:
    """The smallest part of an action.

    Attributes:
        start, end: press and release, epoch milliseconds.
        index: line number of the press.
        events: line numbers of all events of the gesture.
        modifiers: names of the modifiers held at the press, in the order of their presses.
        x, y: position of the press in screen pixels, or None if unknown.
        end_x, end_y: position of the release of a drag in screen pixels, or None if unknown.
        path: x, y and epoch milliseconds of each move during a drag.
        button: `left`, `right` or `middle`.
        delta: logged delta of a wheel event, or sum of the deltas of a scroll.
        deltas: deltas of the wheel events of a scroll in time order, as logged.
        keys: pyautogui names of the keys of a hotkey, in press order.
        char: typed character, or empty if the keyboard layout has no character for the key.
        dead: whether the key is a dead key, which types nothing by itself.
        key_press: time at which the last key of a hotkey was pressed, epoch milliseconds.
        held_since: time at which the first held modifier was pressed, epoch milliseconds.
        repeat: whether the gesture comes from the auto-repeat of a held key.
        by_layout: whether `char` was derived from the keyboard layout, because the recorder logged
            no character.
        flags: unusual circumstances, such as `long` or `never_released`.
    """

    kind: GestureKind
    start: int
    end: int
    index: int
    events: list[int]
    modifiers: tuple[str, ...] = ()
    x: float | None = None
    y: float | None = None
    end_x: float | None = None
    end_y: float | None = None
    path: list[tuple[float, float, int]] = field(default_factory=list)
    button: str = ""
    delta: float = 0.0
    deltas: tuple[float, ...] = ()
    keys: tuple[str, ...] = ()
    char: str = ""
    dead: bool = False
    key_press: int = 0
    held_since: int = 0
    repeat: bool = False
    by_layout: bool = False
    flags: set[str] = field(default_factory=set)
