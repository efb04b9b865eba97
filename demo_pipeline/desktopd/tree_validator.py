"""Validating the UI tree of one step, and its action against the tree.

Belongs here: rules that need no other file. Nodes that follow the format are decoded as structs, at
a tenth of the cost of the models; what is wrong with any other tree is found by the models.
Messages name nodes by id or number, never by their text.
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
from demo_pipeline.problems import Problem, Severity

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


Nodes = Mapping[str, Mapping[str, Any]]
"""Valid nodes by id, as plain values; `UINode.model_validate` accepts each."""

_Faults = Sequence[tuple[str, str]]  # (code, message)


def check_tree_bytes(data: bytes, file: str) -> tuple[Nodes, list[Problem]]:
    """`check_tree` of a file's bytes, ten times as fast when every node follows the format.

    Raises:
        JsonFileError: not UTF-8 or not JSON.
    """
    tree = decode_tree(data)
    if tree is not None:
        problems = _problems(tree.screen, tree.nodes, (), file)
        return tree.nodes, [*_time_warnings(tree.timestamp, file), *problems]
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
    tree, problems = check(UITree, value, file, text)
    if tree is None:
        return {}, problems
    problems += _time_warnings(tree.timestamp, file)
    nodes, faults = _read_nodes(tree.root)
    problems += _problems((tree.screen.width, tree.screen.height), nodes, faults, file)
    return nodes, limited(problems)


def _read_nodes(root: Any) -> tuple[TreeNodes, _Faults]:
    """The valid nodes and the faults of the others; iterative, for trees of any depth."""
    nodes: dict[str, TreeNode] = {}
    faults: list[tuple[str, str]] = []
    pending = [root]
    number = 0
    while pending:
        value = pending.pop()
        node = convert_node(value)
        if node is None:
            node, messages = _modelled(value)
            name = f"node number {number} in document order"
            faults += [("invalid_node", f"{name}: {message}") for message in messages]
        if node is not None and nodes.setdefault(node.id, node) is not node:
            faults.append(("duplicate_node", f"id {node.id} occurs twice"))
        number += 1
        children = value.get("children") if isinstance(value, dict) else None
        if isinstance(children, list):
            pending.extend(reversed(children))
    return TreeNodes(list(nodes.values())), faults


def _modelled(value: Any) -> tuple[TreeNode | None, list[str]]:
    """The node as `UINode` reads it, or why it is rejected."""
    try:
        node = UINode.model_validate(value)
    except ValidationError as error:
        faults = explain(error)
        return None, [f"{field_name(where) or 'node'}: {message}" for where, message in faults]
    bounds = NodeBounds(node.bounds.x, node.bounds.y, node.bounds.width, node.bounds.height)
    return TreeNode(node.id, node.role, node.name, bounds, node.states), []


def _problems(
    screen: tuple[int, int], nodes: TreeNodes, faults: _Faults, file: str
) -> Iterator[Problem]:
    """Yield the problems of a tree, given the faults of its nodes."""
    if screen != (CANVAS_WIDTH, CANVAS_HEIGHT):
        message = f"screen is {screen[0]}x{screen[1]}, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
        yield Problem("screen_size", file, message, remedy="map the tree to the canvas")
    for code, message in faults:
        yield Problem(code, file, message, remedy="correct the node")
    yield from _off_canvas_warning(nodes.off_canvas(), file)
    if not faults:
        yield from _root_warnings(nodes.first, file)


def _time_warnings(timestamp: str, file: str) -> Iterator[Problem]:
    if datetime.fromisoformat(timestamp).tzinfo is None:
        message = "timestamp: has no time zone; write Z or an offset"
        yield _warning("time_zone", file, message)


def _root_warnings(root: TreeNode, file: str) -> Iterator[Problem]:
    bounds = (root.bounds.x, root.bounds.y, root.bounds.width, root.bounds.height)
    if root.role is not Role.DESKTOP:
        yield _warning("root_role", file, f"root: role is {root.role}, expected desktop")
    if bounds != (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT):
        yield _warning("root_bounds", file, "root: bounds are not the whole screen")


def _off_canvas_warning(ids: Sequence[str], file: str) -> Iterator[Problem]:
    """One warning per tree for the `ids` of nodes with the state `visible` outside the screen.

    Other displays, scrolled lists and minimised windows leave nodes outside the screen; the right
    state for them is `hidden`, or none.
    """
    if ids:
        count = f"{len(ids)} visible nodes are" if len(ids) > 1 else "1 visible node is"
        yield _warning("node_outside", file, f"{count} outside the screen, first {ids[0]}")


def check_action(action: StepAction, nodes: Nodes | None, file: str) -> list[Problem]:
    """The problems of an action, given the nodes of its step's tree (None: tree unknown)."""
    problems = list(_point_problems(action, file))
    if isinstance(action.parameters, TypeParameters) and not action.parameters.text:
        problems.append(_warning("empty_text", file, "parameters.text: is empty"))
    problems += _form_warnings(action, file)
    if nodes is not None:
        problems += _target_problems(action, nodes, file)
    return problems


def _form_warnings(action: StepAction, file: str) -> Iterator[Problem]:
    """Yield a warning for a click without its button, and for keys of other names."""
    parameters = action.parameters
    if isinstance(parameters, ClickParameters) and "button" not in parameters.model_fields_set:
        message = "parameters.button: is missing; the left one is assumed"
        yield _warning("missing_field", file, message)
    keys = parameters.keys if isinstance(parameters, HotkeyParameters) else ()
    for field, names in (("keys", keys), ("modifiers", getattr(parameters, "modifiers", None))):
        count = sum(not is_canonical_key(name) for name in names or ())
        if count:
            message = f"parameters.{field}: {count} not in pyautogui's lower-case names"
            yield _warning("key_name", file, message)


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
        if getattr(target, key) != node[key]:
            message = f"target_element.{key}: differs from the {key} of {target.id} in ui_tree.json"
            yield Problem("target_differs", file, message, remedy=f"copy the node's {key}")
    touched = points(action)
    if touched and not _contains(node, *touched[0]):
        message = f"target_element: the point is outside the bounds of {target.id}"
        yield _warning("point_off_target", file, message)


def _contains(node: Mapping[str, Any], x: float, y: float) -> bool:
    """Whether the point is in the node's bounds; edges count, because of rounding."""
    box = node["bounds"]
    left, top = box["x"], box["y"]
    return bool(left <= x <= left + box["width"] and top <= y <= top + box["height"])


def _warning(code: str, file: str, message: str) -> Problem:
    return Problem(code, file, message, severity=Severity.WARNING)
