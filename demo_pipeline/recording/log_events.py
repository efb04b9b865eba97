"""The documented events of a Training Gym recording's input log: types, and the form of a scan.

Not here: fast and tolerant reading of a whole log (recording/input_log.py).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class EventType(StrEnum):
    """The documented values of `event` in input_log.jsonl."""

    AXTREE = "axtree"
    MOUSEMOVE = "mousemove"
    MOUSEDOWN = "mousedown"
    MOUSEUP = "mouseup"
    MOUSEWHEEL = "mousewheel"
    KEYDOWN = "keydown"
    KEYUP = "keyup"


# Plain strings: comparing a string with an enum member is several times slower.
MOUSEMOVE, MOUSEWHEEL = EventType.MOUSEMOVE.value, EventType.MOUSEWHEEL.value
DOCUMENTED_EVENTS = frozenset(event.value for event in EventType)
BUTTON_EVENTS = frozenset({EventType.MOUSEDOWN.value, EventType.MOUSEUP.value})
POINTER_EVENTS = BUTTON_EVENTS | {MOUSEMOVE}
KEY_EVENTS = frozenset({EventType.KEYDOWN.value, EventType.KEYUP.value})
INPUT_EVENTS = POINTER_EVENTS | KEY_EVENTS | {MOUSEWHEEL}
# Events that recorders in the field write besides the documented ones.
_RECORDER_EVENTS = frozenset(
    {
        *{"axtree_interaction", "axtree_post_recording", "axtree_pre_recording", "mousedelta"},
        *{"ffmpeg_stderr", "ffmpeg_stdout", "joystickaxis", "joystickdown", "joystickup"},
    }
)


def public_event_name(raw: str) -> str:
    """The name of an event as logs and metadata may show it.

    Any other name may be anything, also typed text; of it only the length is shown.
    """
    if raw in DOCUMENTED_EVENTS or raw in _RECORDER_EVENTS:
        return raw
    return shape_of("event", raw)


def shape_of(kind: str, text: str) -> str:
    """What may be shown of a logged text that could be anything, e.g. `unknown key, 7 characters`.

    Args:
        kind: what the text should name.
        text: as logged.
    """
    return f"unknown {kind}, {len(text)} character{'s' if len(text) != 1 else ''}"


_TYPES: Mapping[str, Any] = {
    "a number": int | float,
    "a valid string": str,
    "a valid boolean": bool,
    "a valid list": list,
    "a valid dictionary": dict,
    "anything": object,
}
_NUMBER, _TEXT, _FLAG, _LIST, _OBJECT, _ANYTHING = _TYPES
_Form = str | Mapping[str, Any]  # one of the types, or an object: key → form
_POSITION = {"x": _NUMBER, "y": _NUMBER}
_QUERY = {"element": _ANYTHING, "position": _POSITION}
_DATA = {"duration": _NUMBER, "focused_element": _ANYTHING, "queries": _OBJECT, "tree": _LIST}
_SCAN = {"event": _TEXT, "data": _DATA, "time": _NUMBER}
_NODE = {
    "bbox": _POSITION | {"width": _NUMBER, "height": _NUMBER},
    "children": _LIST,
    "description": _TEXT,
    "name": _TEXT,
    "role": _TEXT,
    "states": {"enabled": _FLAG, "keyboard_focusable": _FLAG, "visible": _FLAG},
    "value": _TEXT,
}


def scan_fault(scan: Any) -> str:
    """The first place where a parsed line of a scan deviates from the documented form, and how.

    Empty if there is none; it never quotes what is logged.
    """
    if fault := _fault(scan, _SCAN, ""):
        return fault
    data = scan["data"]
    roots = {"data.focused_element": data["focused_element"]}
    for number, query in enumerate(data["queries"].values()):
        if fault := _fault(query, _QUERY, f"data.queries[{number}]"):
            return fault
        roots[f"data.queries[{number}].element"] = query["element"]
    roots = {where: node for where, node in roots.items() if node is not None}
    roots |= {f"data.tree[{number}]": node for number, node in enumerate(data["tree"])}
    return next(filter(None, map(_tree_fault, roots.values(), roots)), "")


def _tree_fault(root: Any, where: str) -> str:
    """The first fault of a tree of any depth; nodes have their number in document order."""
    pending, number = [root], 0
    while pending:
        node = pending.pop()
        if fault := _fault(node, _NODE, f"{where} node {number}" if number else where):
            return fault
        pending.extend(reversed(node["children"]))
        number += 1
    return ""


def _fault(value: Any, form: _Form, where: str) -> str:
    if isinstance(form, str):
        fits = isinstance(value, _TYPES[form]) and (form != _NUMBER or not isinstance(value, bool))
        return "" if fits else f"{where}: Input should be {form}"
    if not isinstance(value, dict):
        return f"{where or 'event'}: Input should be {_OBJECT}"
    above = f"{where}." if where else ""
    for name, inner in form.items():
        if name not in value:
            return f"{above}{name}: Field required"
        if fault := _fault(value[name], inner, f"{above}{name}"):
            return fault
    others = (shape_of("field", name) for name in value if name not in form)
    return next((f"{above}{other}: Extra inputs are not permitted" for other in others), "")
