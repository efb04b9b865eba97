"""Finds the elements of a document, such as a web page, in the order of the Tab key."""

from collections.abc import Sequence

from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.hit_test import (
    TEXT_ROLES,
    ancestors,
    can_have_focus,
    positions_of,
    raw_role,
)
from demo_pipeline.observation.trees.step_tree import StepTree

# Roles of elements that can get the focus by Tab or by a click.
HOLDS_FOCUS = frozenset(
    {
        "textfield",
        "textarea",
        "combobox",
        "checkbox",
        "radiobutton",
        "slider",
        "button",
        "link",
        "listbox",
        "tab",
        "tablecell",
        "icon",
    }
)
# Roles of elements that are reached with the arrow keys, but not with Tab.
CHOICES = frozenset({"menuitem", "listitem", "treeitem"})
_CONTAINERS = frozenset({"window", "dialog"})
TabStop = tuple[PixelBox, ...]
"""A stop of the Tab key: the box of a single element, or the boxes of a group of radio buttons."""


def stop_after(tree: StepTree, stop: TabStop, presses: int) -> TabStop:
    """Returns the Tab stop that has the focus after some presses of Tab; empty if it is unknown.

    Outside documents, and beyond the ends of a document, the stop is unknown. `presses` is negative
    for Shift+Tab.
    """
    stops = _stops_of_page(tree, stop)
    for number, candidate in enumerate(stops):
        if set(candidate) & set(stop):
            number_after = number + presses
            return stops[number_after] if 0 <= number_after < len(stops) else ()
    return ()


def _stops_of_page(tree: StepTree, stop: TabStop) -> Sequence[TabStop]:
    """Returns all Tab stops of the document that contains `stop`, in order; may be empty."""
    page = _page_with(tree, stop)
    if page is None:
        return []
    focusable: list[int] = []
    with_focusable_parts: set[int] = set()
    for node, role in enumerate(tree.roles):
        around = list(ancestors(tree, node))
        if page in around and role not in CHOICES and can_have_focus(tree, node):
            focusable.append(node)
            with_focusable_parts.update(around)
    stops: list[TabStop] = []
    follows_radio_button = False
    for node in focusable:
        role = tree.roles[node]
        box = tree.box(node)
        # The Tab key reaches the parts of a date field, but not the field itself.
        is_date = role in TEXT_ROLES and node in with_focusable_parts
        if box is None or is_date or role in _CONTAINERS:
            continue
        is_radio_button = role == "radiobutton"
        if is_radio_button and follows_radio_button:
            stops[-1] = (*stops[-1], box)
        else:
            stops.append((box,))
        follows_radio_button = is_radio_button
    return stops


def _page_with(tree: StepTree, stop: TabStop) -> int | None:
    """Returns the tree position of the innermost document around a Tab stop, or None."""
    for box in stop:
        for node in positions_of(tree, box):
            for outer in ancestors(tree, node):
                role = raw_role(tree, outer)
                if role.startswith("document") or role == "webarea":
                    return outer
    return None
