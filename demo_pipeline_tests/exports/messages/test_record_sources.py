"""Records of a messages export against their trajectories and their tables."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.exports.messages import build_messages, validate_messages, validate_messages_file
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, read_lines

ACTIONS = [CLICK, ("type", {"text": "hi"}), ("hotkey", {"keys": ["enter"]})]
NAMED = {"id": "node_0", "role": "button", "name": "Search <image>"}


def export(root: Path, **settings: Any) -> Path:
    """Three tasks of three steps, beside their trajectories."""
    targets = dict.fromkeys(range(3), NAMED)
    demos = [
        make_trajectory(
            root,
            f"demo{number}",
            ACTIONS,
            shade=9 * number,
            instruction=f"Task {number} <image>",
            targets=targets,
        )
        for number in range(3)
    ]
    build_messages(demos, root, DatasetSettings(**settings))
    return root


def edit(root: Path, change: Callable[[list[Any]], object]) -> list[tuple[str, str]]:
    """The problems after a change of val.jsonl, whose table goes."""
    lines = read_lines(root / "val.jsonl")
    change(lines)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (root / "val.jsonl").write_text(text, encoding="utf-8")
    for table in root.glob("*.parquet"):
        table.unlink()
    return [(problem.code, problem.location) for problem in validate_messages(root)]


def picture(line: Any) -> dict[str, str]:
    [part] = [part for part in line["messages"][-2]["content"] if part["type"] == "image"]
    return part


def prompt(line: Any) -> dict[str, str]:
    [part] = [part for part in line["messages"][-2]["content"] if part["type"] == "text"]
    return part


@pytest.mark.parametrize("style", ["history", "instruction", "grounding"])
def test_an_export_of_any_prompt_style_has_no_problem(tmp_path: Path, style: str) -> None:
    root = export(tmp_path, prompt_style=style)
    assert validate_messages(root) == []
    assert validate_messages_file(root / "train.jsonl") == []


def test_the_screenshot_of_another_step_is_found(tmp_path: Path) -> None:
    def swap(lines: list[Any]) -> None:
        first, second = picture(lines[0]), picture(lines[1])
        first["image"], second["image"] = second["image"], first["image"]

    assert edit(export(tmp_path), swap) == [
        ("wrong_step", "val.jsonl:1"),
        ("wrong_step", "val.jsonl:2"),
    ]


def test_the_final_screenshot_and_another_trajectory_are_found(tmp_path: Path) -> None:
    def change(lines: list[Any]) -> None:
        picture(lines[0])["image"] = picture(lines[3])["image"]
        other = "demo0" if lines[1]["trajectory_id"] != "demo0" else "demo1"
        picture(lines[1])["image"] = f"trajectories/{other}/steps/001/screenshot.png"

    found = edit(export(tmp_path), change)
    assert found == [("wrong_step", "val.jsonl:1"), ("wrong_step", "val.jsonl:2")]


def test_another_instruction_is_found(tmp_path: Path) -> None:
    found = edit(export(tmp_path), lambda lines: prompt(lines[0]).update(text="Something else"))
    assert found == [("instruction_differs", "val.jsonl:1")]


def test_a_gap_in_the_history_is_found(tmp_path: Path) -> None:
    def change(lines: list[Any]) -> None:
        text = prompt(lines[2])["text"]
        prompt(lines[2])["text"] = "\n".join(t for t in text.splitlines() if t[:3] != "1. ")
        last = prompt(lines[3])["text"].splitlines()
        prompt(lines[3])["text"] = "\n".join(last[:-1])

    assert edit(export(tmp_path), change) == [
        ("history_gap", "val.jsonl:3"),
        ("history_gap", "val.jsonl:4"),
    ]


@pytest.mark.parametrize("end", ["\u2028", "\u2029", "\x85"])
def test_line_ends_of_unicode_in_typed_text_are_no_gap(tmp_path: Path, end: str) -> None:
    made = make_trajectory(tmp_path, actions=[("type", {"text": f"a{end}b"}), CLICK])
    build_messages([made], tmp_path, DatasetSettings(train_ratio=1, val_ratio=0, test_ratio=0))
    assert end in (tmp_path / "train.jsonl").read_text(encoding="utf-8")
    assert validate_messages(tmp_path) == []


def test_a_line_end_after_the_history_is_no_gap(tmp_path: Path) -> None:
    def change(lines: list[Any]) -> None:
        prompt(lines[2])["text"] += "\n"

    assert edit(export(tmp_path), change) == []


@pytest.mark.parametrize("column", ["id", "step_index", "images", "messages"])
def test_a_table_that_differs_from_its_lines_is_found(tmp_path: Path, column: str) -> None:
    root = export(tmp_path)
    table = pq.read_table(root / "test.parquet")
    rows = table.to_pylist()
    other = {"id": "x", "step_index": 7, "images": ["y.png"], "messages": rows[0]["messages"]}
    rows[1][column] = other[column]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), root / "test.parquet")
    [problem] = validate_messages(root)
    assert (problem.code, problem.file) == ("table_differs", "test.parquet")
    assert f"row 2: {column} differ" in problem.message


def test_a_table_that_is_missing_beside_others_is_found(tmp_path: Path) -> None:
    root = export(tmp_path)
    (root / "test.parquet").unlink()
    assert [problem.location for problem in validate_messages(root)] == ["test.parquet"]
    (root / "train.jsonl").unlink()
    assert validate_messages_file(root / "train.jsonl")[0].code == "missing_file"
