"""Defines scripts of acts on named widgets, and the ground truth of their performance.

`performer.py` performs a script. The functions of this module create the acts of a script.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from demo_pipeline_tests.simulator.desktop import Box, Desktop, ScreenState

Verb = Literal[
    "move_to",
    "click",
    "double_click",
    "triple_click",
    "right_click",
    "middle_click",
    "drag",
    "scroll",
    "type_text",
    "hotkey",
    "wait_for_screen",
    "think",
]


@dataclass(frozen=True, slots=True)
class Act:
    """An act of a script.

    `offset` is the distance of a drag, in pixels of the unscaled desktop. Positive `notches`
    scroll down.
    """

    verb: Verb
    target: str = ""
    text: str = ""
    keys: tuple[str, ...] = ()
    offset: tuple[int, int] = (0, 0)
    notches: int = 0
    seconds: float = 0.0


def move_to(target: str) -> Act:
    return Act("move_to", target)


def click(target: str, held: tuple[str, ...] = ()) -> Act:
    """Returns a left click while the modifiers `held`, such as `ctrl`, are down."""
    return Act("click", target, keys=held)


def double_click(target: str) -> Act:
    return Act("double_click", target)


def triple_click(target: str) -> Act:
    return Act("triple_click", target)


def right_click(target: str) -> Act:
    return Act("right_click", target)


def middle_click(target: str) -> Act:
    return Act("middle_click", target)


def drag(target: str, dx: int, dy: int) -> Act:
    """Returns a drag of a target, such as the title bar "Name/title bar" of a window.

    The distances are in pixels of the unscaled desktop.
    """
    return Act("drag", target, offset=(dx, dy))


def scroll(target: str, notches: int) -> Act:
    """Returns turns of the wheel over a list. Positive notches scroll down."""
    return Act("scroll", target, notches=notches)


def type_text(text: str) -> Act:
    """Returns typing into the focused field.

    A backspace in `text` removes the character before it.
    """
    return Act("type_text", text=text)


def hotkey(*keys: str) -> Act:
    """Returns a press of several keys together, such as `hotkey("ctrl", "a")`."""
    return Act("hotkey", keys=keys)


def wait_for_screen() -> Act:
    """Returns a wait without input until the screen has settled."""
    return Act("wait_for_screen")


def think(seconds: float) -> Act:
    """Returns a pause without input while nothing on the screen changes."""
    return Act("think", seconds=seconds)


@dataclass(frozen=True)
class Script:
    """The script of a demonstration: its task and its acts.

    `timestamp` becomes meta.timestamp. The first action starts `lead_in_ms` later, and the
    recording ends `tail_ms` after the last action.
    """

    desktop: Desktop
    acts: tuple[Act, ...]
    timestamp: str = "2026-01-05T09:00:00.000000000+00:00"
    title: str = "Do something"
    app: str = "Notes"
    content: str = "Please do something in Notes."
    objectives: tuple[str, ...] = ()
    status: str = "completed"
    reason: str | None = "done"
    pointer: tuple[int, int] = (960, 620)
    seed: int = 0
    lead_in_ms: int = 1200
    tail_ms: int = 1200

    @property
    def start_ms(self) -> int:
        """Returns `timestamp` in epoch milliseconds."""
        return round(datetime.fromisoformat(self.timestamp).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class IntendedAction:
    """The ground truth of an action, in the terms of OSWorld-Desktopd and in screen pixels.

    An action lasts from its first press of a key, button or wheel notch to its last release, in
    epoch milliseconds. A wait lasts from the last input before it to the first input after it. The
    target is the widget under the press, or the focused field if text is typed. Hotkeys and waits
    have no target.
    """

    action_type: str
    parameters: dict[str, Any]
    press_ms: int
    end_ms: int
    target: Box | None = None
    target_name: str = ""
    target_role: str = ""


@dataclass(frozen=True, slots=True)
class Pause:
    """A period without input, in epoch milliseconds. Only a `wait` is also an action."""

    kind: Literal["wait", "think"]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Moment:
    """The contents of the screen and the position of the pointer at an instant."""

    state: ScreenState
    pointer: tuple[int, int]


@dataclass(frozen=True)
class ScreenTimeline:
    """All changes of the screen and all moves of the pointer, with epoch milliseconds."""

    change_ms: Sequence[int]
    states: Sequence[ScreenState]
    move_ms: Sequence[int]
    points: Sequence[tuple[int, int]]

    def at(self, ms: float) -> Moment:
        """Returns the contents of the screen at `ms`. Times before the start count as the start."""
        state = self.states[max(0, bisect_right(self.change_ms, ms) - 1)]
        point = self.points[max(0, bisect_right(self.move_ms, ms) - 1)]
        return Moment(state, point)


@dataclass(frozen=True)
class Performance:
    """The result of a script: raw events in time order, the timeline, and the ground truth."""

    desktop: Desktop
    events: list[dict[str, Any]]
    timeline: ScreenTimeline
    actions: list[IntendedAction] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    start_ms: int = 0
    end_ms: int = 0
