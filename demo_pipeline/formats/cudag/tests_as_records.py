"""Rules for `test/records.jsonl`: the tests as conversations, which trainers' loaders read.

Its lines are the entries of test.json in their order, each in the form of a training record whose
image is below `test/`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from demo_pipeline.common.digest_column import DigestColumn
from demo_pipeline.common.json_array import LineArray
from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.known_lines import KnownLines
from demo_pipeline.common.line_index import index_lines
from demo_pipeline.formats.cudag.fault import CudagFault, LocatedFault, Scope, json_fault
from demo_pipeline.formats.cudag.record_rules import HUMAN_START, training_faults
from demo_pipeline.formats.cudag.sidecars import TEST_RECORDS
from demo_pipeline.formats.cudag.tool_calls import ToolCallError, parse_tool_calls

_REMEDY = "build the dataset again"
_SAME = ("task_type", "trajectory_id", "step_index")


def conversation_faults(
    root: Path, tests: "list[Any] | LineArray", known: KnownLines
) -> Iterator[LocatedFault]:
    """Yield the faults of the file: lines that are no records, or not those of test.json.

    Args:
        root: the dataset's directory.
        tests: the entries of test.json.
        known: lines that were found valid before, each with the digest of its entry's line.
    """
    path = root / TEST_RECORDS
    if not path.is_file():
        message = f"Missing required file: {TEST_RECORDS}"
        yield "./", None, CudagFault("missing_file", message, _REMEDY, Scope.OURS)
        return
    lines, digests = index_lines(path)
    entries = tests.digests if isinstance(tests, LineArray) else DigestColumn()
    compared = DigestColumn(known.sort_out(digests)[0])
    fresh = compared.differing(entries)
    for (place, line), test in zip(lines.lines_at(fresh), _at(tests, fresh), strict=True):
        faults = list(_line_faults(line, test))
        if not faults and place < len(entries):
            known.add_found(digests[place], entries[place])
        for fault in faults:
            yield TEST_RECORDS, place + 1, fault
    if len(digests) != len(tests):
        message = f"has {len(digests)} lines for {len(tests)} entries of test.json"
        yield TEST_RECORDS, None, CudagFault("test_records", message, _REMEDY, Scope.OURS)


def _at(tests: "list[Any] | LineArray", places: Sequence[int]) -> Iterator[object]:
    """Yield the entries at places in ascending order, from 0; None for one that is not there."""
    texts, passed = iter(tests.lines() if isinstance(tests, LineArray) else tests), 0
    for place in places:
        text = next(islice(texts, place - passed, None), None)
        yield parse_json(text, "test.json") if isinstance(text, bytes) else text
        passed = place + 1


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
