"""Which element has the keyboard, followed through the actions of a demonstration.

A scan says it, where recorders know: two scans that agree say it of all keys between them, unless
a press or a switch of windows took the keyboard away. A click and Tab tell as long as nothing may
have moved the focus; typed text tells where it appeared, and a screenshot shows the ring around
what the keys reached, and the lit choice of an open list or menu. A menu or dialog that opened has
the keys. In doubt there is no target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.frames.changes import ChangedBox
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.trees.departures import (
    Departure,
    departure_by_keys,
    departure_by_press,
    window_boxes,
)
from demo_pipeline.observation.trees.focus_look import (
    Grey,
    are_unlit,
    is_as_before,
    is_ground_as_before,
    is_written_as_before,
    lit,
    ringed,
)
from demo_pipeline.observation.trees.hit_test import (
    TEXT_ROLES,
    ancestors,
    can_have_focus,
    focused_node,
    positions_of,
    text_node_around,
)
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.observation.trees.tab_order import (
    CHOICES,
    HOLDS_FOCUS,
    Stop,
    stop_after,
)
from demo_pipeline.observation.trees.tree_agreement import FOCUS_RIM_PX, TEXT_INPUTS, Contradiction

EDITOR_HEIGHT = 60  # units of event space; a field of one line is 20 to 50 high
_EDITING = frozenset(
    {
        *("backspace", "delete", "left", "right", "up", "down", "home", "end"),
        *("pageup", "pagedown", "shift"),
    }
)
_IN_TEXT = frozenset("abciuvxyz")  # with ctrl or command: clipboard, undo, letters' style
_MENUS = frozenset({"menu", "menuitem"})
_EDITED = TEXT_ROLES | {"slider", "panel"}  # a panel as a sheet, which draws its own content
_KEEPS_CLICK = frozenset({"checkbox", "radiobutton", "slider"})  # have the focus when clicked
_NO_FIELDS = frozenset(
    {"label", "link", "button", "checkbox", "radiobutton", "listitem", "image", "tab"}
)
_HOLDS_NO_TEXT = frozenset(
    {"table", "icon", "image", "listbox", "listitem", "treeview", "treeitem", "link", "tab"}
)
_TAKES_NO_TEXT = frozenset({"button", "link", "tab", "checkbox", "radiobutton"})
_LOOKS_HOVERED = frozenset({"button", "link", "tab", "icon", "menuitem"})  # under the pointer

Aimed = tuple[Element | None, str]
"""The target (None when in doubt) and how it was found, as `target_method`."""

NOTHING: Aimed = (None, "none")


def _no_picture() -> Grey | None:
    return None


@dataclass(frozen=True)
class Sight:
    """What is known of the focus besides the current scan.

    Attributes:
        before: gives the screenshot of the action before.
        now: gives that of the action.
        later: tree of the first scan that began after the action did; None without one.
        is_undisturbed: nothing else was done until that scan had ended.
    """

    before: Callable[[], Grey | None] = _no_picture
    now: Callable[[], Grey | None] = _no_picture
    later: StepTree | None = None
    is_undisturbed: bool = False


class KeyboardFocus:
    """Follows the actions of a demonstration in order."""

    def __init__(self) -> None:
        self._since_ms = float("-inf")  # when the focus may have moved last
        self._stop: Stop = ()  # that has it since; several: one radio button of a group
        self._method = "last_click"  # how that is known
        self._departure: Departure | None = None  # the last
        self._menu_opened = False
        self._menu_keys = False  # whether keys may have opened it, as Alt and a letter do
        self._menu: PixelBox | None = None  # whose title opened it
        self._list: PixelBox | None = None  # of choices, that may be open
        self._written: Sequence[ChangedBox] = ()  # where text appeared that no tree had a field for
        self._dialogs: frozenset[PixelBox | None] | None = None  # at that time; None: not known
        self._ring: PixelBox | None = None  # around what had it last
        self._pointer: Point | None = None  # where a button was pressed last
        self._is_click_known = True  # what was pressed there

    def target(  # noqa: PLR0917 - all that is known of the keys
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        changes_ms: Sequence[float],
        typed: Sequence[ChangedBox] = (),
        against: Sequence[Contradiction] | None = None,
        sight: Sight = Sight(),
    ) -> Aimed:
        """The element that keys went to (None when in doubt) and the method, as `target_method`.

        Args:
            action: the keys.
            tree: the tree of the current scan.
            current: the current scan.
            changes_ms: when much of the screen changed, epoch milliseconds.
            typed: what changed while text was typed, video pixels.
            against: what the screenshot shows otherwise than the tree; None: not compared.
            sight: what else is known.
        """
        if action.action_type == "pause" or current.scan is None:
            return NOTHING
        scanned = current.scan.begin_ms
        against = against or ()
        self._note_return(tree, scanned)
        opened = self._in_what_opened(action, tree, scanned, sight)
        if opened is not None:
            return opened
        since = max(scanned, self._since_ms)
        written = _written(tree, typed)
        found = self._scanned_around(action, tree, scanned, sight)
        method = "focused"
        if found is None and not any(since < change < action.press_ms for change in changes_ms):
            found, method = self._believed(tree, scanned)
            if found is not None and not _holds_any(tree, found, written, whole=True):
                found = None if self._is_covered(tree, found, against) else found
        if found is not None and self._is_behind_menu(action, tree, found):
            found = None
        holds_text = found is not None and found.role not in _HOLDS_NO_TEXT
        if written and (found is None or not holds_text or not _holds_any(tree, found, written)):
            aimed = (found, method)
            found, method = self._written_into(action.end_ms, tree, aimed, written, against)
        if found is None:
            found, method = self._shown(action, tree, scanned, written, against, sight=sight)
        self._ring = found.box if found is not None and method == "picture" else None
        return (found, method) if found else NOTHING

    def _shown(
        self,
        action: Action,
        tree: StepTree,
        scanned: int,
        written: Sequence[ChangedBox],
        against: Sequence[Contradiction],
        *,
        sight: Sight,
    ) -> Aimed:
        """What the pictures show to have the keyboard, or a dialog that opened."""
        found = self._ringed(tree, sight)
        method = "picture"
        if found is not None and self._is_covered(tree, found, against):
            found = None  # the edge of what opened over it looks like a ring
        if found is not None and found.role in _TAKES_NO_TEXT and (action.text or "").strip():
            found = None  # it looks otherwise because text was typed somewhere else
        if found is None:
            found = self._first_of_dialog(tree, scanned)
            method = "tab"
        if found is None or (written and not _holds_any(tree, found, written)):
            return NOTHING
        self._keep(found)
        return found, method

    def _written_into(
        self,
        end_ms: int,
        tree: StepTree,
        aimed: Aimed,
        written: Sequence[ChangedBox],
        against: Sequence[Contradiction],
    ) -> Aimed:
        """The field in which text appeared, that was not written into the known one.

        What a scan calls focused may show nothing of the text, while its window does. `end_ms`: of
        the typing.
        """
        (focused, method), field = aimed, _field_with(tree, written)
        if field is not None and self._is_covered(tree, field, against):
            field = None
        window = None if focused is None else tree.windows_around[focused.position]
        shown_in = None if window is None or method != "focused" else tree.element(window)
        if focused is not None and focused.role in _HOLDS_NO_TEXT:
            shown_in = None  # a terminal in front of its window may show the text
        if field is None and shown_in is not None and _holds_any(tree, shown_in, written):
            return aimed
        self._keep(field)
        if field is None:
            self._written = written
            self._method = "typed"
            claimed = focused_node(tree)
            if claimed is not None and _is_elsewhere(tree, claimed, written):
                self._departure = Departure(end_ms, claimed, window_boxes(tree))
        return field, "typed"

    def _in_what_opened(
        self, action: Action, tree: StepTree, scanned: int, sight: Sight
    ) -> Aimed | None:
        """What has the keys in a menu or list that opened; None: none did, as far as is known.

        The choice that is lit has them, or else the menu, which Escape closes.
        """
        is_fresh = scanned >= self._since_ms
        if self._menu_keys and is_fresh and not _menus(tree):
            self._menu_opened = self._menu_keys = False
        lists = self._list_choices(tree) if is_fresh else ()
        groups = [lists] if lists else []
        if self._menu_opened and is_fresh and not lists:
            groups = [_choices_of(tree, menu) for menu in reversed(_menus(tree))]
        choice = self._lit_choice(tree, groups, sight)
        if choice is not None:
            return choice, "picture"
        if self._menu_opened and "esc" in action.keys:
            focused = focused_node(tree) if is_fresh else None
            if focused is not None and focused.role in _MENUS:
                return focused, "focused"
            menu = self._open_menu(tree, scanned)
            return (menu, "last_click") if menu else NOTHING
        return NOTHING if any(groups) else None

    def _lit_choice(
        self, tree: StepTree, groups: Sequence[Sequence[int]], sight: Sight
    ) -> Element | None:
        """The lit one of the choices of the innermost menu, or of the menu around it.

        A menu whose submenu is open, but in which nothing was chosen yet, has the keys itself.
        """
        picture = sight.now() if groups else None
        if picture is None:
            return None
        for choices in groups:
            bounds = _bounds(tree, choices)
            index = lit(picture, bounds)
            if index is not None:
                return tree.element(choices[index])
            if not are_unlit(picture, bounds):
                return None
        return None

    def _list_choices(self, tree: StepTree) -> Sequence[int]:
        """The choices of the list that is open."""
        shown = [n for n, role in enumerate(tree.roles) if role in CHOICES and _shows(tree, n)]
        lists = {n: box for n in shown if (box := _box_above(tree, n))}
        if lists:
            self._list = next(iter(lists.values()))
        return list(lists)

    def _scanned_around(
        self, action: Action, tree: StepTree, scanned: int, sight: Sight
    ) -> Element | None:
        """The focus of the next scan, if the one before had it too, or nothing moved it before."""
        now = focused_node(tree)
        later = None if sight.later is None else focused_node(sight.later)
        if sight.later is None or later is None or not self._allows(sight.later, later, scanned):
            return None
        if now and (now.role, now.box) == (later.role, later.box):
            opened = window_boxes(sight.later) - window_boxes(tree)
            return None if opened else now
        may_close = "enter" in action.keys  # a dialog, so that what is behind it has the focus
        if not sight.is_undisturbed or may_close or _moves_focus(action, later):
            return None
        same = [node for node in positions_of(tree, later.box) if tree.roles[node] == later.role]
        return tree.element(same[-1]) if same else None

    def _note_return(self, tree: StepTree, scanned: int) -> None:
        """Forget a press once a menu or window that it opened has the focus.

        The window pressed is then that of the program, and not hidden by another one there.
        """
        departure = self._departure
        focused = focused_node(tree)
        if departure is None or focused is None or scanned < departure.end_ms:
            return
        had = departure.focused
        if had is None or departure.place is None or had.box == focused.box:
            return
        if departure.holders and departure.allows(tree, focused):
            self._departure = None

    def _allows(self, tree: StepTree, focused: Element, scanned: int) -> bool:
        """Whether the keyboard may be in what scans call focused, after the last departure.

        Windows and macOS have one focus, so that a scan from after the departure is right there.
        """
        departure = self._departure
        if departure is None or (tree.platform != "linux" and scanned >= departure.end_ms):
            return True
        return departure.allows(tree, focused)

    def _believed(self, tree: StepTree, scanned: int) -> Aimed:
        """What has the keyboard by the current scan and the actions before."""
        if self._list is not None and scanned >= self._since_ms:
            self._stop = (self._list,)  # no choice is to be seen: it is closed, or edited in place
        found = self._known_field(tree)
        method = self._method
        if scanned >= self._since_ms and (found is None or method == "tab"):
            now = focused_node(tree)
            if now is not None and self._allows(tree, now, scanned):
                return now, "focused"
        return found, method

    def _ringed(self, tree: StepTree, sight: Sight) -> Element | None:
        """What got a ring since the last action, or has it still, of what can have the focus.

        What is under the pointer looks otherwise for that alone.
        """
        around, _ = _fields(tree)
        able = [
            node
            for node, role in enumerate(tree.roles)
            if role in HOLDS_FOCUS | CHOICES
            and node not in around
            and not _is_tool(tree, node)
            and can_have_focus(tree, node)
            and not (role in _LOOKS_HOVERED and self._is_under_pointer(tree, node))
        ]
        if self._menu_opened or not able:
            return None
        before = sight.before()
        now = sight.now()
        if before is None or now is None:
            return None
        may_be_new = [tree.roles[node] in TEXT_INPUTS for node in able]
        index = ringed(before, now, _bounds(tree, able), may_be_new)
        if index is not None:
            found = tree.element(able[index])
            is_label = found.role in _LOOKS_HOVERED  # which the ring leaves as it was
            (box,) = _bounds(tree, [found.position])
            if found.role == "tablecell" and not is_ground_as_before(before, now, box):
                return None  # lit with its row
            return found if not is_label or is_written_as_before(before, now, box) else None
        had = [node for node in positions_of(tree, self._ring) if can_have_focus(tree, node)][:1]
        is_there = had and is_as_before(before, now, _bounds(tree, had)[0])
        return tree.element(had[0]) if is_there else None

    def _is_under_pointer(self, tree: StepTree, node: int) -> bool:
        box = tree.box(node)
        return box is not None and self._pointer is not None and box.contains(*self._pointer)

    def _first_of_dialog(self, tree: StepTree, scanned: int) -> Element | None:
        """The first of a dialog that opened since: it gets the focus."""
        if self._dialogs is None or scanned < self._since_ms:
            return None
        opened = [n for n in _popups(tree) if tree.roles[n] == "dialog"][-1:]
        if not opened or tree.box(opened[0]) in self._dialogs:
            return None
        if not self._is_click_known and self._is_under_pointer(tree, opened[0]):
            return None  # it may have been open before, and something in it was clicked
        inside = (node for node in range(len(tree)) if opened[0] in ancestors(tree, node))
        able = (n for n in inside if tree.roles[n] in HOLDS_FOCUS and can_have_focus(tree, n))
        first = next(able, None)
        return None if first is None else tree.element(first)

    @property
    def is_in_unknown_field(self) -> bool:
        """Whether text appeared where no tree had a field, and nothing moved the focus since."""
        return bool(self._written)

    def _keep(self, element: Element | None) -> None:
        """An element has the focus from now on."""
        self._stop = () if element is None or element.box is None else (element.box,)
        self._method = "last_click"
        self._written = ()

    def _is_covered(
        self, tree: StepTree, element: Element, against: Sequence[Contradiction]
    ) -> bool:
        """Whether something opened in the window of an element, or changed over the element.

        Not so when nothing but what had the focus before changed, which is edited now.
        """
        if element.box is None:
            return False
        window = tree.windows_around[element.position]
        around = (None if window is None else tree.box(window)) or element.box
        own, outer = map(tree.canvas.box_to_video, (element.box, around))
        if self._stop == (element.box,) and all(_is_within(one.place, own) for one in against):
            return False
        if element.role in TEXT_ROLES:  # its text may change
            against = [one for one in against if one.is_popup or not _is_within(one.place, own)]
        if element.role == "combobox":  # its list opens and closes below it, and may be wider
            below = PixelBox(own.x, own.y, own.width, outer.bottom - own.y)
            against = [
                one
                for one in against
                if one.place[1] < own.y - FOCUS_RIM_PX or not _overlap(one.place, below)
            ]
        return any(_overlap(one.place, outer if one.is_popup else own) for one in against)

    def _open_menu(self, tree: StepTree, scanned: int) -> Element | None:
        """The menu that Escape closes: that whose title was clicked, or the only one there is."""
        found = [node for node in positions_of(tree, self._menu) if tree.roles[node] == "menu"]
        if self._menu is None and scanned >= self._since_ms:
            found = list(_menus(tree))
        return tree.element(found[0]) if len(found) == 1 else None

    def _known_field(self, tree: StepTree) -> Element | None:
        if self._written and not self._stop:
            return _field_with(tree, _written(tree, self._written))
        fields = (
            node
            for node in positions_of(tree, self._stop[0] if len(self._stop) == 1 else None)
            if tree.roles[node] in HOLDS_FOCUS | CHOICES
        )
        position = next(fields, None)
        return None if position is None else tree.element(position)

    def _is_behind_menu(self, action: Action, tree: StepTree, found: Element) -> bool:
        """Whether a menu that was opened has the keys, or a dialog that Escape would close."""
        if not self._menu_opened and "esc" not in action.keys:
            return False
        around = {tree.roles[node] for node in (found.position, *ancestors(tree, found.position))}
        return not around & {*_MENUS, "dialog"} and (self._menu_opened or bool(_popups(tree)))

    def record(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Note an action and its target."""
        if action.action_type in POINTER_TYPES - {"scroll"}:
            self._departure = departure_by_press(action, tree, target)
            self._click(action, tree, target)
        elif action.action_type == "hotkey" and "tab" in action.keys:
            self._departure = departure_by_keys(action, tree) or self._departure
            self._tab(action, tree, target)
        elif action.action_type == "hotkey":
            self._departure = departure_by_keys(action, tree) or self._departure
            self._press(action, tree, target)
        elif action.action_type == "type":
            self._list = self._menu = None
            if target is not None and target.role == "button":
                self._since_ms, self._stop = action.end_ms, ()  # Space pressed it

    def _click(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """What was clicked has the keyboard, if it is of a kind that takes it."""
        place = None if action.x is None or action.y is None else (action.x, action.y)
        field = None if target is None else text_node_around(tree, target)
        if target is not None and target.role in _KEEPS_CLICK:
            field = target
        opens_list = field is not None and field.role == "combobox"  # which has the focus then
        self._lose(action, tree)
        self._keep(None if opens_list else field)
        self._list = field.box if field is not None and opens_list else None
        opens_menu = target is not None and target.role == "menu"
        self._menu_opened = opens_menu or action.action_type == "right_click"
        self._menu_keys = False
        self._menu = target.box if target is not None and opens_menu else None
        self._is_click_known = target is not None
        self._pointer = place
        self._ring = None  # gone before the next keys, so that two pictures without it are alike

    def _tab(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Tab goes on from where the focus is, if that is known."""
        known = (target.box,) if target is not None and target.box is not None else self._stop
        known = known if self._list is None else (self._list,)
        self._lose(action, tree)
        self._list = self._dialogs = None
        if set(action.keys) <= {"shift", "tab"}:
            presses = (action.presses or 1) * (-1 if "shift" in action.keys else 1)
            self._stop = stop_after(tree, known, presses) if known else ()
            self._method = "tab"

    def _press(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Other keys may move the focus, or open or close what has it."""
        keys = set(action.keys)
        role = target.role if target is not None else None
        self._menu_opened &= keys.isdisjoint({"esc", "enter"})
        self._menu = self._menu if keys <= {"up", "down"} else None
        chosen = self._list
        self._list = self._list if keys <= {"up", "down"} else None
        is_in_menu = self._menu_opened and role in CHOICES | _MENUS
        if (is_in_menu or (chosen is not None and role in CHOICES)) and keys <= {"up", "down"}:
            return  # another choice of the same list
        if chosen is not None and role in CHOICES and keys <= _EDITING:
            return
        if _moves_focus(action, target) or is_in_menu:
            self._lose(action, tree)
            if role == "combobox" and target is not None and keys == {"esc"}:
                chosen = target.box  # only its list closed
            if chosen is not None and keys in ({"enter"}, {"esc"}):
                self._stop = (chosen,)
        if _opens_menu(keys):
            self._menu_opened = self._menu_keys = True

    def _lose(self, action: Action, tree: StepTree) -> None:
        """Nothing is known to have the focus after an action."""
        self._keep(None)
        self._since_ms, self._dialogs = action.end_ms, _dialog_boxes(tree)


def _overlap(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    left, top, width, height = place
    across = left < box.right and box.x < left + width
    return across and top < box.bottom and box.y < top + height


def _is_tool(tree: StepTree, node: int) -> bool:
    """Whether it is a button in a tool bar, whose frame says that it is on or can be pressed."""
    roles = {tree.roles[outer] for outer in ancestors(tree, node)}
    return tree.roles[node] == "button" and "toolbar" in roles


def _is_elsewhere(tree: StepTree, focused: Element, places: Sequence[ChangedBox]) -> bool:
    """Whether text appeared outside the window of an element, or the element holds no text."""
    window = tree.windows_around[focused.position]
    is_outside = window is not None and not _holds_any(tree, tree.element(window), places)
    return is_outside or focused.role in _HOLDS_NO_TEXT


def _opens_menu(keys: set[str]) -> bool:
    """Whether keys open a menu where there is one: Alt and a letter, F10, the menu key."""
    is_mnemonic = len(keys) == 2 and "alt" in keys and any(len(key) == 1 for key in keys)
    return is_mnemonic or keys in ({"alt"}, {"f10"}, {"shift", "f10"}, {"menu"}, {"apps"})


def _menus(tree: StepTree) -> Sequence[int]:
    """Positions of the menus with items on the screen, in document order: the innermost last."""
    return [node for node in _popups(tree) if tree.roles[node] == "menu"]


def _choices_of(tree: StepTree, menu: int) -> Sequence[int]:
    """The items of a menu, and the titles of its submenus."""
    roles = CHOICES | {"menu"}
    inside = [node for node, parent in enumerate(tree.parents) if parent == menu]
    return [node for node in inside if tree.roles[node] in roles and _shows(tree, node)]


def _popups(tree: StepTree) -> Sequence[int]:
    """Positions of the dialogs, and of the menus with their items, that are on the screen."""
    found = set()
    for node in np.flatnonzero(tree.boxes[:, 2] * tree.boxes[:, 3] > 0).tolist():
        role = tree.roles[node]
        parent = tree.parents[node]
        is_item = role == "menuitem" and parent >= 0 and tree.roles[parent] == "menu"
        if (role == "dialog" or is_item) and "hidden" not in tree.states_at(node):
            found.add(parent if is_item else node)
    return sorted(found)


def _dialog_boxes(tree: StepTree) -> frozenset[PixelBox | None]:
    return frozenset(tree.box(node) for node in _popups(tree) if tree.roles[node] == "dialog")


def _box_above(tree: StepTree, choice: int) -> PixelBox | None:
    """The combo box of a choice that is beyond it: its list is open."""
    inner = tree.box(choice)
    boxes = [tree.box(node) for node in ancestors(tree, choice) if tree.roles[node] == "combobox"]
    return next((box for box in boxes if box and inner and not _overlap(inner, box)), None)


def _shows(tree: StepTree, node: int) -> bool:
    box = tree.box(node)
    return box is not None and box.area > 0 and "hidden" not in tree.states_at(node)


def _bounds(tree: StepTree, nodes: Sequence[int]) -> Sequence[Sequence[int]]:
    """x, y, width, height of nodes on the canvas."""
    return [list(tree.element(node).bounds.values()) for node in nodes]


def _moves_focus(action: Action, target: Element | None) -> bool:
    """Whether keys may move the focus, or open something that takes it."""
    keys = set(action.keys)
    if keys & {"ctrl", "command"} and len(keys) == 2 and keys & _IN_TEXT:
        return False
    if target is None or target.role not in _EDITED:
        return True
    if action.action_type == "type":
        return not set("\t\n").isdisjoint(action.text or "")
    edits = keys <= _EDITING | {"ctrl"}
    if target.role in {"textarea", "textfield"} and target.box is not None:
        edits |= keys <= {"enter", "shift"} and target.box.height >= EDITOR_HEIGHT
    return not edits


def _holds_any(
    tree: StepTree, element: Element, places: Sequence[ChangedBox], *, whole: bool = False
) -> bool:
    """Whether any of these places in the picture reaches into an element, or is in it `whole`."""
    box = element.box and tree.canvas.box_to_video(element.box)
    reaches = _is_within if whole else _overlap
    return box is not None and any(reaches(place, box) for place in places)


def _is_within(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    """Whether a place in the picture is in a box or on its rim; video pixels."""
    left, top, width, height = place
    is_across = box.x - FOCUS_RIM_PX <= left and left + width <= box.right + FOCUS_RIM_PX
    return is_across and box.y - FOCUS_RIM_PX <= top and top + height <= box.bottom + FOCUS_RIM_PX


def _written(tree: StepTree, places: Sequence[ChangedBox]) -> Sequence[ChangedBox]:
    """The places in which text may have been typed.

    What other elements show, as a button that can be pressed now or a status that says that the
    text is not saved, tells nothing.
    """
    if not places:
        return ()
    around, fields = _fields(tree)
    said = [
        tree.canvas.box_to_video(box)
        for node, role in enumerate(tree.roles)
        if role in _NO_FIELDS and tree.raws[node].name and node not in around
        if "hidden" not in tree.states_at(node) and (box := tree.box(node)) is not None
        if not fields.intersection(ancestors(tree, node))
    ]
    return [place for place in places if not any(_is_within(place, box) for box in said)]


def _fields(tree: StepTree) -> tuple[set[int], set[int]]:
    """What is around text fields, and the fields, and cells that can be edited in place."""
    inner = {node for node, role in enumerate(tree.roles) if role in TEXT_ROLES}
    around = {outer for node in inner for outer in ancestors(tree, node)}
    cells = (node for node, role in enumerate(tree.roles) if role == "tablecell")
    return around, inner.union(node for node in cells if can_have_focus(tree, node)) - around


def _field_with(tree: StepTree, places: Sequence[ChangedBox]) -> Element | None:
    """The only text field, or cell that is edited in place, in which these places are.

    None when one is elsewhere. `places`: where text appeared, video pixels.
    """
    shown = [node for node in range(len(tree)) if "hidden" not in tree.states_at(node)]
    boxes = {node: tree.canvas.box_to_video(box) for node in shown if (box := tree.box(node))}
    _, fields = _fields(tree)
    found: set[int] = set()
    for place in places:
        holding = [node for node, box in boxes.items() if _is_within(place, box)]
        front = min(
            filter(tree.windows.__contains__, holding),
            key=lambda node: boxes[node].area,
            default=None,
        )
        inside = fields.intersection(holding)
        found |= {node for node in inside if tree.windows_around[node] == front} or {-1}
    if len(found) != 1 or -1 in found:
        return None  # a formula bar repeats what goes into a cell
    (field,) = found
    return tree.element(field)
