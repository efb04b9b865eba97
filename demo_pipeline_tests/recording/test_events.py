"""Tests of the stage `events`: each line is an event or a rejected line, and the checks work."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.files.parquet import column_descriptions
from demo_pipeline.recording.events import (
    EVENT_SCHEMAS,
    EVENTS_FILE,
    REJECTED_FILE,
    SCANS_FILE,
    build_events,
    check_event_tables,
    check_line_accounting,
    count_lines,
    read_events,
    read_scans,
    require_events,
)

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "samples"
LOG = b"""\xef\xbb\xbf{"event":"mousemove","data":{"x":1,"y":2},"time":5}\r
{"event":"axtree","data":{"duration":7,"tree":[{"name":"\xc3\xa9"}]},"time":6}\r
\r
{"event":"keydown","data":{"key":"A","actual_char":"a"},"time":8}\r
{"event":"ffmpeg_stderr","data":{"output":"start: 1.5"},"time":9}\r
{"event":"mousewheel","data":{"delta":-120},"time":10}\r
{"event":"mouseup","data":{"button":"Left"},"ti"""


def built(folder: Path, log: bytes) -> dict[str, Any]:
    (folder / "input_log.jsonl").write_bytes(log)
    return build_events(folder / "input_log.jsonl", folder)


def test_the_name_of_an_event_is_published_only_when_it_is_a_known_one(tmp_path):
    """The table has the logged name. The summary, which is shown to people, has only its length."""
    names = ("mousedelta", "hunter2", "p4ssw0rd", "é")
    lines = [{"event": name, "data": {}, "time": n} for n, name in enumerate(names)]
    summary = built(tmp_path, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert summary["by_event"] == {
        "mousedelta": 1,
        "unknown event, 1 character": 1,
        "unknown event, 7 characters": 1,
        "unknown event, 8 characters": 1,
    }
    assert [row["event"] for row in read_events(tmp_path).to_pylist()] == list(names)


def test_every_line_is_a_row(tmp_path):
    summary = built(tmp_path, LOG)
    events = read_events(tmp_path).to_pylist()
    assert [(row["event_index"], row["event"], row["time_ms"]) for row in events] == [
        (1, "mousemove", 5),
        (2, "axtree", 6),
        (4, "keydown", 8),
        (5, "ffmpeg_stderr", 9),
        (6, "mousewheel", 10),
    ]
    rejected = pq.read_table(tmp_path / REJECTED_FILE).to_pylist()
    assert [(row["line"], row["code"]) for row in rejected] == [
        (3, "blank_line"),
        (7, "invalid_json"),
    ]
    assert (summary["lines"], summary["events"], summary["rejected_lines"]) == (7, 5, 2)
    assert summary["rejected_by_reason"] == {"blank_line": 1, "invalid_json": 1}
    assert summary["first_rejected"][0] == "input_log.jsonl:3: line is blank"
    assert check_line_accounting(tmp_path, tmp_path / "input_log.jsonl") == []
    assert check_event_tables(tmp_path) == []


def test_scans_have_their_position_in_the_log(tmp_path):
    built(tmp_path, LOG)
    [scan] = read_scans(tmp_path)
    assert (scan["event_index"], scan["time_ms"], scan["duration_ms"]) == (2, 6, 7)
    piece = LOG[scan["byte_offset"] : scan["byte_offset"] + scan["byte_length"]]
    assert json.loads(piece)["data"]["tree"] == [{"name": "é"}]


def test_the_tables_have_the_declared_schemas(tmp_path):
    built(tmp_path, b"")
    for name, schema in EVENT_SCHEMAS.items():
        assert pq.read_schema(tmp_path / name).equals(schema)
        assert all(text for text in column_descriptions(schema).values())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([*LOG.split(b"\n"), b"", b"\xff", b"{}"]), max_size=12))
def test_every_line_is_accounted_for(tmp_path_factory, lines):
    folder = tmp_path_factory.mktemp("events")
    summary = built(folder, b"\n".join(lines))
    assert summary["lines"] == count_lines(folder / "input_log.jsonl")
    assert check_line_accounting(folder, folder / "input_log.jsonl") == []


# --- the checks


def test_a_lost_row_is_noticed(tmp_path):
    built(tmp_path, LOG)
    table = pq.read_table(tmp_path / EVENTS_FILE)
    pq.write_table(table.slice(1), tmp_path / EVENTS_FILE)
    [problem] = check_line_accounting(tmp_path, tmp_path / "input_log.jsonl")
    assert problem.code == "lines_unaccounted"
    assert "7 lines, but 6 rows" in problem.message


def test_a_missing_table_is_noticed(tmp_path):
    built(tmp_path, LOG)
    (tmp_path / SCANS_FILE).unlink()
    assert [(p.code, p.file) for p in check_event_tables(tmp_path)] == [
        ("missing_table", SCANS_FILE)
    ]


def test_another_column_type_is_noticed(tmp_path):
    built(tmp_path, LOG)
    table = pq.read_table(tmp_path / EVENTS_FILE)
    column = table.schema.get_field_index("x")
    changed = table.set_column(column, "x", table["x"].cast(pa.float32()))
    pq.write_table(changed, tmp_path / EVENTS_FILE)
    assert [problem.code for problem in check_event_tables(tmp_path)] == ["wrong_schema"]


@pytest.mark.parametrize(
    ("log", "where"), [(b"", "is empty"), (b"junk\n\xff\n", "input_log.jsonl:1:")]
)
def test_a_log_without_one_usable_line_is_an_error(tmp_path, log, where):
    [problem] = require_events(built(tmp_path, log))
    assert (problem.code, problem.line) == ("no_events", 1)
    assert where in problem.message
    assert problem.remedy


def test_one_usable_line_is_enough(tmp_path):
    assert require_events(built(tmp_path, b"junk\n" + LOG)) == []
