"""The nodes of a ui_tree.json as structs, which are decoded at a tenth of the cost of the models.

Belongs here: reading nodes that follow the format, and which of them are off the canvas. What is
wrong with any other tree is found by the models (tree_validator.py).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

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
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_Length = Annotated[int, msgspec.Meta(ge=0)]
_ScreenLength = Annotated[int, msgspec.Meta(gt=0)]


def numbered_ids(count: int) -> list[str]:
    """node_0, node_1, …: the ids of a tree that is numbered in document order."""
    return _NUMBERED[:count] + [f"node_{number}" for number in range(len(_NUMBERED), count)]


class NodeBounds(msgspec.Struct, gc=False):
    """A rectangle in canvas pixels."""

    x: int
    y: int
    width: _Length
    height: _Length


class TreeNode(msgspec.Struct, gc=False):
    """A node that follows the format, without its children. `UINode` accepts the same values."""

    id: str
    role: Role
    name: str
    bounds: NodeBounds
    states: list[ElementState] = []


class _NestedNode(TreeNode, gc=False):
    children: list["_NestedNode"] = []


class _Screen(msgspec.Struct, forbid_unknown_fields=True):
    width: _ScreenLength
    height: _ScreenLength


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: str
    screen: _Screen
    root: _NestedNode


_DECODER = msgspec.json.Decoder(_Document)


class TreeNodes(Mapping[str, Mapping[str, Any]]):
    """The nodes of a tree by id, in document order, as plain values without their children.

    Args:
        nodes: their ids differ.
    """

    def __init__(self, nodes: Sequence[TreeNode]) -> None:
        self._nodes = nodes

    def __getitem__(self, node_id: str) -> Mapping[str, Any]:
        # A caller looks up one or two nodes of a tree: an index of all would cost more.
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

    @property
    def first(self) -> TreeNode:
        """The first node: the root, if the root follows the format."""
        return self._nodes[0]

    def off_canvas(self) -> list[str]:
        """Ids of nodes that have the state `visible` and an area, but no pixel on the canvas."""
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


class DecodedTree(NamedTuple):
    """A tree that follows the format.

    Attributes:
        screen: the declared width and height in pixels.
        nodes: all nodes.
        timestamp: ISO 8601, with or without a time zone.
    """

    screen: tuple[int, int]
    nodes: TreeNodes
    timestamp: str


def decode_tree(data: bytes) -> DecodedTree | None:
    """The tree of a ui_tree.json, from the file's bytes.

    Returns:
        None when a key or value breaks the format, an id occurs twice, or the tree is too deep for
        the decoder; `tree_validator.check_tree` decides then.
    """
    try:
        if not data.isascii():
            data.decode()  # msgspec does not look into unknown keys
        document = _DECODER.decode(data)
        datetime.fromisoformat(document.timestamp)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    nodes: list[_NestedNode] = []
    pending = [document.root]
    while pending:
        node = pending.pop()
        nodes.append(node)
        if node.children:
            pending += node.children[::-1]
    ids = [node.id for node in nodes]
    if ids != numbered_ids(len(ids)) and not _are_distinct_ids(ids):
        return None
    screen = (document.screen.width, document.screen.height)
    return DecodedTree(screen, TreeNodes(nodes), document.timestamp)


def _are_distinct_ids(ids: Sequence[str]) -> bool:
    return len(set(ids)) == len(ids) and all(map(_ID.fullmatch, ids))


def convert_node(value: Any) -> TreeNode | None:
    """The node of a parsed JSON value, whose children are not examined.

    Returns:
        None when `UINode` has to decide: a value breaks the format, or the name is not Unicode.
    """
    try:
        node = msgspec.convert(value, TreeNode)
    except (msgspec.ValidationError, UnicodeEncodeError):  # the latter: a lone surrogate
        return None
    is_valid = _ID.fullmatch(node.id) and _is_text(node.name)
    return node if is_valid and type(value.get("children", [])) is list else None


def _is_text(name: str) -> bool:
    """Whether a name has no lone surrogate, which no encoding can represent."""
    return name.isascii() or _LONE_SURROGATE.search(name) is None
