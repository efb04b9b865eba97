"""Rules for one CUDAG record: its form, and its coordinates against its metadata.

Belongs here: rules that need only the record, among them the range of RU (resolution units, 0 to
1000) and the invariant RU(real_coords, image_size) = coordinate, from the CUDAG document's section
"Coordinate System". Messages follow the style of the document's error list. Rules between records
are in cross_checks.py, for files in validator.py.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from demo_pipeline.exports.cudag.models import ID_PATTERN, IMAGE_TOKEN, to_ru
from demo_pipeline.exports.cudag.tool_calls import (
    RU_MAX,
    TOOL_NAME,
    ToolCallError,
    call_faults,
    is_int,
    is_number,
    is_pair,
    parse_tool_calls,
)
from demo_pipeline.files.json_files import JsonFileError, parse_json
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


@dataclass(frozen=True, slots=True)
class CudagFault:
    """One broken rule, without the file and line, which the caller knows."""

    code: str
    message: str
    remedy: str = ""
    scope: Scope = Scope.FORMAT
    column: int | None = None

    def problem(self, file: str, line: int | None, *, ours: bool) -> Problem | None:
        """The problem at a file and line; None if the rule does not apply (see `Scope`).

        Args:
            file: the file name in the problem.
            line: 1-based line, if known.
            ours: whether this pipeline made the dataset.
        """
        if self.scope is Scope.OURS and not ours:
            return None
        is_warning = self.scope is Scope.NOTE or (self.scope is Scope.SHARED and not ours)
        severity = Severity.WARNING if is_warning else Severity.ERROR
        return Problem(
            self.code,
            file,
            self.message,
            line,
            remedy=self.remedy,
            severity=severity,
            column=self.column,
        )


def json_fault(error: JsonFileError, scope: Scope = Scope.FORMAT) -> CudagFault:
    """The fault of a text that is not JSON."""
    return CudagFault("invalid_json", error.message, scope=scope, column=error.column)


LocatedFault = tuple[str, int | None, CudagFault]
"""File name, line and fault."""


def printable(text: str) -> str:
    """A name or path for a message: at most 120 characters on one line, escaped where needed."""
    safe = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:120])
    return "".join(safe)


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


HUMAN_START = f"{IMAGE_TOKEN}\n"
GPT_START = "<tool_call>"


def _ru_list(length: int) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        return (
            isinstance(value, list)
            and len(value) == length
            and all(is_int(part) and 0 <= part <= RU_MAX for part in value)
        )

    return accepts


def is_text(value: object) -> bool:
    """Whether a JSON value is a string."""
    return isinstance(value, str)


def _is_natural(value: object) -> bool:
    return isinstance(value, int) and is_int(value) and value >= 0


def _is_size(value: object) -> bool:
    return isinstance(value, list) and is_pair(value) and min(value) > 0


Rules = Mapping[str, tuple[Callable[[object], bool], str]]
_OUR_METADATA: Rules = {
    "tolerance": (_ru_list(2), "two integers from 0 to 1000"),
    "image_size": (_is_size, "[width, height] in pixels"),
    "has_coordinate": (lambda value: isinstance(value, bool), "true or false"),
    "end_coords": (is_pair, "[x, y] in pixels"),
    "scroll_direction": (
        lambda value: value in ("", "up", "down", "left", "right"),
        "up, down, left, right or empty",
    ),
    "scroll_amount": (_is_natural, "an integer from 0"),
    "presses": (lambda value: _is_natural(value) and value != 0, "an integer from 1"),
    "trajectory_id": (lambda value: is_text(value) and value != "", "a non-empty string"),
    "step_index": (_is_natural, "an integer from 0"),
    "application": (is_text, "a string"),
    "reasoning": (is_text, "a string"),
    "target_bbox": (_ru_list(4), "[x0, y0, x1, y1] with integers from 0 to 1000"),
}
_OUR_TEST_METADATA: Rules = {
    "start_coords": (is_pair, "[x, y] in pixels"),
}


def training_faults(record: object) -> Iterator[CudagFault]:
    """Yield the faults of a line of data.jsonl, train.jsonl, val.jsonl or held_out.jsonl."""
    if not isinstance(record, dict):
        yield CudagFault("record_type", "record must be a JSON object")
        return
    yield from _name_faults(record, "id")
    yield from _image_faults(record, "image")
    turns = record.get("conversations")
    yield from _conversation_faults(turns)
    metadata = record.get("metadata")
    calls = _turn_calls(turns)
    if calls:
        yield from coordinate_faults(calls, metadata)
    if not isinstance(metadata, dict):
        yield CudagFault("metadata", "metadata must be an object")
        return
    yield from _metadata_faults(metadata, real_coords=True)
    if "tolerance" in metadata:
        yield from _tolerance_faults(metadata["tolerance"])
    yield from _our_metadata_faults(metadata, _OUR_METADATA)
    yield from _press_faults(calls, metadata.get("presses"))


def eval_faults(record: object) -> Iterator[CudagFault]:
    """Yield the faults of an entry of test/test.json."""
    if not isinstance(record, dict):
        yield CudagFault("record_type", "record must be a JSON object")
        return
    yield from _name_faults(record, "test_id")
    yield from _image_faults(record, "screenshot")
    if not isinstance(record.get("prompt"), str) or not record["prompt"]:
        yield CudagFault("prompt", "prompt must be a non-empty string")
    yield from _expected_faults(record.get("expected_action"))
    yield from _tolerance_faults(record.get("tolerance"))
    metadata = record.get("metadata")
    if not isinstance(metadata, dict):
        yield CudagFault("metadata", "metadata must be an object")
        return
    expected = record.get("expected_action")
    if isinstance(expected, dict) and isinstance(expected.get("arguments"), dict):
        yield from expected_coordinate_faults(expected, metadata)
    yield from _metadata_faults(metadata, real_coords=False)
    yield from _our_metadata_faults(metadata, {**_OUR_METADATA, **_OUR_TEST_METADATA})
    yield from _expected_press_faults(expected, metadata.get("presses"))
    if is_pair(record.get("tolerance")) and record["tolerance"] != metadata.get("tolerance"):
        yield CudagFault("tolerance", "tolerance differs from metadata.tolerance", scope=Scope.OURS)


def _name_faults(record: Mapping[str, Any], key: str) -> Iterator[CudagFault]:
    name = record.get(key)
    if not isinstance(name, str) or not name:
        yield CudagFault("id", f"{key} must be a non-empty string")
    elif not ID_PATTERN.fullmatch(name):
        yield CudagFault(
            "id", f"{key} must match {ID_PATTERN.pattern}: {printable(name)}", "", Scope.SHARED
        )


def _image_faults(record: Mapping[str, Any], key: str) -> Iterator[CudagFault]:
    path = record.get(key)
    if not isinstance(path, str):
        yield CudagFault("image_path", f"{key} must be a string")
        return
    if not path.startswith("images/"):
        message = f"Invalid image path: {printable(path)} (must start with 'images/')"
        yield CudagFault("image_path", message, "make the path relative, starting with images/")
    elif {"", ".", ".."} & set(path.split("/")) or "\\" in path or "\0" in path:
        yield CudagFault(
            "image_path", f"Invalid image path: {printable(path)} (must stay in images/)"
        )
    elif path.count("/") > 1:
        yield CudagFault(
            "image_path", f"Image name is not flat: {printable(path)}", scope=Scope.SHARED
        )
    wanted = (".png", ".jpg") if key == "image" else (".png",)
    if not path.endswith(wanted):
        message = f"Image must be {' or '.join(wanted)}: {printable(path)}"
        yield CudagFault("image_kind", message, scope=Scope.SHARED)


def _conversation_faults(turns: object) -> Iterator[CudagFault]:
    if not isinstance(turns, list) or len(turns) != 2:
        yield CudagFault("conversations", "conversations must be an array of exactly 2 turns")
        return
    for turn, speaker, start in zip(turns, ("human", "gpt"), (HUMAN_START, GPT_START), strict=True):
        where = f"conversations: the {speaker} turn"
        if not isinstance(turn, dict):
            yield CudagFault("conversations", f"{where} must be an object")
        elif turn.get("from") != speaker:
            yield CudagFault("conversations", f"{where} must have from '{speaker}'")
        elif not isinstance(turn.get("value"), str):
            yield CudagFault("conversations", f"{where} must have a string value")
        elif not turn["value"].startswith(start):
            literal = start.replace("\n", "\\n")
            yield CudagFault("conversations", f"{where} must start with '{literal}'")
        elif speaker == "gpt":
            yield from _answer_faults(turn["value"])
        elif turn["value"].count(IMAGE_TOKEN) != 1:
            message = f"{where} must contain exactly one {IMAGE_TOKEN}"
            yield CudagFault("image_token", message, scope=Scope.SHARED)


def _answer_faults(value: str) -> Iterator[CudagFault]:
    try:
        parse_tool_calls(value)
    except ToolCallError as error:
        yield CudagFault(
            "tool_call", f"gpt {error}", "follow the schema of the computer_use tool", Scope.SHARED
        )


def _turn_calls(turns: object) -> list[object]:
    last = turns[-1] if isinstance(turns, list) and turns else None
    value = last.get("value") if isinstance(last, dict) else None
    return raw_calls(value) if isinstance(value, str) else []


def _expected_faults(action: object) -> Iterator[CudagFault]:
    if not isinstance(action, dict):
        yield CudagFault("expected_action", "expected_action must be an object")
        return
    if action.get("name") != TOOL_NAME:
        yield CudagFault("expected_action", f"expected_action.name must be '{TOOL_NAME}'")
    arguments = action.get("arguments")
    if not isinstance(arguments, dict):
        yield CudagFault("expected_action", "expected_action.arguments must be an object")
        return
    if not isinstance(arguments.get("action"), str) or not arguments["action"]:
        yield CudagFault("expected_action", "expected_action.arguments.action must be a string")
    for fault in call_faults(action):
        yield CudagFault("tool_call", f"expected_action: {fault}", scope=Scope.SHARED)


def _press_faults(calls: Sequence[object], presses: object) -> Iterator[CudagFault]:
    """In a training record, a key that is pressed n times is n equal calls."""
    keys = [call for call in calls if _is_key_call(call)]
    repeated = len(keys) if keys and all(call == keys[0] for call in calls) else 1
    if is_int(presses) and isinstance(presses, int) and presses >= 1 and presses != repeated:
        message = f"metadata.presses is {presses}, but the turn presses its keys {repeated} times"
        yield CudagFault("presses", message, "write one call of key a press", Scope.OURS)


def _expected_press_faults(expected: object, presses: object) -> Iterator[CudagFault]:
    """A test expects a key once; how often it is pressed is in the metadata."""
    repeated = isinstance(presses, int) and is_int(presses) and presses > 1
    if repeated and not _is_key_call(expected):
        message = f"metadata.presses is {presses}, but the expected action is not key"
        yield CudagFault("presses", message, "presses is 1 for other actions", Scope.OURS)


def _is_key_call(call: object) -> bool:
    arguments = call.get("arguments") if isinstance(call, dict) else None
    return isinstance(arguments, dict) and arguments.get("action") == "key"


def _tolerance_faults(tolerance: object) -> Iterator[CudagFault]:
    if not isinstance(tolerance, list) or not is_pair(tolerance):
        remedy = "give the tolerance as a two-element array of integers"
        yield CudagFault("tolerance", "tolerance must be [tol_x, tol_y] array", remedy)
    elif min(tolerance) < 0:
        message = "tolerance must not be negative: no prediction is within it"
        yield CudagFault("tolerance", message, "give RU from 0 on each axis")


def _metadata_faults(metadata: Mapping[str, Any], *, real_coords: bool) -> Iterator[CudagFault]:
    if not isinstance(metadata.get("task_type"), str) or not metadata["task_type"]:
        yield CudagFault("task_type", "metadata.task_type must be a non-empty string")
    if "real_coords" not in metadata:
        message = "metadata.real_coords is missing"
        yield CudagFault("real_coords", message, scope=Scope.FORMAT if real_coords else Scope.OURS)
    elif not is_pair(metadata["real_coords"]):
        yield CudagFault("real_coords", "metadata.real_coords must be [x, y] array")


def _our_metadata_faults(metadata: Mapping[str, Any], rules: Rules) -> Iterator[CudagFault]:
    for key, (accepts, wanted) in rules.items():
        if key not in metadata:
            yield CudagFault("metadata_key", f"metadata.{key} is missing", scope=Scope.OURS)
        elif not accepts(metadata[key]):
            yield CudagFault("metadata_type", f"metadata.{key} must be {wanted}", scope=Scope.OURS)
    if unknown := len(set(metadata) - set(rules) - {"task_type", "real_coords"}):
        message = f"metadata has {unknown} unknown {'key' if unknown == 1 else 'keys'}"
        yield CudagFault("metadata_key", message, scope=Scope.OURS)
