"""The smallest things a hand does: one press of a button, one wheel notch, one key.

Belongs here: the token type that the pointer, wheel and keyboard readers make and join.py joins.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class GestureKind(StrEnum):
    """What a token may become."""

    CLICK = "click"
    DRAG = "drag"
    WHEEL = "wheel"
    CHAR = "char"
    BACKSPACE = "backspace"
    HOTKEY = "hotkey"


@dataclass
class Gesture:
    """One indivisible piece of an action.

    Attributes:
        start, end: press and release, epoch milliseconds.
        index: line of the press; with `start` it orders tokens.
        events: lines of every raw event the token is made of.
        modifiers: held at the press, in the order they were pressed.
        x, y, end_x, end_y: screen pixels; None where the recording has no position.
        path: (x, y, epoch ms) of the moves while a button was held.
        char: the character a key produced; empty when the layout knows none.
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
    keys: tuple[str, ...] = ()
    char: str = ""
    flags: set[str] = field(default_factory=set)
