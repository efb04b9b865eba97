"""Tests whether the sensor finds that the outputs of an upload are up to date."""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.runs.discovery import is_settled
from demo_pipeline.runs.quarantine import quarantine_demonstration
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.building import is_up_to_date
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

KEY = "first"


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """Returns a copy of a root with two demonstrations, processed up to the trajectories."""
    return copy_of(made_root, tmp_path / "root")


def built_by_older_code(workspace: Workspace, output: str) -> None:
    """Commits the files of an output again, with an older code version in the recipe."""
    folder, version = workspace.store.open(output)
    with workspace.store.stage(output) as staging:
        shutil.copytree(folder, staging.path, dirs_exist_ok=True)
        recipe = replace(version.manifest.recipe, code_version="0")
        workspace.store.commit(staging, recipe, version.manifest.summary)


def change_upload(root: Path) -> None:
    path = root / "uploads" / KEY / "meta.json"
    meta = json.loads(path.read_bytes())
    meta["quest"]["content"] = "Please do something else."
    path.write_text(json.dumps(meta))


def test_new_code_and_new_settings_are_no_reason_for_the_sensor(root):
    workspace = open_workspace(root, actions=ActionSettings(stop_shortcut=("f9",)))
    for name in ("recordings", "events", "screenshots"):
        built_by_older_code(workspace, f"{name}/{KEY}")
    assert not is_up_to_date(workspace, KEY)
    assert is_settled(workspace, KEY, quarantined=False)


def test_a_changed_upload_is_a_reason_for_the_sensor(root):
    change_upload(root)
    assert not is_settled(open_workspace(root), KEY, quarantined=False)


def test_an_upload_is_changed_when_its_link_leads_to_another_recording(root):
    uploads = root / "uploads"
    (uploads / KEY).rename(uploads / "take_1")
    (uploads / KEY).symlink_to("take_1")
    workspace = open_workspace(root)
    time.sleep(0.05)
    os.utime(
        workspace.store.open(f"recordings/{KEY}")[0]
    )  # newer than the link, as if built from it
    assert is_settled(workspace, KEY, quarantined=False)
    time.sleep(0.05)
    (uploads / KEY).unlink()
    (uploads / KEY).symlink_to("second")  # the upload `second` is older than the build
    assert not is_settled(workspace, KEY, quarantined=False)


@pytest.mark.parametrize("output", ["recordings", "events"])
def test_a_changed_upload_is_a_reason_although_the_code_is_new_too(root, output):
    workspace = open_workspace(root)
    built_by_older_code(workspace, f"{output}/{KEY}")
    change_upload(root)
    assert not is_settled(workspace, KEY, quarantined=False)


def test_an_output_of_another_version_of_its_input_is_a_reason_for_the_sensor(root):
    """This happens if a run is killed between two stages."""
    workspace = open_workspace(root)
    folder, version = workspace.store.open(f"events/{KEY}")
    with workspace.store.stage(f"events/{KEY}") as staging:
        shutil.copytree(folder, staging.path, dirs_exist_ok=True)
        (staging.path / "more").write_text("another content")
        workspace.store.commit(staging, version.manifest.recipe, {})
    assert not is_settled(workspace, KEY, quarantined=False)


def test_a_missing_output_is_a_reason_for_the_sensor(root):
    workspace = open_workspace(root)
    workspace.store.remove(f"triage/{KEY}")
    assert not is_settled(workspace, KEY, quarantined=False)


@pytest.mark.parametrize("tool_version", ["", "0.0.1"])
def test_a_refused_upload_is_no_reason_also_for_new_code(root, tool_version, monkeypatch):
    workspace = open_workspace(root)
    shutil.rmtree(root / "store")
    identity = workspace.uploads.identity(KEY)
    if tool_version:
        monkeypatch.setattr("demo_pipeline.runs.quarantine.__version__", tool_version)
    quarantine_demonstration(workspace.store, KEY, "events", identity, [])
    monkeypatch.undo()
    assert is_settled(workspace, KEY)
    change_upload(root)
    assert not is_settled(workspace, KEY)
