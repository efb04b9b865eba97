"""The target: which element an action was meant for.

Belongs here: the hit test for a point and the focused element for keys (formats note 2).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from demo_pipeline.observation.approach import Box
from demo_pipeline.observation.roles import normalised
from demo_pipeline.observation.tree import MappedNode, StepTree, focused_position

_CONTAINERS = frozenset({"desktop", "window"})
_WINDOWS = frozenset({"window", "dialog"})
_CLIPPING = frozenset(
    {"scrollpane", "viewport", "document", "documentweb", "documentframe", "scrollarea"}
)
_TEXT_ROLES = frozenset({"textfield", "textarea", "combobox"})
_WHOLE = 0.97  # a panel this much of its window, or of the screen, is no element of its own


def node_at(tree: StepTree, x: float, y: float) -> MappedNode | None:
    """The smallest visible node under an event-space point; the last of equals in the document.

    Windows, the desktop, and containers as large as their window or the screen are no targets, nor
    is what another window covers.
    """
    under = [
        position
        for position, mapped in enumerate(tree.nodes)
        if _may_be_target(mapped, x, y)
        and not _is_whole_window(tree, mapped)
        and not _is_clipped(tree, mapped, x, y)
    ]
    front = _front_window(tree, x, y)
    if front is not None:  # an empty overlay covers nothing
        under = [at for at in under if _window_of(tree, at) in {None, front}] or under
    return tree.nodes[min(under, key=lambda at: (_area(tree.nodes[at]), -at))] if under else None


def _may_be_target(mapped: MappedNode, x: float, y: float) -> bool:
    if mapped.box is None or not _contains(mapped.box, x, y) or _area(mapped) <= 0:
        return False
    return mapped.node["role"] not in _CONTAINERS and "hidden" not in mapped.node["states"]


def _area(mapped: MappedNode) -> float:
    return mapped.box[2] * mapped.box[3] if mapped.box is not None else 0.0


def _front_window(tree: StepTree, x: float, y: float) -> int | None:
    """Position of the outermost window that lies in front at a point; None: one, or not known.

    Of several, UI Automation's and macOS's first, since both list windows from front to back.
    AT-SPI's order says nothing: there it is the one that has the focus.
    """
    there = [
        position
        for position, mapped in enumerate(tree.nodes)
        if mapped.node["role"] in _WINDOWS
        and mapped.box is not None
        and _contains(mapped.box, x, y)
        and "hidden" not in mapped.node["states"]
        and _window_of(tree, position) == position
    ]
    if len(there) < 2:
        return None
    if all(_raw_role(tree.nodes[position]) == "window" for position in there):
        return there[0]
    nodes = enumerate(tree.nodes)
    holders = {_window_of(tree, at) for at, one in nodes if "focused" in one.node["states"]}
    return next((position for position in there if position in holders), None)


def _window_of(tree: StepTree, position: int) -> int | None:
    """Position of the outermost window around a node, itself included."""
    found = None
    while position >= 0:
        if tree.nodes[position].node["role"] in _WINDOWS:
            found = position
        position = tree.nodes[position].parent
    return found


def _raw_role(mapped: MappedNode) -> str:
    return normalised(str(mapped.raw.get("role") or ""))


def focused_node(tree: StepTree, data: Mapping[str, Any] | None) -> MappedNode | None:
    """The element that had the keyboard, where the scan knows it; never a window."""
    position = focused_position(tree, data)
    if position is None:
        return None
    mapped = tree.nodes[position]
    return None if mapped.node["role"] in _CONTAINERS else mapped


def text_node_at(tree: StepTree, x: float, y: float) -> MappedNode | None:
    """The text element under the last click, for scans that do not know the focus."""
    found = node_at(tree, x, y)
    if found is None:
        return None
    for mapped in (found, *_ancestors(tree, found)):
        if mapped.node["role"] in _TEXT_ROLES:
            return mapped
    return None


def event_box(mapped: MappedNode) -> Box | None:
    """A node's box in event space."""
    return Box(*mapped.box) if mapped.box is not None else None


def _contains(box: tuple[float, float, float, float], x: float, y: float) -> bool:
    return box[0] <= x < box[0] + box[2] and box[1] <= y < box[1] + box[3]


def _ancestors(tree: StepTree, mapped: MappedNode) -> Iterator[MappedNode]:
    position = mapped.parent
    while position >= 0:
        yield tree.nodes[position]
        position = tree.nodes[position].parent


def _is_whole_window(tree: StepTree, mapped: MappedNode) -> bool:
    if mapped.box is None or mapped.node["role"] not in {"panel", "unknown"}:
        return False
    if mapped.box[2] * mapped.box[3] >= _WHOLE * tree.screen[0] * tree.screen[1]:
        return True
    for ancestor in _ancestors(tree, mapped):
        if ancestor.node["role"] == "window" and ancestor.box is not None:
            window = ancestor.box[2] * ancestor.box[3]
            return window > 0 and mapped.box[2] * mapped.box[3] >= _WHOLE * window
    return False


def _is_clipped(tree: StepTree, mapped: MappedNode, x: float, y: float) -> bool:
    """Scrolled out of sight: a page's nodes keep their boxes beyond the edge of its pane."""
    for ancestor in _ancestors(tree, mapped):
        box = ancestor.box
        if box is None or box[2] * box[3] <= 0 or _contains(box, x, y):
            continue
        if _raw_role(ancestor) in _CLIPPING:
            return True
    return False
