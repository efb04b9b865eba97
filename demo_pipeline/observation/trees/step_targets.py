"""What each action was aimed at: the element under the pointer, or that which the keys went to.

Belongs here: which scan is current at each action (those of pointing actions are read, once each),
and what the pictures and the actions before say against the tree. The keyboard focus is where typed
text appeared, the field clicked, or the scan's: recorders report a focus that another window has
taken, so it counts only in a scan newer than what may have moved it, in the window that was
clicked, and where no text appeared elsewhere. Tab moves it through a page. A menu or dialog that
is open has the keys. In doubt there is no target.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.observation.clock.calibrate import Calibration
from demo_pipeline.observation.clock.canvas import Boxes, Canvas
from demo_pipeline.observation.clock.screen_changes import DesktopSize
from demo_pipeline.observation.frames.changes import ChangedBox
from demo_pipeline.observation.frames.evidence import Evidence, TargetEvidence
from demo_pipeline.observation.frames.frame_requests import Aim, ScannedTarget
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.frames.tree_scales import LEAST_MARKS
from demo_pipeline.observation.trees.hit_test import (
    TEXT_ROLES,
    ancestors,
    focused_node,
    front_window,
    has_element,
    is_desktop,
    node_at,
    positions_at,
    positions_of,
    text_node_around,
    windows_at,
)
from demo_pipeline.observation.trees.scans import (
    CurrentScan,
    LoggedScan,
    current_scan,
    scans_of_part,
)
from demo_pipeline.observation.trees.step_tree import Element, StepTree, TreeReader
from demo_pipeline.observation.trees.tab_order import HOLDS_FOCUS, Stop, stop_after, stop_of
from demo_pipeline.observation.trees.tree_agreement import (
    Agreement,
    Contradiction,
    contradictions_of,
    pressed_before,
    touched_share,
)

WAITED_SHARE = 0.5  # of what a tree names; pages that loaded changed 0 to 0.45 of it, others 0.56
LARGEST_TARGET_SHARE = 0.05  # of the canvas; the pointer inside a larger element shows no target


MARK_WIDTHS, MARK_HEIGHTS = (12, 400), (8, 80)  # units of event space; those of labels and buttons
COVER_STEP = 8  # units of event space between the points that other windows have to cover


@dataclass(frozen=True)
class ScannedTargets:
    """What the current scans of all actions have.

    Attributes:
        by_action: action index → its current scan, and the element under it.
        desktops: the size of the desktop in each of these scans that has it, in time order.
    """

    by_action: Mapping[int, ScannedTarget]
    desktops: Sequence[DesktopSize]


@reduced_python_gc()
def scan_targets(
    actions: Sequence[Action],
    scans: Sequence[LoggedScan],
    reader: TreeReader,
    calibration: Calibration,
) -> ScannedTargets:
    """Find the current scans; read those of pointing actions."""
    targets: dict[int, ScannedTarget] = {}
    desktops: dict[int, DesktopSize] = {}
    since = float("-inf")
    for action in actions:
        known = scans_of_part(scans, calibration.screen, action.press_ms)
        scan = current_scan(known, action.press_ms, since).scan
        since = max(since, action.end_ms)
        if scan is None:
            continue
        found = ScannedTarget(scan.event_index, scan.begin_ms, scan.end_ms)
        if action.action_type in POINTER_TYPES and action.x is not None and action.y is not None:
            canvas = calibration.screen.at(action.press_ms).canvas or calibration.canvas
            tree = reader.tree(scan, action.press_ms, canvas)
            aim, windows = _aim(tree, action), _windows(tree, action)
            small = aim.element is not None and _is_small(aim.element, canvas)
            box = aim.element if small else None
            found = replace(found, aim=aim, windows=windows, box=box, marks=_marks(tree))
            if tree.desktop_size is not None:
                desktops[scan.event_index] = DesktopSize(scan.begin_ms, tree.desktop_size)
        targets[action.action_index] = found
    return ScannedTargets(targets, sorted(desktops.values(), key=lambda size: size.time_ms))


def _aim(tree: StepTree, action: Action, front: int | None = None) -> Aim:
    x, y = action.x or 0.0, action.y or 0.0
    node = node_at(tree, x, y, front, of_scroll=action.action_type == "scroll")
    if node is None or node.box is None:
        return Aim()
    around = [box for node in positions_at(tree, x, y) if (box := tree.box(node))]
    return Aim(node.box, around)


def _windows(tree: StepTree, action: Action) -> list[Aim]:
    """The windows at a point, where there are several, and what each has there."""
    windows = [
        replace(_aim(tree, action, position), window=box, position=position)
        for position in windows_at(tree, action.x or 0.0, action.y or 0.0)
        if not is_desktop(tree, position) and (box := tree.box(position)) is not None
    ]
    return windows if len(windows) > 1 else []


def _marks(tree: StepTree) -> Boxes:
    """(elements, 4) boxes of small named elements without children, event space."""
    width, height = tree.screen
    x, y, across, down = tree.boxes.T
    small = (across >= MARK_WIDTHS[0]) & (across <= MARK_WIDTHS[1])
    small &= (down >= MARK_HEIGHTS[0]) & (down <= MARK_HEIGHTS[1])
    small &= (x >= 0) & (y >= 0) & (x + across <= width) & (y + down <= height)
    small[sorted(set(tree.parents) - {-1})] = False
    shown = [
        node
        for node in np.flatnonzero(small).tolist()
        if tree.raws[node].name and "hidden" not in tree.states_at(node)
    ]
    coverable = _coverable(tree)
    seen = [node for node in shown if tree.windows_around[node] not in coverable]
    return np.unique(tree.boxes[seen if len(seen) >= LEAST_MARKS else shown], axis=0)


def _coverable(tree: StepTree) -> set[int]:
    """The outermost windows that other ones together may hide: nothing tells if they are seen."""
    windows = list(tree.windows)
    boxes = np.nan_to_num(tree.boxes[windows])
    cells = np.arange(0, max(tree.screen), COVER_STEP)
    first = np.searchsorted(cells, boxes[:, :2]).tolist()
    last = np.searchsorted(cells, boxes[:, :2] + boxes[:, 2:]).tolist()
    places = [
        (slice(top, bottom), slice(left, right))
        for (left, top), (right, bottom) in zip(first, last, strict=True)
    ]
    found = set()
    for number, node in enumerate(windows):
        covered = np.zeros((len(cells), len(cells)), bool)
        for other in places[:number] + places[number + 1 :]:
            covered[other] = True
        if covered[places[number]].all():
            found.add(node)
    return found


def _is_small(box: PixelBox, canvas: Canvas) -> bool:
    """Whether a pointer inside the box points at it; not so in a page or a text area."""
    return (
        box.area * canvas.event_to_canvas**2 <= LARGEST_TARGET_SHARE * canvas.width * canvas.height
    )


FOCUS_MS = 300  # ms in which a scan may have the old focus; decides one key of 904 actions
LINE_HEIGHTS = 3  # a field of one line is 2.0 to 2.5 times as high as the text in it
_EDITING = frozenset(
    {
        *("backspace", "delete", "left", "right", "up", "down", "home", "end"),
        *("pageup", "pagedown", "shift"),
    }
)
_CLIPBOARD = frozenset("acvxyz")  # with ctrl or command
EDITOR_HEIGHT = 60  # units of event space; a field of one line is 20 to 50 high
LABEL_PX = 48  # video pixels from a check box to its label; avoids one wrong name, costs one
_NAMED_BESIDE = frozenset({"checkbox", "radiobutton"})  # their look is the same for every name
_MENUS = frozenset({"menu", "menuitem"})
_KEEPS_CLICK = frozenset({"checkbox", "radiobutton", "slider"})  # have the focus when clicked
_ARROWS = frozenset({"left", "right", "up", "down"})

Aimed = tuple[Element | None, str]
"""The target (None when in doubt) and how it was found, as `target_method`."""

NOTHING: Aimed = (None, "none")


def agreement_at(  # noqa: PLR0917 - an action, its tree, and what is known of both
    action: Action,
    tree: StepTree,
    target: Element | None,
    against: Sequence[Contradiction] | None,
    seen: TargetEvidence | None,
    keyboard: "KeyboardFocus",
) -> Agreement:
    """Whether the tree agrees at the place of an action, or in the window with the keyboard.

    Of a wait, during which nothing is acted on, whether most of it does.
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
        is_rest_right = target is not None or keyboard.is_elsewhere(tree, against)
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
    """

    def __init__(self, reader: TreeReader, evidence: Evidence, changes_ms: Sequence[float]) -> None:
        self._reader = reader
        self._changes_ms = changes_ms
        self._seen = {target.action_index: target for target in evidence.targets}
        self._typed = {typing.action_index: typing.places for typing in evidence.typed}
        self._since = {since.action_index: since for since in evidence.since_scan}
        self._keyboard = KeyboardFocus()
        self._end_ms = float("-inf")  # of the actions so far

    def step(
        self, action: Action, earlier: Sequence[Action], tree: StepTree, current: CurrentScan
    ) -> tuple[Agreement, Element | None, str]:
        """Of the next action: whether the tree agrees, the target, and how it was found.

        Args:
            action: the action.
            earlier: the actions before it.
            tree: of the current scan.
            current: the current scan.
        """
        index = action.action_index
        seen, found = self._seen.get(index), NOTHING
        against = self._contradictions(action, earlier, tree, current)
        if current.scan is not None and self._reader.scale(current.scan) is None:
            pass
        elif action.action_type in POINTER_TYPES:
            found = self._pointed(action, tree, current, seen)
        else:
            typed = self._typed.get(index, ())
            known = (action, tree, current, self._changes_ms)
            sure = [one for one in against or () if not one.is_news]
            found = self._keyboard.target(*known, typed, sure)
        agreement = agreement_at(action, tree, found[0], against, seen, self._keyboard)
        self._keyboard.record(action, tree, found[0], seen.window if seen else None)
        if action.action_type != "pause":
            self._end_ms = max(self._end_ms, action.end_ms)
        return agreement, *found

    def window(self, action: Action, tree: StepTree, target: Element | None) -> int | None:
        """Position of the window that an action was in; None: not known."""
        if target is not None:
            return tree.windows_around[target.position]
        if action.action_type not in POINTER_TYPES or action.x is None or action.y is None:
            return None
        seen = self._seen.get(action.action_index)
        found = seen.window if seen else None
        return front_window(tree, action.x, action.y) if found is None else found

    def _contradictions(
        self, action: Action, earlier: Sequence[Action], tree: StepTree, current: CurrentScan
    ) -> Sequence[Contradiction] | None:
        since, scan = self._since.get(action.action_index), current.scan
        if scan is None or since is None or since.scan_event != scan.event_index:
            return None
        if self._reader.scale(scan) is None:
            return None
        pressed = pressed_before(action, earlier)
        return contradictions_of(tree, since, pressed, lambda: self._before(tree, current))

    def _before(self, tree: StepTree, current: CurrentScan) -> StepTree | None:
        """The tree of the scan before the current one; None without one that is of use."""
        previous = current.previous
        return None if previous is None else self._reader.readable_tree(previous, tree.canvas)

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
        before = self._before(tree, current)
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


class KeyboardFocus:
    """Follows the actions of a demonstration in order."""

    def __init__(self) -> None:
        self._since_ms = float("-inf")  # when the focus may have moved last
        self._stop: Stop = ()  # that has it since; several: one radio button of a group
        self._method = "last_click"  # how that is known
        self._window: PixelBox | None = None  # that was clicked last
        self._others: frozenset[PixelBox | None] = frozenset()  # the other windows at that time
        self._is_lost = False  # in something that is not in the trees
        self._menu_opened = False

    def target(  # noqa: PLR0917 - all that is known of the keys
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        changes_ms: Sequence[float],
        typed: Sequence[ChangedBox] = (),
        against: Sequence[Contradiction] = (),
    ) -> Aimed:
        """The element that keys went to (None when in doubt) and the method, as `target_method`.

        Args:
            action: the keys.
            tree: the tree of the current scan.
            current: the current scan.
            changes_ms: when much of the screen changed, epoch milliseconds.
            typed: what changed while text was typed, video pixels.
            against: what the screenshot shows otherwise than the tree.
        """
        if action.action_type == "pause" or current.scan is None:
            return NOTHING
        scanned = current.scan.begin_ms
        since = max(scanned, self._since_ms)
        found, method = None, "focused"
        if not any(since < change < action.press_ms for change in changes_ms):
            found, method = self._known_field(tree), self._method
            is_scanned = scanned >= self._since_ms + FOCUS_MS
            if is_scanned and (found is None or method == "tab"):
                focused = self._focused(tree)
                found, method = (found, method) if focused is None else (focused, "focused")
        if found is not None and (
            _is_covered(tree, found, against) or self._is_behind_menu(action, tree, found)
        ):
            found = None
        if typed and (found is None or not _holds_any(tree, found, typed)):
            found, method = _line_with(tree, typed), "typed"
            if found is not None and _is_covered(tree, found, against):
                found = None
            self._keep(found)
            self._is_lost, self._others = found is None, _window_boxes(tree)
        return (found, method) if found else NOTHING

    def _keep(self, element: Element | None) -> None:
        """An element has the focus from now on."""
        self._stop = () if element is None or element.box is None else (element.box,)
        self._method = "last_click"

    def _known_field(self, tree: StepTree) -> Element | None:
        fields = (
            node
            for node in positions_of(tree, self._stop[0] if len(self._stop) == 1 else None)
            if tree.roles[node] in HOLDS_FOCUS
        )
        position = next(fields, None)
        return None if position is None else tree.element(position)

    def _focused(self, tree: StepTree) -> Element | None:
        """The focus of the scan, in the window that was clicked or in one that opened since."""
        found = focused_node(tree)
        if found is None:
            return None
        window = tree.windows_around[found.position]
        box = None if window is None else tree.box(window)
        may_have_it = not self._is_lost and self._window in {None, box}
        return found if may_have_it or box not in self._others else None

    def _is_behind_menu(self, action: Action, tree: StepTree, found: Element) -> bool:
        """Whether a menu that was opened has the keys, or a dialog that Escape would close."""
        if not self._menu_opened and "esc" not in action.keys:
            return False
        around = {tree.roles[node] for node in (found.position, *ancestors(tree, found.position))}
        return not around & {*_MENUS, "dialog"} and (self._menu_opened or _has_popup(tree))

    def is_elsewhere(self, tree: StepTree, against: Sequence[Contradiction]) -> bool:
        """Whether all of it is outside the window that was clicked last."""
        if self._window is None:
            return False
        window = tree.canvas.box_to_video(self._window)
        return not any(_overlap(one.place, window) for one in against)

    def record(
        self, action: Action, tree: StepTree, target: Element | None, front: int | None = None
    ) -> None:
        """Note an action and its target; `front`: the window that the picture shows in front."""
        keys = set(action.keys)
        if action.action_type in POINTER_TYPES - {"scroll"}:
            if target is not None:
                front = tree.windows_around[target.position]
            elif front is None and action.x is not None and action.y is not None:
                front = front_window(tree, action.x, action.y)
            field = None if target is None else text_node_around(tree, target)
            if target is not None and target.role in _KEEPS_CLICK:
                field = target
            opens_list = field is not None and field.role == "combobox"  # which has the focus then
            self._keep(None if opens_list else field)
            self._since_ms, self._is_lost = action.end_ms, target is None and front is None
            self._window = None if front is None else tree.box(front)
            self._others = _window_boxes(tree) - {self._window}
            opens_menu = target is not None and target.role == "menu"
            self._menu_opened = opens_menu or action.action_type == "right_click"
        elif keys <= {"shift", "tab"} and "tab" in keys:
            self._tab(action, tree, target)
        elif action.action_type == "hotkey":
            self._menu_opened &= keys.isdisjoint({"esc", "enter"})
            is_radio = target is not None and target.role == "radiobutton"
            if keys <= _ARROWS and (is_radio or len(self._stop) > 1):
                self._stop = stop_of(tree, target.box) if target and target.box else self._stop
            elif _moves_focus(action, target):
                self._since_ms, self._stop = action.end_ms, ()
        elif action.action_type == "type" and target is not None and target.role == "button":
            self._since_ms, self._stop = action.end_ms, ()  # Space pressed it

    def _tab(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Tab goes on from where the focus is, if that is known."""
        known = (target.box,) if target is not None and target.box is not None else self._stop
        presses = (action.presses or 1) * (-1 if "shift" in action.keys else 1)
        self._stop = stop_after(tree, known, presses) if known else ()
        self._since_ms, self._method = action.end_ms, "tab"


def _is_covered(tree: StepTree, element: Element, against: Sequence[Contradiction]) -> bool:
    """Whether something opened in the window of an element, or changed over the element."""
    if element.box is None:
        return False
    window = tree.windows_around[element.position]
    around = (None if window is None else tree.box(window)) or element.box
    own, outer = tree.canvas.box_to_video(element.box), tree.canvas.box_to_video(around)
    return any(_overlap(one.place, outer if one.is_popup else own) for one in against)


def _overlap(place: ChangedBox, box: PixelBox) -> bool:
    left, top, width, height = place
    across = left < box.right and box.x < left + width
    return across and top < box.bottom and box.y < top + height


def _has_popup(tree: StepTree) -> bool:
    """Whether a dialog, or a menu with its items, is on the screen."""
    return any(
        role == "dialog" or (role == "menuitem" and tree.roles[parent] == "menu")
        for node, (role, parent) in enumerate(zip(tree.roles, tree.parents, strict=True))
        if tree.boxes[node, 2] * tree.boxes[node, 3] > 0 and "hidden" not in tree.states_at(node)
    )


def _window_boxes(tree: StepTree) -> frozenset[PixelBox | None]:
    return frozenset(map(tree.box, tree.windows))


def _moves_focus(action: Action, target: Element | None) -> bool:
    """Whether keys may move the focus, or open something that takes it."""
    keys = set(action.keys)
    if keys & {"ctrl", "command"} and len(keys) == 2 and keys & _CLIPBOARD:
        return False
    edits = keys <= _EDITING | {"ctrl"}
    if target is not None and target.role == "textarea" and target.box is not None:
        edits |= keys <= {"enter", "shift"} and target.box.height >= EDITOR_HEIGHT
    return not (edits and target is not None and target.role in TEXT_ROLES)


def _holds_any(tree: StepTree, element: Element, places: Sequence[ChangedBox]) -> bool:
    """Whether the middle of one of these places in the picture is inside an element."""
    if element.box is None:
        return False
    x, y, width, height = tree.canvas.boxes_to_video(np.array(element.box)).tolist()
    return any(
        x <= left + across / 2 <= x + width and y <= top + down / 2 <= y + height
        for left, top, across, down in places
    )


def _line_with(tree: StepTree, places: Sequence[ChangedBox]) -> Element | None:
    """The only text field of one line in which these places are; None when one is elsewhere."""
    highest = LINE_HEIGHTS * max(down for _, _, _, down in places) / tree.canvas.event_scale
    lines = [
        element
        for node in np.flatnonzero(tree.boxes[:, 3] <= highest).tolist()
        if tree.roles[node] in TEXT_ROLES and "hidden" not in tree.states_at(node)
        if _holds_any(tree, element := tree.element(node), places)
    ]
    if len(lines) != 1 or not all(_holds_any(tree, lines[0], [place]) for place in places):
        return None  # a formula bar repeats what goes into a cell
    return lines[0]
