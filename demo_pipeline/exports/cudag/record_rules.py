"""Rules for one CUDAG record: its form, and its coordinates against its metadata.

Belongs here: rules that need only the record, among them the range of RU (resolution units, 0 to
1000) and the invariant RU(real_coords, image_size) = coordinate, from the CUDAG document's section
"Coordinate System". Messages follow the style of the document's error list. No model reads the
records: datasets of other generators have what they like. Rules between records, and for files, are
in validator.py.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard

from pydantic import BaseModel, Field, ValidationError

from demo_pipeline.desktopd.models import Text
from demo_pipeline.exports.cudag.models import DRAG, ID_PATTERN, IMAGE_TOKEN, to_ru
from demo_pipeline.exports.record_checks import NamedFiles, StrictDocument
from demo_pipeline.exports.tool_calls import (
    RU_MAX,
    TOOL_NAME,
    ToolCallError,
    call_faults,
    is_int,
    is_number,
    is_pair,
    parse_tool_calls,
)
from demo_pipeline.files.base_model import Document, explain, field_name
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import Problem, Severity


class Scope(Enum):
    """Which datasets a rule applies to, and how severe breaking it is.

    Attributes:
        FORMAT: a rule of the CUDAG document: an error in every dataset.
        SHARED: a rule of this pipeline: an error in its own datasets, a warning in others.
        OURS: a rule of this pipeline: an error in its own datasets, not checked in others.
        NOTE: a warning in every dataset.
    """

    FORMAT = auto()
    SHARED = auto()
    OURS = auto()
    NOTE = auto()


class CudagFault(NamedTuple):
    """One broken rule, without the file and line, which the caller knows."""

    code: str
    message: str
    remedy: str = ""
    scope: Scope = Scope.FORMAT
    column: int | None = None

    def problem(self, file: str, line: int | None, *, ours: bool) -> Problem | None:
        """The problem at a place; None if the rule does not apply to a dataset (see `Scope`)."""
        code, message, remedy, scope, column = self
        if scope is Scope.OURS and not ours:
            return None
        severity = Severity.ERROR
        if scope is Scope.NOTE or (scope is Scope.SHARED and not ours):
            severity = Severity.WARNING
        return Problem(code, file, message, line, remedy=remedy, severity=severity, column=column)


def ours(code: str, message: str, remedy: str = "") -> CudagFault:
    """A broken rule of this pipeline, which datasets of others need not follow."""
    return CudagFault(code, message, remedy, Scope.OURS)


def shared(code: str, message: str, remedy: str = "") -> CudagFault:
    """A broken rule of this pipeline, which is worth a warning in datasets of others."""
    return CudagFault(code, message, remedy, Scope.SHARED)


def json_fault(error: JsonFileError, scope: Scope = Scope.FORMAT) -> CudagFault:
    """The fault of a text that is not JSON."""
    return CudagFault("invalid_json", error.message, scope=scope, column=error.column)


def printable(text: str) -> str:
    """A name or path for a message: at most 120 characters on one line, escaped where needed."""
    safe = ""
    for character in text[:120]:
        if character.isprintable():
            safe += character
        else:
            safe += character.encode("unicode_escape").decode()
    return safe


HUMAN_START = f"{IMAGE_TOKEN}\n"
_GPT_START = "<tool_call>"
_LOOSE_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
# The coordinates that metadata must not have, by the number of those in the calls.
_UNUSED_KEYS = (("real_coords", "tolerance", "end_coords"), ("end_coords",), ())
_Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
_Ru = Annotated[int, Field(ge=0, le=RU_MAX)]


class _OurMetadata(StrictDocument):
    """What `CudagMetadata` writes; what the document defines is checked apart."""

    task_type: Any = None
    real_coords: Any = None
    tolerance: Annotated[list[_Ru], Field(min_length=2, max_length=2)]
    image_size: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=2, max_length=2)]
    has_coordinate: bool
    end_coords: _Pair
    scroll_direction: Literal["", "up", "down", "left", "right"]
    scroll_amount: Annotated[int, Field(ge=0)]
    presses: Annotated[int, Field(ge=1)]
    trajectory_id: Text
    step_index: Annotated[int, Field(ge=0)]
    application: str
    reasoning: str
    target_bbox: Annotated[list[_Ru], Field(min_length=4, max_length=4)]
    tokens: Annotated[int, Field(ge=0)]


class _OurTestMetadata(_OurMetadata):
    start_coords: _Pair
    person_coords: _Pair


def training_faults(record: object) -> Iterator[CudagFault]:
    """Yield the faults of a line of data.jsonl, train.jsonl, val.jsonl or held_out.jsonl."""
    if not isinstance(record, dict):
        yield CudagFault("record_type", "record must be a JSON object")
        return
    yield from _name_faults(record.get("id"), "id")
    yield from _path_faults(record.get("image"), "image", (".png", ".jpg"))
    turns = record.get("conversations")
    metadata = record.get("metadata")
    yield from _conversation_faults(turns)
    if calls := _turn_calls(turns):
        yield from _coordinate_faults(calls, metadata)
    if not isinstance(metadata, dict):
        yield CudagFault("metadata", "metadata must be an object")
        return
    yield from _metadata_faults(metadata, _OurMetadata, Scope.FORMAT)
    if "tolerance" in metadata:
        yield from _tolerance_faults(metadata["tolerance"])
    keys = [call for call in calls if member(call, "arguments", "action") == "key"]
    presses = metadata.get("presses")
    repeated = 1
    if keys and all(call == keys[0] for call in calls):
        repeated = len(keys)
    if is_int(presses) and presses > 0 and presses != repeated:
        pressed = f"but the turn presses its keys {repeated} times"
        message = f"metadata.presses is {presses}, {pressed}"
        yield ours("presses", message, "write one call of key a press")


def eval_faults(record: object) -> Iterator[CudagFault]:
    """Yield the faults of an entry of test/test.json."""
    if not isinstance(record, dict):
        yield CudagFault("record_type", "record must be a JSON object")
        return
    yield from _name_faults(record.get("test_id"), "test_id")
    yield from _path_faults(record.get("screenshot"), "screenshot", (".png",))
    if not isinstance(record.get("prompt"), str) or not record["prompt"]:
        yield CudagFault("prompt", "prompt must be a non-empty string")
    expected = record.get("expected_action")
    metadata = record.get("metadata")
    yield from _expected_faults(expected)
    yield from _tolerance_faults(record.get("tolerance"))
    if not isinstance(metadata, dict):
        yield CudagFault("metadata", "metadata must be an object")
        return
    action = member(expected, "arguments", "action")
    if isinstance(expected, dict) and isinstance(expected.get("arguments"), dict):
        yield from _coordinate_faults([expected], metadata)
        if metadata.get("has_coordinate") is False:
            message = "a test compares a place, and this action has none"
            yield ours("test_place", message, "leave it out of test.json")
        yield from _start_faults(metadata)
    yield from _metadata_faults(metadata, _OurTestMetadata, Scope.OURS)
    presses = metadata.get("presses")
    if is_int(presses) and presses > 1 and action != "key":
        message = f"metadata.presses is {presses}, but the expected action is not key"
        yield ours("presses", message, "presses is 1 for other actions")
    if is_pair(record.get("tolerance")) and record["tolerance"] != metadata.get("tolerance"):
        yield ours("tolerance", "tolerance differs from metadata.tolerance")


def _start_faults(metadata: Mapping[str, Any]) -> Iterator[CudagFault]:
    """Yield a fault if the start of a drag is not a pixel, or another action has a start."""
    start = metadata.get("start_coords")
    size = metadata.get("image_size")
    if not is_pair(start):
        return
    if metadata.get("task_type") != DRAG:
        if any(start):
            yield ours("start_coords", "metadata.start_coords must be [0, 0], except of a drag")
    elif is_pair(size) and not _inside(start, size):
        yield ours("start_coords", f"metadata.start_coords {start} is outside the image {size}")


def picture_faults(
    record: object, key: str, files: NamedFiles, folder: str
) -> Iterator[CudagFault]:
    """Yield why the picture of a record does not open, or is not what the record declares.

    Args:
        record: the record.
        key: that names the picture; of a bad path the rules of the record tell.
        files: of the dataset.
        folder: that the path is relative to: empty or `test/`.
    """
    name = picture_name(record, key)
    if name is None or not isinstance(record, dict):
        return
    info = files.picture(folder + name)
    declared = member(record, "metadata", "image_size")
    if isinstance(info, str):
        fault = f"Image does not open ({info})"
        if info == "is missing":
            fault = "Image not found"
        yield CudagFault("image", f"{fault}: {printable(folder + name)}")
        return
    size = [info.width, info.height]
    if isinstance(declared, list) and declared != size:
        declared_size = "(not numbers)"
        if all(isinstance(part, int) for part in declared[:3]):
            declared_size = str(declared)
        message = f"metadata.image_size {declared_size} is not the size of the image, {size}"
        yield shared("image_size", message, "set it to the size of the file")
    if name.endswith(".png") != (info.kind == "png"):
        message = f"image is a {info.kind.upper()}, but its name is {printable(name)}"
        yield shared("image_kind", message, "convert or rename it")


def picture_name(record: object, key: str) -> str | None:
    """The path of a record's picture; None when it is not below `images/`."""
    name = member(record, key)
    if isinstance(name, str) and name.startswith("images/") and ".." not in name.split("/"):
        return name
    return None


def _name_faults(name: object, key: str) -> Iterator[CudagFault]:
    if not isinstance(name, str) or not name:
        yield CudagFault("id", f"{key} must be a non-empty string")
    elif not ID_PATTERN.fullmatch(name):
        yield shared("id", f"{key} must match {ID_PATTERN.pattern}: {printable(name)}")


def _path_faults(path: object, key: str, endings: tuple[str, ...]) -> Iterator[CudagFault]:
    if not isinstance(path, str):
        yield CudagFault("image_path", f"{key} must be a string")
        return
    printed_path = printable(path)
    if not path.startswith("images/"):
        message = f"Invalid image path: {printed_path} (must start with 'images/')"
        yield CudagFault("image_path", message, "make the path relative, starting with images/")
    elif {"", ".", ".."} & set(path.split("/")) or "\\" in path or "\0" in path:
        yield CudagFault("image_path", f"Invalid image path: {printed_path} (must stay in images/)")
    elif path.count("/") > 1:
        yield shared("image_path", f"Image name is not flat: {printed_path}")
    if not path.endswith(endings):
        yield shared("image_kind", f"Image must be {' or '.join(endings)}: {printed_path}")


def _conversation_faults(turns: object) -> Iterator[CudagFault]:
    if not isinstance(turns, list) or len(turns) != 2:
        yield CudagFault("conversations", "conversations must be an array of exactly 2 turns")
        return
    for turn, speaker, start in zip(
        turns, ("human", "gpt"), (HUMAN_START, _GPT_START), strict=True
    ):
        where = f"conversations: the {speaker} turn"
        value = member(turn, "value")
        if not isinstance(turn, dict):
            yield CudagFault("conversations", f"{where} must be an object")
        elif turn.get("from") != speaker:
            yield CudagFault("conversations", f"{where} must have from '{speaker}'")
        elif not isinstance(value, str):
            yield CudagFault("conversations", f"{where} must have a string value")
        elif not value.startswith(start):
            literal = start.replace("\n", "\\n")
            yield CudagFault("conversations", f"{where} must start with '{literal}'")
        elif speaker == "gpt":
            try:
                parse_tool_calls(value)
            except ToolCallError as error:
                remedy = "follow the schema of the computer_use tool"
                yield shared("tool_call", f"gpt {error}", remedy)
        elif value.count(IMAGE_TOKEN) != 1:
            yield shared("image_token", f"{where} must contain exactly one {IMAGE_TOKEN}")


def _turn_calls(turns: object) -> list[object]:
    """The JSON values of all <tool_call> blocks in the last turn; other text is ignored."""
    value = member(turns, -1, "value")
    values: list[object] = []
    if not isinstance(value, str):
        return values
    for block in _LOOSE_BLOCK.findall(value):
        with suppress(JsonFileError):
            values.append(parse_json(block, "tool call"))
    return values


def _expected_faults(action: object) -> Iterator[CudagFault]:
    code = "expected_action"
    if not isinstance(action, dict):
        yield CudagFault(code, "expected_action must be an object")
        return
    if action.get("name") != TOOL_NAME:
        yield CudagFault(code, f"expected_action.name must be '{TOOL_NAME}'")
    if not isinstance(action.get("arguments"), dict):
        yield CudagFault(code, "expected_action.arguments must be an object")
        return
    if not isinstance(name := member(action, "arguments", "action"), str) or not name:
        yield CudagFault(code, "expected_action.arguments.action must be a string")
    yield from (shared("tool_call", f"expected_action: {fault}") for fault in call_faults(action))


def member(value: Any, *keys: Any) -> Any:
    """A member deep inside a JSON value, by names and numbers; None when there is none."""
    try:
        for key in keys:
            value = value[key]
    except (LookupError, TypeError):
        return None
    return value


def _coordinate_faults(calls: Sequence[object], metadata: object) -> Iterator[CudagFault]:
    """Yield the faults of a record's coordinates.

    Args:
        calls: the record's tool calls in order, as parsed JSON of any kind.
        metadata: the record's metadata, as parsed JSON of any kind.
    """
    points = []
    for call in _acting(calls):
        arguments = member(call, "arguments")
        if isinstance(arguments, dict) and "coordinate" in arguments:
            points.append(arguments["coordinate"])
    if not all(map(_is_place, points)):
        remedy = "divide the pixel by the size of the image and multiply by 1000"
        yield CudagFault("coordinate", "coordinate must be [x, y] from 0 to 1000", remedy)
        return
    if not isinstance(metadata, dict):
        return
    has = metadata.get("has_coordinate")
    if isinstance(has, bool) and has != bool(points):
        actual = "no tool call has a coordinate"
        if points:
            actual = "a tool call has a coordinate"
        yield ours("has_coordinate", f"metadata.has_coordinate is {str(has).lower()}, but {actual}")
    size = metadata.get("image_size")
    for key, point in zip(("real_coords", "end_coords"), points, strict=False):
        pixel = metadata.get(key)
        if is_pair(size) and min(size) > 0 and is_pair(pixel):
            yield from _invariant(key, pixel, point, size)
    for key in _UNUSED_KEYS[len(points[:2])]:
        if is_pair(metadata.get(key)) and any(metadata[key]):
            message = f"metadata.{key} must be [0, 0] for an action without that coordinate"
            yield ours("no_coordinate", message)


def _acting(calls: Sequence[object]) -> Iterator[object]:
    """Yield the calls without the moves of a pointer that only rests there.

    A move directly before `left_click_drag` is the drag's start.
    """
    for call, after in zip(calls, [*calls[1:], None], strict=True):
        is_move = member(call, "arguments", "action") == "mouse_move"
        if not is_move or member(after, "arguments", "action") in (None, "left_click_drag"):
            yield call


def _is_place(value: object) -> bool:
    return _is_two(value) and all(is_number(part) and 0 <= part <= RU_MAX for part in value)


def _is_two(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and len(value) == 2


def _invariant(
    key: str, pixel: Sequence[int], point: Sequence[float], size: Sequence[int]
) -> Iterator[CudagFault]:
    if not _inside(pixel, size):
        message = f"metadata.{key} {list(pixel)} is outside the image {list(size)}"
        yield shared("outside_image", message)
        return
    wanted = to_ru(pixel[0], pixel[1], (size[0], size[1]))
    if off := max(abs(wanted[0] - point[0]), abs(wanted[1] - point[1])):
        message = f"metadata.{key} is {list(wanted)} in RU, but the coordinate is {list(point)}"
        remedy = "compute the coordinate from the pixel: round(pixel / size * 1000) on each axis"
        scope = Scope.OURS  # a unit off may be another rounding
        if off > 1:
            scope = Scope.SHARED
        yield CudagFault("ru_invariant", message, remedy, scope)


def _inside(pixel: Sequence[int], size: Sequence[int]) -> bool:
    return 0 <= pixel[0] < size[0] and 0 <= pixel[1] < size[1]


def _tolerance_faults(tolerance: object) -> Iterator[CudagFault]:
    if not is_pair(tolerance):
        remedy = "give the tolerance as a two-element array of integers"
        yield CudagFault("tolerance", "tolerance must be [tol_x, tol_y] array", remedy)
    elif min(tolerance) < 0:
        message = "tolerance must not be negative: no prediction is within it"
        yield CudagFault("tolerance", message, "give RU from 0 on each axis")


def _metadata_faults(
    metadata: Mapping[str, Any], model: type[Document], has_point: Scope
) -> Iterator[CudagFault]:
    """Yield missing keys, wrong types and unknown keys; `has_point`: who must give real_coords."""
    if not isinstance(metadata.get("task_type"), str) or not metadata["task_type"]:
        yield CudagFault("task_type", "metadata.task_type must be a non-empty string")
    if "real_coords" not in metadata:
        yield CudagFault("real_coords", "metadata.real_coords is missing", scope=has_point)
    elif not is_pair(metadata["real_coords"]):
        yield CudagFault("real_coords", "metadata.real_coords must be [x, y] array")
    declared = {key: value for key, value in metadata.items() if key in model.model_fields}
    yield from typed(declared, model, "metadata", "metadata.")
    if unknown := len(metadata) - len(declared):
        message = f"metadata has {counted(unknown, 'unknown keys')}"
        yield ours("metadata_key", message)


def typed(
    values: Mapping[str, Any], model: type[BaseModel], code: str, prefix: str = ""
) -> Iterator[CudagFault]:
    """Yield what a model rejects in our datasets; messages name the members after the prefix."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        for place, message in explain(error):
            yield ours(f"{code}_type", f"{prefix}{field_name(place)}: {message}")


def cudag_record_problems(
    record: object, file: str, line: int | None, _files: NamedFiles
) -> list[Problem]:
    """The problems of a line of a split that this pipeline made, but for those of its picture.

    Which is a screenshot of the trajectory, or a JPEG that is made of it later.
    """
    problems = (fault.problem(file, line, ours=True) for fault in training_faults(record))
    return [problem for problem in problems if problem]
