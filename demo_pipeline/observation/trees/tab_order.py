"""Finds the elements that the Tab key reaches in a page of a tree, in order."""

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
CHOICES = frozenset({"menuitem", "listitem", "treeitem"})  # arrow keys move between them
_CONTAINERS = frozenset({"window", "dialog"})
TabStop = tuple[PixelBox, ...]
"""The boxes that one press of Tab may reach: one element, or all radio buttons of a group."""


def stop_after(tree: StepTree, stop: TabStop, presses: int) -> TabStop:
    """Returns the stop that follows another stop after some presses of Tab.

    Tab follows the order of the document within a page. It is unknown where Tab leads outside of
    pages and beyond the ends of a page.

    Args:
        tree: of the current scan.
        stop: where the focus is.
        presses: of Tab; a negative number stands for presses of Shift+Tab.

    Returns:
        The stop; empty: it is not known.
    """
    stops = _stops_of_page(tree, stop)
    for number, candidate in enumerate(stops):
        if set(candidate) & set(stop):
            number_after = number + presses
            return stops[number_after] if 0 <= number_after < len(stops) else ()
    return ()


def _stops_of_page(tree: StepTree, stop: TabStop) -> Sequence[TabStop]:
    """Returns all stops of the page that contains a stop."""
    page = _page_with(tree, stop)
    if page is None:
        return []
    inside = [node for node in range(len(tree)) if page in ancestors(tree, node)]
    focusable = [
        node for node in inside if tree.roles[node] not in CHOICES and can_have_focus(tree, node)
    ]
    with_focusable_parts: set[int] = set()
    for node in focusable:
        with_focusable_parts.update(ancestors(tree, node))
    stops: list[TabStop] = []
    follows_radio_button = False
    for node in focusable:
        role = tree.roles[node]
        box = tree.box(node)
        # Tab stops at the parts of a date field, but not at the field.
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
    """Returns the position of the innermost page around any of the elements of a stop."""
    for box in stop:
        for node in positions_of(tree, box):
            for outer in ancestors(tree, node):
                role = raw_role(tree, outer)
                if role.startswith("document") or role == "webarea":
                    return outer
    return None
