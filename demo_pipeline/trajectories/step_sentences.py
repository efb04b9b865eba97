"""Describes a step in a sentence.

A sentence states only facts that follow from the action and its target. For example, a check box is
clicked, not checked. Typed text is never quoted. The sentence is empty if neither an element nor a
window is known.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from demo_pipeline.desktopd.models import (
    ActionType,
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    Parameters,
    PointParameters,
    Role,
    ScrollParameters,
    TargetElement,
    TypeParameters,
    WaitParameters,
)
from demo_pipeline.files.shown_text import MARKER

_ROLE_WORDS = {
    Role.MENUITEM: "menu item",
    Role.RADIOBUTTON: "radio button",
    Role.TEXTFIELD: "text field",
    Role.TEXTAREA: "text area",
    Role.COMBOBOX: "combo box",
    Role.LISTBOX: "list",
    Role.LISTITEM: "list item",
    Role.TABPANEL: "tab panel",
    Role.TREEVIEW: "tree",
    Role.TREEITEM: "tree item",
    Role.TABLECELL: "table cell",
    Role.SCROLLBAR: "scroll bar",
    Role.PROGRESSBAR: "progress bar",
    Role.MENUBAR: "menu bar",
    Role.STATUSBAR: "status bar",
    Role.UNKNOWN: "element",
}


MOST_CHARACTERS = 60  # maximum length of a name; longer names are cut, and do not count as readable
_LONGEST_WORD = 24  # characters; a longer ASCII word counts as an identifier
_MACHINE_TEXT = re.compile(r"://|[\\_{}<>@=|$#^~`]|\w\.\w+\.\w|\w/\w+/\w")
# Matches a long word of letters and digits, which may be a secret.
_SECRET = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])[\w.-]{8,}")
_LONG_NUMBER = re.compile(r"\d{5,}|(?:\d[ -]?){9,}")
# Minimum length of a text that is searched for inside names. Shorter texts occur by chance.
_SHORTEST_PART = 3


def shown_name(name: str) -> str:
    """Returns a name on a single line, with single spaces."""
    return " ".join(name.split())


def is_readable(name: str) -> bool:
    """Returns whether a name consists of words that people use.

    Identifiers, paths, code and symbols are not readable.
    """
    line = shown_name(name)
    if not 0 < len(line) <= MOST_CHARACTERS or not any(map(str.isalnum, line)):
        return False
    if any(unicodedata.category(char) in {"Cc", "Cn", "Co", "Cs"} for char in line):
        return False
    if max(map(len, line.split())) > _LONGEST_WORD and line.isascii():
        return False
    patterns = (_MACHINE_TEXT, _SECRET, _LONG_NUMBER, MARKER)
    return not any(pattern.search(line) for pattern in patterns)


class TypedTexts:
    """Recognizes names of elements that may quote text typed in the same demonstration."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded = [_folded(text) for text in texts]
        self._texts = frozenset(filter(None, folded))
        self._all = " ".join(folded)
        self._joined = "".join(folded)

    def may_be(self, name: str) -> bool:
        """Returns whether a name equals a typed text, contains it, or is a part of it.

        Ignores case, spaces, and parts with fewer than `_SHORTEST_PART` characters.
        """
        folded = _folded(name)
        if folded in self._texts:
            return True
        if len(folded) >= _SHORTEST_PART and (folded in self._all or folded in self._joined):
            return True
        return any(len(text) >= _SHORTEST_PART and text in folded for text in self._texts)


def _folded(text: str) -> str:
    """Returns a text without case and spaces."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def name_key(name: str) -> str:
    """Returns a name without case, spaces and signs such as `…`, `:` and `&`, for comparisons."""
    folded = _folded(name)
    return "".join(filter(str.isalnum, folded)) or folded


def element_text(name: str, role: str) -> str:
    """Returns the words for an element, such as `the Save button`."""
    line = shown_name(name)
    word = role_word(Role(role))
    if line.casefold().endswith(word):
        return f"the {line}"
    return f"the {line} {word}"


_Box = tuple[int, int, int, int]  # left, top, width and height, canvas pixels

_VERBS = {ActionType.DOUBLE_CLICK: "Double-click", ActionType.RIGHT_CLICK: "Right-click"}
_TEXT = frozenset({Role.TEXTFIELD, Role.TEXTAREA})
_TYPED_INTO = _TEXT | {Role.COMBOBOX, Role.TABLECELL}
# Roles of elements that certainly move when they are dragged.
_MOVED = frozenset({Role.SCROLLBAR, Role.SLIDER, Role.SEPARATOR, Role.ICON, Role.TAB})
# Maps the role of the element under the pointer to words for the container that the wheel scrolls.
_HOLDERS = {
    Role.LISTITEM: "the list",
    Role.TREEITEM: "the tree",
    Role.TABLECELL: "the table",
    Role.MENUITEM: "the menu",
}
_SCROLLED = frozenset(
    {
        Role.LISTBOX,
        Role.TREEVIEW,
        Role.TABLE,
        Role.TEXTAREA,
        Role.MENU,
        Role.PANEL,
        Role.TABPANEL,
        Role.DIALOG,
        Role.WINDOW,
    }
)
_CONTAINERS = _SCROLLED | {Role.DESKTOP, Role.TOOLBAR, Role.MENUBAR, Role.STATUSBAR, Role.TASKBAR}
# Roles that sentences leave out, because people would not say them.
_NAMED_ALONE = frozenset({Role.LABEL, Role.UNKNOWN})
# Maps the number of clicks at the start of a drag to the verb in a sentence and the unit of text
# that the drag selects. None means a single click.
_DRAGGED = {
    None: ("Drag", "text"),
    2: ("Double-click and drag", "words"),
    3: ("Triple-click and drag", "lines"),
}
_KEYS = {"pageup": "Page Up", "pagedown": "Page Down", "capslock": "Caps Lock"}


def step_sentence(
    kind: ActionType,
    parameters: Parameters,
    target: TargetElement | None,
    box: _Box | None,
    window: str = "",
) -> str:
    """Returns the sentence about a step, such as `Click the "Save" button`.

    Args:
        target: the element that the action acted on; None if unknown.
        box: left, top, width and height of the target on the canvas; None if unknown.
        window: the title of the window; empty if unknown.

    Returns:
        The sentence; empty if too little is known.
    """
    title = shown_name(window)[:MOST_CHARACTERS].rstrip()
    within = f'in the "{title}" window' if title else ""
    held = getattr(parameters, "modifiers", None)
    keys = f" while holding {_chord(held)}" if held else ""
    phrase = _action_phrase(kind, parameters, target, box, within)
    return phrase and f"{phrase}{keys}."


def hover_sentence(
    sentence: str,
    kind: ActionType,
    parameters: Parameters,
    places: Sequence[tuple[int, int]],
    element: TargetElement | None,
) -> str:
    """Returns the sentence about a step with a hover: `Hover over the "File" menu and …`.

    Args:
        sentence: the sentence without the hover. Empty if only the position of the press is known.
        places: the positions of the resting pointer, in canvas pixels and in order.
        element: the element at the last position; None if unknown.
    """
    hovered = [f"at {place}" for place in places]
    phrase = element_phrase(element)
    if phrase:
        hovered[-1] = f"over {phrase}"
    if not sentence:
        sentence = f"{_press_at(kind, parameters)}."
    return f"Hover {', then '.join(hovered)} and {sentence[0].lower()}{sentence[1:]}"


def _press_at(kind: ActionType, parameters: Parameters) -> str:
    """Returns the phrase for a press whose element is unknown."""
    if isinstance(parameters, ClickParameters | PointParameters):
        return f"{_click(kind, parameters)} at {(parameters.x, parameters.y)}"
    if isinstance(parameters, DragParameters):
        return _drag(parameters, None, None)
    return "press there"


def _action_phrase(
    kind: ActionType,
    parameters: Parameters,
    target: TargetElement | None,
    box: _Box | None,
    within: str,
) -> str:
    """Returns a step's sentence without the held keys and the full stop.

    Empty if too little is known. `within` is a phrase such as `in the "Files" window`, or empty.
    """
    match parameters:
        case DragParameters():
            return _drag(parameters, target, box)
        case ScrollParameters(direction=direction, amount=amount):
            notches = "1 notch" if amount == 1 else f"{amount} notches"
            return f"Scroll {direction} {notches}{_scrolled(target)}"
        case HotkeyParameters(keys=keys, presses=presses):
            on = f" on {element_phrase(target)}" if target and keys == ["space"] else ""
            return f"Press {_chord(keys)}{on}" + (f" {presses} times" if presses else "")
        case TypeParameters(text=text):
            return _typed(text, target, within)
        case WaitParameters():
            return f"Wait for {element_phrase(target)}" if target and target.name.strip() else ""
    if isinstance(parameters, ClickParameters | PointParameters):
        if not (element_phrase(target) or within):
            return ""
        return f"{_click(kind, parameters)} {_place(parameters, target, within)}"
    raise TypeError(f"no sentence for {kind}")


def _typed(text: str, target: TargetElement | None, within: str) -> str:
    """Returns the phrase for typed text, without the text itself."""
    if target is not None and target.role in _TYPED_INTO:
        return f"Type the text into {element_phrase(target)}"
    if not text.strip(" "):
        return "Press Space" + (f" {len(text)} times" if len(text) > 1 else "")
    return within and f"Type the text {within}"


def _click(kind: ActionType, parameters: Parameters) -> str:
    if isinstance(parameters, ClickParameters):
        if parameters.button != "left":
            return f"{parameters.button.capitalize()}-click"
        return "Triple-click" if parameters.clicks == 3 else "Click"
    return _VERBS[kind]


def _place(
    parameters: ClickParameters | PointParameters, target: TargetElement | None, within: str
) -> str:
    """Returns the phrase for the place of a click.

    It names the element, plus the position if the element has no name. For an unknown element, it
    names the window and the position.
    """
    element = element_phrase(target)
    where = f"at ({parameters.x}, {parameters.y})"
    if target is None or not element:
        return f"{within} {where}"
    named = element if target.name.strip() else f"{element} {where}"
    return f"in {named}" if target.role in _TEXT else named


def _drag(parameters: DragParameters, target: TargetElement | None, box: _Box | None) -> str:
    """Returns the phrase for a drag: a selection of text, a moved element, or two positions."""
    start = (parameters.start_x, parameters.start_y)
    end = (parameters.end_x, parameters.end_y)
    ends = f"from {start} to {end}"
    element = element_phrase(target)
    if parameters.button not in (None, "left"):
        return f"Drag {ends} with the {parameters.button} button"
    verb, selected = _DRAGGED[parameters.clicks]
    is_within = box is not None and _is_inside(start, box) and _is_inside(end, box)
    if is_within and target is not None and target.role in _TEXT:
        return f"Select the {selected} {ends} in {element}"
    if target is None or not element or target.role in _CONTAINERS | _TEXT:
        return f"{verb} {ends}"
    if target.role in _MOVED:
        return f"{verb} {element} to {end}"
    return f"{verb} from {element} to {end}"


def _is_inside(point: tuple[int, int], box: _Box) -> bool:
    left, top, width, height = box
    return left <= point[0] < left + width and top <= point[1] < top + height


def _scrolled(target: TargetElement | None) -> str:
    """Returns the phrase for the scrolled element, such as ` in the list`; empty if unknown."""
    if target is None:
        return ""
    if target.role in _HOLDERS:
        return f" in {_HOLDERS[target.role]}"
    element = element_phrase(target) if target.role in _SCROLLED else ""
    return f" in {element}" if element else ""


def _chord(keys: Sequence[str]) -> str:
    """Returns keys in the usual notation, such as `Ctrl+S`."""
    return "+".join(_KEYS.get(key, key[:1].upper() + key[1:]) for key in keys)


def element_phrase(target: TargetElement | None) -> str:
    """Returns the phrase for a target, such as `the "Save" button`.

    Empty if there is no target, or if the target has no name and its role is label or unknown.
    """
    if target is None:
        return ""
    name = shown_name(target.name)
    if len(name) > MOST_CHARACTERS:
        name = f"{name[:MOST_CHARACTERS].rstrip()}…"
    if target.role in _NAMED_ALONE:
        return f'"{name}"' if name else ""
    word = role_word(target.role)
    return f'the "{name}" {word}' if name else f"the {word}"


def role_word(role: Role) -> str:
    """Returns a role in words, such as `menu item`."""
    return _ROLE_WORDS.get(role, role.value)
