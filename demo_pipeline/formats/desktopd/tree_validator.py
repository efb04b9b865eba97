"""Checks of one step's observation: the tree, and the action's place in it.

Belongs here: what can be said of a UI tree and an action (seed 001, sections 2.2, 2.3 and 7)
without opening another file. Messages name nodes by id or number, never by their text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from demo_pipeline.common.json_files import decode_text, parse_json
from demo_pipeline.formats.base_model import check, explain, field_name, limited
from demo_pipeline.formats.desktopd.models import UINode, UITree
from demo_pipeline.formats.desktopd.step_actions import StepAction, TypeParameters, points
from demo_pipeline.formats.desktopd.tree_fast import read_sound_tree
from demo_pipeline.formats.desktopd.vocabulary import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    NODE_ID_PATTERN,
    ElementState,
    Role,
)
from demo_pipeline.problems import Problem, Severity

Nodes = Mapping[str, Mapping[str, Any]]
"""Sound nodes by id, as plain values; `UINode.model_validate` accepts each."""

_ID = re.compile(NODE_ID_PATTERN)
_ROLES, _STATES = frozenset(map(str, Role)), frozenset(map(str, ElementState))


def check_tree_bytes(data: bytes, file: str) -> tuple[Nodes, list[Problem]]:
    """`check_tree` of a file's bytes, ten times as fast where nothing is wrong with it.

    Raises:
        JsonFileError: no UTF-8 or no JSON.
    """
    nodes = read_sound_tree(data)
    if nodes is not None:
        return nodes, list(_outside_warning(nodes.unseen(), file))
    text = decode_text(data, file)
    return check_tree(parse_json(text, file), file, text)


def check_tree(value: Any, file: str, text: str = "") -> tuple[Nodes, list[Problem]]:
    """The nodes of a tree by id, and what is wrong with it.

    Args:
        value: a parsed ui_tree.json.
        file: what problems are filed under.
        text: its JSON text, for line numbers.

    Returns:
        The nodes that are sound, and at most `MAX_PROBLEMS` problems.
    """
    tree, problems = check(UITree, value, file, text)
    if tree is None:
        return {}, problems
    screen = (tree.screen.width, tree.screen.height)
    if screen != (CANVAS_WIDTH, CANVAS_HEIGHT):
        message = f"screen is {screen[0]}x{screen[1]}, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
        problems.append(Problem("screen_size", file, message, remedy="map the tree to the canvas"))
    nodes: dict[str, Mapping[str, Any]] = {}
    faults = list(_node_faults(tree.root, nodes))
    remedy = "correct the node"
    problems += [Problem(code, file, message, remedy=remedy) for code, message in faults]
    lost = [name for name, node in nodes.items() if _is_seen(node) and _is_outside(node["bounds"])]
    problems += _outside_warning(lost, file)
    if not faults:
        root = UINode.model_validate(next(iter(nodes.values())))
        problems += _root_warnings(root, file)
    return nodes, limited(problems)


def _node_faults(root: Any, nodes: dict[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (code, message) for each fault, filling `nodes`; iterative, for trees of any depth."""
    pending = [root]
    number = 0
    while pending:
        value = pending.pop()
        children = value.get("children") if isinstance(value, dict) else None
        if is_plainly_sound(value) or not (faults := list(_explained(value, number))):
            if value["id"] in nodes:
                yield "duplicate_node", f"id {value['id']} occurs twice"
            nodes.setdefault(value["id"], value)
        else:
            yield from faults
        number += 1
        if isinstance(children, list):
            pending.extend(reversed(children))


def _explained(value: Any, number: int) -> Iterator[tuple[str, str]]:
    try:
        UINode.model_validate(value)
    except ValidationError as error:
        for location, message in explain(error):
            place = f"node number {number} in document order"
            yield "invalid_node", f"{place}: {field_name(location) or 'node'}: {message}"


def is_plainly_sound(value: Any) -> bool:
    """Whether a value is a node beyond doubt; `UINode` decides the rest, at ten times the cost."""
    if type(value) is not dict:
        return False
    name, bounds = value.get("name"), value.get("bounds")
    node_id, role = value.get("id"), value.get("role")
    return (
        type(node_id) is str
        and _ID.fullmatch(node_id) is not None
        and type(role) is str
        and role in _ROLES
        and type(name) is str
        and (name.isascii() or _is_text(name))
        and type(bounds) is dict
        and all(type(bounds.get(side)) is int for side in ("x", "y", "width", "height"))
        and bounds["width"] >= 0
        and bounds["height"] >= 0
        and _all_states(value.get("states", []))
        and type(value.get("children", [])) is list
    )


def _is_text(name: str) -> bool:
    """No lone surrogate, which is no text in any encoding."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _all_states(value: Any) -> bool:
    return type(value) is list and all(type(one) is str and one in _STATES for one in value)


def _root_warnings(root: UINode, file: str) -> Iterator[Problem]:
    bounds = (root.bounds.x, root.bounds.y, root.bounds.width, root.bounds.height)
    if root.role is not Role.DESKTOP:
        yield _warning("root_role", file, f"root: role is {root.role}, expected desktop")
    if bounds != (0, 0, CANVAS_WIDTH, CANVAS_HEIGHT):
        yield _warning("root_bounds", file, "root: bounds are not the whole screen")


def _outside_warning(lost: Sequence[str], file: str) -> Iterator[Problem]:
    """One warning a tree for nodes that are said to be visible and of which nothing can be seen.

    Other displays, scrolled lists and minimised windows leave nodes outside the screen; seed 001
    has the state `hidden`, or no state, for them.
    """
    if lost:
        many = f"{len(lost)} visible nodes lie" if len(lost) > 1 else "1 visible node lies"
        yield _warning("node_outside", file, f"{many} outside the screen, first {lost[0]}")


def _is_seen(node: Mapping[str, Any]) -> bool:
    return ElementState.VISIBLE in node.get("states", ())


def _is_outside(box: Mapping[str, Any]) -> bool:
    """Whether no pixel of a box is on the canvas; a box without area has none to be there."""
    area = box["width"] > 0 and box["height"] > 0
    right, bottom = box["x"] + box["width"], box["y"] + box["height"]
    there = box["x"] < CANVAS_WIDTH and box["y"] < CANVAS_HEIGHT and right > 0 and bottom > 0
    return area and not there


def check_action(action: StepAction, nodes: Nodes | None, file: str) -> list[Problem]:
    """What is wrong with an action, given the nodes of its step's tree (None: tree not known)."""
    problems = list(_point_problems(action, file))
    if isinstance(action.parameters, TypeParameters) and not action.parameters.text:
        problems.append(_warning("empty_text", file, "parameters.text: nothing is typed"))
    if nodes is not None:
        problems += _target_problems(action, nodes, file)
    return problems


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
            message = f"target_element.{key}: differs from that of {target.id} in ui_tree.json"
            yield Problem("target_differs", file, message, remedy=f"copy the node's {key}")
    place = points(action)
    if place and not _holds(node, *place[0]):
        message = f"target_element: the point is outside the bounds of {target.id}"
        yield _warning("point_off_target", file, message)


def _holds(node: Mapping[str, Any], x: float, y: float) -> bool:
    """Whether the point is in the node's bounds, edges included (rounding may land on one)."""
    box = node["bounds"]
    left, top = box["x"], box["y"]
    return bool(left <= x <= left + box["width"] and top <= y <= top + box["height"])


def _warning(code: str, file: str, message: str) -> Problem:
    return Problem(code, file, message, severity=Severity.WARNING)
