"""Relates the places where the screen changed during typing to the elements of a tree.

All places are in video pixels.
"""

from collections.abc import Sequence

from demo_pipeline.observation.frames.changes import ChangedBox
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.hit_test import TEXT_ROLES, ancestors, can_have_focus
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.observation.trees.tree_agreement import FOCUS_RIM_PX

_NO_FIELDS = frozenset(
    {"label", "link", "button", "checkbox", "radiobutton", "listitem", "image", "tab"}
)


def overlap(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    """Returns whether a place reaches into a box."""
    left, top, width, height = place
    overlaps_across = left < box.right and box.x < left + width
    return overlaps_across and top < box.bottom and box.y < top + height


def is_within(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    """Returns whether a place lies in a box or on its focus ring."""
    left, top, width, height = place
    return (
        box.x - FOCUS_RIM_PX <= left
        and left + width <= box.right + FOCUS_RIM_PX
        and box.y - FOCUS_RIM_PX <= top
        and top + height <= box.bottom + FOCUS_RIM_PX
    )


def reaches_any(tree: StepTree, element: Element, places: Sequence[ChangedBox]) -> bool:
    """Returns whether any of the places reaches into an element."""
    if element.box is None:
        return False
    box = tree.canvas.box_to_video(element.box)
    return any(overlap(place, box) for place in places)


def contains_any(tree: StepTree, element: Element, places: Sequence[ChangedBox]) -> bool:
    """Returns whether any of the places lies entirely in an element."""
    if element.box is None:
        return False
    box = tree.canvas.box_to_video(element.box)
    return any(is_within(place, box) for place in places)


def places_of_text(tree: StepTree, places: Sequence[ChangedBox]) -> Sequence[ChangedBox]:
    """Returns the places in which the typed text may have appeared.

    Changes of elements that take no text are left out. Examples are a button that became enabled
    and a status line that now says "not saved".
    """
    if not places:
        return ()
    around_fields, fields = text_fields(tree)
    other_boxes: list[PixelBox] = []
    for node, role in enumerate(tree.roles):
        if role not in _NO_FIELDS or not tree.raws[node].name or node in around_fields:
            continue
        if "hidden" in tree.states_at(node) or fields.intersection(ancestors(tree, node)):
            continue
        box = tree.box(node)
        if box is not None:
            other_boxes.append(tree.canvas.box_to_video(box))
    return [place for place in places if not any(is_within(place, box) for box in other_boxes)]


def text_fields(tree: StepTree) -> tuple[set[int], set[int]]:
    """Returns the nodes around text fields, and the text fields with the editable cells."""
    fields = {node for node, role in enumerate(tree.roles) if role in TEXT_ROLES}
    around_fields: set[int] = set()
    for node in fields:
        around_fields.update(ancestors(tree, node))
    for node, role in enumerate(tree.roles):
        if role == "tablecell" and can_have_focus(tree, node):
            fields.add(node)
    return around_fields, fields - around_fields


def field_with(tree: StepTree, places: Sequence[ChangedBox]) -> Element | None:
    """Returns the only text field or editable cell that contains all of the places.

    None: a place lies elsewhere or in several fields, as when a formula bar repeats the text that
    is typed into a cell.
    """
    boxes: dict[int, PixelBox] = {}
    for node in range(len(tree)):
        box = tree.box(node)
        if box is not None and "hidden" not in tree.states_at(node):
            boxes[node] = tree.canvas.box_to_video(box)
    _, fields = text_fields(tree)
    written: set[int] = set()
    for place in places:
        holders = {node for node, box in boxes.items() if is_within(place, box)}
        windows = [node for node in holders if node in tree.windows]
        # min takes the first of equal areas, so the windows have to be in document order.
        front = min(sorted(windows), key=lambda node: boxes[node].area, default=None)
        fields_here = {node for node in fields & holders if tree.windows_around[node] == front}
        if not fields_here:
            return None
        written |= fields_here
    if len(written) != 1:
        return None
    (field,) = written
    return tree.element(field)
