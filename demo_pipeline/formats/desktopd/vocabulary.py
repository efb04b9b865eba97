"""The closed vocabularies of OSWorld-Desktopd: roles, states, action types, and the canvas size.

Belongs here also: the primitive field types that the models share.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

CANVAS_WIDTH = 1920
CANVAS_HEIGHT = 1080
NODE_ID_PATTERN = r"^node_[0-9]+$"
_KEY_WORDS = (
    "ctrl shift alt altgr win command fn esc enter tab space backspace delete up down left right"
    " home end pageup pagedown insert capslock numlock scrolllock pause printscreen apps clear"
    " kana intlro intlyen volumeup volumedown volumemute playpause prevtrack nexttrack"
)
KEY_NAMES = frozenset(_KEY_WORDS.split()) | {f"f{number}" for number in range(1, 25)}
"""The names of keys that are no single character, in pyautogui's lower-case spelling."""


class Role(StrEnum):
    """The role of a UI node."""

    DESKTOP = "desktop"
    WINDOW = "window"
    DIALOG = "dialog"
    PANEL = "panel"
    TOOLBAR = "toolbar"
    MENUBAR = "menubar"
    MENU = "menu"
    MENUITEM = "menuitem"
    BUTTON = "button"
    CHECKBOX = "checkbox"
    RADIOBUTTON = "radiobutton"
    TEXTFIELD = "textfield"
    TEXTAREA = "textarea"
    COMBOBOX = "combobox"
    LISTBOX = "listbox"
    LISTITEM = "listitem"
    TAB = "tab"
    TABPANEL = "tabpanel"
    TREEVIEW = "treeview"
    TREEITEM = "treeitem"
    TABLE = "table"
    TABLECELL = "tablecell"
    SCROLLBAR = "scrollbar"
    SLIDER = "slider"
    PROGRESSBAR = "progressbar"
    LABEL = "label"
    LINK = "link"
    IMAGE = "image"
    ICON = "icon"
    SEPARATOR = "separator"
    TOOLTIP = "tooltip"
    STATUSBAR = "statusbar"
    TASKBAR = "taskbar"
    UNKNOWN = "unknown"


class ElementState(StrEnum):
    """A state of a UI node."""

    FOCUSED = "focused"
    SELECTED = "selected"
    CHECKED = "checked"
    DISABLED = "disabled"
    EXPANDED = "expanded"
    COLLAPSED = "collapsed"
    VISIBLE = "visible"
    HIDDEN = "hidden"
    EDITABLE = "editable"
    READONLY = "readonly"
    PRESSED = "pressed"
    ACTIVE = "active"


class ActionType(StrEnum):
    """The type of an action."""

    CLICK = "click"
    DOUBLE_CLICK = "double_click"
    RIGHT_CLICK = "right_click"
    TYPE = "type"
    HOTKEY = "hotkey"
    SCROLL = "scroll"
    DRAG = "drag"
    WAIT = "wait"


class Difficulty(StrEnum):
    """The difficulty of a task."""

    EASY = "easy"
    MEDIUM = "medium"
    HARD = "hard"


def is_canonical_key(name: str) -> bool:
    """Whether a key has the name that actions give it: one of `KEY_NAMES`, or its character."""
    return name in KEY_NAMES or (len(name) == 1 and name.isprintable() and name == name.lower())


def _whole(value: Any) -> Any:
    """500.0 becomes 500, as some writers write integers as floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Text = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, BeforeValidator(_whole)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
NodeId = Annotated[str, Field(pattern=NODE_ID_PATTERN)]
RoleName = Annotated[Role, Field(strict=False)]
StateName = Annotated[ElementState, Field(strict=False)]
Button = Literal["left", "right", "middle"]
