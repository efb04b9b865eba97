"""Rules for one CUDAG record, from the CUDAG document and from this pipeline.

Belongs here: rules that need only the record. Not here: rules between records (cross_checks.py) and
for files (validator.py). Messages follow the style of the document's error list.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from demo_pipeline.formats.cudag.coordinates import (
    coordinate_faults,
    expected_coordinate_faults,
    raw_calls,
)
from demo_pipeline.formats.cudag.fault import CudagFault, Scope, printable
from demo_pipeline.formats.cudag.models import ID_PATTERN, IMAGE_TOKEN
from demo_pipeline.formats.cudag.tool_calls import (
    RU_MAX,
    TOOL_NAME,
    ToolCallError,
    call_faults,
    is_int,
    is_pair,
    parse_tool_calls,
)

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
