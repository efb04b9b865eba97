"""Compares the places where the screen changed during typing with the elements of a tree.

All places are (left, top, width, height) in video pixels.
"""

from collections.abc import Sequence

from demo_pipeline.observation.frames.changes import ChangedBox
from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.hit_test import TEXT_ROLES, ancestors, can_have_focus
from demo_pipeline.observation.trees.step_tree import Element, StepTree
from demo_pipeline.observation.trees.tree_agreement import FOCUS_RIM_PX

# Roles of elements that never show typed text.
_NO_FIELDS = frozenset(
    {"label", "link", "button", "checkbox", "radiobutton", "listitem", "image", "tab"}
)


def overlap(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    """Returns whether a place and a box overlap."""
    left, top, width, height = place
    overlaps_across = left < box.right and box.x < left + width
    return overlaps_across and top < box.bottom and box.y < top + height


def is_within(place: tuple[float, float, float, float], box: PixelBox) -> bool:
    """Returns whether a place lies inside a box, including the focus ring around the box."""
    left, top, width, height = place
    return (
        box.x - FOCUS_RIM_PX <= left
        and left + width <= box.right + FOCUS_RIM_PX
        and box.y - FOCUS_RIM_PX <= top
        and top + height <= box.bottom + FOCUS_RIM_PX
    )


def reaches_any(tree: StepTree, element: Element, places: Sequence[ChangedBox]) -> bool:
    """Returns whether any of the places overlaps an element."""
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
    """Returns the places in which typed text may have appeared.

    Places inside elements that take no text, such as a button that became enabled, are left out.
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
    """Returns two sets of tree positions: the ancestors of text fields, and the innermost fields.

    Table cells that can have the focus and contain no text field count as innermost fields.
    """
    fields = {node for node, role in enumerate(tree.roles) if role in TEXT_ROLES}
    around_fields: set[int] = set()
    for node in fields:
        around_fields.update(ancestors(tree, node))
    for node, role in enumerate(tree.roles):
        if role == "tablecell" and can_have_focus(tree, node):
            fields.add(node)
    return around_fields, fields - around_fields


def field_with(tree: StepTree, places: Sequence[ChangedBox]) -> Element | None:
    """Returns the only text field or table cell that contains the places.

    Returns None if a place is outside all fields, or if several fields contain places.
    """
    boxes: dict[int, PixelBox] = {}
    for node in range(len(tree)):
        box = tree.box(node)
        if box is not None and "hidden" not in tree.states_at(node):
            boxes[node] = tree.canvas.box_to_video(box)
    _, fields = text_fields(tree)
    written: set[int] = set()
    for place in places:
        holders = [node for node, box in boxes.items() if is_within(place, box)]
        # The smallest window, or the first of several equally small ones, is assumed to be in
        # front.
        windows = [node for node in holders if node in tree.windows]
        front = min(windows, key=lambda node: boxes[node].area, default=None)
        fields_here: set[int] = set()
        for node in fields.intersection(holders):
            if tree.windows_around[node] == front:
                fields_here.add(node)
        if not fields_here:
            return None
        written |= fields_here
    if len(written) != 1:
        return None
    (field,) = written
    return tree.element(field)
