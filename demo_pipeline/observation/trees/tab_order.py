"""What Tab reaches, in order, in a page of a tree."""

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
        *("textfield", "textarea", "combobox", "checkbox", "radiobutton", "slider"),
        *("button", "link", "listbox", "tab", "tablecell", "icon"),
    }
)
CHOICES = frozenset({"menuitem", "listitem", "treeitem"})  # arrows go through them
_HOLDERS = frozenset({"window", "dialog"})
Stop = tuple[PixelBox, ...]
"""The boxes of what one press of Tab reaches: an element, or the radio buttons of a group."""


def stop_after(tree: StepTree, stop: Stop, presses: int) -> Stop:
    """The stop so many presses of Tab after another one; negative: before it; empty: not known.

    Tab goes through a page in the order of the document. Beyond its ends, and outside of pages,
    nothing tells where it goes.
    """
    stops = _stops(tree, stop)
    at = next((number for number, one in enumerate(stops) if set(one) & set(stop)), None)
    if at is None or not 0 <= at + presses < len(stops):
        return ()
    return stops[at + presses]


def _stops(tree: StepTree, stop: Stop) -> Sequence[Stop]:
    """All stops of the page that holds one."""
    pages = (_page_of(tree, node) for box in stop for node in positions_of(tree, box))
    page = next((page for page in pages if page is not None), None)
    if page is None:
        return []
    stops: list[Stop] = []
    last_is_radio = False
    inside = [node for node in range(len(tree)) if page in ancestors(tree, node)]
    able = [n for n in inside if tree.roles[n] not in CHOICES and can_have_focus(tree, n)]
    around = {outer for node in able for outer in ancestors(tree, node)}
    for node in able:
        role = tree.roles[node]
        box = tree.box(node)
        is_date = role in TEXT_ROLES and node in around  # its parts are stops, it is none
        if box is None or is_date or role in _HOLDERS:
            continue
        is_radio = role == "radiobutton"
        if is_radio and last_is_radio:
            stops[-1] = (*stops[-1], box)
        else:
            stops.append((box,))
        last_is_radio = is_radio
    return stops


def _page_of(tree: StepTree, position: int) -> int | None:
    pages = (
        node
        for node in ancestors(tree, position)
        if (role := raw_role(tree, node)).startswith("document") or role == "webarea"
    )
    return next(pages, None)
