"""Tests the catalog of OSWorld tasks: matches, rebuilds, and demonstrations left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.osworld.task_files import read_catalog
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGE_BY_NAME, dataset_stages_by_name
from demo_pipeline.runs.task_catalog import CATALOG_OUTPUT
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import read_provenance
from demo_pipeline.trajectories.trajectories import PROVENANCE_FILE
from demo_pipeline_tests.building import build_stage, is_up_to_date, run_dataset_stage
from demo_pipeline_tests.places import file_and_line
from demo_pipeline_tests.sample_workspace import (
    contents,
    copy_of,
    open_workspace,
    run_all_stages,
    run_catalog,
)
from demo_pipeline_tests.task_folders import RISKY, put_tasks, put_text, risk_task, task

FIRST = "please do the FIRST task"
UNRELATED = {"os": [task("unrelated", "Something else.")]}

MADE_AGAIN = ["trajectories", "redactions", "annotations", "records", "contact_sheets", "triage"]


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """Returns a copy of a root with two demonstrations that were matched with an empty catalog."""
    return copy_of(made_root, tmp_path / "root")


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return open_workspace(root)


def redone(workspace: Workspace) -> dict[str, list[str]]:
    """Runs all stages; returns demonstration → the stages that were built again."""
    return {
        name: [
            stage for stage, status in run_all_stages(workspace, name).items() if status == "made"
        ]
        for name in ("first", "second")
    }


def task_of(workspace: Workspace, name: str) -> Any:
    folder = workspace.store.open(f"trajectories/{name}")[0]
    return json.loads((folder / "task.json").read_bytes())["osworld_task_id"]


def test_a_task_matches_only_the_demonstration_with_its_instruction(root, workspace):
    assert (task_of(workspace, "first"), task_of(workspace, "second")) == (None, None)
    put_tasks(root / "tasks", {"os": [task("t-1", FIRST)]})
    assert redone(workspace) == {"first": MADE_AGAIN, "second": []}
    assert (task_of(workspace, "first"), task_of(workspace, "second")) == ("t-1", None)
    folder = workspace.store.open("trajectories/first")[0]
    rows = read_provenance(folder / PROVENANCE_FILE)
    linked = {name: value for name, value in rows[0].items() if name.startswith("osworld")}
    assert linked == {
        "osworld_task_id": "t-1",
        "osworld_match": "instruction",
        "osworld_match_field": "quest.content",
        "osworld_task_kind": "ordinary",
        "osworld_matches": 1,
    }


def test_a_task_without_a_match_rebuilds_the_catalog_and_no_trajectory(root, workspace):
    put_tasks(root / "tasks", {"os": [task("t-1", FIRST)]})
    redone(workspace)
    before = contents(workspace, "first")
    put_tasks(root / "tasks", UNRELATED)
    assert run_catalog(workspace).status == "made"
    assert run_catalog(workspace).status == "unchanged"
    assert is_up_to_date(workspace, "first")
    assert redone(workspace) == {"first": [], "second": []}
    assert contents(workspace, "first") == before


def test_a_deleted_task_ends_its_match(root, workspace):
    before = contents(workspace, "first")
    put_tasks(root / "tasks", {"os": [task("t-1", FIRST)]})
    run_catalog(workspace)
    assert not is_up_to_date(workspace, "first")
    assert is_up_to_date(workspace, "second")
    run_all_stages(workspace, "first")
    (root / "tasks" / "examples" / "os" / "t-1.json").unlink()
    assert redone(workspace) == {"first": MADE_AGAIN, "second": []}
    assert contents(workspace, "first") == before


def test_a_task_id_in_the_quest_takes_precedence_over_the_instruction(root, workspace):
    put_tasks(root / "tasks", {"os": [task("t-1", FIRST)]})
    put_tasks(root / "tasks" / RISKY, {"os": [risk_task("t-2", "Whatever.")]})
    path = root / "uploads" / "first" / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["quest"]["osworld_task_id"] = "t-2"
    path.write_text(json.dumps(meta), encoding="utf-8")
    redone(workspace)
    assert task_of(workspace, "first") == "t-2"


def test_a_matched_demonstration_is_indexed_but_not_exported_for_training(root, workspace):
    put_tasks(root / "tasks", {"os": [task("t-1", FIRST)]})
    redone(workspace)
    sft: Any = run_dataset_stage(workspace, dataset_stages_by_name()["sft_samples"]).summary
    assert sft["excluded_trajectories"]["contaminated"] == 1
    index: Any = run_dataset_stage(workspace, dataset_stages_by_name()["trajectory_index"]).summary
    assert (index["trajectories"], index["counts"]["contaminated"]) == (2, 1)
    workspace_with_tasks = open_workspace(root, datasets=DatasetSettings(include_contaminated=True))
    sft = run_dataset_stage(workspace_with_tasks, dataset_stages_by_name()["sft_samples"]).summary
    assert sft["excluded_trajectories"]["contaminated"] == 0


def test_invalid_task_files_are_reported_and_the_others_kept(root, workspace):
    put_tasks(root / "tasks", {"os": [task("t-1", FIRST)]})
    put_text(root / "tasks", "examples/os/bad.json", "{")
    put_text(root / "tasks", "test_all.json", '{"os": ["t-1", "bad"]}')
    result = run_catalog(workspace)
    assert result.status == "made"
    [check] = [
        check_of_stage for check_of_stage in result.checks if check_of_stage.name == "task_files"
    ]
    assert (check.passed, check.blocking) == (False, False)
    problems = [(problem.code, file_and_line(problem)) for problem in check.problems]
    assert problems == [("invalid_json", "examples/os/bad.json:1")]
    folder = workspace.store.open(CATALOG_OUTPUT)[0]
    assert [row["task_id"] for row in read_catalog(folder)] == ["t-1"]
    assert str(root) not in str(result)


def test_without_a_catalog_the_trajectory_is_built_with_a_warning(workspace):
    before = contents(workspace, "first")
    workspace.store.remove(CATALOG_OUTPUT)
    result = build_stage(workspace, STAGE_BY_NAME["trajectories"], "first")
    [check] = [
        check_of_stage
        for check_of_stage in result.checks
        if check_of_stage.name == "nothing_missing"
    ]
    assert (result.status, check.passed) == ("made", False)
    assert "build the catalog of OSWorld tasks" in check.problems[0].remedy
    assert list_quarantine(workspace.store) == []
    run_catalog(workspace)
    assert not is_up_to_date(workspace, "first")
    result = build_stage(workspace, STAGE_BY_NAME["trajectories"], "first")
    assert all(check_of_stage.passed for check_of_stage in result.checks)
    # The records are built again, because they link to the trajectory, which has a new folder.
    assert redone(workspace) == {"first": ["records"], "second": []}
    assert contents(workspace, "first") == before


def test_a_damaged_catalog_quarantines_no_demonstration(root, workspace):
    put_tasks(root / "tasks", UNRELATED)
    run_catalog(workspace)
    folder = workspace.store.open(CATALOG_OUTPUT)[0]
    path = folder / "catalog.parquet"
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(b"#" * size)
    with pytest.raises(RefusedError, match="build it with `demo-pipeline run --verify`"):
        build_stage(workspace, STAGE_BY_NAME["trajectories"], "first")
    assert list_quarantine(workspace.store) == []
