"""Ids and metadata of CUDAG records, RU coordinates, and how far a prediction may be.

RU (resolution units) are pixels normalised to 0 to 1000 on each axis. Not here: tool calls
(tool_calls.py) and checks (validator.py).
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

GENERATOR = "demo_pipeline"
DRAG = "drag"  # the task type
REPORT_FILE = "splits.json"
RECORD_FILES = {
    "train": "train.jsonl",
    "val": "val.jsonl",
    "test": "test/records.jsonl",  # as conversations, also actions that have no test
    "held_out": "held_out.jsonl",
}
HASHED = ("train", "val", "test")  # the splits that a hash puts groups into
IMAGE_TOKEN = "<image>"  # noqa: S105 - a trainer's placeholder
ID_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
DIRECTORY_PATTERN = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*"
    r"--[A-Za-z0-9_][A-Za-z0-9._]*(-[A-Za-z0-9._]+)*"
    r"--[0-9]{8}_[0-9]{6}"
)
Pair = tuple[int, int]
RuBox = tuple[int, int, int, int]


def to_ru(x: float, y: float, size: Pair) -> Pair:
    """Pixel → RU: `round(pixel / size * 1000)` on each axis.

    Args:
        x: pixels from the left; outside [0, width - 1] it is clamped first.
        y: pixels from the top; outside [0, height - 1] it is clamped first.
        size: width and height of the image, pixels.
    """
    across, down = (
        round(min(max(pixel, 0), side - 1) / side * RU_MAX)
        for pixel, side in zip((x, y), size, strict=True)
    )
    return across, down


def cudag_id(name: str) -> str:
    """A name as a CUDAG id, which has only letters, digits, `_` and `-`.

    Other characters become `_`; then `_` and 6 hex digits of the name's SHA-256 are added, so that
    different names stay different.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if safe == name:
        return name
    return f"{safe}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


class CudagMetadata(NamedTuple):
    """The metadata of a record. This pipeline writes every key; other generators may not.

    Attributes:
        task_type: kebab-case name of the action.
        real_coords: pixels of the stored image, of a drag its start; [0, 0] for actions without a
            coordinate.
        tolerance: RU on each axis.
        image_size: width and height of the stored image, pixels; [0, 0] if missing.
        has_coordinate: whether the action has a coordinate.
        end_coords: end of a drag, pixels of the stored image; else [0, 0].
        scroll_direction: up, down, left, right, or empty.
        scroll_amount: notches.
        presses: how often a key is pressed: the number of equal calls of `key`; else 1.
        trajectory_id: id of the demonstration.
        step_index: 0-based; the number of steps for the closing `terminate`.
        application: normalised name.
        reasoning: a sentence that explains the action.
        target_bbox: [x0, y0, x1, y1] of the target in RU; [0, 0, 0, 0] without one.
        tokens: of the record with its picture and the system prompt, estimated.
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
_LARGEST_SHARE = 0.1  # of the screen; in a larger area not every point is the one that was meant
_AREAS = frozenset(
    {
        *("panel", "unknown", "window", "dialog", "table", "treeview", "listbox", "tabpanel"),
        *("toolbar", "menu", "menubar", "statusbar", "taskbar", "textarea", "image"),
    }
)  # roles of containers, documents, tables and text areas


_WHOLE = frozenset(
    {"button", "checkbox", "radiobutton", "combobox", "menuitem", "tab", "link", "icon"}
)  # roles of what does the same wherever it is clicked; in a text field the place matters


class TestedPlace(NamedTuple):
    """What the test of a record accepts, when it is not the place of the record itself.

    Attributes:
        point: centre of the target, pixels.
        tolerance: RU on each axis; from the centre to the farther edge, so that each point of the
            target is accepted.
    """

    point: Pair
    tolerance: Pair


def tested_place(action: StepAction, row: ProvenanceRow, size: Pair) -> TestedPlace | None:
    """The centre of a button, a box or a menu item that was clicked, as CUDAG's generators ask.

    None for other actions and targets, and for a point outside the target.
    """
    target = [row[f"target_{part}"] for part in ("x", "y", "width", "height")]
    element = action.target_element
    if element is None or element.role not in _WHOLE:
        return None
    if action.action_type not in _CLICKS or None in target:
        return None
    left, top, width, height = target
    x, y = points(action)[0]
    centre = (left + width // 2, top + height // 2)
    inside = left <= x <= left + width and top <= y <= top + height
    if not inside or not all(0 <= at < side for at, side in zip(centre, size, strict=True)):
        return None
    box = box_to_ru(target, size)
    middle = to_ru(*centre, size)
    across, down = (max(at - box[n], box[n + 2] - at) for n, at in enumerate(middle))
    return TestedPlace(centre, (max(across, 1), max(down, 1)))


def target_tolerance(
    action: StepAction, row: ProvenanceRow, size: Pair, settings: DatasetSettings
) -> tuple[Pair, RuBox]:
    """The tolerance of a prediction, and the target's box [x0, y0, x1, y1], both in RU.

    The tolerance reaches from the point to the target's nearer edge; scrolls and drags have
    settings of their own, and in a container, such as a table, it is that of no target: the point
    is one of its parts. A large area is not a target. A drag's target is known at its start only,
    and the tolerance is also that of its end.
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
    """Whether a target is an area that a point in it does not single out."""
    _, _, width, height = target
    return _is_area(action) and width * height > _LARGEST_SHARE * size[0] * size[1]


def _is_area(action: StepAction) -> bool:
    return action.target_element is not None and action.target_element.role in _AREAS


def box_to_ru(box: Sequence[float], size: Pair) -> RuBox:
    """A box (left, top, width, height, pixels) as [x0, y0, x1, y1] in RU, within the image."""
    left, top, width, height = box
    return (*to_ru(left, top, size), *to_ru(left + width, top + height, size))


def tolerance_ru(point: Pair, box: Sequence[float], size: Pair, limits: Pair) -> Pair:
    """The distance from a point to the nearer edge of a box on each axis, in RU, rounded down.

    Args:
        point: x and y, pixels.
        box: left, top, width and height of the target, pixels.
        size: width and height of the image, pixels.
        limits: minimum and maximum, RU. A point at an edge, or outside the box, has the minimum.
    """
    low, high = limits
    nearer = (min(point[n] - box[n], box[n] + box[n + 2] - point[n]) for n in (0, 1))
    reach = (int(off / side * RU_MAX) for off, side in zip(nearer, size, strict=True))
    x, y = (min(max(part, low), high) for part in reach)
    return x, y
