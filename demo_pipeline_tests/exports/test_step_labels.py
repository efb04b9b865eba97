"""Tests of labels for reward models: a recording or a review must support each label."""

from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.datasets.splits import plan_export
from demo_pipeline.exports.export_summary import ExportSummary
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.exports.forms import build_step_labels, validate_step_labels

TYPE: tuple[str, dict[str, Any]] = ("type", {"text": "a\nb\u2028{c"})
CLICKED = '{"action_type": "click", "parameters": {"x": 960, "y": 540, "button": "left"}}'
TYPED = '{"action_type": "type", "parameters": {"text": "a\\nb\u2028{c"}}'
ABORTED = {0: {"status": "aborted", "reason": "gave up"}}
ALL_TRAIN: dict[str, Any] = {"train_ratio": 1, "val_ratio": 0}
Rows = list[dict[str, Any]]


def build(
    tmp_path: Path, *demos: DatasetTrajectory, **settings: Any
) -> tuple[ExportSummary, Rows, Rows]:
    """Builds and validates the export with all rows in the training split.

    Returns:
        The summary, the rows with labels of steps, and the rows with labels of demonstrations.
    """
    out = tmp_path / "out"
    summary = build_step_labels(demos, out, DatasetSettings(**{**ALL_TRAIN, **settings}))
    assert validate_step_labels(out) == []
    tables = (read_rows(out / name) for name in ("train.parquet", "outcome/train.parquet"))
    return (summary, *tables)  # type: ignore[return-value]


def test_every_step_of_a_demonstration_that_did_its_task_has_a_true_label(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, TYPE], instruction="Do it")
    _, (steps,), (whole,) = build(tmp_path, demo)
    assert steps["prompt"] == whole["prompt"] == "Do it"
    assert (steps["completions"], steps["labels"]) == ([CLICKED, TYPED], [True, True])
    assert (whole["completions"], whole["labels"]) == ([f"{CLICKED}\n{TYPED}"], [True])
    names = [f"trajectories/demo/steps/00{index}/screenshot.png" for index in (0, 1)]
    assert steps["images"] == names
    assert whole["images"] == [*names, "trajectories/demo/final_screenshot.png"]


def test_a_failed_demonstration_has_a_label_as_a_whole_and_none_of_its_steps(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK, TYPE], success=False)
    summary, steps, (whole,) = build(tmp_path, demo)
    assert steps == []
    assert (whole["outcome"], whole["labels"]) == ("failed", [False])
    assert summary.excluded_trajectories["failed"] == 0


def test_an_aborted_demonstration_may_have_done_its_task(tmp_path):
    demo = make_trajectory(tmp_path, "demo", [CLICK], success=False, rows=ABORTED)
    summary, steps, wholes = build(tmp_path, demo)
    assert (steps, wholes) == ([], [])
    assert summary.excluded_trajectories["aborted"] == 1
    _, _, (whole,) = build(tmp_path, demo, include_aborted=True)
    assert (whole["outcome"], whole["labels"]) == ("aborted", [False])


def test_hidden_actions_are_words_before_the_next_step_and_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(DatasetSettings, "max_hidden_share", 1.0)
    hidden = [(1, "type", "off_screen"), (2, "click", "after_video")]
    demo = make_trajectory(tmp_path, "demo", [CLICK, CLICK], hidden=hidden)
    _, (steps,), (whole,) = build(tmp_path, demo)
    words = "typed text outside the recorded screen"
    assert steps["completions"] == [CLICKED, f"{words}\n{CLICKED}"]
    assert whole["completions"] == [
        f"{CLICKED}\n{words}\n{CLICKED}\nclicked after the recording had ended"
    ]


def of_task(root: Path, name: str, task: int, **more: Any) -> DatasetTrajectory:
    return make_trajectory(root, name, instruction=f"Task {task}", group=f"g{task}", **more)


def test_failed_demonstrations_get_the_split_of_their_task_and_move_no_other(tmp_path):
    good = [of_task(tmp_path, f"good_{n}", n, shade=n) for n in range(6)]
    bad = [  # six failed attempts at the tasks of `good`, and three at other tasks
        of_task(tmp_path, f"bad_{n}", n, success=False, shade=20 + n) for n in range(9)
    ]
    plan = plan_export(good, DatasetSettings()).splits
    out = tmp_path / "out"
    build_step_labels([*bad, *good], out, DatasetSettings())
    assert validate_step_labels(out) == []
    split_of = {}
    for path in (out / "outcome").glob("*.parquet"):
        split_of.update({row["trajectory_id"]: path.stem for row in read_rows(path)})
    assert {name: split_of[name] for name in plan.splits} == dict(plan.splits)
    assert all(split_of[f"bad_{n}"] == split_of[f"good_{n}"] for n in range(6))
    assert len(split_of) == 15


def test_a_failed_demonstration_that_connects_two_splits_is_left_out(tmp_path):
    good = [of_task(tmp_path, f"good_{n}", n, shade=n) for n in range(3)]
    both = {index: {"split_group": f"g{index}"} for index in range(3)}
    bad = make_trajectory(tmp_path, "bad", [CLICK] * 3, success=False, shade=9, rows=both)
    summary = build_step_labels([*good, bad], tmp_path / "out", DatasetSettings())
    assert summary.excluded_trajectories["torn_task"] == 1
    assert summary.total == 3


def test_a_failed_demonstration_of_a_held_out_application_is_in_no_other_split(tmp_path):
    settings = DatasetSettings(held_out_applications=("gimp",))
    good = make_trajectory(tmp_path, "good", group="g", instruction="One")
    given: dict[str, Any] = {"application": "gimp", "success": False, "shade": 9}
    bad = [
        make_trajectory(tmp_path, name, group=group, instruction=name, **given)
        for name, group in (("same", "g"), ("other", "h"))
    ]
    summary = build_step_labels([good, *bad], tmp_path / "out", settings)
    assert summary.excluded_trajectories["torn_task"] == 1
    assert summary.records["held_out"] == 1


@pytest.mark.parametrize(("key", "value"), [("pts", None), ("off_screen", True)])
def test_a_demonstration_with_a_step_that_no_picture_shows_is_left_out(tmp_path, key, value):
    demo = make_trajectory(tmp_path, "demo", [CLICK] * 2, rows={1: {key: value}})
    summary, steps, wholes = build(tmp_path, demo)
    assert (steps, wholes) == ([], [])
    assert sum(summary.excluded_records.values()) == 1
