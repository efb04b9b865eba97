"""Validating the UI tree of one step, and its action against the tree.

Belongs here: rules that need no other file. A tree that follows the format is decoded as structs in
a fifth of the time that JSON and the models need; what is wrong with any other tree is found by the
models. Messages name nodes by id or number, never by their text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from pydantic import ValidationError

from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    NODE_ID_PATTERN,
    ClickParameters,
    ElementState,
    HotkeyParameters,
    Role,
    StepAction,
    TypeParameters,
    UINode,
    UITree,
    is_canonical_key,
    points,
)
from demo_pipeline.files.base_model import check, explain, field_name, limited
from demo_pipeline.files.json_files import decode_text, parse_json
from demo_pipeline.problems import Problem, warning

_ID = re.compile(NODE_ID_PATTERN)
_Length = Annotated[int, msgspec.Meta(ge=0)]
_ScreenLength = Annotated[int, msgspec.Meta(gt=0)]


def numbered_ids(count: int) -> list[str]:
    """node_0, node_1, …: the ids of a tree that is numbered in document order."""
    return [f"node_{number}" for number in range(count)]


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


Nodes = Mapping[str, TreeNode]
"""Valid nodes by id, in document order."""

_DECODER = msgspec.json.Decoder(_Document)
_Faults = Sequence[tuple[str, str]]  # (code, message)


class DecodedTree(NamedTuple):
    """A tree: the declared width and height in pixels, all valid nodes, and an ISO 8601 time."""

    screen: tuple[int, int]
    nodes: Nodes
    timestamp: str


def decode_tree(data: bytes) -> DecodedTree | None:
    """The tree of a ui_tree.json, from the file's bytes.

    Returns:
        None when a key or value breaks the format, an id occurs twice, or the tree is too deep for
        the decoder; `check_tree` decides then.
    """
    try:
        data.decode()  # msgspec does not look into unknown keys
        document = _DECODER.decode(data)
        datetime.fromisoformat(document.timestamp)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    nodes, count, pending = dict[str, TreeNode](), 0, [document.root]
    while pending:
        node = pending.pop()
        nodes[node.id] = node
        count += 1
        if node.children:
            pending += node.children[::-1]
    if len(nodes) != count or not all(map(_ID.fullmatch, nodes)):
        return None
    return DecodedTree((document.screen.width, document.screen.height), nodes, document.timestamp)


def check_tree_bytes(data: bytes, file: str) -> tuple[Nodes, list[Problem]]:
    """`check_tree` of a file's bytes, several times as fast when every node follows the format.

    Raises:
        JsonFileError: not UTF-8 or not JSON.
    """
    tree = decode_tree(data)
    if tree is not None:
        return tree.nodes, list(_problems(tree, (), file))
    text = decode_text(data, file)
    return check_tree(parse_json(text, file), file, text)


def check_tree(value: Any, file: str, text: str = "") -> tuple[Nodes, list[Problem]]:
    """The nodes of a tree by id, and the problems of the tree.

    Args:
        value: a parsed ui_tree.json.
        file: the file name in the problems.
        text: its JSON text, for line numbers.

    Returns:
        The valid nodes, and at most `MAX_PROBLEMS` problems.
    """
    document, problems = check(UITree, value, file, text)
    if document is None:
        return {}, problems
    nodes, faults = _read_nodes(document.root)
    screen = (document.screen.width, document.screen.height)
    problems += _problems(DecodedTree(screen, nodes, document.timestamp), faults, file)
    return nodes, limited(problems)


def _read_nodes(root: Any) -> tuple[Nodes, _Faults]:
    """The valid nodes and the faults of the others; iterative, for trees of any depth."""
    nodes, faults = dict[str, TreeNode](), list[tuple[str, str]]()
    pending, number = [root], 0
    while pending:
        value = pending.pop()
        try:
            node = _plain(UINode.model_validate(value))
        except ValidationError as error:
            name = f"node number {number} in document order"
            for place, said in explain(error):
                faults.append(("invalid_node", f"{name}: {field_name(place) or 'node'}: {said}"))
        else:
            if nodes.setdefault(node.id, node) is not node:
                faults.append(("duplicate_node", f"id {node.id} occurs twice"))
        number += 1
        children = value.get("children") if isinstance(value, dict) else None
        if isinstance(children, list):
            pending.extend(reversed(children))
    return nodes, faults


def _plain(node: UINode) -> TreeNode:
    bounds = NodeBounds(node.bounds.x, node.bounds.y, node.bounds.width, node.bounds.height)
    return TreeNode(node.id, node.role, node.name, bounds, node.states)


def _problems(tree: DecodedTree, faults: _Faults, file: str) -> Iterator[Problem]:
    """Yield the problems of a tree, given the faults of its nodes."""
    if datetime.fromisoformat(tree.timestamp).tzinfo is None:
        message = "timestamp: has no time zone; write Z or an offset"
        yield warning("time_zone", file, message)
    if tree.screen != (CANVAS_WIDTH, CANVAS_HEIGHT):
        size = f"{tree.screen[0]}x{tree.screen[1]}, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
        yield Problem("screen_size", file, f"screen is {size}", remedy="map the tree to the canvas")
    for code, message in faults:
        yield Problem(code, file, message, remedy="correct the node")
    # Other displays, scrolled lists and minimised windows leave nodes outside the screen; the right
    # state for them is `hidden`, or none.
    if outside := [node.id for node in tree.nodes.values() if _is_off_canvas(node)]:
        count = f"{len(outside)} visible nodes are" if len(outside) > 1 else "1 visible node is"
        yield warning("node_outside", file, f"{count} outside the screen, first {outside[0]}")
    if not faults:
        yield from _root_warnings(next(iter(tree.nodes.values())), file)


def _is_off_canvas(node: TreeNode) -> bool:
    """Whether a node has the state `visible` and an area, but no pixel on the canvas."""
    box = node.bounds
    return (
        (
            box.x >= CANVAS_WIDTH
            or box.y >= CANVAS_HEIGHT
            or box.x + box.width <= 0
            or box.y + box.height <= 0
        )
        and bool(box.width and box.height)
        and ElementState.VISIBLE in node.states
    )


def _root_warnings(root: TreeNode, file: str) -> Iterator[Problem]:
    bounds = (root.bounds.x, root.bounds.y, root.bounds.width, root.bounds.height)
    if root.role is not Role.DESKTOP:
        yield warning("root_role", file, f"root: role is {root.role}, expected desktop")
    if bounds != (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT):
        yield warning("root_bounds", file, "root: bounds are not the whole screen")


def check_action(action: StepAction, nodes: Nodes | None, file: str) -> list[Problem]:
    """The problems of an action, given the nodes of its step's tree (None: tree unknown)."""
    problems = list(_point_problems(action, file))
    if isinstance(action.parameters, TypeParameters) and not action.parameters.text:
        problems.append(warning("empty_text", file, "parameters.text: is empty"))
    problems += _form_warnings(action, file)
    if nodes is not None:
        problems += _target_problems(action, nodes, file)
    return problems


def _form_warnings(action: StepAction, file: str) -> Iterator[Problem]:
    """Yield a warning for a click without its button, and for keys of other names."""
    parameters = action.parameters
    if isinstance(parameters, ClickParameters) and "button" not in parameters.model_fields_set:
        message = "parameters.button: is missing; the left one is assumed"
        yield warning("missing_field", file, message)
    keys = parameters.keys if isinstance(parameters, HotkeyParameters) else ()
    for field, names in (("keys", keys), ("modifiers", getattr(parameters, "modifiers", None))):
        count = sum(not is_canonical_key(name) for name in names or ())
        if count:
            message = f"parameters.{field}: {count} not in pyautogui's lower-case names"
            yield warning("key_name", file, message)


def _point_problems(action: StepAction, file: str) -> Iterator[Problem]:
    for x, y in points(action):
        if not (0 <= x < CANVAS_WIDTH and 0 <= y < CANVAS_HEIGHT):
            message = f"parameters: point ({x}, {y}) is outside {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
            yield Problem("point_outside", file, message, remedy="map the point to the canvas")


def _target_problems(action: StepAction, nodes: Nodes, file: str) -> Iterator[Problem]:
    target = action.target_element
    if target is None:
        return
    node = nodes.get(target.id)
    if node is None:
        message = f"target_element.id: {target.id} is not in this step's tree"
        yield Problem("target_missing", file, message, remedy="take the id from ui_tree.json")
        return
    for key in ("role", "name"):
        if getattr(target, key) != getattr(node, key):
            message = f"target_element.{key}: differs from the {key} of {target.id} in ui_tree.json"
            yield Problem("target_differs", file, message, remedy=f"copy the node's {key}")
    touched = points(action)
    if touched and not _contains(node.bounds, *touched[0]):
        message = f"target_element: the point is outside the bounds of {target.id}"
        yield warning("point_off_target", file, message)


def _contains(box: NodeBounds, x: float, y: float) -> bool:
    """Whether the point is in the bounds; edges count, because of rounding."""
    return box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height
