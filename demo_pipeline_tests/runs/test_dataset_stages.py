"""Tests that datasets are complete, reproducible, and without broken trajectories."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline.runs.stages import dataset_stages, dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import TrajectorySettings
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace, run_all_stages

EXPORTERS = [stage for stage in dataset_stages() if stage.reads_trajectories]


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """Returns a copy of a root with two demonstrations, processed up to the trajectories."""
    return copy_of(made_root, tmp_path / "root")


def run_all(workspace: Workspace) -> dict[str, str]:
    return {stage.name: run_dataset_stage(workspace, stage).status for stage in EXPORTERS}


def indexed(workspace: Workspace) -> list[str]:
    folder = workspace.store.open("dataset")[0]
    index = json.loads((folder / "index.json").read_bytes())
    return sorted(entry["id"] for entry in index["trajectories"])


def test_an_instruction_keeps_its_lines_from_meta_json_to_every_form(root):
    instruction = "Write exactly:\n\ndef f(x):\n    return  x"
    path = root / "uploads" / "first" / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["quest"]["content"] = f"\n{instruction}\n".replace("exactly", "<app>exactly</app>")
    path.write_text(json.dumps(meta))
    workspace = open_workspace(root)
    run_all_stages(workspace, "first")
    for name in ("sft_samples", "messages_dataset", "cudag_dataset", "osworld_quests"):
        assert run_dataset_stage(workspace, dataset_stages_by_name()[name]).version is not None
    for output in ("sft", "messages", *workspace.store.outputs("datasets"), "osworld/quests"):
        folder = workspace.store.open(output)[0]
        texts = [path.read_text() for path in folder.rglob("*.json*")]
        assert any(json.dumps(instruction)[1:-1] in text for text in texts), output


def test_a_new_leak_limit_rebuilds_only_the_index(root, monkeypatch):
    workspace = open_workspace(root)
    run_all(workspace)
    monkeypatch.setattr(TrajectorySettings, "REMOVED", {"max_leak_rate": 0.3})
    again = run_all(open_workspace(root))
    assert again == dict.fromkeys(again, "unchanged") | {"trajectory_index": "made"}


def test_a_leaky_dataset_is_built_with_a_warning(root):
    seen = Problem("leak_rate", "steps.parquet", "much of it")
    index = dataset_stages_by_name()["trajectory_index"]
    blocking, leaks = index.checks
    assert (blocking.blocking, leaks.name, leaks.blocking) == (True, "leak_rate", False)
    leaky = replace(index, checks=(blocking, replace(leaks, run=lambda *_: [seen])))
    result = run_dataset_stage(open_workspace(root), leaky)
    assert result.status == "made"
    outcome = result.checks[1]
    assert (outcome.name, outcome.passed, outcome.blocking) == ("leak_rate", False, False)
    assert outcome.problems == (seen,)
    assert result.summary["pointer_actions"] == 5
    assert result.summary["leak_rate"] == 0.0


def test_a_committed_trajectory_that_lost_a_file_is_left_out_and_counted(root):
    workspace = open_workspace(root)
    folder = workspace.store.open("trajectories/first")[0]
    (folder / "task.json").unlink()
    assert set(run_all(workspace).values()) == {"made"}
    assert indexed(workspace) == ["second"]
    result = run_dataset_stage(workspace, dataset_stages_by_name()["trajectory_index"])
    assert result.summary["left_out"] == {"broken": 1, "private": 0, "quarantined": 0}


def test_building_without_any_trajectory_does_not_crash(tmp_path):
    (tmp_path / "uploads").mkdir()
    workspace = open_workspace(tmp_path)
    for stage in EXPORTERS:
        with suppress(RefusedError):
            run_dataset_stage(workspace, stage)
