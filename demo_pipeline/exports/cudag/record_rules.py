"""Checks single CUDAG records.

The models `CudagRecord` and `CudagTest` declare the rules of the CUDAG specification for all
datasets. Further rules compare coordinates with metadata. One of them is the invariant in the
specification's section "Coordinate System": RU(real_coords, image_size) = coordinate. RU
(resolution units) are coordinates from 0 to 1000.

Each rule has a `Scope`, which says which datasets must follow the rule. validator.py compares
records with each other, and checks files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainValidator,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from demo_pipeline.desktopd.models import Text
from demo_pipeline.exports.cudag.models import DRAG, ID_PATTERN, IMAGE_TOKEN, to_ru
from demo_pipeline.exports.record_checks import NamedFiles, StrictDocument
from demo_pipeline.exports.tool_calls import (
    RU_MAX,
    TOOL_NAME,
    ToolCallError,
    call_faults,
    is_number,
    is_pair,
    parse_tool_calls,
)
from demo_pipeline.files.base_model import Document, DocumentT, explain, field_name
from demo_pipeline.files.json_files import JsonFileError, Location, parse_json
from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import Problem, Severity


class Scope(Enum):
    """Which datasets must follow a rule, and how severe it is to break the rule.

    Attributes:
        FORMAT: a rule of the CUDAG specification. A fault is an error in all datasets.
        SHARED: a rule of this pipeline. A fault is an error in this pipeline's datasets, and a
            warning in other datasets.
        OURS: a rule of this pipeline that is checked only in its own datasets. A fault is an error.
        NOTE: a fault is a warning in all datasets.
    """

    FORMAT = auto()
    SHARED = auto()
    OURS = auto()
    NOTE = auto()


class CudagFault(NamedTuple):
    """A broken rule; the caller adds file and line."""

    code: str
    message: str
    remedy: str = ""
    scope: Scope = Scope.FORMAT
    column: int | None = None

    def problem(self, file: str, line: int | None, *, ours: bool) -> Problem | None:
        """Returns the fault as a `Problem` at a line of a file.

        Args:
            file, line: the location of the fault.
            ours: whether this pipeline wrote the dataset.

        Returns:
            The problem; None if the dataset need not follow the rule.
        """
        code, message, remedy, scope, column = self
        if scope is Scope.OURS and not ours:
            return None
        severity = Severity.ERROR
        if scope is Scope.NOTE or (scope is Scope.SHARED and not ours):
            severity = Severity.WARNING
        return Problem(code, file, message, line, remedy=remedy, severity=severity, column=column)


def ours(code: str, message: str, remedy: str = "") -> CudagFault:
    """Returns a fault that counts only in datasets of this pipeline."""
    return CudagFault(code, message, remedy, Scope.OURS)


def shared(code: str, message: str, remedy: str = "") -> CudagFault:
    """Returns a fault that is an error in datasets of this pipeline, and a warning in others."""
    return CudagFault(code, message, remedy, Scope.SHARED)


def json_fault(error: JsonFileError, scope: Scope = Scope.FORMAT) -> CudagFault:
    """Returns the fault of a text that is not JSON."""
    return CudagFault("invalid_json", error.message, scope=scope, column=error.column)


def printable(text: str) -> str:
    """Formats a name or path for a message: at most 120 characters, with escapes, on one line."""
    safe = ""
    for character in text[:120]:
        if character.isprintable():
            safe += character
        else:
            safe += character.encode("unicode_escape").decode()
    return safe


HUMAN_START = f"{IMAGE_TOKEN}\n"  # the start of each human turn
_GPT_START = "<tool_call>"
_LOOSE_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
# The metadata keys that must be [0, 0] if the calls contain 0, 1 or 2 coordinates, respectively.
_UNUSED_KEYS = (("real_coords", "tolerance", "end_coords"), ("end_coords",), ())


class _DocumentedError(ValueError):
    """Raised with a message that names the field and follows the CUDAG specification's wording."""


def _image_path(path: str) -> str:
    """Accepts a path that stays in the folder `images/`."""
    if not path.startswith("images/"):
        raise _DocumentedError(f"Invalid image path: {printable(path)} (must start with 'images/')")
    if {"", ".", ".."} & set(path.split("/")) or "\\" in path or "\0" in path:
        raise _DocumentedError(f"Invalid image path: {printable(path)} (must stay in images/)")
    return path


def _tolerance(value: Any) -> list[int]:
    """Accepts two integers that are not negative."""
    if not is_pair(value):
        raise _DocumentedError("tolerance must be [tol_x, tol_y] array")
    if min(value) < 0:
        raise _DocumentedError("tolerance must not be negative: no prediction is within it")
    return value


def _human_text(text: str) -> str:
    if not text.startswith(HUMAN_START):
        raise ValueError(f"must start with '{IMAGE_TOKEN}\\n'")
    return text


def _gpt_text(text: str) -> str:
    if not text.startswith(_GPT_START):
        raise ValueError(f"must start with '{_GPT_START}'")
    return text


def _or_none(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Replaces an invalid value with None, because other generators may use the key differently."""
    try:
        return validate(value)
    except ValidationError:
        return None


_ImagePath = Annotated[str, AfterValidator(_image_path)]
_Tolerance = Annotated[Any, PlainValidator(_tolerance)]
_Pair = Annotated[list[int], Field(min_length=2, max_length=2)]
_PairOrNone = Annotated[_Pair | None, WrapValidator(_or_none)]
_Ru = Annotated[int, Field(ge=0, le=RU_MAX)]


class _HumanTurn(Document):
    speaker: Literal["human"] = Field(alias="from")
    value: Annotated[str, AfterValidator(_human_text)]


class _GptTurn(Document):
    speaker: Literal["gpt"] = Field(alias="from")
    value: Annotated[str, AfterValidator(_gpt_text)]


class _Metadata(Document):
    """The metadata of a record of any generator.

    Fields that may be None, except `tolerance`, are not defined by the CUDAG specification. Their
    values are ignored if their type differs from the type that this pipeline writes.
    """

    task_type: Text
    real_coords: _Pair
    image_size: _PairOrNone = None
    has_coordinate: Annotated[bool | None, WrapValidator(_or_none)] = None
    tolerance: Any = None
    end_coords: _PairOrNone = None
    presses: Annotated[int | None, WrapValidator(_or_none)] = None


class _TrainingMetadata(_Metadata):
    tolerance: _Tolerance = None


class _TestMetadata(_Metadata):
    # The CUDAG specification does not require `real_coords` in tests.
    real_coords: _Pair = Field(default_factory=list)
    tolerance: _PairOrNone = None
    start_coords: _PairOrNone = None


class CudagRecord(Document):
    """A line of data.jsonl, train.jsonl, val.jsonl or held_out.jsonl."""

    id: Text
    image: _ImagePath
    conversations: tuple[_HumanTurn, _GptTurn] = Field(strict=False)  # accepts a JSON list
    metadata: _TrainingMetadata


class _Arguments(Document):
    action: Text


class _ExpectedAction(Document):
    name: Literal["computer_use"]
    arguments: _Arguments


class CudagTest(Document):
    """An entry of test/test.json."""

    test_id: Text
    screenshot: _ImagePath
    prompt: Text
    expected_action: _ExpectedAction
    tolerance: _Tolerance = Field(None, validate_default=True)
    metadata: _TestMetadata


class _OurMetadata(StrictDocument):
    """The metadata that this pipeline writes, without the keys that `_Metadata` checks."""

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
    real_coords: _Pair
    start_coords: _Pair
    person_coords: _Pair


# Maps names of fields to problem codes. The code of any other field is its name.
_CODES = {"test_id": "id", "image": "image_path", "screenshot": "image_path"}
_REMEDIES = {  # remedies by problem code
    "image_path": "make the path relative, starting with images/",
    "tolerance": "give two integers from 0: RU on each axis",
}


def _parsed(model: type[DocumentT], value: object) -> DocumentT | list[CudagFault]:
    """Parses a JSON value as a record; returns its faults if the model rejects it."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        causes = [details.get("ctx", {}).get("error") for details in error.errors()]
        faults = []
        for cause, (location, message) in zip(causes, explain(error), strict=True):
            code = _code(location)
            field = field_name(location) or "record"
            text = message if isinstance(cause, _DocumentedError) else f"{field}: {message}"
            faults.append(CudagFault(code, text, _REMEDIES.get(code, "")))
        return faults


def _code(location: Location) -> str:
    """Returns the problem code of a field, usually its key in the record or the metadata."""
    names = [part for part in location if isinstance(part, str)]
    if not names:
        return "record_type"
    name = names[0]
    if name == "metadata" and len(names) > 1:
        name = names[1]
    return _CODES.get(name, name)


def training_faults(value: Any) -> Iterator[CudagFault]:
    """Yields the faults of a line of data.jsonl, train.jsonl, val.jsonl or held_out.jsonl.

    Lines that the model `CudagRecord` rejects are not checked further.
    """
    record = _parsed(CudagRecord, value)
    if not isinstance(record, CudagRecord):
        yield from record
        return
    yield from _id_faults(record.id, "id")
    yield from _image_faults(record.image, (".png", ".jpg"))
    human, gpt = record.conversations
    if human.value.count(IMAGE_TOKEN) != 1:
        message = f"conversations: the human turn must contain exactly one {IMAGE_TOKEN}"
        yield shared("image_token", message)
    try:
        parse_tool_calls(gpt.value)
    except ToolCallError as error:
        yield shared("tool_call", f"gpt {error}", f"follow the schema of the {TOOL_NAME} tool")
    calls = _turn_calls(gpt.value)
    if calls:
        yield from _coordinate_faults(calls, record.metadata)
    yield from _our_metadata_faults(value["metadata"], _OurMetadata)
    keys = [call for call in calls if member(call, "arguments", "action") == "key"]
    repeated = 1
    if keys and all(call == keys[0] for call in calls):
        repeated = len(keys)
    presses = record.metadata.presses
    if presses is not None and presses > 0 and presses != repeated:
        message = f"metadata.presses is {presses}, but the turn presses its keys {repeated} times"
        yield ours("presses", message, "write one call of key for each press")


def eval_faults(value: Any) -> Iterator[CudagFault]:
    """Yields the faults of an entry of test/test.json.

    Entries that the model `CudagTest` rejects are not checked further.
    """
    test = _parsed(CudagTest, value)
    if not isinstance(test, CudagTest):
        yield from test
        return
    yield from _id_faults(test.test_id, "test_id")
    yield from _image_faults(test.screenshot, (".png",))
    expected = value["expected_action"]
    for fault in call_faults(expected):
        yield shared("tool_call", f"expected_action: {fault}")
    metadata = test.metadata
    yield from _coordinate_faults([expected], metadata)
    if metadata.has_coordinate is False:
        message = "a test compares a place, and this action has none"
        yield ours("test_place", message, "leave it out of test.json")
    yield from _start_faults(metadata)
    yield from _our_metadata_faults(value["metadata"], _OurTestMetadata)
    presses = metadata.presses
    if presses is not None and presses > 1 and test.expected_action.arguments.action != "key":
        message = f"metadata.presses is {presses}, but the expected action is not key"
        yield ours("presses", message, "presses is 1 for other actions")
    if test.tolerance != metadata.tolerance:
        yield ours("tolerance", "tolerance differs from metadata.tolerance")


def _start_faults(metadata: _TestMetadata) -> Iterator[CudagFault]:
    """Yields a fault if a drag starts outside the image, or if any other action has a start."""
    start = metadata.start_coords
    size = metadata.image_size
    if start is None:
        return
    if metadata.task_type != DRAG:
        if any(start):
            yield ours("start_coords", "metadata.start_coords must be [0, 0], except of a drag")
    elif size is not None and not _inside(start, size):
        yield ours("start_coords", f"metadata.start_coords {start} is outside the image {size}")


def picture_faults(
    record: object, key: str, files: NamedFiles, folder: str
) -> Iterator[CudagFault]:
    """Yields a fault if a record's image cannot be opened or contradicts the record.

    Args:
        record: the record, which may be invalid.
        key: the key with the path of the image. Forbidden paths are reported elsewhere.
        folder: the folder to which the path is relative: empty or `test/`.
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
    """Returns the path of a record's image; None if it is not a path in `images/`."""
    name = member(record, key)
    if isinstance(name, str) and name.startswith("images/") and ".." not in name.split("/"):
        return name
    return None


def _id_faults(name: str, key: str) -> Iterator[CudagFault]:
    if not ID_PATTERN.fullmatch(name):
        yield shared("id", f"{key} must match {ID_PATTERN.pattern}: {printable(name)}")


def _image_faults(path: str, endings: tuple[str, ...]) -> Iterator[CudagFault]:
    """Yields a fault for each of this pipeline's own rules that an image path breaks."""
    if path.count("/") > 1:
        yield shared("image_path", f"Image name is not flat: {printable(path)}")
    if not path.endswith(endings):
        yield shared("image_kind", f"Image must be {' or '.join(endings)}: {printable(path)}")


def _turn_calls(text: str) -> list[object]:
    """Returns the JSON values of all <tool_call> blocks in an answer; other text is ignored."""
    values: list[object] = []
    for block in _LOOSE_BLOCK.findall(text):
        with suppress(JsonFileError):
            values.append(parse_json(block, "tool call"))
    return values


def member(value: Any, *keys: Any) -> Any:
    """Returns a nested value by its keys and list positions; None if it does not exist."""
    try:
        for key in keys:
            value = value[key]
    except (LookupError, TypeError):
        return None
    return value


def _coordinate_faults(calls: Sequence[object], metadata: _Metadata) -> Iterator[CudagFault]:
    """Yields the faults of a record's coordinates.

    Args:
        calls: the tool calls in order, as any JSON values.
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
    has_coordinate = metadata.has_coordinate
    if has_coordinate is not None and has_coordinate != bool(points):
        actual = "no tool call has a coordinate"
        if points:
            actual = "a tool call has a coordinate"
        message = f"metadata.has_coordinate is {str(has_coordinate).lower()}, but {actual}"
        yield ours("has_coordinate", message)
    size = metadata.image_size
    for key, point in zip(("real_coords", "end_coords"), points, strict=False):
        pixel = getattr(metadata, key)
        if size and min(size) > 0 and pixel:
            yield from _invariant(key, pixel, point, size)
    for key in _UNUSED_KEYS[len(points[:2])]:
        pair = getattr(metadata, key)
        if pair and any(pair):
            message = f"metadata.{key} must be [0, 0] for an action without that coordinate"
            yield ours("no_coordinate", message)


def _acting(calls: Sequence[object]) -> Iterator[object]:
    """Yields the calls, except for moves that only hover before another call.

    A move directly before `left_click_drag` is the start of the drag, and a last move is an action
    of its own, so both are yielded.
    """
    for call, after in zip(calls, [*calls[1:], None], strict=True):
        is_move = member(call, "arguments", "action") == "mouse_move"
        if not is_move or member(after, "arguments", "action") in (None, "left_click_drag"):
            yield call


def _is_place(value: object) -> TypeGuard[list[float]]:
    """Returns whether a JSON value is a list of two numbers from 0 to 1000."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(is_number(part) and 0 <= part <= RU_MAX for part in value)


def _invariant(
    key: str, pixel: Sequence[int], point: Sequence[float], size: Sequence[int]
) -> Iterator[CudagFault]:
    """Yields a fault if a pixel in the metadata is outside the image or contradicts the coordinate.

    Args:
        key: the metadata key of the pixel.
        pixel: x and y in pixels of the image.
        point: the coordinate in the call, RU.
        size: width and height of the image, pixels.
    """
    if not _inside(pixel, size):
        message = f"metadata.{key} {list(pixel)} is outside the image {list(size)}"
        yield shared("outside_image", message)
        return
    wanted = to_ru(pixel[0], pixel[1], (size[0], size[1]))
    if off := max(abs(wanted[0] - point[0]), abs(wanted[1] - point[1])):
        message = f"metadata.{key} is {list(wanted)} in RU, but the coordinate is {list(point)}"
        remedy = "compute the coordinate from the pixel: round(pixel / size * 1000) on each axis"
        scope = Scope.OURS  # a difference of 1 RU can be due to different rounding
        if off > 1:
            scope = Scope.SHARED
        yield CudagFault("ru_invariant", message, remedy, scope)


def _inside(pixel: Sequence[int], size: Sequence[int]) -> bool:
    """Returns whether a pixel is in an image of this width and height."""
    return 0 <= pixel[0] < size[0] and 0 <= pixel[1] < size[1]


def _our_metadata_faults(
    metadata: Mapping[str, Any], model: type[BaseModel]
) -> Iterator[CudagFault]:
    """Yields the faults of metadata that this pipeline wrote.

    Each missing or invalid key is a fault, and all unknown keys together are another.

    Args:
        metadata: the metadata as JSON.
        model: the metadata that this pipeline writes.
    """
    declared = {key: value for key, value in metadata.items() if key in model.model_fields}
    try:
        model.model_validate(declared)
    except ValidationError as error:
        for location, message in explain(error):
            yield ours("metadata_type", f"metadata.{field_name(location)}: {message}")
    # The message does not name the unknown keys, because they may be typed text.
    if unknown := len(metadata) - len(declared):
        yield ours("metadata_key", f"metadata has {counted(unknown, 'unknown keys')}")


def cudag_record_problems(
    record: object, file: str, line: int | None, _files: NamedFiles
) -> list[Problem]:
    """Returns the problems of a line that this pipeline wrote; see `record_checks.Checked`.

    The image is not checked.
    """
    problems = (fault.problem(file, line, ours=True) for fault in training_faults(record))
    return [problem for problem in problems if problem]
