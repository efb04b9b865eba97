"""Tests of grounding rows: their content, and which screenshots have rows."""

import json
from functools import partial
from typing import Any

import pytest

from demo_pipeline.files.image_files import png_size
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, snapshot
from demo_pipeline_tests.datasets.seen_screens import element, make_seen, timed, write_tree
from demo_pipeline_tests.exports.forms import build_train

SAVE = element("button", "Save", (100, 200, 80, 31))
HELP = element("menuitem", "Help", (300, 0, 60, 30))
TYPE: tuple[str, dict[str, Any]] = ("type", {"text": "Help me"})


build = partial(build_train, "grounding")


def test_a_row_has_the_words_and_the_box_of_an_element(tmp_path):
    demo = make_seen(tmp_path, "demo", [CLICK], SAVE, HELP)
    _, (save, _help) = build(tmp_path, demo)
    assert save == {
        "id": "demo_000_node_1",
        "trajectory_id": "demo",
        "step_index": 0,
        "application": "chrome",
        "platform": "windows",
        "text": "the Save button",
        "role": "button",
        "box": [100, 200, 179, 230],
        "point": [139, 215],
        "image_size": [1920, 1080],
        "image": "trajectories/demo/steps/000/screenshot.png",
    }
    assert _help["text"] == "the Help menu item"


def test_the_same_rows_are_a_task_file_and_questions_of_cua_lite(tmp_path):
    demo = make_seen(tmp_path, "demo", [CLICK], SAVE)
    build(tmp_path, demo)
    out = tmp_path / "out"
    (entry,) = json.loads((out / "screenspot/train.json").read_text(encoding="utf-8"))
    assert entry["instruction"] == "the Save button"
    assert entry["bbox"] == [100, 200, 179, 230]
    assert list(png_size(out / entry["img_filename"])) == entry["img_size"]
    home = out / "cua_lite/cua-lite/demonstrations/desktop"
    answers = {
        name: json.loads(read_rows(home / name / "train/demonstrations.parquet")[0]["messages"])[1]
        for name in ("grounding.point", "grounding.bbox")
    }
    coordinates = {
        name: turn["tool_calls"][0]["function"]["arguments"]["coordinate"]
        for name, turn in answers.items()
    }
    assert coordinates == {"grounding.point": [72, 199], "grounding.bbox": [52, 185, 93, 213]}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tree_agreement_0": "differs"}, "tree_differs"),
        ({"tree_agreement_0": "unknown"}, "tree_unchecked"),
        ({"tree_age_ms_0": 119}, "scan_after_frame"),  # the frame is 120 ms before the press
        ({"tree_age_ms_0": None}, "scan_after_frame"),
        ({"lead_ms_0": None}, "scan_after_frame"),
        ({"pts_0": None}, "missing_frame"),
        ({"leak_0": True}, "avoidable_leak"),
    ],
)
def test_a_screenshot_whose_tree_may_not_match_gives_no_row(tmp_path, changes, reason):
    demo = make_seen(tmp_path, "demo", [CLICK], SAVE, rows=timed(1, **changes))
    summary, rows = build(tmp_path, demo)
    assert rows == []
    assert summary.excluded_records[reason] == 1


def test_a_screenshot_on_a_narrow_screen_has_no_element_in_the_bars(tmp_path):
    rows = timed(1, pad_x_0=240.0)
    demo = make_seen(tmp_path, "demo", [CLICK], SAVE, HELP, rows=rows)
    assert [row["text"] for row in build(tmp_path, demo)[1]] == ["the Help menu item"]


def test_typed_text_never_names_an_element(tmp_path):
    demo = make_seen(tmp_path, "demo", [CLICK, TYPE], SAVE, HELP)
    summary, rows = build(tmp_path, demo)
    assert {row["text"] for row in rows} == {"the Save button"}
    assert summary.excluded_records["typed_name"] == 2
    written = b"".join(
        data for name, data in snapshot(tmp_path / "out").items() if name.endswith(".json")
    )
    assert b"Help" not in written


@pytest.mark.parametrize(("before_step", "steps"), [(0, set()), (1, {0}), (2, {0, 1})])
def test_screenshots_after_hidden_typing_give_no_row(tmp_path, monkeypatch, before_step, steps):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    hidden = [(before_step, "type", "off_screen")]
    demo = make_seen(tmp_path, "demo", [CLICK, CLICK], hidden=hidden)
    for index, step in enumerate(sorted((demo.path / "steps").iterdir())):
        write_tree(step, element("button", f"Save {index}", (100, 200, 80, 31)))
    _, rows = build(tmp_path, demo)
    assert {row["step_index"] for row in rows} == steps


def test_an_element_is_asked_for_once_in_a_demonstration(tmp_path):
    demo = make_seen(tmp_path, "demo", [CLICK] * 3, SAVE)
    moved = element("button", "Save", (100, 300, 80, 31))
    write_tree(demo.path / "steps/002", moved)
    summary, rows = build(tmp_path, demo)
    assert [row["step_index"] for row in rows] == [0, 2]
    assert summary.excluded_records["repeated"] == 1


def test_a_screen_that_is_shown_again_and_again_gives_no_more_than_the_limit(tmp_path):
    nodes = [element("button", f"Item {row}", (100, 40 * row, 80, 31)) for row in range(20)]
    demo = make_seen(tmp_path, "demo", [CLICK] * 5, *nodes)
    summary, rows = build(tmp_path, demo)
    assert len(rows) == 10
    assert summary.excluded_records["too_many"] == 5 * 10


def test_an_unreadable_tree_only_affects_its_own_screenshot(tmp_path):
    demo = make_seen(tmp_path, "demo", [CLICK] * 2, SAVE)
    (demo.path / "steps/000/ui_tree.json").write_text('{"root": {"role": "button"}}')
    summary, rows = build(tmp_path, demo)
    assert [row["step_index"] for row in rows] == [1]
    assert summary.excluded_records["unreadable_tree"] == 1


def test_failed_and_contaminated_demonstrations_have_neither_rows_nor_images(tmp_path):
    demos = [
        make_seen(tmp_path, "good", [CLICK, CLICK], SAVE),
        make_seen(tmp_path, "bad", [CLICK], SAVE, success=False, shade=9),
        make_seen(tmp_path, "known", [CLICK], SAVE, osworld="task", shade=19),
        make_trajectory(tmp_path, "empty", [CLICK], shade=29),
    ]
    _, rows = build(tmp_path, *demos)
    assert {row["trajectory_id"] for row in rows} == {"good"}
    pictures = [name for name in snapshot(tmp_path / "out") if name.endswith(".png")]
    assert [name for name in pictures if "cua-lite" not in name] == [
        "trajectories/good/steps/000/screenshot.png"
    ]
    assert len(pictures) == 2
