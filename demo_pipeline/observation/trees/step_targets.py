"""Finds the target of each action: the element under the pointer, or the element with the focus.

This module also decides whether the tree of an action agrees with its screenshot.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.frames.changes import ChangedBox, ContentChanges
from demo_pipeline.observation.frames.evidence import Evidence, TargetEvidence
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.covered_windows import is_covered_at
from demo_pipeline.observation.trees.focus_rings import Grey, grey_screenshot
from demo_pipeline.observation.trees.hit_test import front_window, has_element, node_at
from demo_pipeline.observation.trees.keyboard_focus import (
    NO_TARGET,
    FocusEvidence,
    FoundTarget,
    KeyboardFocus,
)
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree, TreeReader
from demo_pipeline.observation.trees.text_places import overlap
from demo_pipeline.observation.trees.tree_agreement import (
    Agreement,
    Contradiction,
    contradictions_of,
    touched_share,
)
from demo_pipeline.recording.logged_scans import LoggedScan

METHODS = ("hit_test", "focused", "last_click", "typed", "tab", "picture", "none")
# A tree agrees in part with the screenshot if less than half of its named elements changed.
# Measured: 0 to 0.45 of them changed while a page loaded, and 0.56 on other screens.
WAITED_SHARE = 0.5
# A change of content is near a press if it is within this distance, in units of event space. A
# distance of 64 overlooks some changes.
UNTOUCHED_PX = 96
# Largest distance from a check box to its label, in video pixels. If the label changed, the target
# is unknown. This rule avoided one wrong target name and lost one correct name.
LABEL_PX = 48
# Height of the top part of a window that contains the title, in units of event space. Title bars
# are 20 to 40 high, and the tabs of a browser are 40 high.
TITLE_PX = 48
# Roles of elements whose name is visible next to their box.
_LABELLED_BESIDE = frozenset({"checkbox", "radiobutton"})
_MENUS = frozenset({"menu", "menuitem"})


def agreement_at(  # noqa: PLR0917 - an action, its tree, and the evidence about both
    action: Action,
    tree: StepTree,
    target: Element | None,
    contradictions: Sequence[Contradiction] | None,
    pointed: TargetEvidence | None,
    keyboard: KeyboardFocus,
) -> Agreement:
    """Returns whether a tree agrees with the screenshot, at least where the action takes place.

    If tree and screenshot differ, the tree still agrees in part (`PARTIAL`) in these cases:

    - The target of a pointing action is known, and either the target was not redrawn, or nothing
      changed near the press.
    - The target of keys is known.
    - The action is a wait, and most of the named elements have not changed.
    - The target of keys is unknown, most of the named elements have not changed, no menu or dialog
      that is missing from the tree opened, and no typed text appeared outside all fields.

    Args:
        target: the target of the action; None if it is unknown.
        contradictions: places where the screenshot contradicts the tree; None if the two were not
            compared.
        pointed: evidence from the video about the target of a pointing action.
        keyboard: the keyboard focus before the action.
    """
    if contradictions is None:
        return Agreement.UNKNOWN
    x, y = tree.canvas.to_video(action.x or 0.0, action.y or 0.0)
    is_pointing = action.action_type in POINTER_TYPES
    misses_target = is_pointing and action.action_type != "scroll" and target is None
    contradictions = [
        change
        for change in contradictions
        if not change.is_news or (misses_target and change.is_near(x, y))
    ]
    if not contradictions:
        return Agreement.AGREES
    if action.action_type == "pause":
        is_place_right = touched_share(tree, contradictions) < WAITED_SHARE
    elif is_pointing:
        is_untouched = pointed is not None and False in {pointed.began, pointed.ended}
        is_near = any(change.is_near(x, y) for change in contradictions)
        is_place_right = target is not None and (is_untouched or not is_near)
    else:
        may_be_elsewhere = keyboard.is_in_unknown_field or any(
            change.is_popup for change in contradictions
        )
        is_place_right = target is not None or (
            not may_be_elsewhere and touched_share(tree, contradictions) < WAITED_SHARE
        )
    return Agreement.PARTIAL if is_place_right else Agreement.DIFFERS


class StepTargets:
    """Finds the target of each action, and whether the action's tree agrees with the screenshot.

    Args:
        changes_ms: times at which much of the screen changed, epoch milliseconds.
        actions: the actions of the demonstration, in order.
        screenshots: the screenshot of each action. Without screenshots, no focus rings or
            highlighted choices can be found.
    """

    def __init__(
        self,
        reader: TreeReader,
        evidence: Evidence,
        changes_ms: Sequence[float],
        actions: Sequence[Action],
        screenshots: Sequence[Path] = (),
    ) -> None:
        self._reader = reader
        self._actions = actions
        self._screenshots = screenshots
        self._read_screenshot = lru_cache(maxsize=2)(grey_screenshot)
        # Indexes and press times (epoch milliseconds) of the actions that are not pauses.
        self._acting: list[int] = []
        self._presses: list[int] = []
        for number, action in enumerate(actions):
            if action.action_type != "pause":
                self._acting.append(number)
                self._presses.append(action.press_ms)
        self._changes_ms = changes_ms
        self._pointed = {target.action_index: target for target in evidence.targets}
        self._typed = {typing.action_index: typing.places for typing in evidence.typed}
        self._since_scan = {since.action_index: since for since in evidence.since_scan}
        self._hovers = {hover.action_index: hover for hover in evidence.hovers}
        self._keyboard = KeyboardFocus()

    def step(
        self, number: int, tree: StepTree, current: CurrentScan, scans: Sequence[LoggedScan]
    ) -> tuple[Agreement, Element | None, str]:
        """Returns whether tree and screenshot agree, the action's target, and its `target_method`.

        Call this method for every action, in order.

        Args:
            scans: the result of `scans_of_part` for the action.
        """
        action = self._actions[number]
        pointed = self._pointed.get(action.action_index)
        target = NO_TARGET
        contradictions = self._contradictions(action, tree, current)
        has_scale = current.scan is None or self._reader.scale(current.scan) is not None
        if has_scale and action.action_type in POINTER_TYPES:
            target = self._pointer_target(action, tree, current, pointed)
        elif has_scale:
            certain = None
            if contradictions is not None:
                certain = [change for change in contradictions if not change.is_news]
            target = self._keyboard.target(
                action,
                tree,
                current,
                self._changes_ms,
                self._typed.get(action.action_index, ()),
                certain,
                self._focus_evidence(number, tree, scans),
            )
        element = target.element
        agreement = agreement_at(action, tree, element, contradictions, pointed, self._keyboard)
        if agreement is Agreement.AGREES and element is None and self._is_change_at(action, tree):
            agreement = Agreement.DIFFERS
        self._keyboard.record(action, tree, element)
        return agreement, element, target.method

    def hovered(self, number: int, tree: StepTree) -> Element | None:
        """Returns the hovered element that opened the target of an action, such as a menu title.

        Returns None if nothing opened, if the element has no name, or if the screen changed at the
        element after the scan.
        """
        index = self._actions[number].action_index
        hover = self._hovers.get(index)
        since = self._since_scan.get(index)
        if hover is None or since is None:
            return None
        element = node_at(tree, hover.places[-1].x, hover.places[-1].y)
        changes = since.ended or since.began
        if element is None or not element.name or _is_changed_at(tree, element, changes):
            return None
        return element

    def _focus_evidence(
        self, number: int, tree: StepTree, scans: Sequence[LoggedScan]
    ) -> FocusEvidence:
        """Returns the evidence about the focus from screenshots and from the next scan."""
        action = self._actions[number]
        later_scan: LoggedScan | None = None
        for scan in scans:
            is_later = scan.begin_ms >= action.press_ms
            if is_later and (later_scan is None or scan.begin_ms < later_scan.begin_ms):
                later_scan = scan
        before = bisect_left(self._acting, number)
        after = bisect_right(self._presses, action.press_ms)
        is_undisturbed = False
        later_tree = None
        if later_scan is not None:
            is_last = after == len(self._presses)
            is_undisturbed = is_last or later_scan.end_ms <= self._presses[after]
            later_tree = self._reader.readable_tree(later_scan, tree.canvas)
        return FocusEvidence(
            before=partial(self._screenshot, self._acting[before - 1] if before else None),
            now=partial(self._screenshot, number),
            later=later_tree,
            is_undisturbed=is_undisturbed,
        )

    def _screenshot(self, number: int | None) -> Grey | None:
        if number is None or number >= len(self._screenshots):
            return None
        return self._read_screenshot(self._screenshots[number])

    def window(self, action: Action, tree: StepTree, target: Element | None) -> int | None:
        """Returns the position of the window in which an action took place; None if unknown."""
        if target is not None:
            return tree.windows_around[target.position]
        if action.action_type not in POINTER_TYPES or action.x is None or action.y is None:
            return None
        pointed = self._pointed.get(action.action_index)
        if pointed is not None and pointed.window is not None:
            return pointed.window
        return front_window(tree, action.x, action.y)

    def is_window_certain(
        self, number: int, tree: StepTree, window: int, target: Element | None
    ) -> bool:
        """Returns whether an action surely took place in `window`, and the window's title is valid.

        The title bar must not have changed after the scan began. If the target of a press is
        unknown, there are two more conditions: no panel opened over the press and, on Linux, the
        screenshot shows the window's border. The border is hidden if a window that is missing from
        the tree lies in front. `target` is None if it is unknown.
        """
        action = self._actions[number]
        box = tree.box(window)
        since = self._since_scan.get(action.action_index)
        if since is None or since.began is None or box is None:
            return False
        title = tree.canvas.box_to_video(box._replace(height=min(box.height, TITLE_PX)))
        if _reaches_into(since.began.regions, title):
            return False
        if target is not None or action.x is None or action.y is None:
            return True
        x, y = tree.canvas.to_video(action.x, action.y)
        for panel in since.began.panels:
            if PixelBox(*panel).contains(x, y):
                return False
        screenshot = self._screenshot(number) if tree.platform == "linux" else None
        if screenshot is None:
            return True
        bounds = list(tree.element(window).bounds.values())
        other_bounds = [
            list(tree.element(other).bounds.values()) for other in tree.windows if other != window
        ]
        place = tree.canvas.to_canvas(action.x, action.y)
        return not is_covered_at(screenshot, bounds, other_bounds, place)

    def _contradictions(
        self, action: Action, tree: StepTree, current: CurrentScan
    ) -> Sequence[Contradiction] | None:
        """Returns where the screenshot contradicts the tree; None if the two were not compared."""
        since = self._since_scan.get(action.action_index)
        scan = current.scan
        if scan is None or since is None or since.scan_event != scan.event_index:
            return None
        if self._reader.scale(scan) is None:
            return None
        return contradictions_of(tree, since, lambda: self._previous_tree(tree, current))

    def _is_change_at(self, action: Action, tree: StepTree) -> bool:
        """Returns whether the screen changed near a mouse press after the scan ended."""
        since = self._since_scan.get(action.action_index)
        if since is None or since.ended is None:
            return False
        if action.action_type not in POINTER_TYPES - {"scroll"}:
            return False
        x, y = tree.canvas.to_video(action.x or 0.0, action.y or 0.0)
        places = (*since.ended.regions, *since.ended.panels)
        return any(Contradiction(place, is_popup=False).is_near(x, y) for place in places)

    def _previous_tree(self, tree: StepTree, current: CurrentScan) -> StepTree | None:
        """Returns the tree of the scan before the current one; None if there is no usable scan."""
        previous = current.previous
        return None if previous is None else self._reader.readable_tree(previous, tree.canvas)

    def _pointer_target(
        self, action: Action, tree: StepTree, current: CurrentScan, pointed: TargetEvidence | None
    ) -> FoundTarget:
        """Returns the element under the pointer, unless the screen changed there after the scan.

        `pointed` is the evidence from the video about the element, or None.
        """
        if action.x is None or action.y is None:
            return NO_TARGET
        is_compared = pointed is not None and pointed.began is not None
        if current.freshness == "changed" and not is_compared:
            return NO_TARGET
        front = pointed.window if pointed else None
        is_scroll = action.action_type == "scroll"
        target = node_at(tree, action.x, action.y, front, of_scroll=is_scroll)
        if target is None:
            return NO_TARGET
        since = self._since_scan.get(action.action_index)
        changes = (since.ended or since.began) if since else None
        if target.role in _LABELLED_BESIDE and _is_changed_at(tree, target, changes, LABEL_PX):
            return NO_TARGET
        is_right = (
            pointed is None
            or not pointed.began
            or self._is_still_there(action, tree, current, target, pointed)
        )
        return FoundTarget(target, "hit_test") if is_right else NO_TARGET

    def _is_still_there(
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        target: Element,
        pointed: TargetEvidence,
    ) -> bool:
        """Returns whether an element that was redrawn after the scan began is still on the screen.

        The element is still there in three cases:

        - The element was only highlighted: no content of the screen changed at the element or near
          the press.
        - Nothing changed at the element after the scan ended, the previous scan has the element
          too, and the element looks as it did at the time of the previous scan.
        - Nothing changed at the element after the scan ended, and the element appeared during the
          scan.
        """
        began = None
        ended = None
        since = self._since_scan.get(action.action_index)
        if since is not None:
            began = since.began
            ended = since.ended
        # A change at a menu item proves nothing: it may be a highlight, or the menu may have
        # closed.
        may_be_highlight = target.role not in _MENUS
        if may_be_highlight and self._is_still_near(action, tree, target, began):
            return True
        is_unchanged = not pointed.ended
        if may_be_highlight and self._is_still_near(action, tree, target, ended):
            is_unchanged = True
        previous = self._previous_tree(tree, current)
        if not is_unchanged or previous is None:
            return False
        if has_element(previous, target):
            return pointed.before is not None and not pointed.before
        return self._appeared_during_scan(action, current, target, pointed)

    def _is_still_near(
        self, action: Action, tree: StepTree, target: Element, changes: ContentChanges | None
    ) -> bool:
        """Returns whether an element and the surroundings of the press certainly did not change."""
        if changes is None:
            return False
        around_press = PixelBox.around((action.x or 0.0, action.y or 0.0), UNTOUCHED_PX)
        return not _is_changed_at(tree, target, changes) and not _is_changed_at(
            tree, replace(target, box=around_press), changes
        )

    def _appeared_during_scan(
        self, action: Action, current: CurrentScan, target: Element, pointed: TargetEvidence
    ) -> bool:
        """Returns whether an element that is not in the previous scan appeared during this scan.

        A menu item may also belong to a menu that was open before the scan and closed during it.
        Such a menu is ruled out if the screen did not change between the two scans, or if no other
        action happened between the previous scan and the press.
        """
        did_not_change = pointed.before_began is not None and not pointed.before_began
        if target.role not in _MENUS or did_not_change:
            return True
        before_ms = current.previous.end_ms if current.previous else float("-inf")
        for number in self._acting:
            if before_ms < self._actions[number].end_ms < action.press_ms:
                return False
        return True


def _is_changed_at(
    tree: StepTree, target: Element, changes: ContentChanges | None, beside: float = 0.0
) -> bool:
    """Returns whether something changed at an element.

    Args:
        changes: the changes of the screen. None means unknown, and counts as no change.
        beside: distance to the left and right of the element within which changes count too, in
            video pixels.
    """
    if changes is None or target.box is None:
        return False
    box = tree.canvas.box_to_video(target.box)
    wider = PixelBox(box.x - beside, box.y, box.width + 2 * beside, box.height)
    return _reaches_into((*changes.regions, *changes.panels), wider)


def _reaches_into(places: Sequence[ChangedBox], box: PixelBox) -> bool:
    """Returns whether any of the places overlaps a box; all are in video pixels."""
    return any(overlap(place, box) for place in places)
