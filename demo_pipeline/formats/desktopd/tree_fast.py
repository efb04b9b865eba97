"""A ui_tree.json that is sound beyond doubt, told so at a tenth of the cost of its models.

Belongs here: the one quick reading of a well-formed tree. What is wrong with any other, the models
in `desktopd_tree` say.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from demo_pipeline.formats.desktopd.vocabulary import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    NODE_ID_PATTERN,
    ElementState,
    Role,
)

_ID = re.compile(NODE_ID_PATTERN)
_NUMBERED = [f"node_{number}" for number in range(4096)]  # more than most trees have
_Size = Annotated[int, msgspec.Meta(ge=0)]


def numbered_ids(count: int) -> list[str]:
    """node_0, node_1, …: the ids of a tree that is numbered in document order."""
    return _NUMBERED[:count] + [f"node_{number}" for number in range(len(_NUMBERED), count)]


class _Bounds(msgspec.Struct, gc=False):
    x: int
    y: int
    width: _Size
    height: _Size


class _Node(msgspec.Struct, gc=False):
    id: str
    role: Role
    name: str
    bounds: _Bounds
    states: list[ElementState] = []
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

    def __init__(self, nodes: Sequence[_Node]) -> None:
        self._nodes = nodes

    def __getitem__(self, node_id: str) -> Mapping[str, Any]:
        # One or two nodes of a tree are asked for: numbering them all would cost more.
        node = next((node for node in self._nodes if node.id == node_id), None)
        if node is None:
            raise KeyError(node_id)
        return {
            "id": node.id,
            "role": node.role,
            "name": node.name,
            "bounds": msgspec.structs.asdict(node.bounds),
            "states": node.states,
        }

    def __iter__(self) -> Iterator[str]:
        return (node.id for node in self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def unseen(self) -> list[str]:
        """Ids of nodes that are said to be visible and have no pixel on the canvas."""
        visible = ElementState.VISIBLE
        return [
            node.id
            for node in self._nodes
            if (
                (box := node.bounds).x >= CANVAS_WIDTH
                or box.y >= CANVAS_HEIGHT
                or box.x + box.width <= 0
                or box.y + box.height <= 0
            )
            and box.width
            and box.height
            and visible in node.states
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
    nodes: list[_Node] = []
    pending = [tree.root]
    while pending:
        node = pending.pop()
        nodes.append(node)
        if node.children:
            pending += node.children[::-1]
    ids = [node.id for node in nodes]
    if ids != numbered_ids(len(ids)) and not _are_ids(ids):
        return None
    return SoundNodes(nodes) if _is_whole(tree) else None


def _are_ids(ids: Sequence[str]) -> bool:
    """Each is of the right form, and none occurs twice."""
    return len(set(ids)) == len(ids) and all(map(_ID.fullmatch, ids))


def _is_whole(tree: _Tree) -> bool:
    """Screen and root are the canvas."""
    size, root = (CANVAS_WIDTH, CANVAS_HEIGHT), tree.root
    box = (root.bounds.x, root.bounds.y, root.bounds.width, root.bounds.height)
    is_canvas = (tree.screen.width, tree.screen.height) == size and box == (0, 0, *size)
    return is_canvas and root.role is Role.DESKTOP
