"""Decides whether the keyboard focus may be elsewhere than a scan says.

AT-SPI reports an element as focused even while the person types into a window without an
accessibility tree. Three kinds of events, called departures, may move the focus to such a window: a
press in another window, keys that switch or close windows, and text that appears elsewhere.
"""

from dataclasses import dataclass

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.trees.hit_test import focused_node, windows_at
from demo_pipeline.observation.trees.step_tree import Element, StepTree

# Keys that, together with Alt or Command, switch windows.
_SWITCHING_KEYS = frozenset({"tab", "esc", "`", "f6"})
# Hotkeys that close a window or a part of it.
_CLOSING_KEYS = frozenset(
    {
        frozenset({"alt", "f4"}),
        frozenset({"ctrl", "f4"}),
        frozenset({"ctrl", "w"}),
        frozenset({"ctrl", "q"}),
        frozenset({"command", "w"}),
        frozenset({"command", "q"}),
    }
)


@dataclass(frozen=True)
class Departure:
    """An action after which the focus may be elsewhere than the scans say.

    Attributes:
        end_ms: when the action ended, epoch milliseconds.
        focused: the focused element of the current scan. None if no element is focused.
        windows: boxes of the windows in this scan.
        place: point of the press, in event space. None if the action was not a press.
        pressed_windows: boxes of the windows under the point of the press.
        window: box of the window that gets or keeps the keyboard focus, unless the action closes
            this window. None if the window is unknown.
    """

    end_ms: int
    focused: Element | None
    windows: frozenset[PixelBox | None]
    place: Point | None = None
    pressed_windows: frozenset[PixelBox | None] = frozenset()
    window: PixelBox | None = None

    def allows(self, tree: StepTree, focused: Element) -> bool:
        """Returns whether a later scan, with this tree, may be right about the focused element."""
        window = window_box(tree, focused)
        if window is None or window not in self.windows or window == self.window:
            return True
        if self.place is None:
            return False
        if not window.contains(*self.place):
            # If the pressed window was closed, the focus returned to the window of `focused`.
            return bool(self.pressed_windows) and not self.pressed_windows & window_boxes(tree)
        is_pressed = focused.box is not None and focused.box.contains(*self.place)
        is_other = self.focused is None or focused.box != self.focused.box
        return is_pressed or is_other


def window_boxes(tree: StepTree) -> frozenset[PixelBox | None]:
    """Returns the boxes of all outermost windows, with None for windows without a usable box."""
    return frozenset(map(tree.box, tree.windows))


def window_box(tree: StepTree, element: Element) -> PixelBox | None:
    """Returns the box of the window around an element; None if the box is unknown."""
    window = tree.windows_around[element.position]
    return None if window is None else tree.box(window)


def departure_by_press(action: Action, tree: StepTree, target: Element | None) -> Departure:
    """Returns the departure for a press of a mouse button.

    Args:
        target: the pressed element; None if the element is unknown.
    """
    place = None
    pressed_windows: list[int] = []
    if action.x is not None and action.y is not None:
        place = (action.x, action.y)
        pressed_windows = windows_at(tree, *place)
    return Departure(
        end_ms=action.end_ms,
        focused=focused_node(tree),
        windows=window_boxes(tree),
        place=place,
        pressed_windows=frozenset(map(tree.box, pressed_windows)),
        window=None if target is None else window_box(tree, target),
    )


def departure_by_keys(action: Action, tree: StepTree) -> Departure | None:
    """Returns the departure for a hotkey; None if the hotkey cannot switch or close windows."""
    keys = frozenset(action.keys)
    closes = keys in _CLOSING_KEYS
    switches = bool(keys & {"alt", "command"}) and bool(keys & _SWITCHING_KEYS)
    if not (closes or switches or "win" in keys or keys >= {"ctrl", "alt"}):
        return None
    focused = focused_node(tree)
    remaining_window = None
    if focused is not None and closes:
        # If this window is still there later, the keys closed another window or only a part of it.
        remaining_window = window_box(tree, focused)
    return Departure(action.end_ms, focused, window_boxes(tree), window=remaining_window)
