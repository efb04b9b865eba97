"""A scan as the recorder wrote it: its JSON, in every form that recorders write, as typed nodes.

A regular scan is decoded fast; any other keeps what is usable. The content of text fields (`value`)
is never read. Not here: mapping the nodes to the canvas (step_tree.py).
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from demo_pipeline.common.json_files import JsonFileError, parse_json

MAX_COORDINATE = 1e9  # units of event space; a larger coordinate is damage
_NUMBERS = frozenset({int, float})

NO_BOX = (math.nan,) * 4

Boxes = np.ndarray[Any, np.dtype[np.float64]]
"""(nodes, 4): x, y, width, height in event space; NaN for a node without a usable box."""


class RawBox(msgspec.Struct, gc=False):
    """`bbox` as an object."""

    x: float
    y: float
    width: float
    height: float


class RawNode(msgspec.Struct, gc=False):
    """One node. `states` is JSON text, so that equal texts are parsed only once.

    `absolute_position` and `size` are JSON texts, too: only macOS recorders write them.
    """

    role: str | None = None
    name: str | None = None
    bbox: RawBox | list[float] | None = None
    states: msgspec.Raw = msgspec.Raw(b"")
    children: "list[RawNode] | RawNode | None" = None
    absolute_position: msgspec.Raw = msgspec.Raw(b"")
    size: msgspec.Raw = msgspec.Raw(b"")

    @property
    def box(self) -> tuple[float, float, float, float]:
        """x, y, width, height in event space; NaN without a usable box.

        Some macOS recorders write a list [left, top, right, bottom], which is relative to the
        node's window; the place on the screen is then `absolute_position`.
        """
        bbox = self.bbox
        if type(bbox) is RawBox:
            return bbox.x, bbox.y, bbox.width, bbox.height
        if type(bbox) is list and len(bbox) == 4:
            place, size = _two_numbers(self.absolute_position), _two_numbers(self.size)
            if place is not None and size is not None:
                return *place, *size
            return bbox[0], bbox[1], bbox[2] - bbox[0], bbox[3] - bbox[1]
        return NO_BOX

    def child_nodes(self) -> "list[RawNode]":
        """The children; macOS recorders write a single child as an object."""
        return _listed(self.children)


def _two_numbers(text: msgspec.Raw) -> tuple[float, float] | None:
    """The numbers of a JSON string as `"12.00;44.50"`; None for anything else."""
    parts = bytes(text).strip(b'"').split(b";")
    try:
        first, second = map(float, parts)
    except ValueError:
        return None
    return first, second


def boxes_of(nodes: Sequence[RawNode]) -> Boxes:
    """The boxes of nodes. AT-SPI's sizes of -1 and impossibly large numbers are not usable."""
    rows = [
        (box.x, box.y, box.width, box.height)
        if type(box := node.bbox) is RawBox  # faster than the property
        else node.box
        for node in nodes
    ]
    boxes = np.fromiter(chain.from_iterable(rows), float, 4 * len(rows)).reshape(-1, 4)
    usable = (np.abs(boxes) <= MAX_COORDINATE).all(axis=1) & (boxes[:, 2:] >= 0).all(axis=1)
    boxes[~usable] = math.nan
    return boxes


class CursorHitTest(msgspec.Struct):
    """The recorder's own hit test at the pointer: the element, and the pointer's position."""

    element: RawNode | None = None
    position: "RawPoint | None" = None


class RawPoint(msgspec.Struct):
    """A point in event space."""

    x: float
    y: float


class HitTestQueries(msgspec.Struct):
    """The recorder's own hit tests (`queries`); only the one at the pointer is read."""

    cursor: CursorHitTest | None = None


class FlatTree(NamedTuple):
    """Nodes in document order, their depths from 1, positions of their parents (-1: none)."""

    nodes: list[RawNode]
    depths: list[int]
    parents: list[int]


class RawScan(msgspec.Struct):
    """`data` of an axtree event."""

    tree: list[RawNode] | RawNode | None = None
    focused_element: RawNode | None = None
    queries: HitTestQueries | None = None

    def flatten(self) -> FlatTree:
        """Every node in document order; iterative, so that any depth works."""
        nodes, depths, parents = flat = FlatTree([], [], [])
        levels, above = [iter(_listed(self.tree))], [-1]
        while levels:
            depth, parent = len(levels), above[-1]
            for node in levels[-1]:
                nodes.append(node)
                depths.append(depth)
                parents.append(parent)
                if node.children:
                    above.append(len(nodes) - 1)
                    levels.append(iter(node.child_nodes()))
                    break
            else:
                levels.pop()
                above.pop()
        return flat

    @property
    def cursor(self) -> CursorHitTest | None:
        """The recorder's hit test at the pointer; None when it made none."""
        return self.queries.cursor if self.queries else None


class _Event(msgspec.Struct):
    data: RawScan


_DECODER = msgspec.json.Decoder(_Event)


def regular_scan(line: bytes) -> RawScan | None:
    """The scan in a line of the log when everything in it has a known type, else None."""
    try:
        return _DECODER.decode(line).data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_scan(line: bytes) -> RawScan | None:
    """The scan in a line of the log, of any depth; None when the line is not an axtree event.

    A node that differs from the documented form keeps what is usable of it. A role that is no text
    shows that the line is damaged: None.
    """
    if (scan := regular_scan(line)) is not None:
        return scan
    try:
        value = parse_json(line, "")
    except JsonFileError:
        return None
    data = value.get("data") if isinstance(value, dict) else None
    try:
        return scan_from_values(data) if isinstance(data, dict) else None
    except TypeError:
        return None


def scan_from_values(data: Mapping[str, Any]) -> RawScan:
    """The scan in the `data` of an axtree event, read leniently from parsed JSON.

    Raises:
        TypeError: a role is no text.
    """
    queries = data.get("queries")
    cursor = queries.get("cursor") if isinstance(queries, dict) else None
    focused = data.get("focused_element")
    return RawScan(
        [_tree_of(top) for top in _objects(data.get("tree"))],
        _node_of(focused) if isinstance(focused, dict) else None,
        HitTestQueries(_cursor_of(cursor)) if isinstance(cursor, dict) else None,
    )


def _cursor_of(value: Mapping[str, Any]) -> CursorHitTest:
    element, point = value.get("element"), value.get("position")
    numbers: list[Any] = [point.get("x"), point.get("y")] if isinstance(point, dict) else []
    usable = len(numbers) == 2 and all(map(_is_number, numbers))
    return CursorHitTest(
        _node_of(element) if isinstance(element, dict) else None,
        RawPoint(*map(float, numbers)) if usable else None,
    )


def _tree_of(value: Mapping[str, Any]) -> RawNode:
    """A node with its descendants; iterative, so that any depth works."""
    top = _node_of(value)
    pending = [(top, value)]
    while pending:
        node, plain = pending.pop()
        children = [(_node_of(child), child) for child in _objects(plain.get("children"))]
        node.children = [child for child, _ in children]
        pending += children
    return top


def _node_of(value: Mapping[str, Any]) -> RawNode:
    role, name, states = value.get("role"), value.get("name"), value.get("states")
    if not isinstance(role, str | None):
        raise TypeError("a role is no text")
    known = {str(k): bool(v) for k, v in states.items()} if isinstance(states, dict) else None
    return RawNode(
        role or "",
        name if isinstance(name, str) else "",
        _box_of(value.get("bbox")),
        msgspec.Raw(json.dumps(known).encode()) if known else msgspec.Raw(b""),
        None,
        *(_raw_text(value.get(key)) for key in ("absolute_position", "size")),
    )


def _raw_text(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode() if isinstance(value, str) else b"")


def _box_of(value: Any) -> RawBox | list[float] | None:
    if isinstance(value, dict):
        sides: list[Any] = [value.get(name) for name in ("x", "y", "width", "height")]
        return RawBox(*map(float, sides)) if all(map(_is_number, sides)) else None
    if isinstance(value, list) and all(map(_is_number, value)):
        return [float(side) for side in value]
    return None


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBERS and -MAX_COORDINATE <= value <= MAX_COORDINATE


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    return [value] if isinstance(value, dict) else []


def _listed(value: list[RawNode] | RawNode | None) -> list[RawNode]:
    if value is None:
        return []
    return value if type(value) is list else [value]  # type: ignore[list-item]
