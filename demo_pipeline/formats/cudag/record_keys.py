"""What the rules between records need of a record, from its values or from its line.

Belongs here: which values these are. Of a line that is known to be valid, nothing else is read.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class RecordKeys(NamedTuple):
    """Values of a record, of any type; None: absent.

    Attributes:
        name: its id, or the test_id of a test.
        image: path of its image.
        prompt: the text of the human.
        trajectory: id of its trajectory.
        task_type: kind of task.
    """

    name: object
    image: object
    prompt: object
    trajectory: object
    task_type: object


def record_keys(record: Mapping[str, Any]) -> RecordKeys:
    """The keys of a line of records."""
    turns = record.get("conversations")
    first = turns[0] if isinstance(turns, list) and turns else None
    prompt = first.get("value") if isinstance(first, dict) else None
    return RecordKeys(record.get("id"), record.get("image"), prompt, *_from_metadata(record))


def test_keys(entry: Mapping[str, Any]) -> RecordKeys:
    """The keys of an entry of test.json."""
    names = (entry.get("test_id"), entry.get("screenshot"), entry.get("prompt"))
    return RecordKeys(*names, *_from_metadata(entry))


def _from_metadata(record: Mapping[str, Any]) -> tuple[object, object]:
    metadata = record.get("metadata")
    if not isinstance(metadata, dict):
        return None, None
    return metadata.get("trajectory_id"), metadata.get("task_type")


class _Metadata(msgspec.Struct, gc=False):
    trajectory_id: str | None = None
    task_type: str | None = None


class _Turn(msgspec.Struct, gc=False):
    value: str


class _Record(msgspec.Struct, gc=False):
    id: str
    image: str
    conversations: list[_Turn]
    metadata: _Metadata


class _Test(msgspec.Struct, gc=False):
    test_id: str
    screenshot: str
    prompt: str
    metadata: _Metadata


_RECORDS = msgspec.json.Decoder(_Record)
_TESTS = msgspec.json.Decoder(_Test)


def record_line_keys(line: bytes) -> RecordKeys | None:
    """The keys of a valid line of records; None when its values have to be read."""
    try:
        found = _RECORDS.decode(line)
    except (msgspec.MsgspecError, ValueError):
        return None
    if not found.conversations:
        return None
    metadata = found.metadata
    prompt = found.conversations[0].value
    return RecordKeys(found.id, found.image, prompt, metadata.trajectory_id, metadata.task_type)


def test_line_keys(line: bytes) -> RecordKeys | None:
    """The keys of a valid line of test.json; None when its values have to be read."""
    try:
        found = _TESTS.decode(line)
    except (msgspec.MsgspecError, ValueError):
        return None
    names = (found.test_id, found.screenshot, found.prompt)
    return RecordKeys(*names, found.metadata.trajectory_id, found.metadata.task_type)
