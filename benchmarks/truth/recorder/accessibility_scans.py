"""Prints a line of JSON for each scan of the accessibility tree.

Run in a process of its own: `accessibility_scans.py PERIOD_SECONDS`. A scan holds only elements
that are showing; its time is its end. The recorder's hit test answers for the pointer and for two
random places.
"""

import json
import random
import sys
import time
from typing import Any

import gi

gi.require_version("Atspi", "2.0")
from gi.repository import Atspi
from Xlib import display

Atspi.set_timeout(800, 2000)
_STATES = Atspi.StateType
_DEPTH = 40
_CHILDREN = 300
_ELEMENTS = 4000
_TEXT_LENGTH = 400
_ALWAYS_SCANNED = 2  # programs and windows are scanned also where they claim to be hidden

Element = dict[str, Any]


class Scan:
    """One walk over the accessibility tree of all programs."""

    def __init__(self) -> None:
        self.tree: list[Element] = []
        self.focused: list[Element] = []
        self._remaining = _ELEMENTS
        desktop = Atspi.get_desktop(0)
        for index in range(desktop.get_child_count()):
            try:
                program = desktop.get_child_at_index(index)
                element = self._element(program, 1) if program else None
            except Exception:
                continue
            if element and element["children"]:
                self.tree.append(element)

    def _element(self, accessible: Any, depth: int) -> Element | None:
        if self._remaining <= 0 or depth > _DEPTH:
            return None
        self._remaining -= 1
        try:
            states = accessible.get_state_set()
            visible = states.contains(_STATES.VISIBLE) and states.contains(_STATES.SHOWING)
            element: Element = {
                "bbox": _box(accessible),
                "children": [],
                "description": accessible.get_description() or "",
                "name": accessible.get_name() or "",
                "role": accessible.get_role_name() or "",
                "states": {
                    "enabled": bool(states.contains(_STATES.ENABLED)),
                    "keyboard_focusable": bool(states.contains(_STATES.FOCUSABLE)),
                    "visible": bool(visible),
                },
                "value": _value(accessible),
            }
            if states.contains(_STATES.FOCUSED):
                self.focused.append(element)
            if not visible and depth > _ALWAYS_SCANNED:
                return None
            count = min(accessible.get_child_count(), _CHILDREN)
        except Exception:
            return None
        for index in range(count):
            try:
                child = accessible.get_child_at_index(index)
            except Exception:
                continue
            if child is None:
                continue
            child_element = self._element(child, depth + 1)
            if child_element is not None:
                element["children"].append(child_element)
        return element


def _box(accessible: Any) -> dict[str, int]:
    try:
        area = Atspi.Component.get_extents(accessible, Atspi.CoordType.SCREEN)
    except Exception:
        return {"x": 0, "y": 0, "width": 0, "height": 0}
    return {"x": area.x, "y": area.y, "width": area.width, "height": area.height}


def _value(accessible: Any) -> str:
    """The value of a slider or the like, else the text."""
    try:
        interfaces = accessible.get_interfaces()
        if "Value" in interfaces:
            return str(Atspi.Value.get_current_value(accessible))
        if "Text" in interfaces:
            length = min(Atspi.Text.get_character_count(accessible), _TEXT_LENGTH)
            return str(Atspi.Text.get_text(accessible, 0, length)).replace("\ufffc", "")
    except Exception:
        return ""
    return ""


def _alone(element: Element) -> Element:
    return {**element, "children": []}


def _hit(element: Element, x: int, y: int) -> Element | None:
    """The last and innermost element at a place."""
    hit = None
    for child in element["children"]:
        hit = _hit(child, x, y) or hit
    if hit is not None:
        return hit
    box = element["bbox"]
    inside_x = box["x"] <= x < box["x"] + box["width"]
    inside_y = box["y"] <= y < box["y"] + box["height"]
    return element if inside_x and inside_y else None


def _query(tree: list[Element], x: int, y: int) -> dict[str, Any]:
    for element in reversed(tree):
        hit = _hit(element, x, y)
        if hit is not None:
            return {"element": _alone(hit), "position": {"x": x, "y": y}}
    return {"element": None, "position": {"x": x, "y": y}}


def main() -> None:
    period = float(sys.argv[1])
    root = display.Display().screen().root
    size = root.get_geometry()
    places = random.Random(7)
    while True:
        begin = time.time()
        scan = Scan()
        pointer = root.query_pointer()
        data = {
            "duration": int((time.time() - begin) * 1000),
            "focused_element": _alone(scan.focused[-1]) if scan.focused else None,
            "queries": {
                "cursor": _query(scan.tree, pointer.root_x, pointer.root_y),
                "random1": _query(
                    scan.tree, places.randrange(size.width), places.randrange(size.height)
                ),
                "random2": _query(
                    scan.tree, places.randrange(size.width), places.randrange(size.height)
                ),
            },
            "tree": scan.tree,
        }
        print(json.dumps({"time": int(time.time() * 1000), "data": data}), flush=True)
        time.sleep(max(0.1, period - (time.time() - begin)))


if __name__ == "__main__":
    main()
