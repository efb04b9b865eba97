"""The window that the last click put in front, for trees that do not say which one is.

A desktop raises the window that is clicked. It stays in front until keys, a drag, another click or
a window that opens since may have changed that.
"""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.trees.step_tree import BoxTuple, Element, StepTree
from demo_pipeline.observation.trees.tree_windows import is_window, window_of, windows_at

KEEPS_ORDER = frozenset({"type", "scroll", "pause"})  # actions after which the window stays
_IN_MENUS = frozenset({"menu", "menuitem"})  # their menu closes, which changes much of the screen


class ClickedWindow:
    """Follows the actions of a demonstration in order."""

    def __init__(self) -> None:
        self._window: BoxTuple | None = None
        self._others: frozenset[BoxTuple | None] = frozenset()
        self._end_ms = 0
        self._in_menu = False

    def record(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Note an action; `target`: what it was certainly aimed at, in its tree."""
        if action.action_type in KEEPS_ORDER:
            return
        self._window = None
        if target is None or action.action_type not in POINTER_TYPES - {"drag"}:
            return
        window = window_of(tree, target.position)
        if window is not None:
            self._window = tree.box(window)
            self._others = frozenset(tree.box(node) for node in _windows(tree))
            self._end_ms, self._in_menu = action.end_ms, target.role in _IN_MENUS

    def in_tree(
        self, action: Action, tree: StepTree, changes_ms: Sequence[float] = ()
    ) -> int | None:
        """Position of that window in the tree of an action; None when another may be in front.

        Args:
            action: of the pointer.
            tree: of its current scan.
            changes_ms: when much of the screen changed, epoch milliseconds.
        """
        if self._window is None or action.x is None or action.y is None:
            return None
        changed = any(self._end_ms < change < action.press_ms for change in changes_ms)
        if changed and not self._in_menu:
            return None
        under = windows_at(tree, action.x, action.y)
        if any(tree.box(window) not in self._others for window in under):
            return None  # it opened or was moved since
        same = [window for window in under if tree.box(window) == self._window]
        return same[0] if len(same) == 1 else None


def _windows(tree: StepTree) -> list[int]:
    return [
        node for node in range(len(tree)) if is_window(tree, node) and window_of(tree, node) == node
    ]
