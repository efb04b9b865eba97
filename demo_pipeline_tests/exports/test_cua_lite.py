"""Tests of the CUA-Lite export.

A row contains the longest part of a trajectory that CUA-Lite's format can express.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from demo_pipeline.datasets.splits import Split
from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.form import KeptRow, write_form_rows
from demo_pipeline.exports.record_checks import kept_problems
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory
from demo_pipeline_tests.exports.forms import CUA_LITE_FORM, validate_cua_lite

ALT_GR = ("hotkey", {"keys": ["altgr", "q"]})
HELD = ("click", {"x": 960, "y": 540, "button": "left", "modifiers": ["ctrl"]})
NAME = "demonstrations"


def rows_of(out: Path, split: str = "train", name: str = NAME) -> list[dict[str, Any]]:
    path = out / f"cua-lite/{name}/desktop/use/{split}/demonstrations.parquet"
    rows = pq.read_table(path).to_pylist()
    texts = ("messages", "metadata")
    return [{**row, **{key: json.loads(row[key]) for key in texts}} for row in rows]


def build(tmp_path: Path, *demos: Any, **settings: Any) -> list[dict[str, Any]]:
    """Builds and validates a dataset; returns the rows of the training split."""
    build_form(CUA_LITE_FORM, demos, tmp_path / "out", DatasetSettings(**settings))
    assert validate_cua_lite(tmp_path / "out") == []
    return rows_of(tmp_path / "out")


def shown_steps(row: dict[str, Any]) -> tuple[int, int]:
    others = row["metadata"]["others"]
    return others["first_step"], others["last_step"]


def calls_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [turn for turn in row["messages"] if turn.get("tool_calls")]


def test_a_trajectory_is_a_row_of_turns_and_screens(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    [row] = build(tmp_path, demo)
    turns = row["messages"]
    assert [turn["role"] for turn in turns] == [
        "user",
        *["assistant", "tool"] * len(TABLE),
        "assistant",
    ]
    assert turns[0]["content"][1]["text"] == "Open Chrome"
    assert turns[-1]["content"] == [{"type": "text", "text": "Done."}]
    files = [demo.path / f"steps/{n:03d}/screenshot.png" for n in range(len(TABLE))]
    files.append(demo.path / "final_screenshot.png")
    for name, source in zip(row["images"], files, strict=True):
        assert (tmp_path / "out" / name).samefile(source)
    assert row["metadata"]["others"] == {
        "id": "demo",
        "resolution": [1920, 1080],
        "os": "windows",
        "source": "demo_pipeline",
        "source_id": "task_demo",
        "domain": "chrome",
        "first_step": 0,
        "last_step": len(TABLE) - 1,
        "task_completed": True,
    }


def test_sentences_and_calls_have_the_same_coordinates(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK])
    action = demo.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("Step 0 of the work", "Click at (960, 540)."))
    [row] = build(tmp_path, demo)
    words = [{"type": "action_description", "text": "Click at (500, 500)."}]
    assert calls_of(row)[0]["content"] == words


class TestCuts:
    """A row is the longest stretch without hidden, unusable or inexpressible actions."""

    def test_a_hidden_action_cuts_and_is_named(self, tmp_path):
        hidden = [(0, "type", "before_video"), (2, "click", "off_screen")]
        demo = make_trajectory(tmp_path, "demo", [CLICK] * 6, hidden=hidden)
        [row] = build(tmp_path, demo)
        assert shown_steps(row) == (2, 5)
        assert row["messages"][0]["content"][1]["text"].splitlines() == [
            "Open Chrome",
            "",
            "Previous actions:",
            "1. typed text before the recording began",
            "2. Step 0 of the work",
            "3. Step 1 of the work",
            "4. clicked outside the recorded screen",
        ]

    def test_a_part_says_so_and_neither_ends_the_task_nor_judges_it(self, tmp_path):
        demo = make_trajectory(tmp_path, "demo", [CLICK] * 6, hidden=[(2, "click", "off_screen")])
        [row] = build(tmp_path, demo)
        others = row["metadata"]["others"]
        assert others["part"] == {"first_step": 2, "last_step": 5, "total_steps": 6}
        assert "task_completed" not in others
        assert row["messages"][-1]["tool_calls"]

    def test_a_row_that_ends_early_ends_with_its_last_call(self, tmp_path):
        demo = make_trajectory(tmp_path, "demo", [CLICK] * 4, hidden=[(3, "click", "off_screen")])
        [row] = build(tmp_path, demo)
        assert shown_steps(row) == (0, 2)
        assert (len(row["images"]), bool(row["messages"][-1]["tool_calls"])) == (3, True)

    def test_a_video_that_ends_before_the_last_action_leaves_the_end_open(self, tmp_path):
        demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, rows={2: {"end_filmed": False}})
        [row] = build(tmp_path, demo)
        assert shown_steps(row) == (0, 2)
        assert row["messages"][-1]["tool_calls"]

    def test_an_action_that_the_form_lacks_cuts_and_is_counted(self, tmp_path):
        demo = make_trajectory(tmp_path, "demo", [CLICK, ALT_GR, CLICK, CLICK, HELD])
        summary = build_form(CUA_LITE_FORM, [demo], tmp_path / "out", DatasetSettings())
        [row] = rows_of(tmp_path / "out")
        assert shown_steps(row) == (2, 4)
        assert "2. Step 1 of the work" in row["messages"][0]["content"][1]["text"]
        lost = {key: count for key, count in summary.excluded_records.items() if count}
        assert lost == {"unknown_key": 1, "outside_stretch": 1}
        written = json.loads((tmp_path / "out/metadata.json").read_text())
        assert written["excluded_steps"]["unknown_key"]["count"] == 1
        assert (written["steps"], written["records"]["train"]) == (3, 1)

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            ({"off_screen": True}, "off_screen"),
            ({"pts": None}, "missing_frame"),
            ({"leak": True}, "avoidable_leak"),
        ],
    )
    def test_a_step_without_a_right_screenshot_cuts(self, tmp_path, row, reason):
        demo = make_trajectory(tmp_path, "demo", [CLICK] * 5, rows={1: row})
        summary = build_form(CUA_LITE_FORM, [demo], tmp_path / "out", DatasetSettings())
        [written] = rows_of(tmp_path / "out")
        assert shown_steps(written) == (2, 4)
        assert summary.excluded_records[reason] == 1

    def test_a_stretch_has_at_least_min_steps(self, tmp_path, monkeypatch):
        demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK, ALT_GR])
        summary = build_form(CUA_LITE_FORM, [demo], tmp_path / "out", DatasetSettings())
        assert (summary.total, summary.excluded_records["too_short"]) == (0, 2)
        monkeypatch.setattr(DatasetSettings, "min_steps", 2)
        summary = build_form(CUA_LITE_FORM, [demo], tmp_path / "two", DatasetSettings())
        assert (summary.total, summary.excluded_records["too_short"]) == (1, 0)


class TestHardRules:
    """Properties that all exports share, tested on this export."""

    def test_a_failed_demonstration_that_is_included_ends_with_failure(self, tmp_path):
        bad = make_trajectory(tmp_path, "bad", success=False)
        [row] = build(tmp_path, bad, include_failed=True)
        others = row["metadata"]["others"]
        assert (others["task_completed"], others["terminate_status"]) == (False, "failure")
        assert row["messages"][-1]["tool_calls"]

    def test_a_task_is_in_one_split_and_tests_are_no_part_of_the_dataset(self, tmp_path):
        demos = [
            make_trajectory(tmp_path, f"{part}{n}", instruction=f"{n}", group=f"t{n}", shade=9 * n)
            for n in range(8)
            for part in "ab"
        ]
        settings = DatasetSettings(train_ratio=0.4, val_ratio=0.3)
        summary = build_form(CUA_LITE_FORM, demos, tmp_path / "out", settings)
        assert validate_cua_lite(tmp_path / "out") == []
        places = {
            Split.TRAIN: rows_of(tmp_path / "out"),
            Split.VAL: rows_of(tmp_path / "out", "validation"),
            Split.TEST: rows_of(tmp_path / "out", "validation", f"{NAME}-test"),
        }
        tasks = {
            split: {row["metadata"]["others"]["source_id"] for row in rows}
            for split, rows in places.items()
        }
        assert all(len(rows) == summary.records[split] > 0 for split, rows in places.items())
        assert sum(map(len, tasks.values())) == len(set.union(*tasks.values())) == 8

    def test_held_out_applications_are_a_dataset_of_their_own(self, tmp_path):
        demos = [
            make_trajectory(tmp_path, "a"),
            make_trajectory(tmp_path, "b", application="gimp", shade=9),
        ]
        assert len(build(tmp_path, *demos, held_out_applications=("gimp",))) == 1
        assert len(rows_of(tmp_path / "out", "validation", f"{NAME}-held-out")) == 1

    def test_text_that_looks_like_markup_is_escaped_but_typed_text_is_not(self, tmp_path):
        typed = ("type", {"text": "<image>"})
        demo = make_trajectory(tmp_path, "demo", [typed], instruction="Look at <image> now")
        [row] = build(tmp_path, demo)
        assert row["messages"][0]["content"][1]["text"] == "Look at [image] now"
        [call] = calls_of(row)[0]["tool_calls"]
        assert call["function"]["arguments"]["actions"] == [{"action": "type", "text": "<image>"}]


def test_a_kept_row_is_checked_before_its_split_is_known(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    out = tmp_path / "records"
    out.mkdir()
    write_form_rows(demo, [CUA_LITE_FORM], out, DatasetSettings())
    line = (out / CUA_LITE_FORM.file).read_bytes().split(b"\n")[1]
    record = msgspec.json.decode(line, type=KeptRow)
    assert kept_problems(CUA_LITE_FORM, [(2, record)], "cua_lite.jsonl", demo) == []
    row = record.parts["row"]
    row["messages"] = row["messages"].replace('"index": 1', '"index": 3')
    record.files[row["images"][0]] = "steps/001/screenshot.png"
    problems = kept_problems(CUA_LITE_FORM, [(2, record)], "cua_lite.jsonl", demo)
    assert {problem.code for problem in problems} == {"image_index", "image"}
    assert {(problem.file, problem.line) for problem in problems} == {("cua_lite.jsonl", 2)}
