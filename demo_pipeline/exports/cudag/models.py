"""Ids and metadata of CUDAG records, and RU coordinates.

RU (resolution units) are pixels normalised to 0 to 1000 on each axis. Not here: tool calls
(tool_calls.py) and checks (validator.py).
"""

import hashlib
import re
from typing import NamedTuple

from demo_pipeline.exports.cudag.tool_calls import RU_MAX

GENERATOR = "demo_pipeline"
REPORT_FILE = "splits.json"
RECORD_FILES = {
    "train": "train.jsonl",
    "val": "val.jsonl",
    "test": "test/records.jsonl",  # the entries of test.json as conversations
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
