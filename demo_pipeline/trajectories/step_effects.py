"""Finds the effects of steps: whether and where the screen changed, and which step was undone.

Each screenshot is compared with the next one, except for the area under the pointer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.observation.frames.screenshot_files import CELL, ScreenshotFacts
from demo_pipeline.trajectories.steps import Step

# Largest difference in brightness (0 to 255) between cells that count as equal. The noise of x264
# at the recorders' quality is smaller.
CHANGED_GREY = 8
# Box of an arrow or hand pointer: left, top, right and bottom, in pixels from its hot spot.
_POINTER = (-10, -6, 24, 34)
# Number of cells by which changed areas are widened on each side. Areas that then touch are joined.
PART_GAP = 3
_UNDO = ({"ctrl", "z"}, {"command", "z"})
_EDITING_KEYS = frozenset({"enter", "delete", "backspace", "tab", "space"})
_MENU_KEYS = frozenset({"left", "right", "up", "down"})
CHANGE_COLUMNS = ("changed_x", "changed_y", "changed_width", "changed_height")

Place = tuple[float, float]
_Cells = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class ShownScreen:
    """The facts about a screenshot that comparisons need.

    Attributes:
        facts: the brightness of its cells.
        pointers: positions where the pointer may be, in canvas pixels. Empty if unknown.
        scale: size of the pointer on the canvas, relative to the usual size.
    """

    facts: ScreenshotFacts
    pointers: Sequence[Place] = ()
    scale: float = 1.0

    def covered(self) -> _Cells:
        """Returns the cells that the pointer may cover."""
        cells = np.zeros(self.facts.cells.shape, bool)
        from_left, from_top, to_right, to_bottom = _POINTER
        for x, y in self.pointers:
            left = int((x + self.scale * from_left) // CELL)
            top = int((y + self.scale * from_top) // CELL)
            right = int((x + self.scale * to_right) // CELL)
            bottom = int((y + self.scale * to_bottom) // CELL)
            cells[max(0, top) : max(0, bottom + 1), max(0, left) : max(0, right + 1)] = True
        return cells


def change_between(
    before: ShownScreen | None,
    after: ShownScreen | None,
    earlier: ShownScreen | None = None,
    later: ShownScreen | None = None,
) -> dict[str, Any]:
    """Returns the columns `screen_changed` and `CHANGE_COLUMNS` of a step.

    `screen_changed` is True if a visible cell changed. It is False if no visible cell changed and
    `earlier` and `later` show that the cells under the pointer did not change either. In all other
    cases it is None.

    Args:
        before: the screenshot of the step; None if it is missing.
        after: the next screenshot; None if it is missing or cannot be compared.
        earlier: the screenshot before `before`, or None.
        later: the screenshot after `after`, or None.
    """
    unknown = {"screen_changed": None, **dict.fromkeys(CHANGE_COLUMNS)}
    if before is None or after is None or before.facts.missing or after.facts.missing:
        return unknown
    changed = _differ(before, after)
    under_first = before.covered()
    under_second = after.covered()
    visible = (changed & ~under_first & ~under_second).astype(np.uint8)
    if not visible.any():
        is_same_under_first = _shows_no_change(earlier, after, changed & under_first)
        is_same_under_second = _shows_no_change(before, later, changed & under_second)
        if is_same_under_first and is_same_under_second:
            return {**unknown, "screen_changed": False}
        return unknown
    widened = cv2.dilate(visible, np.ones((2 * PART_GAP + 1, 2 * PART_GAP + 1), np.uint8))
    labels = cv2.connectedComponents(widened)[1] * visible
    largest = int(np.bincount(labels.ravel())[1:].argmax()) + 1
    box = cv2.boundingRect((labels == largest).astype(np.uint8))
    return {
        "screen_changed": True,
        **{name: side * CELL for name, side in zip(CHANGE_COLUMNS, box, strict=True)},
    }


def _differ(before: ShownScreen, after: ShownScreen) -> _Cells:
    """Returns the cells that differ by more than noise."""
    return np.asarray(cv2.absdiff(before.facts.cells, after.facts.cells) > CHANGED_GREY)


def _shows_no_change(before: ShownScreen | None, after: ShownScreen | None, cells: _Cells) -> bool:
    """Returns whether cells are certainly equal in two screenshots.

    Cells under the pointer, and cells of a missing screenshot, are not certain.
    """
    if not cells.any():
        return True
    if before is None or after is None or before.facts.missing or after.facts.missing:
        return False
    unproven = before.covered() | after.covered() | _differ(before, after)
    return not (cells & unproven).any()


def steps_taken_back(steps: Sequence[Step]) -> Mapping[int, int]:
    """Returns a dictionary from the index of each undone step to the index of the undoing step.

    Waits are ignored. Ctrl+Z or Command+Z undoes the previous step if that step is an edit. Escape
    undoes the opening of a menu if only arrow keys were pressed in between.
    """
    taken_back: dict[int, int] = {}
    acted: list[Step] = []
    for step in steps:
        if step.written.action_type is ActionType.WAIT:
            continue
        keys = set(step.action.keys)
        before = acted[-1] if acted else None
        if keys in _UNDO and before is not None and _edits(before.action):
            taken_back[before.written.step_index] = step.written.step_index
        if keys == {"esc"}:
            outside_menu = (other for other in reversed(acted) if not _is_in_menu(other.action))
            opening = next(outside_menu, None)
            if opening is not None and _opens_menu(opening):
                taken_back[opening.written.step_index] = step.written.step_index
        acted.append(step)
    return taken_back


def _edits(action: Action) -> bool:
    """Returns whether an action changes a text: typing, pasting, cutting, or an editing key."""
    keys = set(action.keys)
    if action.action_type == "type":
        return True
    pastes_or_cuts = len(keys) == 2 and bool(keys & {"ctrl", "command"} and keys & {"v", "x"})
    return bool(keys) and (pastes_or_cuts or keys <= _EDITING_KEYS)


def _is_in_menu(action: Action) -> bool:
    return bool(action.keys) and set(action.keys) <= _MENU_KEYS


def _opens_menu(step: Step) -> bool:
    target = step.written.target_element
    return step.action.action_type == "right_click" or (
        target is not None and target.role == "menu" and step.action.action_type == "click"
    )
