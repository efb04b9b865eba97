"""The records of a CUDAG dataset as models, their ids, and RU coordinates.

RU (resolution units) are pixels normalised to 0 to 1000 on each axis. Not here: tool calls
(tool_calls.py) and checks (validator.py).
"""

import hashlib
import json
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from demo_pipeline.exports.cudag.tool_calls import RU_MAX

GENERATOR = "demo_pipeline"
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
    return _axis(x, size[0]), _axis(y, size[1])


def _axis(pixel: float, size: int) -> int:
    return round(min(max(pixel, 0), size - 1) / size * RU_MAX)


def box_to_ru(x: float, y: float, width: float, height: float, size: Pair) -> RuBox:
    """A pixel box as [x0, y0, x1, y1] in RU, clamped to the image."""
    return (*to_ru(x, y, size), *to_ru(x + width, y + height, size))


def tolerance_ru(
    point: Pair, box: tuple[float, float, float, float], size: Pair, limits: Pair
) -> Pair:
    """The distance from a point to the nearer edge of a box on each axis, in RU, rounded down.

    Args:
        point: x and y, pixels.
        box: left, top, width and height of the target, pixels.
        size: width and height of the image, pixels.
        limits: minimum and maximum, RU. A point at an edge, or outside the box, has the minimum.
    """
    left, top, width, height = box
    x = min(point[0] - left, left + width - point[0])
    y = min(point[1] - top, top + height - point[1])
    low, high = limits
    reach = int(x / size[0] * RU_MAX), int(y / size[1] * RU_MAX)
    return min(max(reach[0], low), high), min(max(reach[1], low), high)


def cudag_id(name: str) -> str:
    """A name as a CUDAG id, which has only letters, digits, `_` and `-`.

    Other characters become `_`; then `_` and 6 hex digits of the name's SHA-256 are added, so that
    different names stay different.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if safe == name:
        return name
    return f"{safe}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True)


class Turn(_Frozen):
    """One turn of a conversation."""

    speaker: Literal["human", "gpt"] = Field(alias="from")
    value: str


class CudagMetadata(BaseModel):
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

    model_config = ConfigDict(frozen=True, extra="allow")

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


class TestMetadata(CudagMetadata):
    """The metadata of a test. `real_coords` is the place of the expected action.

    Attributes:
        start_coords: start of a drag, whose end is expected, pixels of the stored image; else
            [0, 0].
    """

    __test__ = False

    start_coords: Pair = (0, 0)


class CudagRecord(_Frozen):
    """One line of `data.jsonl`, `train.jsonl`, `val.jsonl` or `held_out.jsonl`."""

    id: str
    image: str
    conversations: tuple[Turn, Turn]
    metadata: CudagMetadata

    def line(self) -> str:
        """The line as written, without the line end."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), ensure_ascii=False)


class ExpectedAction(_Frozen):
    """The tool call that a test expects."""

    name: str
    arguments: dict[str, Any]


class CudagTest(_Frozen):
    """One entry of `test/test.json`."""

    test_id: str
    screenshot: str
    prompt: str
    expected_action: ExpectedAction
    tolerance: Pair
    metadata: TestMetadata
