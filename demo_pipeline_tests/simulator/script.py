"""Scripts: the acts to perform on named widgets, and the ground truth of a performance.

`performer.py` performs a script; the functions below create its acts.
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
    """One act of a script. `offset` (drag) is in design pixels; `notches` > 0 scrolls down."""

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
    """Left click while the modifiers `held` (canonical names) are down."""
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
    """Drag a window by its title bar ("Name/title bar"), `dx`, `dy` design pixels."""
    return Act("drag", target, offset=(dx, dy))


def scroll(target: str, notches: int) -> Act:
    """Turn the wheel over a list: positive scrolls down."""
    return Act("scroll", target, notches=notches)


def type_text(text: str) -> Act:
    """Type into the focused field; a backspace in `text` removes the character before it."""
    return Act("type_text", text=text)


def hotkey(*keys: str) -> Act:
    """Press canonical keys together, e.g. `hotkey("ctrl", "a")`."""
    return Act("hotkey", keys=keys)


def wait_for_screen() -> Act:
    """Wait without input until the screen has settled."""
    return Act("wait_for_screen")


def think(seconds: float) -> Act:
    """Pause without input while nothing on the screen changes."""
    return Act("think", seconds=seconds)


@dataclass(frozen=True)
class Script:
    """The script of a demonstration: its task and its acts.

    `timestamp` becomes meta.timestamp; the first action starts `lead_in_ms` after it and the
    recording ends `tail_ms` after the last.
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
        """`timestamp` as epoch milliseconds."""
        return round(datetime.fromisoformat(self.timestamp).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class IntendedAction:
    """The ground truth of one action in the terms of OSWorld-Desktopd; screen pixels.

    Times are epoch milliseconds: the first press (key, button or wheel notch) and the last
    release. A wait lasts from the last input before it to the first input after it. The target is
    the widget under the press, for typing the focused field; hotkeys and waits have none.
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
    """A time without input, epoch milliseconds; only a `wait` is also an action."""

    kind: Literal["wait", "think"]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Moment:
    """What the screen shows at an instant."""

    state: ScreenState
    pointer: tuple[int, int]


@dataclass(frozen=True)
class ScreenTimeline:
    """Every change of the screen and of the pointer, by epoch milliseconds."""

    change_ms: Sequence[int]
    states: Sequence[ScreenState]
    move_ms: Sequence[int]
    points: Sequence[tuple[int, int]]

    def at(self, ms: float) -> Moment:
        """What the screen shows at `ms`; before the start: what it shows at the start."""
        state = self.states[max(0, bisect_right(self.change_ms, ms) - 1)]
        point = self.points[max(0, bisect_right(self.move_ms, ms) - 1)]
        return Moment(state, point)


@dataclass(frozen=True)
class Performance:
    """The result of a script: raw events in time order, the screen over time, the ground truth."""

    desktop: Desktop
    events: list[dict[str, Any]]
    timeline: ScreenTimeline
    actions: list[IntendedAction] = field(default_factory=list)
    pauses: list[Pause] = field(default_factory=list)
    start_ms: int = 0
    end_ms: int = 0
