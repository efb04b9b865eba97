"""Finds the element that has the keyboard focus at each action of a demonstration.

There are five kinds of evidence:

1. Two successive scans name the same focused element, and no action between them could move the
   focus away (departures.py).
2. A click or the Tab key moved the focus, and no later action could move it.
3. Typed text appeared in a field.
4. A screenshot shows a focus ring around an element, or a highlighted choice in an open list or
   menu (focus_rings.py).
5. A dialog opened, and its first focusable element got the focus.

While a menu or dialog is open, it receives the keys. If in doubt, keys have no target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from demo_pipeline.actions.action_tables import POINTER_TYPES, Action
from demo_pipeline.observation.frames.changes import ChangedBox
from demo_pipeline.observation.frames.pointer_path import PixelBox, Point
from demo_pipeline.observation.trees.departures import (
    Departure,
    departure_by_keys,
    departure_by_press,
    window_boxes,
)
from demo_pipeline.observation.trees.focus_rings import (
    Bounds,
    Grey,
    are_unlit,
    has_same_background,
    has_same_content,
    has_same_sides,
    lit_choice,
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
from demo_pipeline.observation.trees.open_popups import (
    choices_of_menu,
    choices_of_open_lists,
    open_dialogs,
    open_menus,
    open_popups,
)
from demo_pipeline.observation.trees.scans import CurrentScan
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.observation.trees.tab_order import (
    CHOICES,
    HOLDS_FOCUS,
    TabStop,
    stop_after,
)
from demo_pipeline.observation.trees.text_places import (
    contains_any,
    field_with,
    is_within,
    overlap,
    places_of_text,
    reaches_any,
    text_fields,
)
from demo_pipeline.observation.trees.tree_agreement import FOCUS_RIM_PX, TEXT_INPUTS, Contradiction

# Minimum height of a field with several lines, in units of event space. Single lines have 20 to 50.
EDITOR_HEIGHT = 60
# Keys that do not move the focus out of a text field.
_EDITING_KEYS = frozenset(
    {
        "backspace",
        "delete",
        "left",
        "right",
        "up",
        "down",
        "home",
        "end",
        "pageup",
        "pagedown",
        "shift",
    }
)
# Keys that edit or format text together with Ctrl or Command, and do not move the focus.
_TEXT_COMMANDS = frozenset("abciuvxyz")
_MENUS = frozenset({"menu", "menuitem"})
# Roles of elements that keep the focus when editing keys are pressed. A panel may be a spreadsheet.
_KEEPS_EDITING_KEYS = TEXT_ROLES | {"slider", "panel"}
_FOCUSED_BY_CLICK = frozenset({"checkbox", "radiobutton", "slider"})
# Roles of elements that never show typed text, even if a scan calls them focused.
_HOLDS_NO_TEXT = frozenset(
    {"table", "icon", "image", "listbox", "listitem", "treeview", "treeitem", "link", "tab"}
)
# Roles of elements that cannot be the target of typing, even if they look different afterwards.
_TAKES_NO_TEXT = frozenset({"button", "link", "tab", "checkbox", "radiobutton"})
# Roles of elements that may change how they look while the pointer is over them.
_LOOKS_HOVERED = frozenset({"button", "link", "tab", "icon", "menuitem"})


class FoundTarget(NamedTuple):
    """The target of an action, and how it was found.

    Attributes:
        element: the target; None if the target is unknown.
        method: how the target was found, as in the column `target_method`.
    """

    element: Element | None
    method: str


NO_TARGET = FoundTarget(None, "none")


def _no_screenshot() -> Grey | None:
    return None


@dataclass(frozen=True)
class FocusEvidence:
    """Evidence about the focus at an action, apart from the action's current scan.

    Attributes:
        before, now: functions that return the screenshot of the previous action and of this action.
            They return None if there is no readable screenshot.
        later: tree of the first scan that began after the action's press; None if there is no such
            scan.
        is_undisturbed: whether no other action happened before the scan of `later` ended.
    """

    before: Callable[[], Grey | None] = _no_screenshot
    now: Callable[[], Grey | None] = _no_screenshot
    later: StepTree | None = None
    is_undisturbed: bool = False


class KeyboardFocus:
    """Follows the keyboard focus through the actions of a demonstration.

    For each action, in order, call `target` if the action uses the keyboard, and then `record`.
    """

    def __init__(self) -> None:
        # The last time at which the focus may have moved, epoch milliseconds.
        self._since_ms = float("-inf")
        # Boxes of the elements that may have had the focus since `_since_ms`; empty if unknown.
        self._stop: TabStop = ()
        self._method = "last_click"  # how these elements were found, see `FoundTarget.method`
        self._departure: Departure | None = None
        self._menu_opened = False  # whether an action may have opened a menu
        self._opened_by_keys = False  # whether keys may have opened a menu, e.g. Alt with a letter
        self._menu: PixelBox | None = None  # box of the menu whose title was clicked
        self._list: PixelBox | None = None  # box of the combo box whose list may be open
        # Places (video pixels) where typed text last appeared outside all fields of the tree.
        self._text_places: Sequence[ChangedBox] = ()
        # Boxes of the dialogs that were open at `_since_ms`; None if they are unknown.
        self._dialogs: frozenset[PixelBox | None] | None = None
        self._ring: PixelBox | None = None  # box of the element that showed the last focus ring
        # Point of the last press in event space, and whether the pressed element is known.
        self._pointer: Point | None = None
        self._is_click_known = True

    def target(  # noqa: PLR0917 - all evidence about the focus
        self,
        action: Action,
        tree: StepTree,
        current: CurrentScan,
        changes_ms: Sequence[float],
        typed: Sequence[ChangedBox] = (),
        contradictions: Sequence[Contradiction] | None = None,
        evidence: FocusEvidence = FocusEvidence(),
    ) -> FoundTarget:
        """Returns the element that received the keys of an action, and how it was found.

        Args:
            action: typing or a hotkey.
            changes_ms: times at which much of the screen changed, epoch milliseconds.
            typed: places that changed while text was typed, video pixels.
            contradictions: places where the screenshot contradicts the tree; None if the two were
                not compared.
        """
        if action.action_type == "pause" or current.scan is None:
            return NO_TARGET
        scanned_ms = current.scan.begin_ms
        contradictions = contradictions or ()
        self._note_return(tree, scanned_ms)
        in_popup = self._target_in_popup(action, tree, scanned_ms, evidence)
        if in_popup is not None:
            return in_popup
        since_ms = max(scanned_ms, self._since_ms)
        text_places = places_of_text(tree, typed)
        element = self._confirmed_by_next_scan(action, tree, scanned_ms, evidence)
        method = "focused"
        if element is None and not any(since_ms < ms < action.press_ms for ms in changes_ms):
            element, method = self._by_scan_or_actions(tree, scanned_ms)
            shows_text = element is not None and contains_any(tree, element, text_places)
            if element is not None and not shows_text:
                is_covered = self._is_covered(tree, element, contradictions)
                element = None if is_covered else element
        if element is not None and self._is_behind_popup(action, tree, element):
            element = None
        if text_places and not _received_text(tree, element, text_places):
            claimed = FoundTarget(element, method)
            element, method = self._by_text(
                action.end_ms, tree, claimed, text_places, contradictions
            )
        if element is None:
            element, method = self._by_screenshots(
                action, tree, scanned_ms, text_places, contradictions, evidence=evidence
            )
        self._ring = element.box if element is not None and method == "picture" else None
        return NO_TARGET if element is None else FoundTarget(element, method)

    def _by_screenshots(
        self,
        action: Action,
        tree: StepTree,
        scanned_ms: int,
        text_places: Sequence[ChangedBox],
        contradictions: Sequence[Contradiction],
        *,
        evidence: FocusEvidence,
    ) -> FoundTarget:
        """Returns the element with a focus ring, or the first element of a dialog that opened."""
        element = self._ringed_element(tree, evidence)
        method = "picture"
        if element is not None and self._is_covered(tree, element, contradictions):
            element = None  # the edge of a popup in front of the element may look like a ring
        types_text = bool((action.text or "").strip())
        if element is not None and element.role in _TAKES_NO_TEXT and types_text:
            element = None  # typing text elsewhere may change how a button looks
        if element is None:
            element = self._first_of_new_dialog(tree, scanned_ms)
            method = "tab"
        if element is None or (text_places and not reaches_any(tree, element, text_places)):
            return NO_TARGET
        self._set_focus(element)
        return FoundTarget(element, method)

    def _by_text(
        self,
        end_ms: int,
        tree: StepTree,
        claimed: FoundTarget,
        text_places: Sequence[ChangedBox],
        contradictions: Sequence[Contradiction],
    ) -> FoundTarget:
        """Returns the field in which typed text appeared.

        If this field is unknown, but the text appeared in the window of the focused element, the
        focused element stays the target, unless its role never shows typed text.

        Args:
            end_ms: when the typing ended, epoch milliseconds.
            claimed: the target according to other evidence. The text did not appear in this target.
            text_places: where the text may have appeared, video pixels.
            contradictions: places where the screenshot contradicts the tree.
        """
        field = field_with(tree, text_places)
        if field is not None and self._is_covered(tree, field, contradictions):
            field = None
        focused = claimed.element
        if (
            field is None
            and focused is not None
            and claimed.method == "focused"
            # If the focused element cannot show text, the person may have typed into a terminal in
            # front of the element's window.
            and focused.role not in _HOLDS_NO_TEXT
        ):
            window = tree.windows_around[focused.position]
            if window is not None and reaches_any(tree, tree.element(window), text_places):
                return claimed
        self._set_focus(field)
        if field is None:
            self._text_places = text_places
            self._method = "typed"
            scanned = focused_node(tree)
            if scanned is not None and _is_elsewhere(tree, scanned, text_places):
                self._departure = Departure(end_ms, scanned, window_boxes(tree))
        return FoundTarget(field, "typed")

    def _target_in_popup(
        self, action: Action, tree: StepTree, scanned_ms: int, evidence: FocusEvidence
    ) -> FoundTarget | None:
        """Returns the target of keys if a menu or a list is open.

        The target is the highlighted choice. If no choice is highlighted, the target of Escape is
        the menu.

        Returns:
            The target. `NO_TARGET` if a menu or list is open, but the target is unknown. None if no
            menu or list is known to be open.
        """
        is_fresh = scanned_ms >= self._since_ms
        if self._opened_by_keys and is_fresh and not open_menus(tree):
            self._menu_opened = False
            self._opened_by_keys = False
        groups: list[Sequence[int]] = []
        list_choices = choices_of_open_lists(tree) if is_fresh else {}
        if list_choices:
            self._list = next(iter(list_choices.values()))
            groups = [list(list_choices)]
        elif self._menu_opened and is_fresh:
            groups = [choices_of_menu(tree, menu) for menu in reversed(open_menus(tree))]
        choice = _lit_element(tree, groups, evidence)
        if choice is not None:
            return FoundTarget(choice, "picture")
        if self._menu_opened and "esc" in action.keys:
            focused = focused_node(tree) if is_fresh else None
            if focused is not None and focused.role in _MENUS:
                return FoundTarget(focused, "focused")
            menu = self._menu_to_close(tree, scanned_ms)
            return FoundTarget(menu, "last_click") if menu else NO_TARGET
        return NO_TARGET if any(groups) else None

    def _confirmed_by_next_scan(
        self, action: Action, tree: StepTree, scanned_ms: int, evidence: FocusEvidence
    ) -> Element | None:
        """Returns the element that the next scan calls focused, if it certainly had the focus.

        The focus is certain if the current scan calls the same element focused and no window
        opened, or if nothing can have moved the focus between the action and the next scan.
        Otherwise returns None.
        """
        later_tree = evidence.later
        later = None if later_tree is None else focused_node(later_tree)
        if later_tree is None or later is None or not self._allows(later_tree, later, scanned_ms):
            return None
        now = focused_node(tree)
        if now and (now.role, now.box) == (later.role, later.box):
            opened = window_boxes(later_tree) - window_boxes(tree)
            return None if opened else now
        # Enter may close a dialog, which moves the focus to the window behind the dialog.
        may_close_dialog = "enter" in action.keys
        if not evidence.is_undisturbed or may_close_dialog or _moves_focus(action, later):
            return None
        for node in reversed(positions_of(tree, later.box)):
            if tree.roles[node] == later.role:
                return tree.element(node)
        return None

    def _note_return(self, tree: StepTree, scanned_ms: int) -> None:
        """Forgets the last departure if it was a press and a later scan has a new focused element.

        The new element shows that the press was in a window with an accessibility tree.
        """
        departure = self._departure
        focused = focused_node(tree)
        if departure is None or focused is None or scanned_ms < departure.end_ms:
            return
        left = departure.focused
        if left is None or departure.place is None or left.box == focused.box:
            return
        if departure.pressed_windows and departure.allows(tree, focused):
            self._departure = None

    def _allows(self, tree: StepTree, focused: Element, scanned_ms: int) -> bool:
        """Returns whether a scan may be right about the focus despite the last departure.

        On Windows and macOS, every scan that began after the departure is trusted. `scanned_ms` is
        when the scan began, epoch milliseconds.
        """
        departure = self._departure
        if departure is None or (tree.platform != "linux" and scanned_ms >= departure.end_ms):
            return True
        return departure.allows(tree, focused)

    def _by_scan_or_actions(self, tree: StepTree, scanned_ms: int) -> FoundTarget:
        """Returns the element with the focus according to the current scan and earlier actions."""
        if self._list is not None and scanned_ms >= self._since_ms:
            # No choice is visible, so the list is closed, or the combo box is edited in place.
            self._stop = (self._list,)
        field = self._field_by_actions(tree)
        if scanned_ms >= self._since_ms and (field is None or self._method == "tab"):
            focused = focused_node(tree)
            if focused is not None and self._allows(tree, focused, scanned_ms):
                return FoundTarget(focused, "focused")
        return FoundTarget(field, self._method)

    def _ringed_element(self, tree: StepTree, evidence: FocusEvidence) -> Element | None:
        """Returns the focusable element that got a focus ring, or that still has the last ring.

        Buttons, links and similar elements under the pointer are left out, because hovering may
        change how they look.
        """
        around_fields, _ = text_fields(tree)
        focusable = [
            node
            for node, role in enumerate(tree.roles)
            if role in HOLDS_FOCUS | CHOICES
            and node not in around_fields
            and not _is_tool(tree, node)
            and can_have_focus(tree, node)
            and not (role in _LOOKS_HOVERED and self._is_under_pointer(tree, node))
        ]
        if self._menu_opened or not focusable:
            return None
        before = evidence.before()
        now = evidence.now()
        if before is None or now is None:
            return None
        # Only input fields may have appeared together with their ring.
        may_be_new = [tree.roles[node] in TEXT_INPUTS for node in focusable]
        index = ringed(before, now, _bounds(tree, focusable), may_be_new)
        if index is None:
            return self._still_ringed_element(tree, before, now)
        element = tree.element(focusable[index])
        bounds = list(element.bounds.values())
        if element.role == "tablecell" and not has_same_background(before, now, bounds):
            return None  # the cell changed because its row was highlighted
        if element.role in _LOOKS_HOVERED and not has_same_content(before, now, bounds):
            return None  # a ring would leave the label of a button unchanged
        return element

    def _still_ringed_element(self, tree: StepTree, before: Grey, now: Grey) -> Element | None:
        """Returns the element that had the last focus ring, if the ring is still there."""
        for node in positions_of(tree, self._ring):
            if can_have_focus(tree, node):
                element = tree.element(node)
                keeps_ring = has_same_sides(before, now, list(element.bounds.values()))
                return element if keeps_ring else None
        return None

    def _is_under_pointer(self, tree: StepTree, node: int) -> bool:
        box = tree.box(node)
        return box is not None and self._pointer is not None and box.contains(*self._pointer)

    def _first_of_new_dialog(self, tree: StepTree, scanned_ms: int) -> Element | None:
        """Returns the first focusable element of a dialog that opened since the focus last moved.

        Returns None if no dialog opened, or if the dialog may have been open before.
        """
        if self._dialogs is None or scanned_ms < self._since_ms:
            return None
        dialogs = open_dialogs(tree)
        if not dialogs or tree.box(dialogs[-1]) in self._dialogs:
            return None
        dialog = dialogs[-1]
        if not self._is_click_known and self._is_under_pointer(tree, dialog):
            # The click was inside the dialog, so the dialog may have been open before.
            return None
        for node in range(len(tree)):
            is_focusable = tree.roles[node] in HOLDS_FOCUS and can_have_focus(tree, node)
            if is_focusable and dialog in ancestors(tree, node):
                return tree.element(node)
        return None

    @property
    def is_in_unknown_field(self) -> bool:
        """Whether typed text appeared outside all fields, and the focus has not moved since."""
        return bool(self._text_places)

    def _set_focus(self, element: Element | None) -> None:
        """Records that the element has the focus from now on, or that the focus is unknown."""
        self._stop = () if element is None or element.box is None else (element.box,)
        self._method = "last_click"
        self._text_places = ()

    def _is_covered(
        self, tree: StepTree, element: Element, contradictions: Sequence[Contradiction]
    ) -> bool:
        """Returns whether changes of the screen show that something may cover an element.

        A popup counts anywhere in the element's window. Other changes count only at the element
        itself. If the element already had the focus and nothing changed outside it, nothing covers
        it.
        """
        if element.box is None:
            return False
        own = tree.canvas.box_to_video(element.box)
        window = tree.windows_around[element.position]
        window_box = None if window is None else tree.box(window)
        outer = tree.canvas.box_to_video(window_box or element.box)
        is_all_within = all(is_within(change.place, own) for change in contradictions)
        if self._stop == (element.box,) and is_all_within:
            return False
        for change in contradictions:
            if element.role in TEXT_ROLES and not change.is_popup and is_within(change.place, own):
                continue  # the text of the element may change
            if element.role == "combobox":
                # The list of a combo box opens and closes below the combo box, and may be wider.
                below = PixelBox(own.x, own.y, own.width, outer.bottom - own.y)
                is_above = change.place[1] < own.y - FOCUS_RIM_PX
                if not is_above and overlap(change.place, below):
                    continue
            if overlap(change.place, outer if change.is_popup else own):
                return True
        return False

    def _menu_to_close(self, tree: StepTree, scanned_ms: int) -> Element | None:
        """Returns the menu that Escape closes. Returns None if the menu is unknown.

        This is the clicked menu or, if none was clicked, the only open menu.
        """
        menus: Sequence[int] = ()
        if self._menu is not None:
            menus = [node for node in positions_of(tree, self._menu) if tree.roles[node] == "menu"]
        elif scanned_ms >= self._since_ms:
            menus = open_menus(tree)
        return tree.element(menus[0]) if len(menus) == 1 else None

    def _field_by_actions(self, tree: StepTree) -> Element | None:
        """Returns the element that earlier actions gave the focus; None if it is unknown."""
        if self._text_places and not self._stop:
            return field_with(tree, places_of_text(tree, self._text_places))
        if len(self._stop) != 1:
            return None
        for node in positions_of(tree, self._stop[0]):
            if tree.roles[node] in HOLDS_FOCUS | CHOICES:
                return tree.element(node)
        return None

    def _is_behind_popup(self, action: Action, tree: StepTree, element: Element) -> bool:
        """Returns whether keys go to an open menu or dialog that does not contain the element.

        A menu that an action opened receives all keys. Other open menus and dialogs receive only
        Escape.
        """
        if not self._menu_opened and "esc" not in action.keys:
            return False
        for node in (element.position, *ancestors(tree, element.position)):
            if tree.roles[node] in {*_MENUS, "dialog"}:
                return False
        return self._menu_opened or bool(open_popups(tree))

    def record(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Records how an action moves the focus. Call it for all actions, in order.

        `target` is None if it is unknown.
        """
        if action.action_type in POINTER_TYPES - {"scroll"}:
            self._departure = departure_by_press(action, tree, target)
            self._record_click(action, tree, target)
        elif action.action_type == "hotkey":
            self._departure = departure_by_keys(action, tree) or self._departure
            if "tab" in action.keys:
                self._record_tab(action, tree, target)
            else:
                self._record_keys(action, tree, target)
        elif action.action_type == "type":
            self._list = None
            self._menu = None
            if target is not None and target.role == "button":  # a typed space pressed the button
                self._since_ms = action.end_ms
                self._stop = ()

    def _record_click(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Records which element has the focus after a click.

        A clicked text field, check box, radio button or slider gets the focus. A click on a combo
        box or a menu opens a list, which then has the focus. Otherwise, the focus is unknown.
        """
        field = None if target is None else text_node_around(tree, target)
        if target is not None and target.role in _FOCUSED_BY_CLICK:
            field = target
        opens_list = field is not None and field.role == "combobox"
        opens_menu = target is not None and target.role == "menu"
        self._forget_focus(action, tree)
        self._set_focus(None if opens_list else field)
        self._list = field.box if field is not None and opens_list else None
        self._menu = target.box if target is not None and opens_menu else None
        self._menu_opened = opens_menu or action.action_type == "right_click"
        self._opened_by_keys = False
        self._is_click_known = target is not None
        self._pointer = None
        if action.x is not None and action.y is not None:
            self._pointer = (action.x, action.y)
        self._ring = None  # the click removes the ring

    def _record_tab(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Records that Tab moved the focus to the next element, which may be unknown."""
        start = self._stop
        if self._list is not None:
            start = (self._list,)
        elif target is not None and target.box is not None:
            start = (target.box,)
        self._forget_focus(action, tree)
        self._list = None
        self._dialogs = None
        if set(action.keys) <= {"shift", "tab"}:
            presses = action.presses or 1
            if "shift" in action.keys:
                presses = -presses
            self._stop = stop_after(tree, start, presses) if start else ()
            self._method = "tab"

    def _record_keys(self, action: Action, tree: StepTree, target: Element | None) -> None:
        """Records keys that may move the focus, or that open or close a menu or a list."""
        keys = set(action.keys)
        role = None if target is None else target.role
        moves_choice = keys <= {"up", "down"}
        open_list = self._list
        if not moves_choice:
            self._menu = None
            self._list = None
        if not keys.isdisjoint({"esc", "enter"}):
            self._menu_opened = False
        is_in_menu = self._menu_opened and role in CHOICES | _MENUS
        is_in_list = open_list is not None and role in CHOICES
        if (is_in_menu or is_in_list) and moves_choice:
            return  # these keys only highlight another choice of the same menu or list
        if is_in_list and keys <= _EDITING_KEYS:
            return
        if _moves_focus(action, target) or is_in_menu:
            self._forget_focus(action, tree)
            if target is not None and role == "combobox" and keys == {"esc"}:
                open_list = target.box  # Escape only closed the list of the combo box
            if open_list is not None and keys in ({"enter"}, {"esc"}):
                self._stop = (open_list,)
        if _opens_menu(keys):
            self._menu_opened = True
            self._opened_by_keys = True

    def _forget_focus(self, action: Action, tree: StepTree) -> None:
        """Records that the focus is unknown after an action."""
        self._set_focus(None)
        self._since_ms = action.end_ms
        self._dialogs = frozenset(map(tree.box, open_dialogs(tree)))


def _received_text(
    tree: StepTree, element: Element | None, text_places: Sequence[ChangedBox]
) -> bool:
    """Returns whether typed text, at `text_places` in video pixels, may have entered an element."""
    if element is None or element.role in _HOLDS_NO_TEXT:
        return False
    return reaches_any(tree, element, text_places)


def _lit_element(
    tree: StepTree, groups: Sequence[Sequence[int]], evidence: FocusEvidence
) -> Element | None:
    """Returns the highlighted choice in open menus or lists; None if it is unknown.

    If a submenu has no highlighted choice, the menu around it is examined.

    Args:
        groups: positions of the choices of each menu or list, the innermost submenu first.
    """
    screenshot = evidence.now() if groups else None
    if screenshot is None:
        return None
    for choices in groups:
        bounds = _bounds(tree, choices)
        index = lit_choice(screenshot, bounds)
        if index is not None:
            return tree.element(choices[index])
        if not are_unlit(screenshot, bounds):
            return None
    return None


def _is_tool(tree: StepTree, node: int) -> bool:
    """Returns whether a node is a tool bar button, whose frame may mean "on" instead of focus."""
    if tree.roles[node] != "button":
        return False
    return any(tree.roles[outer] == "toolbar" for outer in ancestors(tree, node))


def _is_elsewhere(tree: StepTree, focused: Element, places: Sequence[ChangedBox]) -> bool:
    """Returns whether typed text is certainly not in the element that a scan calls focused."""
    window = tree.windows_around[focused.position]
    is_outside = window is not None and not reaches_any(tree, tree.element(window), places)
    return is_outside or focused.role in _HOLDS_NO_TEXT


def _opens_menu(keys: set[str]) -> bool:
    """Returns whether keys can open a menu, such as Alt with a letter, F10 or the menu key."""
    is_mnemonic = len(keys) == 2 and "alt" in keys and any(len(key) == 1 for key in keys)
    return is_mnemonic or keys in ({"alt"}, {"f10"}, {"shift", "f10"}, {"menu"}, {"apps"})


def _bounds(tree: StepTree, nodes: Sequence[int]) -> Sequence[Bounds]:
    """Returns x, y, width, height of each node in canvas pixels."""
    return [list(tree.element(node).bounds.values()) for node in nodes]


def _moves_focus(action: Action, target: Element | None) -> bool:
    """Returns whether keys on a target may move the focus, or open a popup that takes the focus."""
    keys = set(action.keys)
    if keys & {"ctrl", "command"} and len(keys) == 2 and keys & _TEXT_COMMANDS:
        return False
    if target is None or target.role not in _KEEPS_EDITING_KEYS:
        return True
    if action.action_type == "type":
        return not set("\t\n").isdisjoint(action.text or "")
    has_lines = (
        target.role in {"textarea", "textfield"}
        and target.box is not None
        and target.box.height >= EDITOR_HEIGHT
    )
    if has_lines and keys <= {"enter", "shift"}:
        return False
    return not keys <= _EDITING_KEYS | {"ctrl"}
