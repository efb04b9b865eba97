"""Raw input in time order, and gestures: the smallest units of input, such as one button press.

Belongs here: the in-memory form of an input event that repair and grouping share, and the type that
the pointer and keyboard readers produce and that grouping.py joins into actions.
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
    """One event of a pointer, a wheel or a keyboard.

    Attributes:
        index: line number in input_log.jsonl.
        time: epoch milliseconds.
        kind: one of `INPUT_EVENTS`.
        x, y: screen pixels as logged, before they were cut to the main display where the recorder
            says so; None where it logged none.
        name: button or key name as logged.
        delta: of the wheel, in the recorder's unit and sign.
        char: the character that the recorder logged for a key; empty where it logged none.
        dead: the recorder logged a dead key, which types nothing by itself.
        unreadable: the recorder logged a character in a form that cannot be read.
        half: one of the two surrogates of a character, whose other half is no neighbour.
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
    """An input event, its absent values replaced by empty ones."""
    typed = read_typed_character(event.actual_char)
    uncut = event.raw_x is not None
    return Input(
        event.event_index,
        event.time_ms,
        event.event,
        event.raw_x if uncut else event.x,
        event.raw_y if uncut else event.y,
        event.button or event.key or "",
        event.delta or 0.0,
        typed.text,
        typed.dead,
        typed.unreadable,
        typed.half,
    )


def inputs_of(events: pa.Table) -> list[Input]:
    """The input events of an events table, stably sorted by (time, line)."""
    chosen = events.filter(pc.is_in(events["event"], _INPUT_EVENTS))
    return in_order([as_input(event) for event in event_rows(chosen)])


def withheld_inputs(events: pa.Table) -> list[tuple[int, int]]:
    """Line number and epoch milliseconds of each place at which the recorder withheld input."""
    lines = events.filter(pc.equal(events["event"], WITHHELD_EVENT))
    return list(zip(lines["event_index"].to_pylist(), lines["time_ms"].to_pylist(), strict=True))


def in_order(inputs: Sequence[Input]) -> list[Input]:
    """Stable time order: a line may be written later than its `time`."""
    return sorted(inputs, key=attrgetter("time", "index"))


def late_lines(inputs: Sequence[Input]) -> int:
    """How many of `inputs` (in time order) the log holds after a line with a later time."""
    late = 0
    latest = None
    for item in sorted(inputs, key=attrgetter("index")):
        if latest is not None and item.time < latest:
            late += 1
        else:
            latest = item.time
    return late


def distance(a: "Input | Gesture | Action", b: "Input | Gesture") -> float:
    """Screen pixels between two positions; 0 if one of them is unknown."""
    if a.x is None or a.y is None or b.x is None or b.y is None:
        return 0.0
    return hypot(a.x - b.x, a.y - b.y)


class GestureKind(StrEnum):
    """What was pressed, turned or typed."""

    CLICK = "click"
    DRAG = "drag"
    WHEEL = "wheel"
    CHAR = "char"
    BACKSPACE = "backspace"
    HOTKEY = "hotkey"
    UNKNOWN = "unknown"  # a key or button in no table: no action, but what it did is not known


@dataclass
class Gesture:
    """One indivisible part of an action.

    Attributes:
        start, end: press and release, epoch milliseconds.
        index: line number of the press; gestures are sorted by (start, index).
        events: line numbers of all raw events that belong to it.
        modifiers: held at the press, in the order in which they were pressed.
        x, y, end_x, end_y: screen pixels; None where the recording has no position.
        path: (x, y, epoch ms) of the moves while a button was held.
        button: `left`, `right` or `middle`.
        delta: of a wheel event, as logged; of a scroll, the sum.
        deltas: of a scroll, its wheel events in time order, as logged.
        keys: pyautogui names of a hotkey, in press order.
        char: the character that a key typed; empty if the keyboard layout has none.
        dead: a dead key, which typed nothing by itself.
        key_press: of a hotkey, when its last key was pressed, epoch milliseconds.
        held_since: when the first of its modifiers was pressed, epoch milliseconds.
        repeat: auto-repeat of a held key.
        by_layout: the character follows from the keyboard layout; the recorder logged none.
        flags: what was unusual, e.g. `long`, `never_released`.
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
