"""Gestures: the smallest units of input, such as one button press, one wheel event or one key.

Belongs here: the type that the pointer, keyboard and modifier readers produce and that grouping.py
joins into actions.
"""

from dataclasses import dataclass, field
from enum import StrEnum


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
        repeat: auto-repeat of a held key.
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
    repeat: bool = False
    flags: set[str] = field(default_factory=set)
