"""The UI tree of a step: a scan in seed 001's words, on the canvas.

Belongs here: roles, states, bounds, ids in document order. Not here: which scan (scans.py), which
node is the target (target.py).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from demo_pipeline.observation.canvas import Canvas
from demo_pipeline.observation.roles import UNKNOWN, canonical_role
from demo_pipeline.observation.scans import bounds_of, children_of, top_nodes

_STATES_WHEN_TRUE = {
    "focused": "focused",
    "selected": "selected",
    "checked": "checked",
    "expanded": "expanded",
    "collapsed": "collapsed",
    "visible": "visible",
    "hidden": "hidden",
    "disabled": "disabled",
    "editable": "editable",
    "readonly": "readonly",
    "read_only": "readonly",
    "pressed": "pressed",
    "active": "active",
}
_STATES_WHEN_FALSE = {"enabled": "disabled", "visible": "hidden"}
_USUAL = frozenset({"enabled"})  # what is enabled is not worth a word


@dataclass
class StepTree:
    """A mapped tree and what was seen on the way.

    Attributes:
        document: the content of ui_tree.json.
        nodes: every node below the root with its raw original, in document order.
        unknown_roles: raw role names in no table, with counts.
        dropped_states: raw state names seed 001 has no word for, with counts.
        screen: width and height of the recorded screen in event space.
    """

    document: dict[str, Any]
    nodes: list["MappedNode"] = field(default_factory=list)
    unknown_roles: Counter[str] = field(default_factory=Counter)
    dropped_states: Counter[str] = field(default_factory=Counter)
    screen: tuple[float, float] = (float("inf"), float("inf"))


class MappedNode(NamedTuple):
    """One node: the seed's form, the recorder's form, its depth, its box in event space."""

    node: dict[str, Any]
    raw: Mapping[str, Any]
    depth: int
    box: tuple[float, float, float, float] | None
    parent: int


def map_tree(
    data: Mapping[str, Any] | None, time_ms: int, platform: str, canvas: Canvas
) -> StepTree:
    """Map a scan (None: a root-only tree) to seed 001.

    `time_ms` is the scan's time, or the press where there is no scan.
    """
    root: dict[str, Any] = {
        "id": "node_0",
        "role": "desktop",
        "name": "",
        "bounds": {"x": 0, "y": 0, "width": canvas.width, "height": canvas.height},
        "states": [],
        "children": [],
    }
    tree = StepTree(
        {
            "timestamp": iso_utc(time_ms),
            "screen": {"width": canvas.width, "height": canvas.height},
            "root": root,
        },
        screen=canvas.event_size,
    )
    if data is None:
        return tree
    stack = [(raw, root, 1, -1) for raw in reversed(top_nodes(data))]
    while stack:
        raw, parent, depth, parent_position = stack.pop()
        number = len(tree.nodes) + 1
        mapped = _map_node(
            raw, number, depth, parent_position, platform=platform, canvas=canvas, tree=tree
        )
        parent["children"].append(mapped.node)
        position = len(tree.nodes)
        tree.nodes.append(mapped)
        stack.extend(
            (child, mapped.node, depth + 1, position) for child in reversed(children_of(raw))
        )
    _mark_focus(tree, data)
    return tree


def _map_node(
    raw: Mapping[str, Any],
    number: int,
    depth: int,
    parent: int,
    *,
    platform: str,
    canvas: Canvas,
    tree: StepTree,
) -> MappedNode:
    raw_role = str(raw.get("role") or "")
    role = canonical_role(raw_role, platform)
    if role is None:
        tree.unknown_roles[raw_role] += 1
    box = bounds_of(raw)
    node: dict[str, Any] = {
        "id": f"node_{number}",
        "role": role or UNKNOWN,
        "name": _text(raw.get("name")),
        "bounds": _bounds(box, canvas),
        "states": _states(raw.get("states"), tree),
        "children": [],
    }
    return MappedNode(node, raw, depth, box, parent)


def _bounds(box: tuple[float, float, float, float] | None, canvas: Canvas) -> dict[str, int]:
    if box is None:
        return {"x": 0, "y": 0, "width": 0, "height": 0}
    left, top, wide, high = box
    factor = canvas.event_to_canvas
    x, y = round(left * factor + canvas.pad_x), round(top * factor + canvas.pad_y)
    right = round((left + wide) * factor + canvas.pad_x)
    bottom = round((top + high) * factor + canvas.pad_y)
    return {"x": x, "y": y, "width": max(0, right - x), "height": max(0, bottom - y)}


def _states(raw: Any, tree: StepTree) -> list[str]:
    if not isinstance(raw, dict):
        return []
    words, dropped = _words(tuple((str(name), bool(value)) for name, value in raw.items()))
    tree.dropped_states.update(dropped)
    return list(words)


@lru_cache(maxsize=4096)
def _words(states: tuple[tuple[str, bool], ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Seed 001's words for a node's states, and the names it has no word for."""
    words, dropped = [], []
    for name, value in states:
        key = name.lower().replace("-", "_").replace(" ", "_")
        word = _STATES_WHEN_TRUE.get(key) if value else _STATES_WHEN_FALSE.get(key)
        if word is not None:
            words.append(word)
        elif value and key not in _USUAL:
            dropped.append(name)
    return tuple(dict.fromkeys(words)), tuple(dropped)


def _mark_focus(tree: StepTree, data: Mapping[str, Any]) -> None:
    """The node that the recorder calls `focused_element`, found by role, name and box."""
    found = focused_position(tree, data)
    if found is not None:
        states = tree.nodes[found].node["states"]
        if "focused" not in states:
            states.insert(0, "focused")


def focused_position(tree: StepTree, data: Mapping[str, Any] | None) -> int | None:
    """Index in `tree.nodes` of the focused element; None when it is nowhere to be seen."""
    focused = data.get("focused_element") if data else None
    if not isinstance(focused, Mapping):
        return None
    box = bounds_of(focused)
    if box is None or box[2] * box[3] == 0:
        return None
    wanted = (focused.get("role"), focused.get("name"), box)
    same = [
        position
        for position, mapped in enumerate(tree.nodes)
        if (mapped.raw.get("role"), mapped.raw.get("name"), mapped.box) == wanted
    ]
    return same[-1] if same else None


def _text(value: Any) -> str:
    """A name as valid text: recorders write null, and lone surrogates exist."""
    if not isinstance(value, str):
        return ""
    return (
        value
        if value.isascii()
        else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def iso_utc(time_ms: float) -> str:
    """Epoch milliseconds as ISO 8601 in UTC with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
