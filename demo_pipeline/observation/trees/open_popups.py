"""Finds the menus, dialogs and lists of choices that are open in a tree."""

from collections.abc import Sequence

import numpy as np

from demo_pipeline.observation.frames.pointer_path import PixelBox
from demo_pipeline.observation.trees.hit_test import ancestors
from demo_pipeline.observation.trees.step_tree import StepTree
from demo_pipeline.observation.trees.tab_order import CHOICES
from demo_pipeline.observation.trees.text_places import overlap


def open_popups(tree: StepTree) -> Sequence[int]:
    """Returns the positions of visible dialogs, and of menus with visible items.

    The positions are in document order.
    """
    popups: set[int] = set()
    for node in np.flatnonzero(tree.boxes[:, 2] * tree.boxes[:, 3] > 0).tolist():
        if "hidden" in tree.states_at(node):
            continue
        role = tree.roles[node]
        parent = tree.parents[node]
        if role == "dialog":
            popups.add(node)
        elif role == "menuitem" and parent >= 0 and tree.roles[parent] == "menu":
            popups.add(parent)
    return sorted(popups)


def open_menus(tree: StepTree) -> Sequence[int]:
    """Returns the positions of menus with visible items, the innermost submenu last."""
    return [node for node in open_popups(tree) if tree.roles[node] == "menu"]


def open_dialogs(tree: StepTree) -> Sequence[int]:
    """Returns the positions of visible dialogs in document order."""
    return [node for node in open_popups(tree) if tree.roles[node] == "dialog"]


def choices_of_menu(tree: StepTree, menu: int) -> Sequence[int]:
    """Returns the positions of a menu's visible items, and of the titles of its submenus."""
    return [
        node
        for node, parent in enumerate(tree.parents)
        if parent == menu and tree.roles[node] in CHOICES | {"menu"} and is_on_screen(tree, node)
    ]


def choices_of_open_lists(tree: StepTree) -> dict[int, PixelBox]:
    """Maps the position of each choice in an open list to the box of its combo box.

    A list is open if it has visible choices outside of its combo box.
    """
    choices: dict[int, PixelBox] = {}
    for node, role in enumerate(tree.roles):
        if role in CHOICES and is_on_screen(tree, node):
            combo_box = _combo_box_of(tree, node)
            if combo_box is not None:
                choices[node] = combo_box
    return choices


def _combo_box_of(tree: StepTree, choice: int) -> PixelBox | None:
    """Returns the box of a choice's combo box.

    Returns None if there is no combo box, or if its box overlaps the choice.
    """
    inner = tree.box(choice)
    for node in ancestors(tree, choice):
        box = tree.box(node)
        if tree.roles[node] == "combobox" and box and inner and not overlap(inner, box):
            return box
    return None


def is_on_screen(tree: StepTree, node: int) -> bool:
    """Returns whether a node has an area and is not hidden."""
    box = tree.box(node)
    return box is not None and box.area > 0 and "hidden" not in tree.states_at(node)
