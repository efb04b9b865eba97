"""When the keyboard may have left what scans call focused, and whether it may be back.

A press outside a window, keys that switch or close windows, and text that appeared elsewhere are
departures. Following the focus is in keyboard_focus.py.
"""

from dataclasses import dataclass

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.trees.hit_test import focused_node, windows_at
from demo_pipeline.observation.trees.step_tree import Element, StepTree

_SWITCHING = frozenset({"tab", "esc", "`", "f6"})  # with alt or command: to another window
_CLOSING = frozenset(
    {
        *(frozenset({"alt", "f4"}), frozenset({"ctrl", "f4"})),
        *(frozenset({held, key}) for held in ("ctrl", "command") for key in "wq"),
    }
)


@dataclass(frozen=True)
class Departure:
    """A press, or keys, with which the keyboard may have left what scans call focused.

    AT-SPI calls an element focused as long as its own window would give it the keyboard, also while
    the keyboard is in a terminal or a launcher that has no tree.

    Attributes:
        end_ms: when that was over.
        focused: what the scan called focused then; None: nothing.
        windows: boxes of the windows that were on the screen.
        place: of the press, event space; None: keys did it.
        holders: boxes of the windows under the press.
        window: box of the window that surely has the keyboard, while it is on the screen.
    """

    end_ms: int
    focused: Element | None
    windows: frozenset[PixelBox | None]
    place: Point | None = None
    holders: frozenset[PixelBox | None] = frozenset()
    window: PixelBox | None = None

    def allows(self, tree: StepTree, focused: Element) -> bool:
        """Whether the keyboard may be in an element that a later scan calls focused."""
        window = window_box(tree, focused)
        now = window_boxes(tree)
        if window is None or window not in self.windows or window == self.window:
            return True
        if self.place is None:
            return False
        if not window.contains(*self.place):
            return bool(self.holders) and not self.holders & now  # the window pressed was closed
        is_pressed = focused.box is not None and focused.box.contains(*self.place)
        is_other = self.focused is None or focused.box != self.focused.box
        return is_pressed or is_other


def window_boxes(tree: StepTree) -> frozenset[PixelBox | None]:
    """The boxes of all windows that are in no other one."""
    return frozenset(tree.box(window) for window in tree.windows)


def window_box(tree: StepTree, element: Element) -> PixelBox | None:
    """The box of the window around an element."""
    window = tree.windows_around[element.position]
    return None if window is None else tree.box(window)


def departure_by_press(action: Action, tree: StepTree, target: Element | None) -> Departure:
    """What a press says of the window that has the keyboard."""
    place = None if action.x is None or action.y is None else (action.x, action.y)
    holders = [] if place is None else windows_at(tree, *place)
    return Departure(
        end_ms=action.end_ms,
        focused=focused_node(tree),
        windows=window_boxes(tree),
        place=place,
        holders=frozenset(tree.box(window) for window in holders),
        window=None if target is None else window_box(tree, target),
    )


def departure_by_keys(action: Action, tree: StepTree) -> Departure | None:
    """What keys that switch or close windows say of the window that has the keyboard."""
    keys = frozenset(action.keys)
    focused = focused_node(tree)
    closes = keys in _CLOSING
    is_switch = bool(keys & {"alt", "command"}) and bool(keys & _SWITCHING)
    if not (closes or is_switch or "win" in keys or keys >= {"ctrl", "alt"}):
        return None
    stays = window_box(tree, focused) if focused is not None and closes else None
    return Departure(action.end_ms, focused, window_boxes(tree), window=stays)
