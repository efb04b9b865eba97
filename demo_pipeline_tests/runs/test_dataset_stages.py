"""Datasets of the committed trajectories: complete, reproducible, and without broken ones."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.runs.datasets import committed_trajectories, run_dataset_stage
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, DATASET_STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, TrajectorySettings
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace, run_all_stages

EXPORTERS = [stage for stage in DATASET_STAGES if stage.reads_trajectories]


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """A copy of two demonstrations taken to their trajectories."""
    return copy_of(made_root, tmp_path / "root")


def run_all(workspace: Workspace) -> dict[str, str]:
    return {stage.name: run_dataset_stage(workspace, stage).status for stage in EXPORTERS}


def indexed(workspace: Workspace) -> list[str]:
    folder = workspace.store.open("dataset")[0]
    index = json.loads((folder / "index.json").read_bytes())
    return sorted(entry["id"] for entry in index["trajectories"])


@pytest.mark.no_cover  # other tests run the same lines
def test_every_dataset_is_built_once(root: Path) -> None:
    workspace = open_workspace(root)
    assert set(run_all(workspace).values()) == {"made"}
    assert set(run_all(workspace).values()) == {"unchanged"}
    assert indexed(workspace) == ["first", "second"]
    for stage in EXPORTERS:
        made = run_dataset_stage(workspace, stage)
        assert made.checks[0].passed
        assert made.summary["left_out"] == {"broken": 0, "private": 0, "quarantined": 0}


@pytest.mark.no_cover  # other tests run the same lines
def test_a_forced_build_gives_every_dataset_the_same_version(root: Path) -> None:
    workspace = open_workspace(root)
    for stage in EXPORTERS:
        first = run_dataset_stage(workspace, stage).version
        again = run_dataset_stage(workspace, stage, force=True).version
        assert first is not None
        assert first == again


@pytest.mark.no_cover  # other tests run the same lines
def test_the_index_links_the_exact_trajectories(root: Path) -> None:
    workspace = open_workspace(root)
    run_all(workspace)
    folder = workspace.store.open("dataset")[0]
    task = json.loads((folder / "trajectories" / "second" / "task.json").read_bytes())
    assert task["instruction"] == "Please do the second task."


def test_an_instruction_keeps_its_lines_from_meta_json_to_every_form(root: Path) -> None:
    told = "Write exactly:\n\ndef f(x):\n    return  x"
    path = root / "uploads" / "first" / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["quest"]["content"] = f"\n{told}\n".replace("exactly", "<app>exactly</app>")
    path.write_text(json.dumps(meta))
    workspace = open_workspace(root)
    run_all_stages(workspace, "first")
    for name in ("sft_samples", "messages_dataset", "cudag_dataset", "osworld_quests"):
        assert run_dataset_stage(workspace, DATASET_STAGE_BY_NAME[name]).version is not None
    for output in ("sft", "messages", *workspace.store.outputs("datasets"), "osworld/quests"):
        folder = workspace.store.open(output)[0]
        texts = [path.read_text() for path in folder.rglob("*.json*")]
        assert any(json.dumps(told)[1:-1] in text for text in texts), output


@pytest.mark.no_cover  # other tests run the same lines
def test_a_new_trajectory_rebuilds_the_datasets(root: Path) -> None:
    workspace = open_workspace(root)
    run_all(workspace)
    shutil.copytree(root / "uploads" / "first", root / "uploads" / "third")
    run_all_stages(workspace, "third")
    assert set(run_all(workspace).values()) == {"made"}
    assert indexed(workspace) == ["first", "second", "third"]


@pytest.mark.no_cover  # other tests run the same lines
def test_dataset_settings_rebuild_no_trajectory(root: Path) -> None:
    before = contents_of(open_workspace(root))
    other = open_workspace(root, datasets=DatasetSettings(seed=7))
    run_all(other)
    assert contents_of(other) == before


def contents_of(workspace: Workspace) -> dict[str, str]:
    members = committed_trajectories(workspace)
    return {key: version.id for key, version in members.versions.items()}


@pytest.mark.no_cover  # other tests run the same lines
def test_a_new_leak_limit_rebuilds_only_the_index(root: Path) -> None:
    workspace = open_workspace(root)
    run_all(workspace)
    limits = TrajectorySettings(max_leak_rate=0.3)
    again = run_all(open_workspace(root, trajectories=limits))
    assert again == dict.fromkeys(again, "unchanged") | {"trajectory_index": "made"}


def test_a_leaky_dataset_is_built_with_a_warning(root: Path) -> None:
    seen = Problem("leak_rate", "steps.parquet", "much of it")
    index = DATASET_STAGE_BY_NAME["trajectory_index"]
    blocking, leaks = index.checks
    assert (blocking.blocking, leaks.name, leaks.blocking) == (True, "leak_rate", False)
    leaky = replace(index, checks=(blocking, replace(leaks, run=lambda *_: [seen])))
    made = run_dataset_stage(open_workspace(root), leaky)
    assert made.status == "made"
    outcome = made.checks[1]
    assert (outcome.name, outcome.passed, outcome.blocking) == ("leak_rate", False, False)
    assert outcome.problems == (seen,)
    assert made.summary["pointer_actions"] == 5
    assert made.summary["leak_rate"] == 0.0


@pytest.mark.no_cover  # other tests run the same lines
def test_a_broken_demonstration_is_left_out_and_counted(root: Path) -> None:
    workspace = open_workspace(root)
    shutil.copytree(root / "uploads" / "first", root / "uploads" / "bad")
    (root / "uploads" / "bad" / "meta.json").write_text("{", encoding="utf-8")
    with pytest.raises(DemonstrationError):
        run_all_stages(workspace, "bad")
    assert set(run_all(workspace).values()) == {"made"}
    assert indexed(workspace) == ["first", "second"]
    for stage in EXPORTERS:
        summary = run_dataset_stage(workspace, stage).summary
        assert summary["left_out"] == {"broken": 0, "private": 0, "quarantined": 1}


def test_a_committed_trajectory_that_lost_a_file_is_left_out_and_counted(root: Path) -> None:
    workspace = open_workspace(root)
    folder = workspace.store.open("trajectories/first")[0]
    (folder / "task.json").unlink()
    assert set(run_all(workspace).values()) == {"made"}
    assert indexed(workspace) == ["second"]
    made = run_dataset_stage(workspace, DATASET_STAGE_BY_NAME["trajectory_index"])
    assert made.summary["left_out"] == {"broken": 1, "private": 0, "quarantined": 0}


def test_building_without_any_trajectory_does_not_crash(tmp_path: Path) -> None:
    (tmp_path / "uploads").mkdir()
    workspace = open_workspace(tmp_path)
    for status in run_all(workspace).values():
        assert status in {"made", "rejected"}
