"""What each action was aimed at: the element under the pointer, or that which the keys went to.

Belongs here: what the pictures and the scans before say against the tree, and whether the tree
agrees where it matters. Which element has the keyboard is in keyboard_focus.py.
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
from demo_pipeline.observation.trees.focus_look import Grey, grey_picture
from demo_pipeline.observation.trees.hit_test import front_window, has_element, node_at
from demo_pipeline.observation.trees.keyboard_focus import (
    NOTHING,
    Aimed,
    KeyboardFocus,
    Sight,
)
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree, TreeReader
from demo_pipeline.observation.trees.tree_agreement import (
    Agreement,
    Contradiction,
    contradictions_of,
    touched_share,
)
from demo_pipeline.observation.trees.window_look import is_covered_at
from demo_pipeline.recording.logged_scans import LoggedScan

METHODS = ("hit_test", "focused", "last_click", "typed", "tab", "picture", "none")
WAITED_SHARE = 0.5  # of what a tree names; pages that loaded changed 0 to 0.45 of it, others 0.56
STANDS_PX = 96  # units of event space; changes are not looked for as near as 64
LABEL_PX = 48  # video pixels from a check box to its label; avoids one wrong name, costs one
TITLE_PX = 48  # units of event space; title bars of 20 to 40, a browser's tabs 40
_NAMED_BESIDE = frozenset({"checkbox", "radiobutton"})  # their look is the same for every name
_MENUS = frozenset({"menu", "menuitem"})


def agreement_at(  # noqa: PLR0917 - an action, its tree, and what is known of both
    action: Action,
    tree: StepTree,
    target: Element | None,
    against: Sequence[Contradiction] | None,
    seen: TargetEvidence | None,
    keyboard: KeyboardFocus,
) -> Agreement:
    """Whether the tree agrees at the place of an action, or in the window with the keyboard.

    Of a wait, during which nothing is acted on, whether most of it does; so of keys of which it is
    not known where they went, while no menu or dialog opened that the tree lacks.
    """
    if against is None:
        return Agreement.UNKNOWN
    x, y = tree.canvas.to_video(action.x or 0.0, action.y or 0.0)
    is_pointing = action.action_type in POINTER_TYPES
    is_lost = is_pointing and action.action_type != "scroll" and target is None
    against = [one for one in against if not one.is_news or (is_lost and one.is_near(x, y))]
    if not against:
        return Agreement.AGREES
    if action.action_type == "pause":
        is_rest_right = touched_share(tree, against) < WAITED_SHARE
    elif not is_pointing:
        is_lost = keyboard.is_in_unknown_field or any(one.is_popup for one in against)
        is_rest_right = target is not None
        is_rest_right |= not is_lost and touched_share(tree, against) < WAITED_SHARE
    else:
        stands = seen is not None and False in {seen.began, seen.ended}
        is_near = any(one.is_near(x, y) for one in against)
        is_rest_right = target is not None and (stands or not is_near)
    return Agreement.PARTIAL if is_rest_right else Agreement.DIFFERS


class StepTargets:
    """Finds the targets of the actions of a demonstration, in order, and whether trees agree.

    Args:
        reader: of their trees.
        evidence: what the pictures show.
        changes_ms: when much of the screen changed, epoch milliseconds.
        actions: of the demonstration, in order.
        shots: the screenshot of each; without them nothing is known of rings and lit choices.
    """

    def __init__(
        self,
        reader: TreeReader,
        evidence: Evidence,
        changes_ms: Sequence[float],
        actions: Sequence[Action],
        shots: Sequence[Path] = (),
    ) -> None:
        self._reader = reader
        self._actions = actions
        self._shots = shots
        self._picture = lru_cache(maxsize=2)(grey_picture)
        acting = [n for n, action in enumerate(actions) if action.action_type != "pause"]
        self._acting, self._presses = acting, [actions[n].press_ms for n in acting]
        self._changes_ms = changes_ms
        self._seen = {target.action_index: target for target in evidence.targets}
        self._typed = {typing.action_index: typing.places for typing in evidence.typed}
        self._since = {since.action_index: since for since in evidence.since_scan}
        self._hovers = {hover.action_index: hover for hover in evidence.hovers}
        self._keyboard = KeyboardFocus()
        self._end_ms = float("-inf")  # of the actions so far

    def step(
        self, number: int, tree: StepTree, current: CurrentScan, scans: Sequence[LoggedScan]
    ) -> tuple[Agreement, Element | None, str]:
        """Of the next action: whether the tree agrees, the target, and how it was found.

        Args:
            number: of the action, from 0.
            tree: of the current scan.
            current: the current scan.
            scans: all that have its coordinates.
        """
        action = self._actions[number]
        index = action.action_index
        seen = self._seen.get(index)
        found = NOTHING
        against = self._contradictions(action, tree, current)
        if current.scan is not None and self._reader.scale(current.scan) is None:
            pass
        elif action.action_type in POINTER_TYPES:
            found = self._pointed(action, tree, current, seen)
        else:
            typed = self._typed.get(index, ())
            known = (action, tree, current, self._changes_ms)
            sure = None if against is None else [one for one in against if not one.is_news]
            found = self._keyboard.target(*known, typed, sure, self._sight(number, tree, scans))
        agreement = agreement_at(action, tree, found[0], against, seen, self._keyboard)
        if agreement is Agreement.AGREES and found[0] is None and self._is_new_at(action, tree):
            agreement = Agreement.DIFFERS
        self._keyboard.record(action, tree, found[0])
        if action.action_type != "pause":
            self._end_ms = max(self._end_ms, action.end_ms)
        return agreement, *found

    def hovered(self, number: int, tree: StepTree) -> Element | None:
        """The element under the resting pointer that opened what an action pressed.

        None: nothing opened so, or the picture changed there since the scan.
        """
        index = self._actions[number].action_index
        hover = self._hovers.get(index)
        since = self._since.get(index)
        if hover is None or since is None:
            return None
        element = node_at(tree, hover.places[-1].x, hover.places[-1].y)
        changes = since.ended or since.began
        if element is None or not element.name or _is_changed_at(tree, element, changes):
            return None
        return element

    def _sight(self, number: int, tree: StepTree, scans: Sequence[LoggedScan]) -> Sight:
        """What is known of the keyboard focus besides the current scan."""
        action = self._actions[number]
        later = min(
            (scan for scan in scans if scan.begin_ms >= action.press_ms),
            key=lambda scan: scan.begin_ms,
            default=None,
        )
        before = bisect_left(self._acting, number)
        after = bisect_right(self._presses, action.press_ms)
        is_last = after == len(self._presses)
        return Sight(
            partial(self._shot, self._acting[before - 1] if before else None),
            partial(self._shot, number),
            None if later is None else self._reader.readable_tree(later, tree.canvas),
            later is not None and (is_last or later.end_ms <= self._presses[after]),
        )

    def _shot(self, number: int | None) -> Grey | None:
        if number is None or number >= len(self._shots):
            return None
        return self._picture(self._shots[number])

    def window(self, action: Action, tree: StepTree, target: Element | None) -> int | None:
        """Position of the window that an action was in; None: not known."""
        if target is not None:
            return tree.windows_around[target.position]
        if action.action_type not in POINTER_TYPES or action.x is None or action.y is None:
            return None
        seen = self._seen.get(action.action_index)
        found = seen.window if seen else None
        return front_window(tree, action.x, action.y) if found is None else found

    def is_window_certain(
        self, number: int, tree: StepTree, window: int, target: Element | None
    ) -> bool:
        """Whether an action surely was in a window, and the window still has the title of the tree.

        Its title did not change since the scan, and nothing opened over the place of a press. On
        Linux, programs without a tree have windows too: without a target, the border of the window
        has to be in the picture.
        """
        action = self._actions[number]
        box = tree.box(window)
        since = self._since.get(action.action_index)
        if since is None or since.began is None or box is None:
            return False
        title = tree.canvas.box_to_video(box._replace(height=min(box.height, TITLE_PX)))
        if _are_touched(title, since.began.regions):
            return False
        if target is not None or action.x is None or action.y is None:
            return True
        x, y = tree.canvas.to_video(action.x, action.y)
        if any(PixelBox(*panel).contains(x, y) for panel in since.began.panels):
            return False
        picture = self._shot(number) if tree.platform == "linux" else None
        if picture is None:
            return True
        others = [other for other in tree.windows if other != window]
        bounds, *hiding = [list(tree.element(node).bounds.values()) for node in (window, *others)]
        return not is_covered_at(picture, bounds, hiding, tree.canvas.to_canvas(action.x, action.y))

    def _contradictions(
        self, action: Action, tree: StepTree, current: CurrentScan
    ) -> Sequence[Contradiction] | None:
        since = self._since.get(action.action_index)
        scan = current.scan
        if scan is None or since is None or since.scan_event != scan.event_index:
            return None
        if self._reader.scale(scan) is None:
            return None
        return contradictions_of(tree, since, lambda: self._before(tree, current))

    def _is_new_at(self, action: Action, tree: StepTree) -> bool:
        """Whether a button was pressed where something changed since the scan, named or not."""
        since = self._since.get(action.action_index)
        if (
            since is None
            or since.ended is None
            or action.action_type not in POINTER_TYPES - {"scroll"}
        ):
            return False
        x, y = tree.canvas.to_video(action.x or 0.0, action.y or 0.0)
        places = (*since.ended.regions, *since.ended.panels)
        return any(Contradiction(place, is_popup=False).is_near(x, y) for place in places)

    def _before(self, tree: StepTree, current: CurrentScan) -> StepTree | None:
        """The tree of the scan before the current one; None without one that is of use."""
        previous = current.previous
        return None if previous is None else self._reader.readable_tree(previous, tree.canvas)

    def _pointed(
        self, action: Action, tree: StepTree, current: CurrentScan, seen: TargetEvidence | None
    ) -> Aimed:
        """The target under the point, unless the screen there changed after the scan.

        What only the pointer lit, or a text cursor, the screenshot shows as it was.
        """
        if action.x is None or action.y is None:
            return NOTHING
        is_compared = seen is not None and seen.began is not None
        if current.freshness == "changed" and not is_compared:
            return NOTHING
        front = seen.window if seen else None
        of_scroll = action.action_type == "scroll"
        target = node_at(tree, action.x, action.y, front, of_scroll=of_scroll)
        if target is None:
            return NOTHING
        since = self._since.get(action.action_index)
        changes = (since.ended or since.began) if since else None
        if target.role in _NAMED_BESIDE and _is_changed_at(tree, target, changes, LABEL_PX):
            return NOTHING
        if (
            seen is not None
            and seen.began
            and not self._stands(action, tree, current, target, seen)
        ):
            return NOTHING
        return target, "hit_test"

    def _stands(
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        target: Element,
        seen: TargetEvidence,
    ) -> bool:
        """Whether an element stands at the press, although it was redrawn since the scan began.

        A scan that ran meanwhile may have read the element before the change. The element is there
        when the scan before has it too and the picture is that of then, or when it appeared while
        the scan ran. Changes near the press count, unless they are far from the element.
        """
        since = self._since.get(action.action_index)
        began = since.began if since else None
        ended = since.ended if since else None
        may_be_lit = target.role not in _MENUS  # an item lights up, and a menu may have closed
        if may_be_lit and self._is_still_near(action, tree, target, began):
            return True
        is_still = not seen.ended
        if may_be_lit and self._is_still_near(action, tree, target, ended):
            is_still = True
        before = self._before(tree, current)
        if not is_still or before is None:
            return False
        if has_element(before, target):
            return seen.before is not None and not seen.before
        return self._appeared(action, current, target, seen)

    def _is_still_near(
        self, action: Action, tree: StepTree, target: Element, changes: ContentChanges | None
    ) -> bool:
        """Whether nothing changed at an element, and near the press."""
        if changes is None:
            return False
        around = PixelBox.around((action.x or 0.0, action.y or 0.0), STANDS_PX)
        near = (target, replace(target, box=around))
        return not any(_is_changed_at(tree, place, changes) for place in near)

    def _appeared(
        self, action: Action, current: CurrentScan, target: Element, seen: TargetEvidence
    ) -> bool:
        """Whether an element that the scan before lacks appeared while the current scan ran.

        A menu may have opened before the scan began, and have closed while it ran. Not so when the
        picture was the same from the scan before until then, or when the person did nothing.
        """
        if target.role not in _MENUS or (seen.before_began is not None and not seen.before_began):
            return True
        before_ms = current.previous.end_ms if current.previous else float("-inf")
        acted_ms = [other.end_ms for other in self._actions if other.action_type != "pause"]
        return not any(before_ms < time_ms < action.press_ms for time_ms in acted_ms)


def _is_changed_at(
    tree: StepTree, target: Element, changes: ContentChanges | None, beside: float = 0.0
) -> bool:
    """Whether something changed at an element, or so many pixels beside it, in its line."""
    if changes is None or target.box is None:
        return False
    box = tree.canvas.box_to_video(target.box)
    wide = PixelBox(box.x - beside, box.y, box.width + 2 * beside, box.height)
    return _are_touched(wide, (*changes.regions, *changes.panels))


def _are_touched(box: PixelBox, places: Sequence[ChangedBox]) -> bool:
    """Whether any of these places reaches into a box, video pixels."""
    return any(
        left < box.right and box.x < left + across and top < box.bottom and box.y < top + down
        for left, top, across, down in places
    )
