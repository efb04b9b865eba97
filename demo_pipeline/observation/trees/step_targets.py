"""What each action was aimed at: the element under the pointer, or that which the keys went to.

Belongs here: what the pictures say against the tree. The hit test is in hit_test.py, the focus in
keyboard_focus.py.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.frames.evidence import Evidence, TargetEvidence
from demo_pipeline.observation.trees.hit_test import has_element, node_at
from demo_pipeline.observation.trees.keyboard_focus import KeyboardFocus
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.observation.trees.tree_reader import TreeReader

LABEL_PX = 48  # video pixels from a check box to its label; not measured
_NAMED_BESIDE = frozenset({"checkbox", "radiobutton"})  # their look is the same for every name
_MENUS = frozenset({"menu", "menuitem"})

Aimed = tuple[Element | None, str]
"""The target (None when in doubt) and how it was found, as `target_method`."""

NOTHING: Aimed = (None, "none")


class StepTargets:
    """Finds the targets of the actions of a demonstration, in order.

    Args:
        reader: of their trees.
        evidence: what the pictures show.
        changes_ms: when much of the screen changed, epoch milliseconds.
    """

    def __init__(self, reader: TreeReader, evidence: Evidence, changes_ms: Sequence[float]) -> None:
        self._reader = reader
        self._changes_ms = changes_ms
        self._seen = {target.action_index: target for target in evidence.targets}
        self._typed = {typing.action_index: typing.places for typing in evidence.typed}
        self._since = {since.action_index: since for since in evidence.since_scan}
        self._keyboard = KeyboardFocus()
        self._end_ms = float("-inf")  # of the actions so far

    def target(
        self, action: Action, tree: StepTree, current: CurrentScan, *, differs: bool
    ) -> Aimed:
        """The target of the next action.

        Args:
            action: the action.
            tree: of the current scan.
            current: the current scan.
            differs: whether the tree says something else than the screenshot.
        """
        index = action.action_index
        seen = self._seen.get(index)
        found = NOTHING
        if current.scan is not None and self._reader.scale(current.scan) is None:
            pass
        elif action.action_type in POINTER_TYPES:
            found = self._pointed(action, tree, current, seen)
        elif not differs:  # else the focus may have moved to what the tree lacks
            typed = self._typed.get(index, ())
            found = self._keyboard.target(action, tree, current, self._changes_ms, typed)
        self._keyboard.record(action, tree, found[0], seen.window if seen else None)
        if action.action_type != "pause":
            self._end_ms = max(self._end_ms, action.end_ms)
        return found

    def _pointed(
        self, action: Action, tree: StepTree, current: CurrentScan, seen: TargetEvidence | None
    ) -> Aimed:
        """The target under the point, unless the screen there changed after the scan."""
        if action.x is None or action.y is None:
            return NOTHING
        is_compared = seen is not None and seen.began is not None
        if current.freshness == "changed" and not is_compared:
            return NOTHING
        front, of_scroll = seen.window if seen else None, action.action_type == "scroll"
        target = node_at(tree, action.x, action.y, front, of_scroll=of_scroll)
        if target is None or self._is_moved(action, tree, target):
            return NOTHING
        if seen is not None and seen.began:
            appeared = not seen.ended and self._appeared(tree, target, current)
            return (target, "hit_test") if appeared else NOTHING
        return target, "hit_test"

    def _appeared(self, tree: StepTree, target: Element, current: CurrentScan) -> bool:
        """Whether an element appeared while the scan ran: the scan before does not have it.

        A menu may have been closing then, if the person did anything since that scan.
        """
        previous = current.previous
        if previous is None or (target.role in _MENUS and previous.end_ms < self._end_ms):
            return False
        before = self._reader.readable_tree(previous, tree.canvas)
        return before is not None and not has_element(before, target)

    def _is_moved(self, action: Action, tree: StepTree, target: Element) -> bool:
        """Whether something changed in the line of an element whose name stands beside it."""
        since = self._since.get(action.action_index)
        changes = (since.ended or since.began) if since else None
        if changes is None or target.role not in _NAMED_BESIDE or target.box is None:
            return False
        x, y, width, height = tree.canvas.boxes_to_video(np.array(target.box)).tolist()
        return any(
            left < x + width + LABEL_PX
            and x < left + across + LABEL_PX
            and top < y + height
            and y < top + down
            for left, top, across, down in (*changes.regions, *changes.panels)
        )
