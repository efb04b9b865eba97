"""Arrays with an object a line are read item by item; others are not taken for such."""

import json
from pathlib import Path

import pytest

from demo_pipeline.files.json_files import LineArray
from demo_pipeline.files.line_digests import line_digest


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("[\n]\n", True),
        ('[\n{"a":1}\n]\n', True),
        ('[\n{"a":1},\n{"b":[2]}\n]', True),
        ("[]\n", False),
        ("", False),
        ("[\n", False),
        ("[\n1,\n2\n]\n", False),
        ('[\n{"a":1},\n{}\n', False),
        ('[\n{"a":1},\n]\n', False),
        ('[\n{"a":1}\n{}\n]\n', False),
        ('[\n{"a":1},\n\n]\n', False),
        ('[\n{"a":1},\n{"b":}\n]\n', False),
        ('[\n{"a":1}\n]\nx', False),
        ('[\n{"a":[\n1]}\n]\n', False),
        ('{"a":1}\n', False),
    ],
)
def test_an_object_a_line_is_read_as_the_whole_file_is(
    tmp_path: Path, text: str, is_one: bool
) -> None:
    path = tmp_path / "test.json"
    path.write_text(text)
    found = LineArray.of(path)
    assert (found is not None) == is_one
    if found is not None:
        assert list(found) == list(found) == json.loads(text)
        assert len(found) == len(json.loads(text))
        lines = [json.dumps(item, separators=(",", ":")).encode() for item in found]
        assert list(found.digests) == [line_digest(line) for line in lines]


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert LineArray.of(tmp_path / "test.json") is None
