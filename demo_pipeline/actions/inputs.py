"""Raw input in time order: the rows of events.parquet that a hand caused.

Belongs here: the one in-memory form of an input event that repair and segmentation share.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

MOVE, DOWN, UP, WHEEL = "mousemove", "mousedown", "mouseup", "mousewheel"
KEY_DOWN, KEY_UP = "keydown", "keyup"
INPUT_KINDS = (MOVE, DOWN, UP, WHEEL, KEY_DOWN, KEY_UP)
TREE = "axtree"


@dataclass(frozen=True, slots=True)
class Input:
    """One event of a pointer, a wheel or a keyboard.

    Attributes:
        index: line number in input_log.jsonl.
        time: epoch milliseconds.
        x, y: screen pixels as logged, None where the recorder gave none.
        name: button or key name as logged.
        char: the character the recorder says was produced, empty when it says nothing.
    """

    index: int
    time: int
    kind: str
    x: float | None = None
    y: float | None = None
    name: str = ""
    delta: float = 0.0
    char: str = ""


def inputs_of(events: pa.Table) -> list[Input]:
    """The input events of an events table, stably sorted by (time, line)."""
    chosen = events.filter(pc.is_in(events["event"], pa.array(INPUT_KINDS)))
    columns = [
        chosen[name].to_pylist()
        for name in ("event_index", "time_ms", "event", "x", "y", "delta", "actual_char")
    ]
    names = [
        button or key or ""
        for button, key in zip(chosen["button"].to_pylist(), chosen["key"].to_pylist(), strict=True)
    ]
    inputs = [
        Input(index, time, kind, x, y, name, delta or 0.0, char or "")
        for index, time, kind, x, y, delta, char, name in zip(*columns, names, strict=True)
    ]
    return in_order(inputs)


def in_order(inputs: Sequence[Input]) -> list[Input]:
    """Stable time order: a line may be written later than its `time`."""
    return sorted(inputs, key=attrgetter("time", "index"))


def late_lines(inputs: Sequence[Input]) -> int:
    """How many of `inputs`, given in time order, the log holds after a line with a later time."""
    late, latest = 0, None
    for item in sorted(inputs, key=attrgetter("index")):
        if latest is not None and item.time < latest:
            late += 1
        else:
            latest = item.time
    return late
