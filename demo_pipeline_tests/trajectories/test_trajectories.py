"""Tests that the stage `trajectories` writes valid, reproducible folders and reports failures."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.actions.action_tables import read_actions
from demo_pipeline.desktopd.models import Result
from demo_pipeline.desktopd.validator import validate_trajectory
from demo_pipeline.observation.frames.evidence import read_evidence
from demo_pipeline.observation.frames.frames_table import FRAMES_FILE, FRAMES_SCHEMA, read_frames
from demo_pipeline.observation.trees.ui_trees import read_tree_rows
from demo_pipeline.problems import DemonstrationError, errors
from demo_pipeline.recording.manifest import RecordingManifest, read_manifest
from demo_pipeline.settings import TrajectorySettings
from demo_pipeline.trajectories import trajectories
from demo_pipeline.trajectories.pointer_leaks import check_leak_rates
from demo_pipeline.trajectories.provenance import (
    HIDDEN_ACTIONS_FILE,
    PROVENANCE_SCHEMA,
    QUEST_NAMES,
    read_hidden_actions,
    read_provenance,
)
from demo_pipeline.trajectories.trajectories import (
    PROVENANCE_FILE,
    build_trajectory,
    check_every_action_shown,
    check_provenance,
    check_trajectory,
)
from demo_pipeline_tests.fixed_values import settings_with


@pytest.fixture
def store(made_root: Path) -> Path:
    return made_root / "store"


def build(
    store: Path,
    out: Path,
    manifest: RecordingManifest | None = None,
    shots: Path | None = None,
    trees: Path | None = None,
) -> dict[str, Any]:
    out.mkdir()
    return build_trajectory(
        manifest or read_manifest(store / "recordings" / "first"),
        store / "events" / "first",
        store / "actions" / "first",
        shots or store / "screenshots" / "first",
        trees or store / "ui_trees" / "first",
        out,
    )


def with_meta(store: Path, **meta: Any) -> RecordingManifest:
    manifest = read_manifest(store / "recordings" / "first")
    return manifest.model_copy(update={"meta": {**manifest.meta, **meta}})


def test_the_folder_is_a_valid_trajectory(store, tmp_path):
    summary = build(store, tmp_path / "first")
    assert errors(validate_trajectory(tmp_path / "first", "first")) == []
    assert errors(check_trajectory(tmp_path / "first", "first")) == []
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == [
        "final_screenshot.png",
        HIDDEN_ACTIONS_FILE,
        PROVENANCE_FILE,
        "result.json",
        "steps",
        "task.json",
    ]
    steps = sorted(path.name for path in (tmp_path / "first" / "steps").iterdir())
    assert steps == ["000", "001", "002", "003"]
    assert summary["steps"] == 4
    assert summary["success"] is True


def test_task_and_result_describe_the_demonstration(store, tmp_path):
    build(store, tmp_path / "first")
    task = json.loads((tmp_path / "first" / "task.json").read_text(encoding="utf-8"))
    assert task["instruction"] == "Please do the first task."
    assert task["task_id"] == "notes_the_first_task"
    assert (task["difficulty"], task["expected_steps"]) == ("easy", 4)
    assert task["osworld_task_id"] is None
    result = json.loads((tmp_path / "first" / "result.json").read_text(encoding="utf-8"))
    log = (store.parent / "uploads" / "first" / "input_log.jsonl").read_text(encoding="utf-8")
    times = [json.loads(line)["time"] for line in log.splitlines()]
    assert result["completion_time_ms"] == max(times) - min(times)
    assert result["model_info"]["name"] == "human"
    assert (result["success"], result["error_message"]) == (True, None)


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"reason": "fail"}, "fail"),
        ({"status": "aborted", "reason": None}, "aborted"),
        ({"status": "recording"}, "recording"),
    ],
)
def test_only_a_completed_demonstration_is_a_success(store, tmp_path, meta, words):
    build(store, tmp_path / "first", with_meta(store, **meta))
    result = json.loads((tmp_path / "first" / "result.json").read_text(encoding="utf-8"))
    assert result["success"] is False
    assert words in result["error_message"]
    assert errors(validate_trajectory(tmp_path / "first", "first")) == []


def without_pictures(store: Path, out: Path, keep: int) -> Path:
    """Writes the screenshots of a video that cannot be decoded after `keep` actions."""
    return with_frames(store, out, lambda n: n >= keep)


def with_frames(store: Path, out: Path, missing: Callable[[int], bool]) -> Path:
    """Copies the screenshots, except for the actions for which `missing` returns True."""
    source = store / "screenshots" / "first"
    out.mkdir()
    for path in source.iterdir():
        (out / path.name).write_bytes(path.read_bytes())
    rows = read_frames(source)
    empty = {"file": None, "pts": None, "frame": None, "reason_code": "missing"}
    for n, row in enumerate(rows):
        if missing(n):
            row.update(empty)
    pq.write_table(pa.Table.from_pylist(rows, schema=FRAMES_SCHEMA), out / FRAMES_FILE)
    return out


def test_actions_without_a_frame_are_hidden_and_do_not_change_the_outcome(store, tmp_path):
    shots = without_pictures(store, tmp_path / "shots", keep=2)
    summary = build(store, tmp_path / "first", shots=shots)
    assert (summary["left_out"]["undecodable"], summary["complete"]) == (2, False)
    result = json.loads((tmp_path / "first" / "result.json").read_text(encoding="utf-8"))
    assert (result["success"], result["error_message"]) == (True, None)
    assert result["total_steps"] == 2
    assert set(result) == set(Result.model_fields)
    assert validate_trajectory(tmp_path / "first", "first") == []
    hidden = read_hidden_actions(tmp_path / "first").actions
    assert [(action.before_step, action.action_type) for action in hidden] == [
        (2, "type"),
        (2, "scroll"),
    ]
    rows = read_provenance(tmp_path / "first" / PROVENANCE_FILE, ["hidden_before", "complete"])
    assert rows == [{"hidden_before": 0, "complete": False}] * 2


def test_hidden_actions_before_a_step_are_counted_in_its_provenance(store, tmp_path):
    shots = with_frames(store, tmp_path / "shots", lambda n: n == 2)
    build(store, tmp_path / "first", shots=shots)
    rows = read_provenance(tmp_path / "first" / PROVENANCE_FILE, ["action_index", "hidden_before"])
    assert rows == [
        {"action_index": 0, "hidden_before": 0},
        {"action_index": 1, "hidden_before": 0},
        {"action_index": 3, "hidden_before": 1},
    ]


def test_a_warning_counts_hidden_actions_by_reason(store, tmp_path):
    build(store, tmp_path / "whole")
    assert check_every_action_shown(tmp_path / "whole") == []
    assert pq.read_table(tmp_path / "whole" / HIDDEN_ACTIONS_FILE).num_rows == 0
    build(store, tmp_path / "first", shots=without_pictures(store, tmp_path / "shots", keep=1))
    (problem,) = check_every_action_shown(tmp_path / "first")
    assert problem.message == "3 actions are in no screenshot: undecodable 3"
    assert "at most 30 % of the actions before it" in problem.remedy


def test_a_demonstration_without_any_step_is_rejected(store, tmp_path):
    shots = without_pictures(store, tmp_path / "shots", keep=0)
    with pytest.raises(DemonstrationError, match="undecodable: 4") as caught:
        build(store, tmp_path / "first", shots=shots)
    assert caught.value.problems[0].demonstration == "first"


def test_every_step_has_its_provenance(store, tmp_path):
    build(store, tmp_path / "first")
    assert check_provenance(tmp_path / "first") == []
    rows = read_provenance(tmp_path / "first" / PROVENANCE_FILE)
    assert [row["step_index"] for row in rows] == [0, 1, 2, 3]
    assert [row["action_type"] for row in rows] == ["click", "click", "type", "scroll"]
    for row in rows:
        assert list(row) == PROVENANCE_SCHEMA.names
        assert row["split_group"] == "notes_the_first_task"
        assert row["instruction_source"] == "quest.content"
        assert row["reasoning_source"] == "template"
        assert row["scale"] == 3.0
        assert row["lead_ms"] > 0
        assert row["unavoidable"] is False
        assert row["recorded_at"] == "2026-01-05T09:00:00+00:00"
    frames = read_frames(store / "screenshots" / "first")
    distances = [row["pointer_distance_px"] for row in rows]
    assert distances == [frame["pointer_distance_px"] for frame in frames]
    assert distances[2] is None
    assert distances[3] > 0


def test_steps_whose_tree_differs_from_the_screenshot_are_listed_in_a_file(
    store, tmp_path, monkeypatch
):
    agreements = ["agrees", "differs", "unknown", "differs"]

    def trees(folder: Path) -> list[dict[str, Any]]:
        rows = zip(read_tree_rows(folder), agreements, strict=True)
        return [{**row, "tree_agreement": agreement} for row, agreement in rows]

    monkeypatch.setattr(trajectories, "read_tree_rows", trees)
    build(store, tmp_path / "first")
    named = json.loads((tmp_path / "first" / "differing_trees.json").read_bytes())
    assert named == {"steps": [1, 3]}
    assert errors(validate_trajectory(tmp_path / "first", "first")) == []


def with_leaks(store: Path, out: Path, **changes: Any) -> Path:
    """Copies the screenshots, and changes columns of the first two."""
    shutil.copytree(store / "screenshots" / "first", out)
    rows = read_frames(out)
    for row in rows[:2]:
        row.update(changes)
    pq.write_table(pa.Table.from_pylist(rows, schema=FRAMES_SCHEMA), out / FRAMES_FILE)
    return out


@pytest.mark.parametrize(("unavoidable", "code"), [(True, "leak_rate"), (False, "avoidable")])
def test_leaks_give_rates_and_a_warning(store, tmp_path, unavoidable, code):
    columns = {"leak": True, "unavoidable": unavoidable, "pointer_distance_px": 3.0}
    summary = build(store, tmp_path / "out", shots=with_leaks(store, tmp_path / "shots", **columns))
    assert (summary["pointer_actions"], summary["leaks"]) == (3, 2)
    assert summary["leak_rate"] == 0.6667
    assert summary["unavoidable_leak_rate"] == (0.6667 if unavoidable else 0.0)
    rows = read_provenance(tmp_path / "out" / PROVENANCE_FILE)
    assert [row["unavoidable"] for row in rows] == [unavoidable, unavoidable, False, False]
    assert rows[0]["pointer_distance_px"] == 3.0
    problems = check_leak_rates(tmp_path / "out" / PROVENANCE_FILE, TrajectorySettings())
    assert problems[0].code.startswith(code)
    assert "2 of 3 pointing actions" in problems[0].message
    loose = settings_with(TrajectorySettings, max_leak_rate=1, max_avoidable_leak_rate=1)
    assert check_leak_rates(tmp_path / "out" / PROVENANCE_FILE, loose) == []


def end_at(manifest: RecordingManifest, last_s: float) -> RecordingManifest:
    video = manifest.video.model_copy(update={"last_pts_s": last_s})
    return manifest.model_copy(update={"video": video})


@pytest.mark.parametrize(("late_ms", "filmed"), [(-50, True), (0, True), (1, False), (800, False)])
def test_an_action_that_ends_after_the_video_is_marked(store, tmp_path, late_ms, filmed):
    manifest = read_manifest(store / "recordings" / "first")
    clock = read_evidence(store / "screenshots" / "first").clock
    end_ms = read_actions(store / "actions" / "first")[-1].end_ms
    allowed_ms = clock.uncertainty_ms + 1000 / manifest.video.mean_fps
    last_s = clock.video_time(end_ms - allowed_ms - late_ms + 0.001)
    summary = build(store, tmp_path / "out", end_at(manifest, last_s))
    rows = read_provenance(tmp_path / "out" / PROVENANCE_FILE)
    assert [row["end_filmed"] for row in rows] == [True, True, True, filmed]
    warned = [text for text in summary["warnings"] if "the video ends before" in text]
    assert len(warned) == (not filmed)
    assert errors(check_provenance(tmp_path / "out")) == []


def test_the_check_finds_a_wrong_schema(tmp_path):
    assert [p.code for p in check_provenance(tmp_path)] == ["missing_table", "missing_table"]
    table = PROVENANCE_SCHEMA.empty_table().drop_columns(["leak"])
    pq.write_table(table, tmp_path / PROVENANCE_FILE)
    pq.write_table(table, tmp_path / HIDDEN_ACTIONS_FILE)
    assert [p.code for p in check_provenance(tmp_path)] == ["wrong_schema", "wrong_schema"]


def test_the_quest_except_its_instruction_is_only_in_the_provenance(store, tmp_path):
    objectives = ["Open <app>Notes</app>", "Type \ud800"]
    quest = {
        "content": "Do it.",
        "objectives": objectives,
        "reward": {"time": 1.5, "max_reward": 7},
    }
    build(store, tmp_path / "first", manifest=with_meta(store, quest=quest))
    for row in read_provenance(tmp_path / "first" / PROVENANCE_FILE):
        assert row["objectives"] == ["Open Notes", "Type ?"]
        assert (row["max_reward"], row["reward_time_ms"]) == (7.0, 1)
    written = "".join(path.read_text("utf-8") for path in tmp_path.rglob("*.json"))
    assert "reward" not in written
    assert "objectives" not in written
    build(store, tmp_path / "none", manifest=with_meta(store, quest=None, title="Do it."))
    [row, *_] = read_provenance(tmp_path / "none" / PROVENANCE_FILE)
    assert {row[name] for name in QUEST_NAMES} == {None}
