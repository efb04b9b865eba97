"""Folders whose names the store cannot hold as they are, and the ids that earlier versions gave."""

import shutil
from pathlib import Path

import pytest

from demo_pipeline.annotations.annotation_stage import ANNOTATIONS_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.runs.datasets import committed_trajectories
from demo_pipeline.runs.quarantine import list_quarantine, read_quarantine
from demo_pipeline.runs.stage_runs import run_stage
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.names import safe_id
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace
from demo_pipeline_tests.store.making_outputs import recipe

NAMES = ("upload.", "a.json", "b.LOCK", "trailing. ", "...", "c" * 128 + ".")


@pytest.fixture
def pipeline(tmp_path: Path, made_root: Path) -> Workspace:
    return open_workspace(copy_of(made_root, tmp_path / "root"))


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_folder_of_such_a_name_is_quarantined(pipeline: Workspace, name: str) -> None:
    (Path(pipeline.uploads.url) / name).mkdir()
    key = safe_id(name)
    assert key != name
    if name == "...":  # hidden
        return
    assert key in {upload.id for upload in pipeline.uploads.list_demonstrations()}
    with pytest.raises(DemonstrationError, match="is missing"):
        run_stage(pipeline, RAW_RECORDINGS_STAGE, key)
    assert [record.demonstration for record in list_quarantine(pipeline.store)] == [key]


def test_the_former_id_is_reported_and_its_trajectory_is_not_doubled(pipeline: Workspace) -> None:
    key = safe_id("upload.")
    (Path(pipeline.uploads.url) / "first").rename(Path(pipeline.uploads.url) / "upload.")
    committed_as(pipeline, "upload.")
    with committed_trajectories(pipeline) as before:
        assert sorted(before.versions) == ["first", "second", "upload."]
        assert "renamed" not in before.left_out
    with pytest.raises(DemonstrationError, match=f"the folder's id is {key}"):
        run_stage(pipeline, RAW_RECORDINGS_STAGE, "upload.")
    assert read_quarantine(pipeline.store, "upload.") is not None
    committed_as(pipeline, key)
    with committed_trajectories(pipeline) as after:
        assert sorted(after.versions) == sorted(["first", "second", key])
        assert after.left_out["renamed"] == 1


def committed_as(pipeline: Workspace, key: str) -> None:
    """The trajectory of `first` under another id, as if it had been built for it."""
    with (
        pipeline.store.open(TRAJECTORIES_STAGE.output("first")) as (folder, _),
        pipeline.store.stage(TRAJECTORIES_STAGE.output(key)) as staging,
    ):
        shutil.copytree(folder, staging.path, dirs_exist_ok=True)
        pipeline.store.commit(staging, recipe(), {})
    for stage in (ANNOTATIONS_STAGE, RECORDS_STAGE):
        run_stage(pipeline, stage, key)
