"""A ui_tree.json that is sound beyond doubt, told so at a tenth of the cost of its models.

Belongs here: the one quick reading of a well-formed tree. What is wrong with any other, the models
in `desktopd_tree` say.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from demo_pipeline.formats.desktopd import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    NODE_ID_PATTERN,
    Role,
    State,
)

_ID = re.compile(NODE_ID_PATTERN)


class _Bounds(msgspec.Struct, gc=False):
    x: int
    y: int
    width: int
    height: int


class _Node(msgspec.Struct, gc=False):
    id: str
    role: Role
    name: str
    bounds: _Bounds
    states: list[State] = []
    children: list["_Node"] = []


class _Screen(msgspec.Struct):
    width: int
    height: int


class _Tree(msgspec.Struct):
    timestamp: str
    screen: _Screen
    root: _Node


_DECODER = msgspec.json.Decoder(_Tree)


class SoundNodes(Mapping[str, Mapping[str, Any]]):
    """The nodes of a sound tree by id, as plain values without their children."""

    def __init__(self, nodes: Mapping[str, _Node]) -> None:
        self._nodes = nodes

    def __getitem__(self, node_id: str) -> Mapping[str, Any]:
        node = self._nodes[node_id]
        return {
            "id": node.id,
            "role": node.role,
            "name": node.name,
            "bounds": msgspec.structs.asdict(node.bounds),
            "states": node.states,
        }

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def unseen(self) -> list[str]:
        """Ids of nodes that are said to be visible and have no pixel on the canvas."""
        return [
            node.id
            for node in self._nodes.values()
            if not (0 <= node.bounds.x < CANVAS_WIDTH and 0 <= node.bounds.y < CANVAS_HEIGHT)
            and _is_unseen(node)
        ]


def read_sound_tree(data: bytes) -> SoundNodes | None:
    """The nodes of a ui_tree.json, in document order.

    Args:
        data: the file's bytes.

    Returns:
        None when anything is not as seed 001 wants it, or the tree is too deep to be read fast;
        `desktopd_tree.check_tree` decides then.
    """
    try:
        tree = _DECODER.decode(data)
        datetime.fromisoformat(tree.timestamp)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    nodes: dict[str, _Node] = {}
    count, pending = 0, [tree.root]
    while pending:
        node = pending.pop()
        nodes[node.id] = node
        count += 1
        if node.bounds.width < 0 or node.bounds.height < 0:
            return None
        if node.children:
            pending.extend(reversed(node.children))
    if count != len(nodes) or not all(map(_ID.fullmatch, nodes)) or not _is_whole(tree):
        return None
    return SoundNodes(nodes)


def _is_whole(tree: _Tree) -> bool:
    """Screen and root are the canvas."""
    size, root = (CANVAS_WIDTH, CANVAS_HEIGHT), tree.root
    box = (root.bounds.x, root.bounds.y, root.bounds.width, root.bounds.height)
    is_canvas = (tree.screen.width, tree.screen.height) == size and box == (0, 0, *size)
    return is_canvas and root.role is Role.DESKTOP


def _is_unseen(node: _Node) -> bool:
    box = node.bounds
    there = (
        box.x < CANVAS_WIDTH
        and box.y < CANVAS_HEIGHT
        and box.x + box.width > 0
        and box.y + box.height > 0
    )
    return not there and box.width > 0 and box.height > 0 and State.VISIBLE in node.states
