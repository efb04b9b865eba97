"""What became of a step: whether the screen changed after it, and where; which step took it back.

Belongs here: comparing each screenshot with the next one, without the pointer's own picture, and
the keys that undo. What cannot be known without a model (whether the change was meant) is not said.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.observation.frames.picture_files import CELL, PictureFacts
from demo_pipeline.trajectories.steps import Step

CHANGED_GREY = 8  # of 255, of a cell: above the noise of x264 at the recorders' quality
POINTER_BEFORE, POINTER_AFTER = 24, 48  # canvas pixels around the hot spot that its picture covers
PART_GAP = 3  # cells between lines of one change; a clock elsewhere is another one
_UNDO = ({"ctrl", "z"}, {"command", "z"})
_EDITING = frozenset({"enter", "delete", "backspace", "tab", "space"})
_IN_MENUS = frozenset({"left", "right", "up", "down"})
CHANGE_COLUMNS = ("changed_x", "changed_y", "changed_width", "changed_height")

Place = tuple[float, float]


def change_between(
    before: PictureFacts | None, after: PictureFacts | None, pointers: Sequence[Place]
) -> dict[str, Any]:
    """The columns `screen_changed` and `CHANGE_COLUMNS` of a step.

    Args:
        before: its screenshot.
        after: the next one; None: not known.
        pointers: where the pointer is in either, canvas pixels.
    """
    none = {"screen_changed": None, **dict.fromkeys(CHANGE_COLUMNS)}
    if before is None or after is None or before.missing or after.missing:
        return none
    changed = (cv2.absdiff(before.cells, after.cells) > CHANGED_GREY).astype(np.uint8)
    for x, y in pointers:
        left, top = (max(0, int(side - POINTER_BEFORE) // CELL) for side in (x, y))
        right, bottom = (max(0, int(side + POINTER_AFTER) // CELL + 1) for side in (x, y))
        changed[top:bottom, left:right] = 0
    if not changed.any():
        return {**none, "screen_changed": False}
    widened = cv2.dilate(changed, np.ones((2 * PART_GAP + 1, 2 * PART_GAP + 1), np.uint8))
    labels = cv2.connectedComponents(widened)[1] * changed
    largest = int(np.bincount(labels.ravel())[1:].argmax()) + 1
    box = cv2.boundingRect((labels == largest).astype(np.uint8))
    return {
        "screen_changed": True,
        **{name: side * CELL for name, side in zip(CHANGE_COLUMNS, box, strict=True)},
    }


def steps_taken_back(steps: Sequence[Step]) -> Mapping[int, int]:
    """Step → the later step that takes it back, where the keys say so.

    That is Ctrl+Z directly after an edit, and Escape after a menu was opened in which nothing was
    chosen.
    """
    found: dict[int, int] = {}
    acted: list[Step] = []
    for step in steps:
        if step.written.action_type is ActionType.WAIT:
            continue
        keys, before = set(step.action.keys), acted[-1] if acted else None
        if keys in _UNDO and before is not None and _edits(before.action):
            found[before.written.step_index] = step.written.step_index
        if keys == {"esc"}:
            opened = next((one for one in reversed(acted) if not _is_in_menu(one.action)), None)
            if opened is not None and _opens_menu(opened):
                found[opened.written.step_index] = step.written.step_index
        acted.append(step)
    return found


def _edits(action: Action) -> bool:
    keys = set(action.keys)
    pastes = len(keys) == 2 and bool(keys & {"ctrl", "command"} and keys & {"v", "x"})
    return action.action_type == "type" or (bool(keys) and (pastes or keys <= _EDITING))


def _is_in_menu(action: Action) -> bool:
    return bool(action.keys) and set(action.keys) <= _IN_MENUS


def _opens_menu(step: Step) -> bool:
    target = step.written.target_element
    return step.action.action_type == "right_click" or (
        target is not None and target.role == "menu" and step.action.action_type == "click"
    )
