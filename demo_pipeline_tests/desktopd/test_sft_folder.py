"""Tests that the validation of a folder of SFT samples reads every file that a trainer loads."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.sft import validate_sft_folder
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, read_lines
from demo_pipeline_tests.exports.forms import build_sft


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns an export of four tasks with three steps in all splits, next to the trajectories."""
    actions = [CLICK, ("type", {"text": "hi"}), ("hotkey", {"keys": ["enter"]})]
    demos = [
        make_trajectory(tmp_path, f"demo{n}", actions, shade=9 * n, instruction=f"Task {n}")
        for n in range(3)
    ]
    demos.append(make_trajectory(tmp_path, "apart", actions, shade=90, application="gimp"))
    build_sft(demos, tmp_path, DatasetSettings(held_out_applications=("gimp",)))
    return tmp_path


def error_places(root: Path) -> list[tuple[str, str]]:
    return [(problem.code, problem.location) for problem in validate_sft_folder(root)]


def edit(path: Path, change: Any) -> None:
    lines = read_lines(path)
    change(lines)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def test_an_export_has_no_problem(root):
    assert validate_sft_folder(root) == []


def test_a_split_that_was_changed_is_found(root):
    edit(root / "val.jsonl", lambda lines: lines[1]["output"].update(reasoning="Because"))
    kinds = [code for code, _ in error_places(root)]
    assert kinds == ["split_union", "reasoning_differs", "split_union", "table_differs"]
    assert error_places(root)[0] == ("split_union", "val.jsonl:2")


def test_a_sample_in_two_splits_or_in_none_is_found(root):
    first = read_lines(root / "train.jsonl")[0]
    edit(root / "test.jsonl", lambda lines: lines.append(first))
    assert ("split_overlap", "test.jsonl:4") in error_places(root)
    edit(root / "test.jsonl", lambda lines: lines.clear())
    places = [where for code, where in error_places(root) if code == "split_union"]
    assert len(places) == 3
    assert all(where.startswith("samples.jsonl:") for where in places)


def test_missing_and_broken_files_are_found(root):
    (root / "val.parquet").unlink()
    (root / "test.parquet").write_bytes(b"PAR1")
    assert error_places(root) == [
        ("missing_file", "val.parquet"),
        ("unreadable_table", "test.parquet"),
    ]
    (root / "test.jsonl").unlink()
    assert ("missing_file", "test.jsonl") in error_places(root)


def test_lines_alone_are_enough(root):
    for path in root.glob("*.parquet"):
        path.unlink()
    assert error_places(root) == []
    for name in ("train", "val", "test", "held_out"):
        (root / f"{name}.jsonl").unlink()
    assert error_places(root) == []
    (root / "samples.jsonl").unlink()
    assert error_places(root) == [("missing_file", "samples.jsonl")]
