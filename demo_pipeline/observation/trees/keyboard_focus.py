"""The element that keys went to: the focused element of the scan, or the text field clicked since.

A click or a large change of the screen after the scan makes the focus in the scan doubtful; then
there is no target.
"""

from collections.abc import Sequence

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.observation.trees.hit_test import focused_node, text_node_at
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree

FOCUS_MS = 300  # milliseconds after a click; a scan that began earlier may have the old focus
OPENING_MS = 1500  # milliseconds after a click in which a large change is what the click opened


class KeyboardFocus:
    """Follows the clicks of a demonstration in order."""

    def __init__(self) -> None:
        self._click: Action | None = None
        self._target_known = False

    def record_click(self, action: Action, *, target_known: bool) -> None:
        """Note a press of a button; `target_known`: its own target was in its tree."""
        self._click, self._target_known = action, target_known

    def target(
        self, action: Action, tree: StepTree, current: CurrentScan, changes_ms: Sequence[float]
    ) -> tuple[Element | None, str]:
        """The element that keys went to (None when in doubt) and the method, as `target_method`.

        A scan older than the last click does not have the focus that the click set, and one older
        than a large change may name a field behind the dialog that has the keyboard now.

        Args:
            action: the keys.
            tree: the tree of the current scan.
            current: the current scan.
            changes_ms: when much of the screen changed, epoch milliseconds.
        """
        if action.action_type == "pause" or current.scan is None:
            return None, "none"
        scanned, click = current.scan.begin_ms, self._click
        since = max(scanned, click.end_ms + OPENING_MS if click else scanned)
        if any(since < change < action.press_ms for change in changes_ms):
            return None, "none"
        clicked = self._clicked_text_field(tree)
        if click is not None and scanned < click.end_ms + FOCUS_MS:
            return (clicked, "last_click") if clicked and self._target_known else (None, "none")
        focused = focused_node(tree)
        if focused is not None:
            return focused, "focused"
        return clicked, "last_click" if clicked else "none"

    def _clicked_text_field(self, tree: StepTree) -> Element | None:
        click = self._click
        if click is None or click.x is None or click.y is None:
            return None
        return text_node_at(tree, click.x, click.y)
