"""The sentence that says what a person did in a step, in words that a person would use.

Belongs here: the phrases, by kind of action and role of the target. A sentence says nothing that
the action and its target do not tell: a click on a tick box may set or clear it, and what a drag
did to a file is not known. Typed text is never in it.
"""

from collections.abc import Sequence

from demo_pipeline.datasets.element_names import MOST_CHARACTERS, shown_name
from demo_pipeline.datasets.prompts import role_word
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    DragParameters,
    HotkeyParameters,
    Parameters,
    PointParameters,
    ScrollParameters,
    TargetElement,
)
from demo_pipeline.formats.desktopd.vocabulary import ActionType, Role

_Box = tuple[int, int, int, int]

_VERBS = {ActionType.DOUBLE_CLICK: "Double-click", ActionType.RIGHT_CLICK: "Right-click"}
_TEXT = frozenset({Role.TEXTFIELD, Role.TEXTAREA})
_TYPED_INTO = _TEXT | {Role.COMBOBOX, Role.TABLECELL}
# What moves when it is dragged; of other elements (text of a list item, a drawing) that is unknown.
_MOVED = frozenset({Role.SCROLLBAR, Role.SLIDER, Role.SEPARATOR, Role.ICON, Role.TAB})
# The wheel turns what holds these; of other small elements that is not known.
_HOLDERS = {
    Role.LISTITEM: "the list",
    Role.TREEITEM: "the tree",
    Role.TABLECELL: "the table",
    Role.MENUITEM: "the menu",
}
_SCROLLED = frozenset(
    {
        *(Role.LISTBOX, Role.TREEVIEW, Role.TABLE, Role.TEXTAREA, Role.MENU, Role.PANEL),
        *(Role.TABPANEL, Role.DIALOG, Role.WINDOW),
    }
)
_CONTAINERS = _SCROLLED | {Role.DESKTOP, Role.TOOLBAR, Role.MENUBAR, Role.STATUSBAR, Role.TASKBAR}
_NAMED_ALONE = frozenset({Role.LABEL, Role.UNKNOWN})  # their roles are no words of a person
_KEYS = {"pageup": "Page Up", "pagedown": "Page Down", "capslock": "Caps Lock"}


def step_sentence(
    kind: ActionType, parameters: Parameters, target: TargetElement | None, box: _Box | None = None
) -> str:
    """What a person did, as in `Click the "Save" button.`.

    Args:
        kind: of the action.
        parameters: of the action.
        target: the element that it acted on; None: not known.
        box: left, top, width and height of the target on the canvas; None: not known.
    """
    held = getattr(parameters, "modifiers", None)
    keys = f" while holding {_chord(held)}" if held else ""
    return f"{_what(kind, parameters, target, box)}{keys}."


def _what(
    kind: ActionType, parameters: Parameters, target: TargetElement | None, box: _Box | None
) -> str:
    match parameters:
        case DragParameters():
            return _drag(parameters, target, box)
        case ScrollParameters(direction=direction, amount=amount):
            notches = "1 notch" if amount == 1 else f"{amount} notches"
            return f"Scroll {direction} {notches}{_scrolled(target)}"
        case HotkeyParameters(keys=keys, presses=presses):
            return f"Press {_chord(keys)}" + (f" {presses} times" if presses else "")
    if kind is ActionType.TYPE:
        into = target is not None and target.role in _TYPED_INTO
        return f"Type the text into {element_phrase(target)}" if into else "Type the text"
    if kind is ActionType.WAIT:
        return "Wait until the screen has settled"
    if isinstance(parameters, ClickParameters | PointParameters):
        return f"{_click(kind, parameters)} {_place(parameters, target)}"
    raise TypeError(f"no sentence for {kind}")


def _click(kind: ActionType, parameters: Parameters) -> str:
    if isinstance(parameters, ClickParameters):
        if parameters.button != "left":
            return f"{parameters.button.capitalize()}-click"
        return "Triple-click" if parameters.clicks == 3 else "Click"
    return _VERBS[kind]


def _place(parameters: ClickParameters | PointParameters, target: TargetElement | None) -> str:
    """What was clicked; also where, when no name tells it from others."""
    element = element_phrase(target)
    where = f"at ({parameters.x}, {parameters.y})"
    if target is None or not element:
        return where
    named = element if target.name.strip() else f"{element} {where}"
    return f"in {named}" if target.role in _TEXT else named


def _drag(parameters: DragParameters, target: TargetElement | None, box: _Box | None) -> str:
    start = (parameters.start_x, parameters.start_y)
    end = (parameters.end_x, parameters.end_y)
    ends, element = f"from {start} to {end}", element_phrase(target)
    if parameters.button not in (None, "left"):
        return f"Drag {ends} with the {parameters.button} button"
    within = box is not None and _inside(start, box) and _inside(end, box)
    if within and target is not None and target.role in _TEXT:
        return f"Select the text {ends} in {element}"
    if target is None or not element or target.role in _CONTAINERS | _TEXT:
        return f"Drag {ends}"
    return f"Drag {'' if target.role in _MOVED else 'from '}{element} to {end}"


def _inside(point: tuple[int, int], box: _Box) -> bool:
    left, top, width, height = box
    return left <= point[0] < left + width and top <= point[1] < top + height


def _scrolled(target: TargetElement | None) -> str:
    if target is None:
        return ""
    if holder := _HOLDERS.get(target.role):
        return f" in {holder}"
    element = element_phrase(target) if target.role in _SCROLLED else ""
    return f" in {element}" if element else ""


def _chord(keys: Sequence[str]) -> str:
    """Keys as people write them: `Ctrl+S`."""
    return "+".join(_KEYS.get(key, key[:1].upper() + key[1:]) for key in keys)


def element_phrase(target: TargetElement | None) -> str:
    """A target in a sentence, as `the "Save" button`; empty without one, or without any word."""
    if target is None:
        return ""
    name = shown_name(target.name)
    if len(name) > MOST_CHARACTERS:  # a text, not a name
        name = f"{name[:MOST_CHARACTERS].rstrip()}…"
    if target.role in _NAMED_ALONE:
        return f'"{name}"' if name else ""
    word = role_word(target.role)
    return f'the "{name}" {word}' if name else f"the {word}"
