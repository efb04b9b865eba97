"""Tests a recording with actions that its video does not show, from the upload to datasets."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE, read_statistics
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import HIDDEN_ACTIONS_FILE
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.datasets.builders import read_lines
from demo_pipeline_tests.named_stages import CUDAG_STAGE, MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace, run_catalog
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import GroundTruth, write_recording
from demo_pipeline_tests.simulator.script import click, drag, right_click, scroll, think, type_text

ACTS = (
    *(click("Agree"), think(1.0), click("Agree"), scroll("Rows", 2), think(1.4)),
    scroll("Rows", -2),
    *(click("Name"), type_text("Ab"), think(5.0), click("Rows/b"), right_click("Rows/c")),
    *(drag("Form/title bar", 60, 40), drag("Form/title bar", 20, 10)),
)
VISIBLE = 10
SPLITS = {"train_ratio": 1.0, "val_ratio": 0.0}


def event(kind: str, time: int, **data: Any) -> dict[str, Any]:
    return {"event": kind, "data": data, "time": time}


def press(time: int, x: int, y: int) -> Iterator[dict[str, Any]]:
    yield event("mousemove", time - 40, x=x, y=y)
    yield event("mousedown", time, x=x, y=y, button="Left")
    yield event("mouseup", time + 70, x=x, y=y, button="Left")


def key(time: int, name: str) -> Iterator[dict[str, Any]]:
    yield event("keydown", time, key=name)
    yield event("keyup", time + 60, key=name)


def add_hidden_actions(folder: Path, truth: GroundTruth) -> None:
    """Adds hidden actions to the log of a recording.

    They are a click before the video, a click and keys on another display, and a click after the
    video.
    """
    long = next(pause for pause in truth.pauses if pause.end_ms - pause.start_ms > 4000)
    more = [
        *press(truth.timestamp_ms - 900, 50, 60),
        *press(long.start_ms + 1500, -300, 40),
        *key(long.start_ms + 2300, "Q"),
        *key(long.start_ms + 2500, "W"),
        *press(truth.end_ms + 4000, 50, 60),
    ]
    log = folder / "input_log.jsonl"
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    ordered = sorted([*events, *more], key=lambda event: event["time"])
    log.write_text("".join(json.dumps(event) + "\n" for event in ordered), encoding="utf-8")


@dataclass(frozen=True)
class Made:
    """A workspace with the processed demonstration, the results of its stages, and its datasets."""

    pipeline: Workspace
    results: dict[str, BuildResult]
    trajectory: Path
    store: Path

    def checks(self, stage: str) -> dict[str, bool]:
        return {outcome.name: outcome.passed for outcome in self.results[stage].checks}


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("hidden")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatasetSettings, "max_hidden_share", 1.0)
        return _made(root)


def _made(root: Path) -> Made:
    options = replace(SMALL, ffmpeg_start_line=True, scan_every_s=None)
    truth = write_recording(root / "uploads" / "demo", script(*ACTS), options)
    add_hidden_actions(root / "uploads" / "demo", truth)
    pipeline = open_workspace(root, datasets=SPLITS)
    run_catalog(pipeline)
    results = {stage.name: build_stage(pipeline, stage, "demo") for stage in STAGES}
    datasets = (INDEX_STAGE, SFT_STAGE, MESSAGES_STAGE, CUDAG_STAGE, STATISTICS_STAGE)
    results |= {stage.name: run_dataset_stage(pipeline, stage) for stage in datasets}
    assert {result.status for result in results.values()} == {"made"}
    store = root / "store"
    return Made(pipeline, results, (store / "trajectories" / "demo").resolve(), store)


def actions(demonstration: Made) -> list[dict[str, Any]]:
    return [
        json.loads(path.read_bytes())
        for path in sorted(demonstration.trajectory.glob("steps/*/action.json"))
    ]


def test_the_outcome_is_that_of_the_recording_and_the_trajectory_is_valid(demonstration):
    result = json.loads((demonstration.trajectory / "result.json").read_bytes())
    assert (result["success"], result["error_message"]) == (True, None)
    assert result["total_steps"] == VISIBLE == len(actions(demonstration))
    problems = validate_trajectory(demonstration.trajectory, "demo")
    assert problems == []


def test_hidden_actions_are_rows_with_their_place_between_the_steps(demonstration):
    rows = pq.read_table(demonstration.trajectory / HIDDEN_ACTIONS_FILE).to_pylist()
    assert [(row["before_step"], row["action_type"], row["reason"]) for row in rows] == [
        (0, "click", "before_video"),
        (6, "click", "off_screen"),
        (6, "type", "off_screen"),
        (VISIBLE, "click", "after_video"),
    ]
    kinds = [action["action_type"] for action in actions(demonstration)]
    assert kinds[4:7] == ["click", "type", "click"]


def test_hidden_actions_are_a_warning_and_block_nothing(demonstration):
    checks = demonstration.checks(TRAJECTORIES_STAGE.name)
    assert [name for name, passed in checks.items() if not passed] == ["nothing_missing"]


def test_every_step_is_a_sample_with_all_actions_before_it_as_its_history(demonstration):
    lines = read_lines(demonstration.store / "sft" / "samples.jsonl")
    assert [line["output"]["action"] for line in lines] == actions(demonstration)
    histories = [line["input"]["history"] for line in lines]
    assert [
        [action for action in history if action["action_type"] != "gap"] for history in histories
    ] == [actions(demonstration)[:number] for number in range(VISIBLE)]
    gaps = [sum(action["action_type"] == "gap" for action in history) for history in histories]
    assert gaps == [1] * 6 + [3] * 4
    rows = pq.read_table(demonstration.trajectory / "provenance.parquet").to_pylist()
    leaky = [row["action_type"] for row in rows if row["leak"]]
    assert "scroll" in leaky
    assert all(row["unavoidable"] for row in rows if row["leak"])


def test_prompts_name_hidden_actions_and_no_record_ends_the_task(demonstration):
    (file,) = demonstration.store.glob("datasets/*/train.jsonl")
    records = read_lines(file)
    assert [record["metadata"]["step_index"] for record in records] == list(range(VISIBLE))
    history = records[-1]["conversations"][0]["value"].split("Previous actions:\n")[1].splitlines()
    assert history[0] == "1. clicked before the recording began"
    assert history[7:9] == [
        "8. clicked outside the recorded screen",
        "9. typed text outside the recorded screen",
    ]
    assert "qw" not in json.dumps(records)
    report = json.loads((file.parent / "splits.json").read_bytes())
    assert report["excluded"]["records"]["hidden_end"] == 1
    assert report["excluded"]["actions"] == {"after_video": 1, "before_video": 1, "off_screen": 2}


def test_statistics_count_hidden_actions_and_agree_with_the_index(demonstration):
    tables = read_statistics(demonstration.store / "statistics")
    assert tables["hidden_actions"] == [
        {"reason": "off_screen", "actions": 2, "trajectories": 1},
        {"reason": "after_video", "actions": 1, "trajectories": 1},
        {"reason": "before_video", "actions": 1, "trajectories": 1},
    ]
    (overview,) = tables["overview"]
    assert (overview["complete"], overview["hidden_actions"]) == (0, 4)
    assert demonstration.checks(STATISTICS_STAGE.name) == {"datasets_agree": True}
