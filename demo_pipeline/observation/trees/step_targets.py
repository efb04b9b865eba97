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
    raw_role,
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
from demo_pipeline.observation.trees.tab_order import (
    HOLDS_FOCUS,
    Stop,
    can_have_focus,
    stop_after,
    stop_of,
)
from demo_pipeline.observation.trees.tree_agreement import (
    FOCUS_RIM_PX,
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
_KEEPS_ONE_CLICK = frozenset({"tablecell", "icon"})  # if they can; a second click opens an icon
_NO_FIELDS = frozenset(
    {"label", "link", "button", "checkbox", "radiobutton", "listitem", "image", "tab"}
)
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
        is_rest_right = target is not None or keyboard.is_elsewhere(tree, against)
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
            sure = None if against is None else [one for one in against if not one.is_news]
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
        self._menu: PixelBox | None = None  # whose title opened it
        self._left: PixelBox | None = None  # what had the focus before Tab
        self._list: PixelBox | None = None  # of choices, that was opened
        self._written: Sequence[ChangedBox] = ()  # where text appeared that no tree had a field for

    def target(  # noqa: PLR0917 - all that is known of the keys
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        changes_ms: Sequence[float],
        typed: Sequence[ChangedBox] = (),
        against: Sequence[Contradiction] | None = None,
    ) -> Aimed:
        """The element that keys went to (None when in doubt) and the method, as `target_method`.

        Args:
            action: the keys.
            tree: the tree of the current scan.
            current: the current scan.
            changes_ms: when much of the screen changed, epoch milliseconds.
            typed: what changed while text was typed, video pixels.
            against: what the screenshot shows otherwise than the tree; None: not compared.
        """
        if action.action_type == "pause" or current.scan is None:
            return NOTHING
        scanned, is_compared, against = current.scan.begin_ms, against is not None, against or ()
        if self._menu_opened and "esc" in action.keys:
            menu = self._open_menu(tree, scanned)
            return (menu, "last_click") if menu else NOTHING
        since = max(scanned, self._since_ms)
        found, method = None, "focused"
        if not any(since < change < action.press_ms for change in changes_ms):
            found, method = self._known_field(tree, any_height=is_compared), self._method
            is_scanned = scanned >= self._since_ms + FOCUS_MS
            if is_scanned and (found is None or method == "tab"):
                focused = self._focused(tree)
                found, method = (found, method) if focused is None else (focused, "focused")
        if found is not None and (
            self._is_covered(tree, found, against) or self._is_behind_menu(action, tree, found)
        ):
            found = None
        if typed and (found is None or not _holds_any(tree, found, typed)):
            found, method = _field_with(tree, typed, any_height=is_compared), "typed"
            if found is not None and self._is_covered(tree, found, against):
                found = None
            self._keep(found)
            if found is None:
                self._written, self._method = typed, "typed"
            self._is_lost, self._others = found is None, _window_boxes(tree)
        elif found and typed and _reaches_neighbours(tree, found, typed):
            self._keep(None)  # the parts of a date pass the focus on
            self._since_ms = action.end_ms
        return (found, method) if found else NOTHING

    @property
    def is_in_unknown_field(self) -> bool:
        """Whether text appeared where no tree had a field, and nothing moved the focus since."""
        return bool(self._written)

    def _keep(self, element: Element | None) -> None:
        """An element has the focus from now on."""
        self._stop = () if element is None or element.box is None else (element.box,)
        self._method, self._written = "last_click", ()

    def _is_covered(
        self, tree: StepTree, element: Element, against: Sequence[Contradiction]
    ) -> bool:
        """Whether something opened in the window of an element, or changed over the element.

        Not so when nothing but what had the focus before changed, which is edited now, nor when
        Tab moved the ring around what has the focus.
        """
        if element.box is None:
            return False
        window = tree.windows_around[element.position]
        around = (None if window is None else tree.box(window)) or element.box
        own, outer = map(tree.canvas.box_to_video, (element.box, around))
        if self._stop == (element.box,) and all(_is_within(one.place, own) for one in against):
            return False
        if self._method == "tab" and self._left is not None:
            left = tree.canvas.box_to_video(self._left)
            rings = [own, left, _hull(own, left)]
            against = [one for one in against if not any(_is_around(one.place, r) for r in rings)]
        if element.role == "combobox":  # its list opens and closes below it
            own_list = PixelBox(own.x, own.y, own.width, outer.bottom - own.y)
            against = [one for one in against if not _is_within(one.place, own_list)]
        return any(_overlap(one.place, outer if one.is_popup else own) for one in against)

    def _open_menu(self, tree: StepTree, scanned: int) -> Element | None:
        """The menu that Escape closes: that whose title was clicked, or the only one there is."""
        found = [node for node in positions_of(tree, self._menu) if tree.roles[node] == "menu"]
        if self._menu is None and scanned >= self._since_ms:
            found = [node for node in _popups(tree) if tree.roles[node] == "menu"]
        return tree.element(found[0]) if len(found) == 1 else None

    def _known_field(self, tree: StepTree, *, any_height: bool) -> Element | None:
        if self._written and not self._stop:
            return _field_with(tree, self._written, any_height=any_height)
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
        return not around & {*_MENUS, "dialog"} and (self._menu_opened or bool(_popups(tree)))

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
            if target is not None and (
                target.role in _KEEPS_CLICK or _is_cell(action, tree, target)
            ):
                field = target
            opens_list = field is not None and field.role == "combobox"  # which has the focus then
            self._keep(None if opens_list else field)
            self._list = field.box if field is not None and opens_list else None
            self._since_ms, self._is_lost = action.end_ms, target is None and front is None
            self._window = None if front is None else tree.box(front)
            self._others = _window_boxes(tree) - {self._window}
            opens_menu = target is not None and target.role == "menu"
            self._menu_opened = opens_menu or action.action_type == "right_click"
            self._menu = target.box if target is not None and opens_menu else None
        elif keys <= {"shift", "tab"} and "tab" in keys:
            self._tab(action, tree, target)
        elif action.action_type == "hotkey":
            self._menu_opened &= keys.isdisjoint({"esc", "enter"})
            self._menu = self._menu if keys <= {"up", "down"} else None
            chosen, self._list = self._list, self._list if keys <= {"up", "down"} else None
            is_radio = target is not None and target.role == "radiobutton"
            if keys <= _ARROWS and (is_radio or len(self._stop) > 1):
                self._stop = stop_of(tree, target.box) if target and target.box else self._stop
            elif _moves_focus(action, target):
                self._keep(None)
                self._since_ms = action.end_ms
                if chosen is not None and keys in ({"enter"}, {"esc"}):
                    self._stop = (chosen,)
        elif action.action_type == "type":
            self._list = self._menu = None
            if target is not None and target.role == "button":
                self._since_ms, self._stop = action.end_ms, ()  # Space pressed it

    def _tab(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Tab goes on from where the focus is, if that is known."""
        known = (target.box,) if target is not None and target.box is not None else self._stop
        presses = (action.presses or 1) * (-1 if "shift" in action.keys else 1)
        self._left = known[0] if known else None
        self._stop = stop_after(tree, known, presses) if known else ()
        self._since_ms, self._method, self._written = action.end_ms, "tab", ()


def _overlap(place: ChangedBox, box: PixelBox) -> bool:
    left, top, width, height = place
    across = left < box.right and box.x < left + width
    return across and top < box.bottom and box.y < top + height


def _popups(tree: StepTree) -> Sequence[int]:
    """Positions of the dialogs, and of the menus with their items, that are on the screen."""
    found = set()
    for node in np.flatnonzero(tree.boxes[:, 2] * tree.boxes[:, 3] > 0).tolist():
        role, parent = tree.roles[node], tree.parents[node]
        is_item = role == "menuitem" and parent >= 0 and tree.roles[parent] == "menu"
        if (role == "dialog" or is_item) and "hidden" not in tree.states_at(node):
            found.add(parent if is_item else node)
    return sorted(found)


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
    return not (edits and target is not None and target.role in TEXT_ROLES | {"slider"})


def _holds_any(tree: StepTree, element: Element, places: Sequence[ChangedBox]) -> bool:
    """Whether any of these places in the picture reaches into an element."""
    box = element.box and tree.canvas.box_to_video(element.box)
    return box is not None and any(_overlap(place, box) for place in places)


def _is_within(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    """Whether a place in the picture is in a box or on its rim; video pixels."""
    left, top, width, height = place
    is_across = box.x - FOCUS_RIM_PX <= left and left + width <= box.right + FOCUS_RIM_PX
    return is_across and box.y - FOCUS_RIM_PX <= top and top + height <= box.bottom + FOCUS_RIM_PX


def _is_around(place: ChangedBox, box: PixelBox) -> bool:
    """Whether a place has the sides of a box, as the ring around what has the focus."""
    return _is_within(place, box) and _is_within(box, PixelBox(*place))


def _hull(one: PixelBox, other: PixelBox) -> PixelBox:
    """The smallest box around both."""
    x, y = min(one.x, other.x), min(one.y, other.y)
    return PixelBox(x, y, max(one.right, other.right) - x, max(one.bottom, other.bottom) - y)


def _reaches_neighbours(tree: StepTree, field: Element, places: Sequence[ChangedBox]) -> bool:
    """Whether text appeared in other fields of the same group, too."""
    parent = tree.parents[field.position]
    return any(
        tree.parents[node] == parent and _holds_any(tree, tree.element(node), places)
        for node, role in enumerate(tree.roles)
        if role in TEXT_ROLES and node != field.position
    )


def _field_with(
    tree: StepTree, places: Sequence[ChangedBox], *, any_height: bool
) -> Element | None:
    """The only text field, or cell that is edited in place, in which these places are.

    None when one is elsewhere. What other elements show, as a button that can be pressed now or a
    status that says that the text is not saved, tells nothing.

    Args:
        tree: that may have the field.
        places: where text appeared, video pixels.
        any_height: also of several lines, over which there may be a menu.
    """
    shown = [node for node in range(len(tree)) if "hidden" not in tree.states_at(node)]
    boxes = {node: tree.canvas.box_to_video(box) for node in shown if (box := tree.box(node))}
    inner = {node for node, role in enumerate(tree.roles) if role in TEXT_ROLES}
    around = {outer for node in inner for outer in ancestors(tree, node)}
    cells = (node for node, role in enumerate(tree.roles) if role == "tablecell")
    fields = inner.union(node for node in cells if can_have_focus(tree, node)) - around
    said = [
        node
        for node, role in enumerate(tree.roles)
        if role in _NO_FIELDS and tree.raws[node].name and node not in around
        if not fields.intersection(ancestors(tree, node))
    ]
    found: set[int] = set()
    for place in places:
        holding = [node for node, box in boxes.items() if _is_within(place, box)]
        if not any(node in said for node in holding):
            front = min(
                filter(tree.windows.__contains__, holding),
                key=lambda node: boxes[node].area,
                default=None,
            )
            found |= {
                node for node in fields.intersection(holding) if tree.windows_around[node] == front
            } or {-1}
    if len(found) != 1 or -1 in found:
        return None  # a formula bar repeats what goes into a cell
    (field,) = found
    return tree.element(field) if any_height or tree.boxes[field, 3] < EDITOR_HEIGHT else None


def _is_cell(action: Action, tree: StepTree, target: Element) -> bool:
    """Whether a click gave a cell or an icon the focus."""
    clicks_once = action.action_type == "click" or target.role == "tablecell"
    is_title = "header" in raw_role(tree, target.position)
    can = target.role in _KEEPS_ONE_CLICK and can_have_focus(tree, target.position)
    return can and clicks_once and not is_title
