"""Tests that exports of whole trajectories are built on request, counted, copied and recognised."""

from pathlib import Path

import pytest

from demo_pipeline.datasets.dataset_inputs import CommittedTrajectories, DatasetInputs
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.problems import errors
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.validation import recognise, validate
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.trajectories.provenance import read_provenance, write_provenance
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import AGENTNET_STAGE, ATIF_STAGE, CUA_LITE_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace

TRAJECTORY_STAGES = (CUA_LITE_STAGE, AGENTNET_STAGE, ATIF_STAGE)
NAMES = ("cua_lite", "agentnet", "atif")


def workspace_of(root: Path, store: str) -> Workspace:
    """Returns a workspace with the exports `NAMES` enabled; `store` is a path or a URL."""
    return open_workspace(root, store=store, datasets=DatasetSettings(exports=NAMES))


def filled(root: Path, store: str) -> Workspace:
    """Returns a workspace with three trajectories, one of them failed, and their exports."""
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


@pytest.fixture
def local(tmp_path: Path) -> Workspace:
    return filled(tmp_path, str(tmp_path / "store"))


def test_the_copies_are_recognised_and_valid(local, tmp_path):
    copied = export_datasets(local.store, tmp_path / "copy")
    assert {*NAMES} <= set(copied)
    for name in NAMES:
        folder = tmp_path / "copy" / name
        assert recognise(folder) == name
        assert validate(folder, name, local.settings) == []
        assert not any(path.is_symlink() for path in folder.rglob("*"))
    files = sorted((tmp_path / "copy/atif").rglob("trajectory.json"))
    assert [validate(file, "atif", local.settings) for file in files] == [[], []]


@pytest.mark.parametrize("stage", TRAJECTORY_STAGES, ids=lambda stage: stage.name)
def test_a_task_in_two_splits_is_rejected(stage, tmp_path):
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
