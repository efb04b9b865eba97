"""The element that keys went to: the focused element of the scan, or the text field clicked since.

Recorders report a focus that another window has taken, so that it counts only while nothing may
have moved it, in the window that was clicked, and where the typed text appeared. In doubt there is
no target.
"""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.frames.evidence import ChangedBox
from demo_pipeline.observation.trees.hit_test import TEXT_ROLES, focused_node, text_node_at
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import BoxTuple, Element, StepTree
from demo_pipeline.observation.trees.tree_windows import (
    front_window,
    window_boxes,
    window_of,
)

FOCUS_MS = 300  # milliseconds after what moves the focus; a scan may still have the old one
_EDITING = frozenset(
    {
        *("backspace", "delete", "left", "right", "up", "down", "home", "end"),
        *("pageup", "pagedown", "shift"),
    }
)
_CLIPBOARD = frozenset("acvxyz")  # with ctrl or command


class KeyboardFocus:
    """Follows the actions of a demonstration in order."""

    def __init__(self) -> None:
        self._since_ms = float("-inf")  # when the focus may have moved last
        self._click: Action | None = None  # what moved it, if it was a click on something known
        self._window: BoxTuple | None = None  # that was clicked last
        self._others: frozenset[BoxTuple | None] = frozenset()  # the other windows at that time
        self._is_lost = False  # in something that is not in the trees
        self._left_in: Element | None = None  # what the trees say has it meanwhile

    def target(
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        changes_ms: Sequence[float],
        typed: Sequence[ChangedBox] = (),
    ) -> tuple[Element | None, str]:
        """The element that keys went to (None when in doubt) and the method, as `target_method`.

        Args:
            action: the keys.
            tree: the tree of the current scan.
            current: the current scan.
            changes_ms: when much of the screen changed, epoch milliseconds.
            typed: what changed while text was typed, video pixels.
        """
        if action.action_type == "pause" or current.scan is None:
            return None, "none"
        scanned = current.scan.begin_ms
        since = max(scanned, self._since_ms)
        if any(since < change < action.press_ms for change in changes_ms):
            return None, "none"
        if self._is_lost and self._may_be_lost(tree, scanned):
            return None, "none"
        if scanned >= self._since_ms + FOCUS_MS:
            found, method = focused_node(tree), "focused"
            if found is not None and not self._may_have_focus(tree, found):
                return None, "none"
        else:
            found, method = self._clicked_text_field(tree), "last_click"
        if found is not None and typed and not _holds_any(tree, found, typed):
            self._lose()
            return None, "none"
        return found, method if found else "none"

    def _lose(self) -> None:
        self._is_lost, self._left_in = True, None

    def _may_be_lost(self, tree: StepTree, scanned_ms: int) -> bool:
        """Whether the focus is still where it was in the trees when it was lost."""
        focused = focused_node(tree)
        if self._left_in is None and scanned_ms >= self._since_ms + FOCUS_MS:
            self._left_in = focused
        left = self._left_in
        self._is_lost = (
            left is None
            or focused is None
            or (left.name, left.box)
            == (
                focused.name,
                focused.box,
            )
        )
        return self._is_lost

    def _may_have_focus(self, tree: StepTree, found: Element) -> bool:
        """Whether it is in the window that was clicked, or in one that opened since."""
        window = window_of(tree, found.position)
        box = None if window is None else tree.box(window)
        return self._window is None or box == self._window or box not in self._others

    def _clicked_text_field(self, tree: StepTree) -> Element | None:
        click = self._click
        if click is None or click.x is None or click.y is None:
            return None
        return text_node_at(tree, click.x, click.y)

    def record(
        self, action: Action, tree: StepTree, target: Element | None, front: int | None = None
    ) -> None:
        """Note an action and its target; `front`: the window that the picture shows in front."""
        if action.action_type in POINTER_TYPES - {"scroll"}:
            if target is not None:
                front = window_of(tree, target.position)
            elif front is None and action.x is not None and action.y is not None:
                front = front_window(tree, action.x, action.y)
            self._since_ms, self._is_lost = action.end_ms, False
            if target is None and front is None:
                self._lose()
            self._click = None if target is None else action
            self._window = None if front is None else tree.box(front)
            self._others = window_boxes(tree) - {self._window}
        elif action.action_type == "hotkey" and _moves_focus(action, target):
            self._since_ms, self._click = action.end_ms, None


def _moves_focus(action: Action, target: Element | None) -> bool:
    """Whether keys may move the focus, or open something that takes it."""
    keys = set(action.keys)
    if keys & {"ctrl", "command"} and len(keys) == 2 and keys & _CLIPBOARD:
        return False
    edits = keys <= _EDITING | {"ctrl"}
    return not (edits and target is not None and target.role in TEXT_ROLES)


def _holds_any(tree: StepTree, element: Element, places: Sequence[ChangedBox]) -> bool:
    """Whether the middle of one of these places in the picture is inside an element."""
    if element.box is None:
        return False
    x, y, width, height = element.box
    left, top = tree.canvas.to_video(x, y)
    right, bottom = tree.canvas.to_video(x + width, y + height)
    return any(
        left <= place[0] + place[2] / 2 <= right and top <= place[1] + place[3] / 2 <= bottom
        for place in places
    )
