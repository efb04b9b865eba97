"""Raw input in time order: the pointer, wheel and keyboard rows of events.parquet.

Belongs here: the in-memory form of an input event that repair and segmentation share.
"""

from collections.abc import Sequence
from math import hypot
from operator import attrgetter
from typing import Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from demo_pipeline.recording.events import event_rows
from demo_pipeline.recording.input_log import Event
from demo_pipeline.recording.key_names import read_typed_character
from demo_pipeline.recording.log_events import INPUT_EVENTS

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


class HasPosition(Protocol):
    """Anything with a position in screen pixels; None where the recording has none."""

    @property
    def x(self) -> float | None:
        """Screen pixels."""

    @property
    def y(self) -> float | None:
        """Screen pixels."""


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
    )


def inputs_of(events: pa.Table) -> list[Input]:
    """The input events of an events table, stably sorted by (time, line)."""
    chosen = events.filter(pc.is_in(events["event"], _INPUT_EVENTS))
    return in_order([as_input(event) for event in event_rows(chosen)])


def in_order(inputs: Sequence[Input]) -> list[Input]:
    """Stable time order: a line may be written later than its `time`."""
    return sorted(inputs, key=attrgetter("time", "index"))


def late_lines(inputs: Sequence[Input]) -> int:
    """How many of `inputs` (in time order) the log holds after a line with a later time."""
    late, latest = 0, None
    for item in sorted(inputs, key=attrgetter("index")):
        if latest is not None and item.time < latest:
            late += 1
        else:
            latest = item.time
    return late


def distance(a: HasPosition, b: HasPosition) -> float:
    """Screen pixels between two positions; 0 if one of them is unknown."""
    if a.x is None or a.y is None or b.x is None or b.y is None:
        return 0.0
    return hypot(a.x - b.x, a.y - b.y)
