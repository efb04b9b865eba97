"""Finding widgets by the accessibility tree: where the hand aims, and what has the keyboard."""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi

Atspi.set_timeout(1500, 5000)
_DEPTH = 45
_CHILDREN = 300
_SEARCHES = 12


@dataclass(frozen=True, slots=True)
class Widget:
    """A widget that is showing; `box` is x, y, width and height in pixels of the screen."""

    role: str
    name: str
    box: tuple[int, int, int, int]
    accessible: Any

    @property
    def x(self) -> int:
        """The middle, in pixels."""
        return self.box[0] + self.box[2] // 2

    @property
    def y(self) -> int:
        """The middle, in pixels."""
        return self.box[1] + self.box[3] // 2

    def as_truth(self) -> dict[str, Any]:
        """The widget as an entry of the truth list names it."""
        return {"role": self.role, "name": self.name, "box": list(self.box)}


def find(
    application: str,
    roles: str | tuple[str, ...],
    name: str = "",
    *,
    exact: bool = False,
    pick: int = 0,
    test: Callable[[Widget], bool] | None = None,
) -> Widget:
    """The widget of a program with one of the roles, whose name holds a text.

    Args:
        application: a part of the program's accessible name.
        roles: the names of the roles, as AT-SPI gives them.
        name: a part of the widget's accessible name.
        exact: whether the name must equal the text.
        pick: which of several widgets, in tree order; -1 for the last.
        test: a condition that the widget must meet.

    Raises:
        LookupError: no such widget appeared within some seconds.
    """
    wanted = (roles,) if isinstance(roles, str) else roles
    for _ in range(_SEARCHES):
        hits = []
        for program in _programs(application):
            for accessible in _descendants(program, 0):
                widget = _widget(accessible, wanted)
                if widget is None:
                    continue
                matches = widget.name == name if exact else name in widget.name
                if matches and (test is None or test(widget)):
                    hits.append(widget)
                    if pick == 0:
                        return widget
        if len(hits) > max(pick, 0):
            return hits[pick]
        time.sleep(0.3)
    raise LookupError(f"No showing widget {wanted} with the name {name!r} in {application!r}.")


def focused_widget() -> dict[str, Any] | None:
    """The widget that has the keyboard; the role `none` where the active program has no tree."""
    process = _active_process()
    has_tree = False
    for program in _programs(""):
        try:
            if program.get_process_id() != process:
                continue
        except Exception:
            continue
        has_tree = True
        for window in _active_windows(program):
            for accessible in _descendants(window, 1):
                if _has_state(accessible, Atspi.StateType.FOCUSED):
                    widget = _widget(accessible, None)
                    return widget.as_truth() if widget else None
    return None if has_tree else {"role": "none", "name": "", "box": [0, 0, 0, 0]}


def _programs(name: str) -> Iterator[Any]:
    desktop = Atspi.get_desktop(0)
    for index in range(desktop.get_child_count()):
        try:
            program = desktop.get_child_at_index(index)
            if program is not None and name.lower() in (program.get_name() or "").lower():
                yield program
        except Exception:
            continue


def _descendants(accessible: Any, depth: int) -> Iterator[Any]:
    yield accessible
    if depth > _DEPTH:
        return
    try:
        count = min(accessible.get_child_count(), _CHILDREN)
    except Exception:
        return
    for index in range(count):
        try:
            child = accessible.get_child_at_index(index)
            if child is None:
                continue
            states = child.get_state_set()
            if depth > 2 and not states.contains(Atspi.StateType.SHOWING):
                continue
        except Exception:
            continue
        yield from _descendants(child, depth + 1)


def _widget(accessible: Any, roles: tuple[str, ...] | None) -> Widget | None:
    """The widget, if it has one of the roles and is showing."""
    try:
        role = accessible.get_role_name()
        if roles is not None and role not in roles:
            return None
        if not accessible.get_state_set().contains(Atspi.StateType.SHOWING):
            return None
        area = Atspi.Component.get_extents(accessible, Atspi.CoordType.SCREEN)
        name = accessible.get_name() or ""
    except Exception:
        return None
    if area.width <= 0 or area.height <= 0:
        return None
    return Widget(role, name, (area.x, area.y, area.width, area.height), accessible)


def _active_windows(program: Any) -> list[Any]:
    """The active windows of a program: all of its windows hold focused widgets of their own."""
    windows = []
    for index in range(program.get_child_count()):
        window = program.get_child_at_index(index)
        if window is not None and _has_state(window, Atspi.StateType.ACTIVE):
            windows.append(window)
    return windows


def _has_state(accessible: Any, state: Any) -> bool:
    try:
        return bool(accessible.get_state_set().contains(state))
    except Exception:
        return False


def _active_process() -> int | None:
    command = ["xdotool", "getactivewindow", "getwindowpid"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return int(output[0]) if output else None
