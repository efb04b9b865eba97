"""What became of a step: whether the screen changed after it, and where; which step took it back.

Belongs here: comparing each screenshot with the next one, without the pointer's own picture, and
the keys that undo. Whether the change was meant is not said: only a model or a person can know it.
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

CHANGED_GREY = 8  # of 255, of a cell: above the noise of x264 at the recorders' quality
_POINTER = (-10, -6, 24, 34)  # pixels around the hot spot that an arrow or a hand covers
PART_GAP = 3  # cells between lines of one change; a clock elsewhere is another one
_UNDO = ({"ctrl", "z"}, {"command", "z"})
_EDITING = frozenset({"enter", "delete", "backspace", "tab", "space"})
_IN_MENUS = frozenset({"left", "right", "up", "down"})
CHANGE_COLUMNS = ("changed_x", "changed_y", "changed_width", "changed_height")

Place = tuple[float, float]
_Cells = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class ShownScreen:
    """What a screenshot shows.

    Attributes:
        facts: of the picture.
        pointers: where the pointer is in it, canvas pixels; empty: not known.
        scale: canvas pixels for one pixel of the pointer's usual picture.
    """

    facts: ScreenshotFacts
    pointers: Sequence[Place] = ()
    scale: float = 1.0

    def covered(self) -> _Cells:
        """The cells that the pointer's own picture covers."""
        cells = np.zeros(self.facts.cells.shape, bool)
        for x, y in self.pointers:
            left, top, right, bottom = (
                int((at + self.scale * by) // CELL)
                for at, by in zip((x, y, x, y), _POINTER, strict=True)
            )
            cells[max(0, top) : max(0, bottom + 1), max(0, left) : max(0, right + 1)] = True
        return cells


def change_between(
    before: ShownScreen | None,
    after: ShownScreen | None,
    earlier: ShownScreen | None = None,
    later: ShownScreen | None = None,
) -> dict[str, Any]:
    """The columns `screen_changed` and `CHANGE_COLUMNS` of a step.

    Under the pointer, which hides what it pressed, the screenshots beside these two show whether
    the screen is the same. Where they do not show it either, it is not known.

    Args:
        before: its screenshot.
        after: the next one; None: not known.
        earlier: the one before its screenshot; None: not known.
        later: the one after the next one; None: not known.
    """
    unknown = {"screen_changed": None, **dict.fromkeys(CHANGE_COLUMNS)}
    if before is None or after is None or before.facts.missing or after.facts.missing:
        return unknown
    changed = _differ(before, after)
    under_first = before.covered()
    under_second = after.covered()
    visible = (changed & ~under_first & ~under_second).astype(np.uint8)
    if not visible.any():
        is_same = _stayed(earlier, after, changed & under_first)
        is_same &= _stayed(before, later, changed & under_second)
        return {**unknown, "screen_changed": False if is_same else None}
    widened = cv2.dilate(visible, np.ones((2 * PART_GAP + 1, 2 * PART_GAP + 1), np.uint8))
    labels = cv2.connectedComponents(widened)[1] * visible
    largest = int(np.bincount(labels.ravel())[1:].argmax()) + 1
    box = cv2.boundingRect((labels == largest).astype(np.uint8))
    return {
        "screen_changed": True,
        **{name: side * CELL for name, side in zip(CHANGE_COLUMNS, box, strict=True)},
    }


def _differ(before: ShownScreen, after: ShownScreen) -> _Cells:
    """The cells that differ by more than noise."""
    return np.asarray(cv2.absdiff(before.facts.cells, after.facts.cells) > CHANGED_GREY)


def _stayed(before: ShownScreen | None, after: ShownScreen | None, cells: _Cells) -> bool:
    """Whether two screenshots show some cells, without a pointer, as the same."""
    if not cells.any():
        return True
    if before is None or after is None or before.facts.missing or after.facts.missing:
        return False
    unseen = before.covered() | after.covered() | _differ(before, after)
    return not (cells & unseen).any()


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
        keys = set(step.action.keys)
        before = acted[-1] if acted else None
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
