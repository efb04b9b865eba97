"""The hit test: which element of a scan is under a point, and which has the keyboard focus."""

from collections.abc import Iterator

import numpy as np

from demo_pipeline.observation.trees.roles import normalised
from demo_pipeline.observation.trees.step_tree import BoxTuple, Element, StepTree

_CONTAINERS = frozenset({"desktop", "window"})
WINDOWS = frozenset({"window", "dialog"})
_CLIPPING = frozenset(
    {"scrollpane", "viewport", "document", "documentweb", "documentframe", "scrollarea"}
)
_TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
WHOLE_WINDOW_SHARE = 0.97  # of a window's or the screen's area; a panel this large is no target
ROUNDING_PX = 1  # pixels by which an element may stick out of the element that contains it


def node_at(
    tree: StepTree, x: float, y: float, clicked_window: int | None = None
) -> Element | None:
    """The smallest visible node under a point in event space; of equals, the last in the document.

    Windows, the desktop, panels as large as their window or the screen, and nodes that another
    window covers are never targets. None when it is not known which of two windows is in front:
    the tree does not say, and neither is the window that was clicked last (`clicked_window`).
    """
    under = [
        position
        for position in _positions_at(tree, x, y)
        if tree.role_at(position) not in _CONTAINERS
        and "hidden" not in tree.states_at(position)
        and not _is_whole_window(tree, position)
        and not _is_clipped(tree, position, x, y)
    ]
    if not under:
        return None
    front = _front_window(tree, x, y)
    if front is None and clicked_window in {window_of(tree, node) for node in under}:
        front = clicked_window
    if front is not None:  # when the front window has no node there, it covers nothing
        visible = [node for node in under if window_of(tree, node) in {None, front}]
        under = visible or under
    elif len({window_of(tree, node) for node in under} - {None}) > 1:
        return None
    return tree.element(min(under, key=lambda node: (_area(tree.box(node)), -node)))


def window_at(tree: StepTree, x: float, y: float) -> int | None:
    """Position of the outermost window under a point in event space.

    None without one, or with several of which none is known to be in front.
    """
    under = {window_of(tree, position) for position in _positions_at(tree, x, y)} - {None}
    if len(under) < 2:
        return next(iter(under), None)
    return _front_window(tree, x, y)


def focused_window(tree: StepTree) -> int | None:
    """Position of the outermost window around the element with the keyboard focus; or None."""
    return None if tree.focused is None else window_of(tree, tree.focused)


def _positions_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the nodes whose box contains a point, in document order."""
    left, top, width, height = tree.boxes.T
    inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height)
    positions: list[int] = np.flatnonzero(inside).tolist()
    return positions


def _area(box: BoxTuple | None) -> float:
    return box[2] * box[3] if box is not None else 0.0


def _contains(box: BoxTuple, x: float, y: float) -> bool:
    return box[0] <= x < box[0] + box[2] and box[1] <= y < box[1] + box[3]


def _front_window(tree: StepTree, x: float, y: float) -> int | None:
    """Position of the front window at a point; None with a single window, or when not known.

    UI Automation and macOS list windows from front to back, so it is the first. The order of AT-SPI
    has no meaning, so it is the window with the focus. A document without an area claims the focus
    whether its window is in front or not.
    """
    windows = windows_at(tree, x, y)
    if len(windows) < 2:
        return None
    if all(_raw_role(tree, position) == "window" for position in windows):
        return windows[0]
    focused = (
        node
        for node, states in enumerate(tree.states)
        if "focused" in states and _area(tree.box(node)) > 0
    )
    focused_windows = {window_of(tree, node) for node in focused}
    claiming = [position for position in windows if position in focused_windows]
    return claiming[0] if len(claiming) == 1 else None


def windows_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the outermost visible windows under a point in event space."""
    return [
        position
        for position in _positions_at(tree, x, y)
        if tree.role_at(position) in WINDOWS
        and "hidden" not in tree.states_at(position)
        and window_of(tree, position) == position
    ]


def window_of(tree: StepTree, position: int) -> int | None:
    """Position of the outermost window around a node, itself included."""
    path = (position, *_ancestors(tree, position))
    return next((node for node in reversed(path) if tree.role_at(node) in WINDOWS), None)


def _raw_role(tree: StepTree, position: int) -> str:
    return normalised(tree.raws[position].role or "")


def focused_node(tree: StepTree) -> Element | None:
    """The element with the keyboard focus, when the scan has it; never a window."""
    focused = tree.focused
    if focused is None or tree.role_at(focused) in _CONTAINERS:
        return None
    return tree.element(focused)


def text_node_at(tree: StepTree, x: float, y: float) -> Element | None:
    """The text element under a point: the hit node, or its nearest ancestor that is one."""
    hit = node_at(tree, x, y)
    if hit is None:
        return None
    path = (hit.position, *_ancestors(tree, hit.position))
    return next((tree.element(node) for node in path if tree.role_at(node) in _TEXT_ROLES), None)


def agrees_with_cursor(tree: StepTree) -> bool | None:
    """Whether our hit test at the recorder's pointer agrees with the recorder's own.

    The two elements agree when one contains the other: recorders often return a node a level or two
    above the smallest. None when the recorder made no hit test, or found nothing.
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
    return _encloses(theirs, hit.box) or _encloses(hit.box, theirs)


def _encloses(outer: BoxTuple, inner: BoxTuple) -> bool:
    """Whether `inner` is inside `outer`, apart from rounding."""
    return (
        outer[0] - ROUNDING_PX <= inner[0]
        and outer[1] - ROUNDING_PX <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2] + ROUNDING_PX
        and inner[1] + inner[3] <= outer[1] + outer[3] + ROUNDING_PX
    )


def _ancestors(tree: StepTree, position: int) -> Iterator[int]:
    position = tree.parents[position]
    while position >= 0:
        yield position
        position = tree.parents[position]


def _is_whole_window(tree: StepTree, position: int) -> bool:
    if tree.role_at(position) not in {"panel", "unknown"}:
        return False
    area = _area(tree.box(position))
    if area >= WHOLE_WINDOW_SHARE * tree.screen[0] * tree.screen[1]:
        return True
    windows = (node for node in _ancestors(tree, position) if tree.role_at(node) == "window")
    window = next((box for node in windows if (box := tree.box(node)) is not None), None)
    return window is not None and 0 < _area(window) * WHOLE_WINDOW_SHARE <= area


def _is_clipped(tree: StepTree, position: int, x: float, y: float) -> bool:
    """Whether the node is scrolled out of sight: its box continues beyond the pane around it."""
    return any(
        (box := tree.box(node)) is not None
        and _area(box) > 0
        and not _contains(box, x, y)
        and _raw_role(tree, node) in _CLIPPING
        for node in _ancestors(tree, position)
    )
