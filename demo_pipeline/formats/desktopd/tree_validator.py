"""Validating the UI tree of one step, and its action against the tree.

Belongs here: rules that need no other file. Messages name nodes by id or number, never by their
text.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from demo_pipeline.common.json_files import decode_text, parse_json
from demo_pipeline.formats.base_model import check, explain, field_name, limited
from demo_pipeline.formats.desktopd.models import UINode, UITree
from demo_pipeline.formats.desktopd.step_actions import (
    ClickParameters,
    HotkeyParameters,
    StepAction,
    TypeParameters,
    points,
)
from demo_pipeline.formats.desktopd.tree_fast import (
    NodeBounds,
    TreeNode,
    TreeNodes,
    convert_node,
    decode_tree,
)
from demo_pipeline.formats.desktopd.vocabulary import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    Role,
    is_canonical_key,
)
from demo_pipeline.problems import Problem, Severity

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
