"""Rules for the coordinates of a CUDAG record: its tool calls must agree with its metadata.

Belongs here: the range of RU (resolution units, 0 to 1000) and the invariant
RU(real_coords, image_size) = coordinate, from the CUDAG document's section "Coordinate System".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.cudag.fault import CudagFault, Scope
from demo_pipeline.formats.cudag.models import to_ru
from demo_pipeline.formats.cudag.tool_calls import RU_MAX, is_number, is_pair

_UNUSED_KEYS = (  # by the number of coordinates in the calls
    ("real_coords", "tolerance", "end_coords"),
    ("end_coords",),
    (),
)
_LOOSE_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def raw_calls(turn: str) -> list[object]:
    """The JSON values of all <tool_call> blocks in a turn; other text is ignored."""
    values: list[object] = []
    for block in _LOOSE_BLOCK.finditer(turn):
        try:
            values.append(parse_json(block.group(1), "tool call"))
        except JsonFileError:
            continue
    return values


def expected_coordinate_faults(action: object, metadata: object) -> Iterator[CudagFault]:
    """Yield the faults of a test's coordinates: those of its one expected action.

    Of a drag `real_coords` and `end_coords` are the end, and `start_coords` is the start. A test of
    a drag that expects a move to the start passes a model that never drags.
    """
    yield from coordinate_faults([action], metadata, ends_drag=_named(action, "left_click_drag"))
    if not isinstance(metadata, dict):
        return
    is_drag, start = metadata.get("task_type") == "drag", metadata.get("start_coords")
    if is_drag and not _named(action, "left_click_drag"):
        message = "expected_action of a drag must be left_click_drag to its end"
        yield CudagFault("drag", message, "put the start into metadata.start_coords", Scope.OURS)
    elif is_drag and metadata.get("end_coords") != metadata.get("real_coords"):
        message = "metadata.end_coords of a drag must be metadata.real_coords in a test"
        yield CudagFault("drag", message, scope=Scope.OURS)
    elif isinstance(start, list) and is_pair(start):
        size = metadata.get("image_size")
        if is_drag and isinstance(size, list) and is_pair(size) and not _inside(start, size):
            message = f"metadata.start_coords {start} is outside the image {size}"
            yield CudagFault("outside_image", message, scope=Scope.OURS)
        elif not is_drag and any(start):
            message = "metadata.start_coords must be [0, 0] for an action that is no drag"
            yield CudagFault("no_coordinate", message, scope=Scope.OURS)


def _inside(pixel: Sequence[int], size: Sequence[int]) -> bool:
    return 0 <= pixel[0] < size[0] and 0 <= pixel[1] < size[1]


def _named(call: object, action: str) -> bool:
    arguments = call.get("arguments") if isinstance(call, dict) else None
    return isinstance(arguments, dict) and arguments.get("action") == action


def coordinate_faults(
    calls: Sequence[object], metadata: object, *, ends_drag: bool = False
) -> Iterator[CudagFault]:
    """Yield the faults of a record's coordinates.

    Args:
        calls: the record's tool calls in order, as parsed JSON of any kind.
        metadata: the record's metadata, as parsed JSON of any kind.
        ends_drag: the one call is the end of a drag, so that the metadata has its end too.
    """
    points = list(_coordinates(calls))
    if not all(map(_in_range, points)):
        remedy = "divide the pixel by the size of the image and multiply by 1000"
        yield CudagFault("coordinate", "coordinate must be [x, y] from 0 to 1000", remedy)
    elif isinstance(metadata, dict):
        yield from _agreement(points, metadata)
        yield from _unused_coordinates(metadata, _UNUSED_KEYS[2 if ends_drag else len(points[:2])])


def _coordinates(calls: Sequence[object]) -> Iterator[Any]:
    for call in calls:
        arguments = call.get("arguments") if isinstance(call, dict) else None
        if isinstance(arguments, dict) and "coordinate" in arguments:
            yield arguments["coordinate"]


def _in_range(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(is_number(part) and 0 <= part <= RU_MAX for part in value)
    )


def _agreement(points: Sequence[Any], metadata: dict[str, Any]) -> Iterator[CudagFault]:
    has = metadata.get("has_coordinate")
    if isinstance(has, bool) and has != bool(points):
        calls = "a tool call has a coordinate" if points else "no tool call has a coordinate"
        message = f"metadata.has_coordinate is {str(has).lower()}, but {calls}"
        yield CudagFault("has_coordinate", message, scope=Scope.OURS)
    size = metadata.get("image_size")
    if not isinstance(size, list) or not is_pair(size) or min(size) <= 0:
        return
    for key, point in zip(("real_coords", "end_coords"), points, strict=False):
        pixel = metadata.get(key)
        if isinstance(pixel, list) and is_pair(pixel):
            yield from _invariant(key, pixel, point, (size[0], size[1]))


def _invariant(
    key: str, pixel: Sequence[int], point: Sequence[float], size: tuple[int, int]
) -> Iterator[CudagFault]:
    if not _inside(pixel, size):
        message = f"metadata.{key} {list(pixel)} is outside the image {list(size)}"
        yield CudagFault("outside_image", message, scope=Scope.SHARED)
        return
    wanted = to_ru(pixel[0], pixel[1], size)
    off = max(abs(wanted[0] - point[0]), abs(wanted[1] - point[1]))
    if off:
        message = f"metadata.{key} is {list(wanted)} in RU, but the coordinate is {list(point)}"
        remedy = "compute the coordinate from the pixel: round(pixel / size * 1000) on each axis"
        scope = Scope.SHARED if off > 1 else Scope.OURS
        yield CudagFault("ru_invariant", message, remedy, scope)


def _unused_coordinates(metadata: dict[str, Any], keys: Sequence[str]) -> Iterator[CudagFault]:
    """Coordinates that an action does not have must be zeros."""
    for key in keys:
        value = metadata.get(key)
        if isinstance(value, list) and is_pair(value) and any(value):
            message = f"metadata.{key} must be [0, 0] for an action without that coordinate"
            yield CudagFault("no_coordinate", message, scope=Scope.OURS)
