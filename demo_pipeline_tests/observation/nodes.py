"""Short notation for the nodes and trees of accessibility scans."""

from collections.abc import Sequence
from typing import Any

from demo_pipeline.files.json_files import parse_json
from demo_pipeline.observation.clock.canvas import Canvas, fit_canvas
from demo_pipeline.observation.trees.step_tree import Element, StepTree, map_tree
from demo_pipeline.recording.logged_scans import scan_from_values

SCREEN = (1920, 1080)
FULL = fit_canvas(SCREEN, 1.0)
TIME = 1_767_603_600_250


def node(
    role: str, box: Any = (0, 0, 10, 10), *children: Any, name: str = "", **states: bool
) -> dict[str, Any]:
    """Returns a logged node with this `box` (x, y, width, height)."""
    bbox = box
    if isinstance(box, tuple):
        bbox = dict(zip(("x", "y", "width", "height"), box, strict=True))
    return {
        "role": role,
        "name": name,
        "bbox": bbox,
        "states": {"enabled": True, "visible": True, **states},
        "children": list(children),
    }


def mapped(
    tree: Any,
    canvas: Canvas = FULL,
    platform: str = "windows",
    focused: Any = None,
    cursor: tuple[float, float, Any] | None = None,
) -> StepTree:
    """Returns the step's tree that is mapped from a scan with this logged tree.

    `cursor` is the recorder's hit test: x and y of the pointer, and the node found there.
    """
    data = {"tree": tree, "focused_element": focused}
    if cursor is not None:
        x, y, element = cursor
        data["queries"] = {"cursor": {"position": {"x": x, "y": y}, "element": element}}
    scan = scan_from_values(data)
    return map_tree(scan, TIME, platform, canvas)


def document_of(tree: StepTree) -> dict[str, Any]:
    """Returns the content of ui_tree.json for a tree, as plain values."""
    document: dict[str, Any] = parse_json(tree.to_bytes(), "ui_tree.json")
    return document


def name_of(element: Element | None) -> str | None:
    """Returns the name of an element, or None if there is no element."""
    return element.name if element else None


def everything(root: dict[str, Any]) -> Sequence[dict[str, Any]]:
    """Returns all nodes of a tree in ui_tree.json, in document order."""
    nodes = []
    stack = [root]
    while stack:
        nodes.append(stack.pop())
        stack.extend(reversed(nodes[-1]["children"]))
    return nodes
