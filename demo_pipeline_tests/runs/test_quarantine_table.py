"""The quarantine as a table: one row per problem, even for incomplete records."""

import pyarrow.parquet as pq

from demo_pipeline.files.parquet import schema_problems
from demo_pipeline.problems import Problem
from demo_pipeline.runs.quarantine import QuarantineRecord, quarantine_demonstration, release
from demo_pipeline.runs.quarantine_table import (
    QUARANTINE_SCHEMA,
    QUARANTINE_STAGE,
    TABLE_FILE,
    rows_of,
    write_quarantine_table,
)
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.sample_workspace import open_workspace

TORN = Problem("torn", "input_log.jsonl", "ends early", line=3, byte=7, remedy="send it again")


def record(*problems: Problem, **values: object) -> QuarantineRecord:
    given = {"demonstration": "d1", "stage": "events", "tool_version": "1", **values}
    return QuarantineRecord.model_validate(
        {**given, "problems": [one.as_dict() for one in problems]}
    )


def test_each_problem_is_one_row_with_the_fields_of_its_record(tmp_path):
    records = [record(TORN, TORN, attempts=2), record(TORN, demonstration="d2")]
    summary = write_quarantine_table(records, tmp_path)
    assert summary == {
        "quarantined": 2,
        "problems": 3,
        "by_stage": {"events": 2},
        "by_code": {"torn": 3},
    }
    table = pq.read_table(tmp_path / TABLE_FILE)
    assert table.schema.equals(QUARANTINE_SCHEMA)
    assert table.to_pylist()[0] == {
        "demonstration": "d1",
        "stage": "events",
        "code": "torn",
        "file": "input_log.jsonl",
        "line": 3,
        "byte": 7,
        "frame": None,
        "message": "ends early",
        "remedy": "send it again",
        "severity": "error",
        "fingerprint": None,
        "tool_version": "1",
        "attempts": 2,
    }
    assert schema_problems(tmp_path / TABLE_FILE, QUARANTINE_SCHEMA) == []


def test_a_record_with_invalid_values_still_gives_a_row():
    odd = record().model_copy(update={"problems": [{"code": 5, "line": "three", "byte": True}]})
    bare = record()
    first, second = rows_of([odd, bare])
    assert (first["code"], first["line"], first["byte"]) == ("", None, None)
    assert (first["message"], first["severity"]) == ("", "error")
    assert (second["demonstration"], second["code"]) == ("d1", "unknown")


def test_the_table_is_rebuilt_only_when_the_quarantine_changed(tmp_path):
    (tmp_path / "uploads").mkdir()
    workspace = open_workspace(tmp_path)
    assert run_dataset_stage(workspace, QUARANTINE_STAGE).summary["quarantined"] == 0
    quarantine_demonstration(workspace.store, "d1", "events", "a" * 64, [TORN])
    assert run_dataset_stage(workspace, QUARANTINE_STAGE).status == "made"
    assert run_dataset_stage(workspace, QUARANTINE_STAGE).status == "unchanged"
    quarantine_demonstration(workspace.store, "d1", "events", "a" * 64, [TORN])
    assert run_dataset_stage(workspace, QUARANTINE_STAGE).status == "made"
    release(workspace.store, "d1")
    assert run_dataset_stage(workspace, QUARANTINE_STAGE).summary == {
        "quarantined": 0,
        "problems": 0,
        "by_stage": {},
        "by_code": {},
    }
