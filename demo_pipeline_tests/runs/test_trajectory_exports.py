"""The exports of whole trajectories in the store: on request, counted, copied, recognised."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.problems import errors
from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.validation import recognise, validate
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.stage import Stage
from demo_pipeline.trajectories.provenance import read_provenance, write_provenance
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import AGENTNET_STAGE, ATIF_STAGE, CUA_LITE_STAGE

TRAJECTORY_STAGES = (CUA_LITE_STAGE, AGENTNET_STAGE, ATIF_STAGE)
NAMES = ("cua_lite", "agentnet", "atif")


def workspace_of(root: Path, store: str) -> Workspace:
    """The pipeline with these exports and no other, over any kind of store."""
    return Workspace.open(
        Settings(
            uploads=str(root / "uploads"),
            store=store,
            cache=str(root / "cache"),
            osworld_tasks=str(root / "tasks"),
            datasets=DatasetSettings(exports=NAMES),
        )
    )


def filled(root: Path, store: str) -> Workspace:
    """A store with three trajectories, of which one is failed, and the exports of them."""
    (root / "uploads").mkdir()
    workspace = workspace_of(root, store)
    demos = [
        make_trajectory(root / "made", "one", TABLE),
        make_trajectory(root / "made", "two", [CLICK] * 3, shade=50, instruction="Another"),
        make_trajectory(root / "made", "bad", [CLICK], success=False, shade=90),
    ]
    commit_trajectories(workspace, demos)
    for stage in (*TRAJECTORY_STAGES, INDEX_STAGE):
        assert run_dataset_stage(workspace, stage).status == "made"
    return workspace


def exports_of(workspace: Workspace) -> Any:
    folder = workspace.store.open(INDEX_STAGE.folder)[0]
    return json.loads((folder / "exports.json").read_bytes())


@pytest.fixture
def local(tmp_path: Path) -> Workspace:
    return filled(tmp_path, str(tmp_path / "store"))


def test_the_index_counts_a_record_for_every_trajectory(local: Workspace) -> None:
    found = exports_of(local)
    for name in NAMES:
        state = found["exports"][name]
        assert (state["status"], state["trajectories"], state["records"]) == ("built", 2, 2)
    counts = {key: found["trajectories"][key]["records"] for key in ("one", "two", "bad")}
    assert counts == {
        "one": dict.fromkeys(NAMES, 1),
        "two": dict.fromkeys(NAMES, 1),
        "bad": dict.fromkeys(NAMES, 0),
    }


def test_the_copies_are_recognised_and_valid(local: Workspace, tmp_path: Path) -> None:
    copied = export_datasets(local.store, tmp_path / "copy")
    assert {*NAMES} <= set(copied)
    for name in NAMES:
        folder = tmp_path / "copy" / name
        assert recognise(folder) == name
        assert validate(folder, name, local.settings) == []
        assert not any(path.is_symlink() for path in folder.rglob("*"))
    files = sorted((tmp_path / "copy/atif").rglob("trajectory.json"))
    assert [validate(file, "atif", local.settings) for file in files] == [[], []]


def test_a_summary_says_what_was_written_and_what_was_left_out(local: Workspace) -> None:
    for stage in TRAJECTORY_STAGES:
        version = local.store.current(stage.folder)
        assert version is not None
        summary: Any = version.manifest.summary
        assert (summary["trajectories"], summary["steps"]) == (2, len(TABLE) + 3)
        assert summary["excluded_trajectories"]["failed"] == 1
        folder = local.store.open(stage.folder)[0]
        written = json.loads((folder / "metadata.json").read_bytes())
        assert {name: value["count"] for name, value in written["excluded_steps"].items()} == (
            summary["excluded_steps"]
        )
        assert all(value["meaning"] for value in written["excluded_steps"].values())


@pytest.mark.parametrize("stage", TRAJECTORY_STAGES, ids=lambda stage: stage.name)
def test_a_task_in_two_splits_is_rejected(stage: Stage, tmp_path: Path) -> None:
    demos = [
        make_trajectory(tmp_path, f"d{n}", [CLICK], group=f"t{n}", instruction=f"{n}", shade=9 * n)
        for n in range(6)
    ]
    context = DatasetInputs(settings=Settings(), committed=CommittedTrajectories(tuple(demos)))
    stage.build(context, tmp_path / "out")
    assert list(stage.checks[0].run(context, tmp_path / "out")) == []
    for demo in demos:
        rows = [{**row, "split_group": "shared"} for row in read_provenance(demo.provenance)]
        write_provenance(demo.provenance, rows)
    assert errors(stage.checks[0].run(context, tmp_path / "out"))
