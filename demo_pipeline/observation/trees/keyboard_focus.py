"""The element that keys were meant for.

Belongs here: what the scan says has the keyboard, and when a click or a change of the screen since
then makes that doubtful (formats note 2, target_element).
"""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.trees.hit_test import focused_node, text_node_at
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree

FOCUS_MS = 300  # a scan this soon after a click may not know yet what it focused
OPENING_MS = 1500  # a large change this soon after a click is what the click opened


class KeyboardFocus:
    """Follows the clicks of a demonstration in order."""

    def __init__(self) -> None:
        self._click: Action | None = None
        self._known = False

    def clicked(self, action: Action, *, known: bool) -> None:
        """A press of the pointer; `known`: its own target stood in its tree."""
        self._click, self._known = action, known

    def target(
        self, action: Action, tree: StepTree, force: CurrentScan, changes_ms: Sequence[float]
    ) -> tuple[Element | None, str]:
        """The focused element, or the text field clicked since the scan; None in doubt.

        A scan older than the last click cannot know the focus that the click set, and one older
        than a large change may name a field behind the dialog that has the keyboard now.
        `changes_ms`: when much of the screen changed, epoch milliseconds.
        """
        if action.action_type == "pause" or force.scan is None:
            return None, "none"
        scanned, click = force.scan.time_ms, self._click
        since = max(scanned, click.end_ms + OPENING_MS if click else scanned)
        if any(since < at < action.press_ms for at in changes_ms):
            return None, "none"
        clicked = self._text_field(tree)
        if click is not None and scanned < click.end_ms + FOCUS_MS:
            return (clicked, "last_click") if clicked and self._known else (None, "none")
        focused = focused_node(tree)
        if focused is not None:
            return focused, "focused"
        return clicked, "last_click" if clicked else "none"

    def _text_field(self, tree: StepTree) -> Element | None:
        click = self._click
        if click is None or click.x is None or click.y is None:
            return None
        return text_node_at(tree, click.x, click.y)
