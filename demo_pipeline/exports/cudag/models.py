"""Defines ids, metadata, coordinates and tolerances of CUDAG records.

RU (resolution units) are coordinates from 0 to 1000 on each axis. A prediction counts as correct if
its distance from the expected point is at most the tolerance.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from demo_pipeline.desktopd.models import (
    ActionType,
    DragParameters,
    ScrollParameters,
    StepAction,
    points,
)
from demo_pipeline.exports.tool_calls import RU_MAX
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

GENERATOR = "demo_pipeline"  # `generator` in config.json of our datasets
DRAG = "drag"  # the task type of drags
REPORT_FILE = "splits.json"
RECORD_FILES = {  # for each split, the file with the split's records as conversations
    "train": "train.jsonl",
    "val": "val.jsonl",
    "test": "test/records.jsonl",  # also contains actions without a position, unlike test.json
    "held_out": "held_out.jsonl",
}
HASHED = ("train", "val", "test")  # splits that are chosen by a hash of the task
IMAGE_TOKEN = "<image>"  # noqa: S105 - trainers replace it with the image
ID_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
DIRECTORY_PATTERN = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*"
    r"--[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*"
    r"--[0-9]{8}_[0-9]{6}"
)
Pair = tuple[int, int]
RuBox = tuple[int, int, int, int]
"""Left, top, right and bottom in RU."""


def to_ru(x: float, y: float, size: Pair) -> Pair:
    """Converts a pixel to RU: `round(pixel / size * 1000)` on each axis.

    Args:
        x: pixels from the left; clamped to [0, width - 1].
        y: pixels from the top; clamped to [0, height - 1].
        size: width and height of the image, pixels.
    """
    across, down = (
        round(min(max(pixel, 0), side - 1) / side * RU_MAX)
        for pixel, side in zip((x, y), size, strict=True)
    )
    return across, down


def cudag_id(name: str) -> str:
    """Returns a name as a CUDAG id, which may contain only letters, digits, `_` and `-`.

    Every other character becomes `_`. Changed names get the suffix `_` and 6 hexadecimal digits of
    the original name's SHA-256, so that ids of different names differ.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if safe == name:
        return name
    return f"{safe}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


class CudagMetadata(NamedTuple):
    """The metadata of a record. This pipeline writes all keys; other generators may omit some.

    Attributes:
        task_type: kebab-case name of the action.
        real_coords: position of the action, or start of a drag, in pixels of the image; [0, 0] for
            actions without a position.
        tolerance: largest distance of a correct prediction on each axis, RU.
        image_size: width and height of the image, pixels; [0, 0] if unknown.
        has_coordinate: whether the action has a position.
        end_coords: end of a drag in pixels of the image; [0, 0] for other actions.
        scroll_direction: up, down, left or right; empty for other actions.
        scroll_amount: number of wheel notches.
        presses: number of presses of a key; 1 for other actions.
        trajectory_id: id of the demonstration.
        step_index: index from 0; for the record that ends the task, the last step's index plus 1.
        application: normalised name of the application.
        reasoning: a sentence that explains the action.
        target_bbox: box of the target, RU; [0, 0, 0, 0] if there is no target.
        tokens: estimated tokens of the record with its image and the system prompt.
    """

    task_type: str
    real_coords: Pair = (0, 0)
    tolerance: Pair = (0, 0)
    image_size: Pair = (0, 0)
    has_coordinate: bool = False
    end_coords: Pair = (0, 0)
    scroll_direction: str = ""
    scroll_amount: int = 0
    presses: int = 1
    trajectory_id: str = ""
    step_index: int = 0
    application: str = ""
    reasoning: str = ""
    target_bbox: RuBox = (0, 0, 0, 0)
    tokens: int = 0


_CLICKS = (ActionType.CLICK, ActionType.DOUBLE_CLICK, ActionType.RIGHT_CLICK)
# Maximum area of a container that counts as a target, as a share of the screen's area.
_LARGEST_SHARE = 0.1
# Roles of containers, documents, tables and text areas, in which the exact point matters.
_AREAS = frozenset(
    {
        *("panel", "unknown", "window", "dialog", "table", "treeview", "listbox", "tabpanel"),
        *("toolbar", "menu", "menubar", "statusbar", "taskbar", "textarea", "image"),
    }
)
# Roles of elements that react in the same way wherever they are clicked.
_WHOLE = frozenset(
    {"button", "checkbox", "radiobutton", "combobox", "menuitem", "tab", "link", "icon"}
)


class TestedPlace(NamedTuple):
    """The position and tolerance of a test that accepts any point of the target.

    Attributes:
        point: centre of the target, pixels.
        tolerance: distance from the centre to the farther edge of the target on each axis, RU.
    """

    point: Pair
    tolerance: Pair


def tested_place(action: StepAction, row: ProvenanceRow, size: Pair) -> TestedPlace | None:
    """Returns the position to test for a click on a button, check box or similar element.

    The position is the element's centre, as in tests of CUDAG's own generators. Returns
    None for other actions and elements, for clicks outside the target, and for targets whose box
    is unknown or whose centre is outside the image.

    Args:
        size: width and height of the image, pixels.
    """
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    element = action.target_element
    if element is None or element.role not in _WHOLE:
        return None
    if action.action_type not in _CLICKS or None in target:
        return None
    left, top, width, height = target
    x, y = points(action)[0]
    centre_x = left + width // 2
    centre_y = top + height // 2
    is_on_target = left <= x <= left + width and top <= y <= top + height
    is_in_image = 0 <= centre_x < size[0] and 0 <= centre_y < size[1]
    if not is_on_target or not is_in_image:
        return None
    x0, y0, x1, y1 = box_to_ru(target, size)
    ru_x, ru_y = to_ru(centre_x, centre_y, size)
    tolerance = (max(ru_x - x0, x1 - ru_x, 1), max(ru_y - y0, y1 - ru_y, 1))
    return TestedPlace((centre_x, centre_y), tolerance)


def target_tolerance(
    action: StepAction, row: ProvenanceRow, size: Pair, settings: DatasetSettings
) -> tuple[Pair, RuBox]:
    """Returns the tolerance of a prediction and the box of the target, both in RU.

    The tolerance is the distance from the action's position to the nearer edge of the target.
    Scrolls, drags (start and end), and actions whose target is unknown or a container, such as a
    table, have fixed tolerances from the settings. The box is [0, 0, 0, 0] if there is no target
    or the target is a large container.

    Args:
        size: width and height of the image, pixels.
        settings: tolerances and their limits.
    """
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    has_target = None not in target and not _is_large_area(action, target, size)
    box = (0, 0, 0, 0)
    if has_target:
        box = box_to_ru(target, size)
    positions = points(action)
    if isinstance(action.parameters, ScrollParameters):
        tolerance = settings.scroll_tolerance
    elif isinstance(action.parameters, DragParameters):
        tolerance = settings.drag_tolerance
    elif has_target and positions and not _is_area(action):
        limits = (settings.tolerance_min, settings.tolerance_max)
        return tolerance_ru(positions[0], target, size, limits), box
    else:
        tolerance = settings.default_tolerance
    return (tolerance, tolerance), box


def _is_large_area(action: StepAction, target: Sequence[int], size: Pair) -> bool:
    """Returns whether a target (left, top, width, height) is a large container."""
    _, _, width, height = target
    return _is_area(action) and width * height > _LARGEST_SHARE * size[0] * size[1]


def _is_area(action: StepAction) -> bool:
    """Returns whether the target of an action is a container."""
    return action.target_element is not None and action.target_element.role in _AREAS


def box_to_ru(box: Sequence[float], size: Pair) -> RuBox:
    """Converts a box (left, top, width, height in pixels) to RU, clipped to the image."""
    left, top, width, height = box
    return (*to_ru(left, top, size), *to_ru(left + width, top + height, size))


def tolerance_ru(point: Pair, box: Sequence[float], size: Pair, limits: Pair) -> Pair:
    """Returns the distance in RU from a point to the nearer edge of a box, on each axis.

    The distance is rounded down.

    Args:
        point: x and y, pixels.
        box: left, top, width and height of the target, pixels.
        size: width and height of the image, pixels.
        limits: minimum and maximum of the result, RU. Points outside the box get the minimum.
    """
    low, high = limits
    tolerances = []
    for axis in (0, 1):
        pixels = min(point[axis] - box[axis], box[axis] + box[axis + 2] - point[axis])
        distance = int(pixels / size[axis] * RU_MAX)
        tolerances.append(min(max(distance, low), high))
    return tolerances[0], tolerances[1]
