"""Folders whose names the store cannot hold as they are."""

from pathlib import Path

import pytest

from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stage_runs import build_stage
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.names import safe_id
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

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
        build_stage(pipeline, RAW_RECORDINGS_STAGE, key)
    assert [record.demonstration for record in list_quarantine(pipeline.store)] == [key]
