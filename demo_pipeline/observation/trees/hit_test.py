"""The hit test: which element of a scan is under a point, and which has the keyboard focus.

Belongs here: what is a target. Which windows there are, and which is in front, is in
tree_windows.py.
"""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.trees.step_tree import BoxTuple, Element, StepTree
from demo_pipeline.observation.trees.tree_windows import (
    ancestors,
    area,
    front_window,
    is_window,
    positions_at,
    raw_role,
    window_of,
)

_CLIPPING = frozenset(
    {"scrollpane", "viewport", "document", "documentweb", "documentframe", "scrollarea"}
)
_IN_FRONT = frozenset({"menu", "menuitem", "dialog"})  # they lie over what is in other branches
TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
_CONTROLS = TEXT_ROLES | {
    *("button", "checkbox", "radiobutton", "slider", "scrollbar", "link", "menuitem"),
    *("tab", "listitem", "treeitem", "tablecell", "icon"),
}
WHOLE_WINDOW_SHARE = 0.97  # of a window's or the screen's area; a panel this large is no target
ROUNDING_PX = 1  # pixels by which an element may stick out of the element that contains it


def node_at(tree: StepTree, x: float, y: float, front: int | None = None) -> Element | None:
    """The target under a point in event space: the smallest visible node, or the control around it.

    A window, the desktop, a document, a panel as large as its window, a container without a name
    and what another window covers are no targets. None when it is not known which of two windows
    is in front (`front`, as the picture shows, or else the tree), and when nothing tells which of
    two branches of the tree is.
    """
    under = [
        position
        for position in positions_at(tree, x, y)
        if not is_window(tree, position)
        and tree.role_at(position) != "desktop"
        and "hidden" not in tree.states_at(position)
        and not _is_clipped(tree, position, x, y)
    ]
    tip = _front_branch(tree, _of_front_window(tree, under, x, y, front))
    if tip is None:
        return None
    if not tree.raws[tip].name and tree.role_at(tip) not in _CONTROLS:
        around = (node for node in ancestors(tree, tip) if tree.role_at(node) in _CONTROLS)
        tip = next((node for node in around if node in under), None)
    return None if tip is None or _is_whole(tree, tip) else tree.element(tip)


def _of_front_window(
    tree: StepTree, under: Sequence[int], x: float, y: float, front: int | None
) -> Sequence[int]:
    """The nodes of the front window, and of none; no nodes when it is not known."""
    windows = {window_of(tree, node) for node in under} - {None}
    if front is None:
        front = front_window(tree, x, y)
    if front is None:
        return under if len(windows) < 2 else ()
    visible = [node for node in under if window_of(tree, node) in {None, front}]
    return visible if visible or not _is_overlay(tree, front) else under


def _front_branch(tree: StepTree, under: Sequence[int]) -> int | None:
    """The innermost node of the branch in front; None when nothing tells which one that is.

    A menu item, an option and a dialog are in front of other branches, a submenu of its menu; else
    what is inside the others is. Of equals it is the last in the document.
    """
    around = {ancestor for node in under for ancestor in ancestors(tree, node)}
    tips = [node for node in under if node not in around]
    depths = [_depth_in_front(tree, tip) for tip in tips]
    tips = [tip for tip, depth in zip(tips, depths, strict=True) if depth == max(depths)]
    boxes = {tip: box for tip in tips if (box := tree.box(tip)) is not None}
    first = min(boxes, key=lambda tip: (area(boxes[tip]), -tip), default=None)
    decided = first is not None and all(_encloses(box, boxes[first]) for box in boxes.values())
    return first if decided else None


def _depth_in_front(tree: StepTree, tip: int) -> int:
    """How many menus, options and dialogs a node is in, itself included."""
    roles = [tree.role_at(node) for node in (tip, *ancestors(tree, tip))]
    is_option = roles[0] == "listitem" and "combobox" in roles
    return is_option + sum(role in _IN_FRONT for role in roles)


def _is_overlay(tree: StepTree, window: int) -> bool:
    """Whether a window shows nothing, so that it covers nothing."""
    return not any(
        parent == window and area(tree.box(node)) > 0 and "hidden" not in tree.states_at(node)
        for node, parent in enumerate(tree.parents)
    )


def _contains(box: BoxTuple, x: float, y: float) -> bool:
    return box[0] <= x < box[0] + box[2] and box[1] <= y < box[1] + box[3]


def focused_node(tree: StepTree) -> Element | None:
    """The element with the keyboard focus, when the scan has it; never a window or a panel."""
    focused = tree.focused
    if focused is None or tree.role_at(focused) in {"desktop", "window"}:
        return None
    if tree.role_at(focused) == "panel" and not _is_document(tree, focused):
        return None
    return tree.element(focused)


def has_element(tree: StepTree, element: Element) -> bool:
    """Whether a tree of the same screen has an element of this role, name and box."""
    return any(
        (tree.role_at(node), tree.raws[node].name or "") == (element.role, element.name)
        for node in np.flatnonzero((tree.boxes == element.box).all(axis=1)).tolist()
    )


def text_node_at(tree: StepTree, x: float, y: float) -> Element | None:
    """The text element under a point: the hit node, or its nearest ancestor that is one."""
    hit = node_at(tree, x, y)
    if hit is None:
        return None
    path = (hit.position, *ancestors(tree, hit.position))
    return next((tree.element(node) for node in path if tree.role_at(node) in TEXT_ROLES), None)


def agrees_with_cursor(tree: StepTree) -> bool | None:
    """Whether our hit test at the recorder's pointer agrees with the recorder's own.

    The two elements agree when one contains the other: recorders often return a node a level or two
    above the smallest. Elements of different windows never agree. None when the recorder made no
    hit test, or found nothing.
    """
    cursor = tree.cursor
    if cursor is None or cursor.position is None or cursor.element is None:
        return None
    theirs = cursor.element.box
    if not _contains(theirs, cursor.position.x, cursor.position.y):
        return None
    hit = node_at(tree, cursor.position.x, cursor.position.y)
    if hit is None or hit.box is None:
        return False
    node = tree.cursor_node
    if node is not None and window_of(tree, node) != window_of(tree, hit.position):
        return False
    return _encloses(theirs, hit.box) or _encloses(hit.box, theirs)


def _encloses(outer: BoxTuple, inner: BoxTuple) -> bool:
    """Whether `inner` is inside `outer`, apart from rounding."""
    return (
        outer[0] - ROUNDING_PX <= inner[0]
        and outer[1] - ROUNDING_PX <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2] + ROUNDING_PX
        and inner[1] + inner[3] <= outer[1] + outer[3] + ROUNDING_PX
    )


def _is_whole(tree: StepTree, position: int) -> bool:
    """Whether it is a document, or a panel as large as its window or the screen."""
    if tree.role_at(position) not in {"panel", "unknown"}:
        return False
    windows = (node for node in ancestors(tree, position) if is_window(tree, node))
    window = next((box for node in windows if (box := tree.box(node)) is not None), None)
    least = min(tree.screen[0] * tree.screen[1], area(window) or float("inf"))
    is_large = area(tree.box(position)) >= WHOLE_WINDOW_SHARE * least
    return is_large or _is_document(tree, position)


def _is_document(tree: StepTree, position: int) -> bool:
    role = raw_role(tree, position)
    return role.startswith("document") or role == "webarea"


def _is_clipped(tree: StepTree, position: int, x: float, y: float) -> bool:
    """Whether the node is scrolled out of sight: its box continues beyond the pane around it."""
    return any(
        (box := tree.box(node)) is not None
        and area(box) > 0
        and not _contains(box, x, y)
        and raw_role(tree, node) in _CLIPPING
        for node in ancestors(tree, position)
    )
