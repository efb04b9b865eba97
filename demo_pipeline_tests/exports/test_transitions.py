"""Tests of transitions: the effect of a step, and steps whose effect no screenshot shows."""

from functools import partial
from typing import Any

import pytest

from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory, snapshot
from demo_pipeline_tests.datasets.seen_screens import timed
from demo_pipeline_tests.exports.forms import build_train

WAIT: tuple[str, dict[str, Any]] = ("wait", {"seconds": 2.5})


build = partial(build_train, "transitions")


def test_a_transition_ends_with_the_picture_before_the_next_step(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, rows=timed(3))
    _, rows = build(tmp_path, demo)
    folder = "trajectories/demo"
    assert [(row["before"], row["after"]) for row in rows] == [
        (f"{folder}/steps/000/screenshot.png", f"{folder}/steps/001/screenshot.png"),
        (f"{folder}/steps/001/screenshot.png", f"{folder}/steps/002/screenshot.png"),
        (f"{folder}/steps/002/screenshot.png", f"{folder}/final_screenshot.png"),
    ]
    assert [row["after_is_final"] for row in rows] == [False, False, True]
    assert rows[0]["action"] == (
        '{"action_type": "click", "parameters": {"x": 960, "y": 540, "button": "left"}}'
    )


def test_every_type_of_action_but_a_wait_is_a_transition(tmp_path):
    demo = make_trajectory(tmp_path, "demo", TABLE, rows=timed(len(TABLE)))
    summary, rows = build(tmp_path, demo)
    assert [row["action_type"] for row in rows] == [kind for kind, _ in TABLE if kind != "wait"]
    assert summary.excluded_records["wait"] == 1


def test_waits_belong_to_the_action_before_them(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, WAIT, WAIT, CLICK, WAIT], rows=timed(5))
    _, (first, last) = build(tmp_path, demo)
    assert first["after"].endswith("steps/003/screenshot.png")
    assert first["waited_seconds"] == 5.0
    assert last["after_is_final"]
    assert last["waited_seconds"] == 2.5


@pytest.mark.parametrize(
    ("before_step", "left"), [(1, {1, 2}), (2, {0, 2}), (3, {0, 1}), (0, {0, 1, 2})]
)
def test_no_transition_spans_a_hidden_action(tmp_path, monkeypatch, before_step, left):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    hidden = [(before_step, "type", "off_screen")]
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 3, rows=timed(3), hidden=hidden)
    _, rows = build(tmp_path, demo)
    assert {row["step_index"] for row in rows} == left


def test_no_transition_spans_a_hidden_action_between_its_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    hidden = [(2, "type", "off_screen")]
    actions = [CLICK, WAIT, WAIT, CLICK]
    demo = make_trajectory(tmp_path, "demo", actions, rows=timed(4), hidden=hidden)
    summary, rows = build(tmp_path, demo)
    assert {row["step_index"] for row in rows} == {3}
    assert summary.excluded_records["hidden_after"] == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"end_ms_0": 900}, "early_after"),  # the next screenshot is from 880 ms
        ({"pts_1": 1.5}, "early_after"),  # both steps have the same frame
        ({"pts_1": None}, "missing_frame"),
        ({"leak_0": True}, "avoidable_leak"),
        ({"off_screen_0": True}, "off_screen"),
    ],
)
def test_a_step_without_a_screenshot_of_its_effect_is_left_out(tmp_path, changes, reason):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows=timed(2, **changes))
    summary, rows = build(tmp_path, demo)
    assert 0 not in {row["step_index"] for row in rows}
    assert summary.excluded_records[reason] >= 1


@pytest.mark.parametrize("waits", [0, 1])
def test_no_transition_ends_with_a_frame_before_the_end_of_its_action(tmp_path, waits):
    actions = [CLICK, CLICK, *([WAIT] * waits)]
    demo = make_trajectory(tmp_path, "demo", actions, rows=timed(2 + waits, end_filmed_1=False))
    summary, rows = build(tmp_path, demo)
    assert [row["step_index"] for row in rows] == [0]
    assert summary.excluded_records["early_after"] == 1


def test_a_gap_of_less_than_a_millisecond_is_rounding(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows=timed(2, lead_ms_1=920.4))
    assert len(build(tmp_path, demo)[1]) == 2


def test_failed_and_contaminated_demonstrations_have_neither_rows_nor_images(tmp_path):
    demos = [
        make_trajectory(tmp_path, "good", [CLICK], rows=timed(1)),
        make_trajectory(tmp_path, "bad", [CLICK], rows=timed(1), success=False, shade=9),
        make_trajectory(tmp_path, "known", [CLICK], rows=timed(1), osworld="task", shade=19),
    ]
    summary, rows = build(tmp_path, *demos)
    assert {row["trajectory_id"] for row in rows} == {"good"}
    assert summary.excluded_trajectories["failed"] == 1
    assert summary.excluded_trajectories["contaminated"] == 1
    pictures = [name for name in snapshot(tmp_path / "out") if name.endswith(".png")]
    assert pictures == [
        "trajectories/good/final_screenshot.png",
        "trajectories/good/steps/000/screenshot.png",
    ]
