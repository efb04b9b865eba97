"""Tests of the ATIF export.

Actions with a correct screenshot become calls. All other actions are described in words.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, read_lines
from demo_pipeline_tests.exports.forms import ATIF_FORM, validate_atif


def build(tmp_path: Path, *demos: Any, **settings: Any) -> list[dict[str, Any]]:
    """Builds and validates a dataset; returns its documents in the order of its list file."""
    build_form(ATIF_FORM, demos, tmp_path / "out", DatasetSettings(**settings))
    assert validate_atif(tmp_path / "out") == []
    entries = read_lines(tmp_path / "out/atif_trajectories.jsonl")
    return [json.loads((tmp_path / "out" / entry["file"]).read_text()) for entry in entries]


def messages(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns source and text of all steps after the user's message."""
    return [(step["source"], step["message"]) for step in document["steps"][1:]]


def images(step: dict[str, Any]) -> list[str]:
    """Returns the names of a step's images."""
    results = step.get("observation", {"results": []})["results"]
    contents = [step["message"], *(result["content"] for result in results)]
    lists = [content for content in contents if isinstance(content, list)]
    parts = itertools.chain.from_iterable(lists)
    return [Path(part["source"]["path"]).stem for part in parts if part["type"] == "image"]


def test_every_action_is_a_call_with_the_screens_before_and_after(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    [document] = build(tmp_path, demo)
    first, *steps = document["steps"]
    assert first["message"][0] == {"type": "text", "text": "Open Chrome"}
    names = [*(f"{n:03d}" for n in range(len(TABLE))), "final"]
    assert [images(step) for step in (first, *steps)] == [[name] for name in names]
    for step, (kind, parameters) in zip(steps, TABLE, strict=True):
        [call] = step["tool_calls"]
        assert call["function_name"] == kind
        assert call["arguments"] == {**call["arguments"], **parameters}
        assert step["llm_call_count"] == 0
    folder = tmp_path / "out/train/demo/images"
    assert (folder / "000.png").samefile(demo.path / "steps/000/screenshot.png")
    assert (folder / "final.png").samefile(demo.path / "final_screenshot.png")
    assert document["extra"] == {
        "task_id": "task_demo",
        "application": "chrome",
        "platform": "windows",
        "actions_not_shown": 0,
        "success": True,
    }
    assert document["agent"] == {"name": "human", "version": "1.0"}


def test_hidden_actions_are_described_in_words_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    hidden = [(0, "type", "before_video"), (1, "click", "off_screen"), (4, "hotkey", "after_video")]
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 4, hidden=hidden)
    [document] = build(tmp_path, demo)
    assert messages(document) == [
        ("system", "Not shown: typed text before the recording began."),
        ("agent", "Step 0 of the work"),
        ("system", "Not shown: clicked outside the recorded screen."),
        ("agent", "Step 1 of the work"),
        ("agent", "Step 2 of the work"),
        ("agent", "Step 3 of the work"),
        ("system", "Not shown: pressed keys after the recording had ended."),
    ]
    # A screenshot belongs to the last step before it. After a hidden action, this is the `system`
    # step, so that the effect of the hidden action is not attributed to the call before it.
    assert [images(step) for step in document["steps"]] == [
        [],
        ["000"],
        [],
        ["001"],
        ["002"],
        ["003"],
        ["final"],
        [],
    ]


def test_a_final_frame_before_the_end_of_the_last_action_is_not_shown(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows={1: {"end_filmed": False}})
    [document] = build(tmp_path, demo)
    assert [images(step) for step in document["steps"]] == [["000"], ["001"], []]
    assert not (tmp_path / "out/train/demo/images/final.png").exists()
    assert "success" not in document["extra"]


def test_a_file_counts_hidden_actions_and_has_no_outcome_without_the_end(tmp_path):
    early = make_trajectory(tmp_path, "early", [CLICK] * 5, hidden=[(4, "click", "off_screen")])
    late = make_trajectory(tmp_path, "late", [CLICK] * 4, hidden=[(4, "click", "after_video")])
    documents = {document["trajectory_id"]: document for document in build(tmp_path, early, late)}
    assert documents["early"]["extra"]["actions_not_shown"] == 1
    assert documents["early"]["extra"]["success"] is True
    assert documents["late"]["extra"]["actions_not_shown"] == 1
    assert "success" not in documents["late"]["extra"]


@pytest.mark.parametrize(
    ("row", "reason", "words"),
    [
        ({"off_screen": True}, "off_screen", "clicked outside the recorded screen"),
        ({"pts": None}, "missing_frame", "clicked while the screen was not recorded"),
        ({"leak": True}, "avoidable_leak", "clicked"),
    ],
)
def test_a_step_without_a_correct_screenshot_is_described_in_words_and_counted(
    tmp_path, row, reason, words
):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, rows={1: row})
    summary = build_form(ATIF_FORM, [demo], tmp_path / "out", DatasetSettings())
    assert summary.excluded_records[reason] == 1
    assert (summary.as_dict()["steps"], summary.total) == (2, 1)
    [document] = build(
        tmp_path / "again", make_trajectory(tmp_path, "demo", [CLICK] * 3, rows={1: row})
    )
    assert messages(document)[1] == ("system", f"Not shown: {words}.")
    assert not (tmp_path / "out/train/demo/images/001.png").exists()


def test_a_trajectory_without_a_usable_step_is_counted(tmp_path):
    demos = [
        make_trajectory(tmp_path, "none", []),
        make_trajectory(tmp_path, "lost", rows={0: {"pts": None}}),
    ]
    summary = build_form(ATIF_FORM, demos, tmp_path / "out", DatasetSettings())
    assert (summary.total, summary.excluded_records["no_steps"]) == (0, 2)
    assert validate_atif(tmp_path / "out") == []
