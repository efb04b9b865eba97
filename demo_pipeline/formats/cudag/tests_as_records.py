"""Rules for `test/records.jsonl`: the tests as conversations, which trainers' loaders read.

Its lines are the entries of test.json in their order, each in the form of a training record whose
image is below `test/`.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.formats.cudag.fault import CudagFault, LocatedFault, Scope, json_fault
from demo_pipeline.formats.cudag.record_rules import HUMAN_START, training_faults
from demo_pipeline.formats.cudag.sidecars import TEST_RECORDS
from demo_pipeline.formats.cudag.tool_calls import ToolCallError, parse_tool_calls

_REMEDY = "build the dataset again"
_SAME = ("task_type", "trajectory_id", "step_index")


def conversation_faults(root: Path, tests: Collection[object]) -> Iterator[LocatedFault]:
    """Yield the faults of the file: lines that are no records, or not those of test.json.

    Args:
        root: the dataset's directory.
        tests: the entries of test.json.
    """
    path = root / TEST_RECORDS
    if not path.is_file():
        message = f"Missing required file: {TEST_RECORDS}"
        yield "./", None, CudagFault("missing_file", message, _REMEDY, Scope.OURS)
        return
    number, entries = 0, iter(tests)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            for fault in _line_faults(line, next(entries, None)):
                yield TEST_RECORDS, number, fault
    if number != len(tests):
        message = f"has {number} lines for {len(tests)} entries of test.json"
        yield TEST_RECORDS, None, CudagFault("test_records", message, _REMEDY, Scope.OURS)


def _line_faults(line: bytes, test: object) -> Iterator[CudagFault]:
    try:
        record = parse_json(line, TEST_RECORDS)
    except JsonFileError as error:
        yield json_fault(error, Scope.OURS)
        return
    image = record.get("image") if isinstance(record, dict) else None
    if isinstance(image, str):
        record = {**record, "image": image.removeprefix("test/")}
    faults = list(training_faults(record))
    yield from faults
    if not faults and isinstance(test, dict):
        for message in _differences(record, str(image), test):
            yield CudagFault("test_records", message, _REMEDY, Scope.OURS)


def _differences(record: Mapping[str, Any], image: str, test: Mapping[str, Any]) -> Iterator[str]:
    if record["id"] != test.get("test_id"):
        yield "id differs from the test_id of this entry of test.json"
    if image != f"test/{test.get('screenshot')}":
        yield "image differs from the screenshot of this entry of test.json"
    human, answer = (turn["value"] for turn in record["conversations"])
    if human != f"{HUMAN_START}{test.get('prompt')}":
        yield "the human turn differs from the prompt of this entry of test.json"
    if _last_call(answer) != test.get("expected_action"):
        yield "the last tool call differs from the expected_action of this entry of test.json"
    known, wanted = record["metadata"], test.get("metadata")
    if isinstance(wanted, dict) and any(known.get(key) != wanted.get(key) for key in _SAME):
        yield f"metadata: one of {', '.join(_SAME)} differs from this entry of test.json"


def _last_call(answer: str) -> dict[str, Any] | None:
    try:
        return parse_tool_calls(answer)[-1].as_dict()
    except ToolCallError:
        return None
