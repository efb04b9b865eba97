"""The ATIF export: what can be shown is a call with its screens, everything else is words."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import (
    CLICK,
    TABLE,
    make_trajectory,
    read_lines,
    snapshot,
)
from demo_pipeline_tests.exports.forms import ATIF_FORM, validate_atif


def build(tmp_path: Path, *demos: Any, **settings: Any) -> list[dict[str, Any]]:
    """The documents by list; the folder is valid."""
    build_form(ATIF_FORM, demos, tmp_path / "out", DatasetSettings(**settings))
    assert validate_atif(tmp_path / "out") == []
    entries = read_lines(tmp_path / "out/atif_trajectories.jsonl")
    return [json.loads((tmp_path / "out" / entry["file"]).read_text()) for entry in entries]


def messages(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Source and words of the steps after the question."""
    return [(step["source"], step["message"]) for step in document["steps"][1:]]


def images(step: dict[str, Any]) -> list[str]:
    """The images of a step, by name."""
    results = step.get("observation", {"results": []})["results"]
    contents = [step["message"], *(result["content"] for result in results)]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [Path(part["source"]["path"]).stem for part in parts if part["type"] == "image"]


def test_every_action_is_a_call_with_the_screens_before_and_after(tmp_path: Path) -> None:
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
        "success": True,
    }
    assert document["agent"] == {"name": "human", "version": "1.0"}


def test_hidden_actions_are_words_in_their_place(tmp_path: Path) -> None:
    hidden = [
        (0, "type", "before_video"),
        (1, "click", "off_screen"),
        (4, "hotkey", "after_video"),
    ]
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 4, hidden=hidden)
    [document] = build(tmp_path, demo, max_hidden_share=1)
    assert messages(document) == [
        ("system", "Not shown: typed text before the recording began."),
        ("agent", "Step 0 of the work"),
        ("system", "Not shown: clicked outside the recorded screen."),
        ("agent", "Step 1 of the work"),
        ("agent", "Step 2 of the work"),
        ("agent", "Step 3 of the work"),
        ("system", "Not shown: pressed keys after the recording had ended."),
    ]
    # A screen belongs to what came last before it, so that no call shows another one's doing.
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


def test_a_last_frame_from_before_the_end_of_the_last_action_is_no_screen_after_it(
    tmp_path: Path,
) -> None:
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows={1: {"end_filmed": False}})
    [document] = build(tmp_path, demo)
    assert [images(step) for step in document["steps"]] == [["000"], ["001"], []]
    assert not (tmp_path / "out/train/demo/images/final.png").exists()


@pytest.mark.parametrize(
    ("row", "reason", "words"),
    [
        ({"off_screen": True}, "off_screen", "clicked outside the recorded screen"),
        ({"pts": None}, "missing_frame", "clicked while the screen was not recorded"),
        ({"leak": True}, "avoidable_leak", "clicked"),
    ],
)
def test_a_step_without_a_right_screenshot_is_words_and_counted(
    tmp_path: Path, row: dict[str, Any], reason: str, words: str
) -> None:
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, rows={1: row})
    summary = build_form(ATIF_FORM, [demo], tmp_path / "out", DatasetSettings())
    assert summary.excluded_records[reason] == 1
    assert (summary.as_dict()["steps"], summary.total) == (2, 1)
    [document] = build(
        tmp_path / "again", make_trajectory(tmp_path, "demo", [CLICK] * 3, rows={1: row})
    )
    assert messages(document)[1] == ("system", f"Not shown: {words}.")
    assert not (tmp_path / "out/train/demo/images/001.png").exists()


def test_demonstrations_with_many_hidden_actions_are_left_out(tmp_path: Path) -> None:
    hidden = [(n, "click", "off_screen") for n in range(3)]
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, hidden=hidden)
    summary = build_form(ATIF_FORM, [demo], tmp_path / "out", DatasetSettings())
    assert (summary.total, summary.excluded_trajectories["incomplete"]) == (0, 1)


def test_a_trajectory_without_a_step_to_show_is_counted(tmp_path: Path) -> None:
    demos = [
        make_trajectory(tmp_path, "none", []),
        make_trajectory(tmp_path, "lost", rows={0: {"pts": None}}),
    ]
    summary = build_form(ATIF_FORM, demos, tmp_path / "out", DatasetSettings())
    assert (summary.total, summary.excluded_records["no_steps"]) == (0, 2)
    assert validate_atif(tmp_path / "out") == []


def test_failed_and_benchmark_demonstrations_are_left_out(tmp_path: Path) -> None:
    demos = [
        make_trajectory(tmp_path, "good"),
        make_trajectory(tmp_path, "bad", success=False, shade=9),
        make_trajectory(tmp_path, "known", osworld="abc", shade=19),
    ]
    assert [document["trajectory_id"] for document in build(tmp_path, *demos)] == ["good"]
    assert {name.split("/")[1] for name in snapshot(tmp_path / "out") if "/" in name} == {"good"}


def test_a_task_is_in_one_split(tmp_path: Path) -> None:
    demos = [
        make_trajectory(tmp_path, f"{part}{n}", instruction=f"{n}", group=f"t{n}", shade=9 * n)
        for n in range(8)
        for part in "ab"
    ]
    build(tmp_path, *demos, train_ratio=0.4, val_ratio=0.3, test_ratio=0.3)
    entries = read_lines(tmp_path / "out/atif_trajectories.jsonl")
    places = {(entry["trajectory_id"][1:], entry["split"]) for entry in entries}
    assert len(places) == 8
    assert {split for _, split in places} == {"train", "val", "test"}


def test_an_unmoved_target_stays_though_the_tree_differs_elsewhere(tmp_path: Path) -> None:
    target = {"id": "node_0", "role": "button", "name": "Save"}
    rows = {0: {"tree_agreement": "differs"}}
    demo = make_trajectory(tmp_path, "demo", [CLICK], rows=rows, targets={0: target})
    action = demo.path / "steps/000/action.json"
    words = 'Click the \\"Save\\" button.'
    action.write_text(action.read_text().replace("Step 0 of the work", words))
    [document] = build(tmp_path, demo)
    assert messages(document) == [("agent", 'Click the "Save" button.')]


def test_half_a_character_does_not_stop_an_export(tmp_path: Path) -> None:
    demo = make_trajectory(tmp_path, "demo", [("type", {"text": "a%"})])
    action = demo.path / "steps/000/action.json"
    action.write_text(action.read_text().replace("%", "\\ud800"))
    [document] = build(tmp_path, demo)
    assert document["steps"][1]["tool_calls"][0]["arguments"] == {"text": "a?"}


def test_the_same_input_gives_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    demos = [make_trajectory(tmp_path, name, TABLE[:3], shade=ord(name)) for name in "abc"]
    build_form(ATIF_FORM, demos, tmp_path / "one", DatasetSettings())
    build_form(ATIF_FORM, demos[::-1], tmp_path / "two", DatasetSettings())
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")
