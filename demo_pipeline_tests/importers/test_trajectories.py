"""Tests that OSWorld-Desktopd trajectories of other programs are published and exported."""

import json
import shutil
from pathlib import Path

import pytest

from demo_pipeline.desktopd.trajectory_reader import read_trajectory
from demo_pipeline.runs.demonstration_outputs import has_imported_trajectory
from demo_pipeline.runs.graph import Graph
from demo_pipeline.trajectories.provenance import read_provenance
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.importers.conftest import run_command, run_import
from demo_pipeline_tests.named_stages import SFT_STAGE
from demo_pipeline_tests.sample_workspace import live_in, open_workspace


@pytest.fixture
def foreign(made_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trajectory as other programs write it, without the tables of this project.

    The store is empty.
    """
    folder = tmp_path / "theirs" / "trajectories" / "traj_form_001"
    shutil.copytree(made_root / "store" / "trajectories" / "first", folder)
    for table in folder.glob("*.parquet"):
        table.unlink()
    # Adds a key to the trees, because additional keys are allowed.
    for path in folder.glob("steps/*/ui_tree.json"):
        tree = json.loads(path.read_text())
        path.write_text(json.dumps(tree | {"root": tree["root"] | {"toolkit": "gtk"}}))
    result = json.loads((folder / "result.json").read_text())
    result |= {"trajectory_id": "traj_001", "model_info": {"name": "qwen-vl-7b", "version": "1.0"}}
    (folder / "result.json").write_text(json.dumps(result))
    for name in ("uploads", "store", "tasks"):
        (tmp_path / name).mkdir()
    live_in(tmp_path, monkeypatch)
    return folder


def test_an_imported_trajectory_is_published_and_is_in_the_datasets(foreign, tmp_path):
    (foreign / "import.json").write_text('{"platform": "linux"}')
    result = run_import(foreign.parents[1])
    assert result.exit_code == 0, result.output
    assert "1 of 1: there is no recording of it" in result.stderr
    workspace = open_workspace(tmp_path)
    folder, version = workspace.store.open("trajectories/traj_form_001")
    assert has_imported_trajectory(Graph(workspace), "traj_form_001")
    assert "imported_files" in version.manifest.recipe.inputs
    theirs = read_trajectory(foreign)
    ours = read_trajectory(folder)
    assert [step.action for step in ours.steps] == [step.action for step in theirs.steps]
    assert (ours.result.trajectory_id, ours.result.model_info.name) == (
        "traj_form_001",
        "qwen-vl-7b",
    )
    pictures = [step.screenshot.read_bytes() for step in ours.steps]
    assert pictures == [step.screenshot.read_bytes() for step in theirs.steps]
    rows = read_provenance(folder / "provenance.parquet")
    assert {(row["reason_code"], row["clock_method"], row["pts"]) for row in rows} == {
        ("imported", "none", None)
    }
    assert {(row["trajectory_id"], row["platform"]) for row in rows} == {("traj_form_001", "linux")}
    with_target = [step for step in ours.steps if step.action.target_element]
    assert sum(row["target_x"] is not None for row in rows) == len(with_target) > 0
    dataset = run_dataset_stage(workspace, SFT_STAGE)
    assert dataset.summary["samples"] == len(ours.steps)


def test_a_second_import_changes_nothing_and_a_recording_is_kept(foreign, made_root, tmp_path):
    assert run_import(foreign).exit_code == 0
    assert run_import(foreign).stdout.strip().endswith("1 already there")
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(made_root / "store", tmp_path / "store", symlinks=True)
    other = foreign.rename(foreign.with_name("first"))
    result = run_import(other)
    assert result.exit_code == 1
    assert "the store has a demonstration of the id first, made from a recording" in result.stderr


def test_run_builds_the_stages_after_an_imported_trajectory(foreign, tmp_path):
    (foreign / "import.json").write_text('{"platform": "linux"}')
    run_import(foreign)
    store = open_workspace(tmp_path).store
    before = store.published("records/traj_form_001")
    assert "1 up to date" in run_command("run").stdout
    noted = run_command("annotate", "traj_form_001", "--provider", "rule")
    assert noted.exit_code == 0, noted.output
    assert "traj_form_001: annotations (" in run_command("run", "--dry-run").stdout
    result = run_command("run")
    assert "1 done, 0 quarantined" in result.stdout, result.output
    after = store.published("records/traj_form_001")
    assert before is not None
    assert after is not None
    assert after.content != before.content
    assert "1 up to date" in run_command("run").stdout
    assert run_command("run", "traj_form_001", "--force").exit_code == 0


def test_inspect_says_that_there_is_no_recording(foreign):
    run_import(foreign)
    page = run_command("inspect", "traj_form_001").stdout
    assert "no recording: the trajectory was imported" in page
    assert "steps/000/screenshot.png" in page


def test_an_invalid_trajectory_is_reported_and_not_published(foreign, tmp_path):
    (foreign / "steps" / "000" / "screenshot.png").write_bytes(b"no picture")
    result = run_import(foreign)
    assert result.exit_code == 1
    assert "steps/000/screenshot.png" in result.stderr
    (foreign / "task.json").write_text("{")
    assert run_import(foreign).exit_code == 1
    (foreign / "result.json").unlink()
    assert "result.json" in run_import(foreign).stderr
    assert open_workspace(tmp_path).store.outputs("trajectories") == []


def test_an_upload_with_the_id_of_an_imported_trajectory_is_refused(foreign, made_root, tmp_path):
    assert run_import(foreign.parents[1]).exit_code == 0
    workspace = open_workspace(tmp_path)
    before = workspace.store.current("trajectories/traj_form_001")
    shutil.copytree(made_root / "uploads" / "first", tmp_path / "uploads" / "traj_form_001")
    sentence = "an imported trajectory has this id, so the recording is not processed"
    refused = run_command("run")
    assert sentence in " ".join(refused.output.split())
    again = run_command("run", "--strict")
    assert again.exit_code == 1
    assert "1 more still quarantined" in again.output
    assert sentence in " ".join(run_command("quarantine").output.split())
    assert workspace.store.current("trajectories/traj_form_001") == before
    assert workspace.store.current("recordings/traj_form_001") is None
    (tmp_path / "uploads" / "traj_form_001").rename(tmp_path / "uploads" / "renamed")
    assert run_command("run", "--force").exit_code == 0
    assert workspace.store.current("trajectories/renamed")
    assert has_imported_trajectory(Graph(workspace), "traj_form_001")
