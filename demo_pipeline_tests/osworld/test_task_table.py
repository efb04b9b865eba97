"""Tests of the catalog of OSWorld tasks."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.osworld.task_files import (
    CATALOG_FILE,
    CATALOG_SCHEMA,
    PROBLEMS_FILE,
    PROBLEMS_SCHEMA,
    build_catalog,
    catalog_problems,
    check_catalog,
    instruction_key,
    read_catalog,
    read_task_folder,
)
from demo_pipeline_tests.task_folders import RISKY, put_tasks, put_text, risk_task, task


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    odd = task("b", source=["x", "y"], related_apps="Google Chrome", note={"deep": [1.0]})
    put_tasks(folder, {"os": [task("a")], "chrome": [odd]})
    put_tasks(folder / RISKY, {"mail": [risk_task("c", evaluator="evaluation_dir")]})
    return folder


def build(root: Path, out: Path) -> dict[str, object]:
    out.mkdir()
    return build_catalog(read_task_folder(root), out)


def test_every_task_is_a_row_with_the_content_of_its_file(root, tmp_path):
    summary = build(root, tmp_path / "out")
    assert check_catalog(tmp_path / "out") == []
    assert summary == {
        "tasks": 3,
        "ordinary": 2,
        "risk": 1,
        "unusable": 0,
        "domains": {"chrome": 1, "mail": 1, "os": 1},
        "errors": 0,
        "warnings": 2,
    }
    rows = {row["task_id"]: row for row in read_catalog(tmp_path / "out")}
    assert list(rows) == ["c", "b", "a"]  # sorted by file
    assert rows["b"]["sources"] == ["x", "y"]
    assert rows["b"]["related_apps"] == ["chrome"]
    assert rows["b"]["related_apps_raw"] == ["Google Chrome"]
    assert rows["b"]["warnings"] == 2
    assert rows["c"]["kind"] == "risk"
    assert rows["c"]["evaluator"] == "text"
    assert rows["c"]["evaluator_functions"] == []
    assert rows["c"]["risk_evaluator_functions"] == ["one", "two"]
    assert rows["c"]["halfway_types"] == rows["c"]["config_types"] == ["launch"]
    assert (rows["a"]["risk_evaluator"], rows["a"]["halfway_types"]) == ("none", [])
    assert rows["a"]["evaluator_functions"] == ["exact_match"]
    assert all(row["listed"] for row in rows.values())


def test_the_document_keeps_unknown_keys(root, tmp_path):
    build(root, tmp_path / "out")
    for row in read_catalog(tmp_path / "out"):
        assert json.loads(row["document"]) == json.loads((root / row["file"]).read_bytes())


def test_every_column_has_a_description(root, tmp_path):
    build(root, tmp_path / "out")
    for name, schema in ((CATALOG_FILE, CATALOG_SCHEMA), (PROBLEMS_FILE, PROBLEMS_SCHEMA)):
        written = pq.read_schema(tmp_path / "out" / name)
        assert written.equals(schema)
        assert all(field.metadata[b"description"] for field in written)


def test_an_invalid_file_is_a_problem_and_gives_no_row(root, tmp_path):
    put_text(root, "examples/os/bad.json", '{"id": "bad",\n"instruction": []}')
    put_text(root, "test_all.json", '{"os": ["a", "bad"], "chrome": ["b"]}')
    summary = build(root, tmp_path / "out")
    assert (summary["tasks"], summary["unusable"], summary["errors"]) == (3, 1, 1)
    [problem] = [p for p in catalog_problems(tmp_path / "out") if p.severity == "error"]
    assert problem.location == "examples/os/bad.json:2"
    assert problem.remedy


def test_an_empty_folder_gives_an_empty_catalog(tmp_path):
    assert build(tmp_path / "none", tmp_path / "out")["tasks"] == 0
    assert check_catalog(tmp_path / "out") == []
    assert read_catalog(tmp_path / "out") == []
    assert catalog_problems(tmp_path / "out") == []


def test_a_lone_surrogate_does_not_stop_the_catalog(tmp_path):
    text = '{"id": "a", "instruction": "x", "note": "\\udfff", "evaluator": {"func": "f\\ud800"}}'
    put_text(tmp_path, "tasks/examples/os/a.json", text)
    put_text(tmp_path, "tasks/examples/os/b.json", '{"id": "b", "instruction": "\\ud800"}')
    build(tmp_path / "tasks", tmp_path / "out")
    [row] = read_catalog(tmp_path / "out")
    assert row["evaluator_functions"] == ["f\ufffd"]
    assert json.loads(row["document"]) == json.loads(text)
    files = [p.file for p in catalog_problems(tmp_path / "out") if p.severity == "error"]
    assert files == ["examples/os/b.json"]


def test_the_check_finds_a_wrong_schema_and_a_repeated_file(root, tmp_path):
    out = tmp_path / "out"
    build(root, out)
    table = pq.read_table(out / CATALOG_FILE)
    twice = table.slice(0, 1).to_pylist() * 2
    pq.write_table(type(table).from_pylist(twice, schema=CATALOG_SCHEMA), out / CATALOG_FILE)
    assert [p.code for p in check_catalog(out)] == ["repeated_file"]
    pq.write_table(table.drop_columns(["kind"]), out / CATALOG_FILE)
    assert [p.code for p in check_catalog(out)] == ["wrong_schema"]
    (out / CATALOG_FILE).unlink()
    assert [p.code for p in check_catalog(out)] == ["missing_table"]


@pytest.mark.parametrize(
    "text",
    [
        "Rename the file to a-b, please.",
        "  rename THE file\n to a-b, please",
        '"Rename the <app>file</app> to a\u2010b, please!"',
        "Rename the\u200b file to \uff41-b, please\u2026",
        "\u201cRename the file to a\u2013b, please.\u201d",
    ],
)
def test_instructions_that_differ_in_looks_only_are_equal(text):
    assert instruction_key(text) == "rename the file to a-b, please"


@pytest.mark.parametrize(
    ("instruction", "other"),
    [
        ("Install C++.", "Install C#."),
        ("Set it to -5", "Set it to 5"),
        ("Open a.txt", "Open atxt"),
        ("Sort the list", "Sort a list"),
    ],
)
def test_instructions_that_differ_in_a_word_are_not(instruction, other):
    assert instruction_key(instruction) != instruction_key(other)


@given(st.text(max_size=40))
def test_the_key_of_a_key_is_the_key(text):
    key = instruction_key(text)
    assert instruction_key(key) == key
    assert instruction_key(f' "{text}." ') == key
