"""The target: which element an action was meant for.

Belongs here: the hit test for a point and the focused element for keys (formats note 2).
"""

from collections.abc import Iterator

import numpy as np

from demo_pipeline.observation.trees.roles import normalised
from demo_pipeline.observation.trees.step_tree import BoxTuple, Element, StepTree

_CONTAINERS = frozenset({"desktop", "window"})
_WINDOWS = frozenset({"window", "dialog"})
_CLIPPING = frozenset(
    {"scrollpane", "viewport", "document", "documentweb", "documentframe", "scrollarea"}
)
_TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
_WHOLE = 0.97  # a panel this much of its window, or of the screen, is no element of its own


def node_at(tree: StepTree, x: float, y: float) -> Element | None:
    """The smallest visible node under an event-space point; the last of equals in the document.

    Windows, the desktop, and containers as large as their window or the screen are no targets, nor
    is what another window covers.
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
    if front is not None:  # an empty overlay covers nothing
        under = [at for at in under if _window_of(tree, at) in {None, front}] or under
    return tree.element(min(under, key=lambda at: (_area(tree.box(at)), -at)))


def _positions_at(tree: StepTree, x: float, y: float) -> list[int]:
    """Positions of the nodes whose box holds a point; none without an area does."""
    left, top, width, height = tree.places.T
    inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height)
    found: list[int] = np.flatnonzero(inside).tolist()
    return found


def _area(box: BoxTuple | None) -> float:
    return box[2] * box[3] if box is not None else 0.0


def _contains(box: BoxTuple, x: float, y: float) -> bool:
    return box[0] <= x < box[0] + box[2] and box[1] <= y < box[1] + box[3]


def _front_window(tree: StepTree, x: float, y: float) -> int | None:
    """Position of the outermost window that lies in front at a point; None: one, or not known.

    Of several, UI Automation's and macOS's first, since both list windows from front to back.
    AT-SPI's order says nothing: there it is the one that has the focus.
    """
    there = [
        position
        for position in _positions_at(tree, x, y)
        if tree.role_at(position) in _WINDOWS
        and "hidden" not in tree.states_at(position)
        and _window_of(tree, position) == position
    ]
    if len(there) < 2:
        return None
    if all(_raw_role(tree, position) == "window" for position in there):
        return there[0]
    holders = {_window_of(tree, at) for at, words in enumerate(tree.states) if "focused" in words}
    return next((position for position in there if position in holders), None)


def _window_of(tree: StepTree, position: int) -> int | None:
    """Position of the outermost window around a node, itself included."""
    around = (position, *_ancestors(tree, position))
    return next((at for at in reversed(around) if tree.role_at(at) in _WINDOWS), None)


def _raw_role(tree: StepTree, position: int) -> str:
    return normalised(tree.raws[position].role or "")


def focused_node(tree: StepTree) -> Element | None:
    """The element that had the keyboard, where the scan knows it; never a window."""
    at = tree.focused
    return None if at is None or tree.role_at(at) in _CONTAINERS else tree.element(at)


def text_node_at(tree: StepTree, x: float, y: float) -> Element | None:
    """The text element under the last click, for scans that do not know the focus."""
    found = node_at(tree, x, y)
    if found is None:
        return None
    around = (found.position, *_ancestors(tree, found.position))
    return next((tree.element(at) for at in around if tree.role_at(at) in _TEXT_ROLES), None)


def agrees_with_cursor(tree: StepTree) -> bool | None:
    """Whether our hit test at the recorder's pointer finds what the recorder found there.

    The recorder's element and ours agree when one lies in the other: its hit tests often end a
    level or two above the smallest node. None where the recorder did not ask, or found nothing.
    """
    cursor = tree.cursor
    if cursor is None or cursor.position is None or cursor.element is None:
        return None
    told = cursor.element.place
    if not _contains(told, cursor.position.x, cursor.position.y):
        return None
    found = node_at(tree, cursor.position.x, cursor.position.y)
    if found is None or found.box is None:
        return False
    return _holds(told, found.box) or _holds(found.box, told)


def _holds(outer: BoxTuple, inner: BoxTuple) -> bool:
    """Whether one box lies in the other, a pixel of rounding allowed."""
    return (
        outer[0] - 1 <= inner[0]
        and outer[1] - 1 <= inner[1]
        and inner[0] + inner[2] <= outer[0] + outer[2] + 1
        and inner[1] + inner[3] <= outer[1] + outer[3] + 1
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
    if area >= _WHOLE * tree.screen[0] * tree.screen[1]:
        return True
    windows = (at for at in _ancestors(tree, position) if tree.role_at(at) == "window")
    window = next((box for at in windows if (box := tree.box(at)) is not None), None)
    return window is not None and 0 < _area(window) * _WHOLE <= area


def _is_clipped(tree: StepTree, position: int, x: float, y: float) -> bool:
    """Scrolled out of sight: a page's nodes keep their boxes beyond the edge of its pane."""
    return any(
        (box := tree.box(at)) is not None
        and _area(box) > 0
        and not _contains(box, x, y)
        and _raw_role(tree, at) in _CLIPPING
        for at in _ancestors(tree, position)
    )
