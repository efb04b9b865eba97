"""Tests that the records of a demonstration are built once, and that datasets reuse them."""

import json
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.exports.cudag import dataset
from demo_pipeline.exports.form import form_of
from demo_pipeline.exports.record_stages import RECORDS_STAGE, WITHOUT_FORM
from demo_pipeline.runs.stages import training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import BUILT_IN_EXPORTS, DatasetSettings
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory, every_file
from demo_pipeline_tests.named_stages import CUDAG_STAGE, MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace

ALL = BUILT_IN_EXPORTS
TEST_ONLY = {"train_ratio": 0, "val_ratio": 0}


def opened(root: Path, **settings: Any) -> Workspace:
    (root / "uploads").mkdir(exist_ok=True)
    return open_workspace(root, datasets=settings)


def commit(workspace: Workspace, root: Path, *numbers: int) -> None:
    for n in numbers:
        trajectory = make_trajectory(
            root / "made", f"demo{n}", TABLE, instruction=f"Do {n % 2}", group=f"g{n}", shade=20 * n
        )
        commit_trajectory(workspace, trajectory)


def records(workspace: Workspace, name: str = "demo0") -> dict[str, tuple[int, bytes]]:
    """Returns the name of each file of the records with its inode and content."""
    folder = workspace.store.open(f"records/{name}")[0]
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.name: (path.stat().st_ino, path.read_bytes()) for path in paths}


def test_enabling_an_export_adds_its_records(tmp_path):
    commit(opened(tmp_path, exports=["sft"]), tmp_path, 0)
    before = records(opened(tmp_path))
    assert before.keys() == {"files.sha256", "trajectory.jsonl", "sft.jsonl"}
    workspace = opened(tmp_path, exports=["sft", "transitions"])
    assert build_stage(workspace, RECORDS_STAGE, "demo0").status == "made"
    after = records(workspace)
    assert after.keys() == {*before, "transitions.jsonl"}
    assert after["sft.jsonl"][1] == before["sft.jsonl"][1]
    assert build_stage(workspace, RECORDS_STAGE, "demo0").status == "unchanged"


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        # These settings affect only datasets.
        ({"seed": 3, "license": "mit", "exports": ["sft"]}, "unchanged"),
        ({"include_avoidable_leaks": True, "exports": ["sft"]}, "made"),
    ],
)
def test_records_depend_on_the_settings_of_their_form(tmp_path, settings, status):
    commit(opened(tmp_path, exports=["sft"]), tmp_path, 0)
    assert build_stage(opened(tmp_path, **settings), RECORDS_STAGE, "demo0").status == status


def test_datasets_of_records_that_other_settings_made_are_those_of_new_ones(tmp_path):
    workspace = opened(tmp_path, exports=ALL)
    commit(workspace, tmp_path, 0, 1, 2, 3)
    changed = opened(tmp_path, exports=ALL, prompt_style="instruction", image_mode="jpeg")
    for stage in (export.stage for export in training_exports().values()):
        result = run_dataset_stage(changed, stage)
        assert result.status == "made", result.checks
        folder = workspace.store.open(result.output)[0]
        kept = every_file(folder)
        for number in range(4):
            build_stage(changed, RECORDS_STAGE, f"demo{number}")
        again = run_dataset_stage(changed, stage, force=True)
        folder = workspace.store.open(again.output)[0]
        assert every_file(folder) == kept


def test_datasets_use_the_version_of_a_trajectory_that_its_records_used(tmp_path):
    """A dataset uses the old version until the records of a new trajectory are built."""
    workspace = opened(tmp_path)
    commit(workspace, tmp_path, 0)
    before = run_dataset_stage(workspace, SFT_STAGE)
    other = make_trajectory(tmp_path / "other", "demo0", TABLE[:2], shade=90)
    with workspace.store.stage("trajectories/demo0") as staging:
        (staging.path / "task.json").write_bytes((other.path / "task.json").read_bytes())
        built = workspace.store.current(before.output)
        assert built
        workspace.store.commit(staging, built.manifest.recipe, {})
    assert run_dataset_stage(workspace, SFT_STAGE).status == "unchanged"
    assert run_dataset_stage(workspace, SFT_STAGE, force=True).version == before.version


def test_damaged_records_cost_their_demonstration_only(tmp_path):
    workspace = opened(tmp_path)
    commit(workspace, tmp_path, 0, 1)
    folder = workspace.store.open("records/demo0")[0]
    path = folder / "messages.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"Do 0", b"Do 1"))
    result = run_dataset_stage(workspace, MESSAGES_STAGE)
    assert result.status == "made"
    assert result.summary["left_out"] == {"broken": 1, "private": 0, "quarantined": 0}
    [damage] = result.summary["damaged"]
    assert damage["file"] == "records/demo0/messages.jsonl"


def test_records_that_are_forgotten_after_they_were_listed_are_no_damage(tmp_path, monkeypatch):
    workspace = opened(tmp_path)
    commit(workspace, tmp_path, 0, 1)
    list_outputs = workspace.store.outputs

    def list_then_forget(prefix: str = "") -> list[str]:
        names = list_outputs(prefix)
        workspace.store.remove("records/demo0")
        return names

    monkeypatch.setattr(workspace.store, "outputs", list_then_forget)
    result = run_dataset_stage(workspace, MESSAGES_STAGE)
    assert result.summary["left_out"] == {"broken": 0, "private": 0, "quarantined": 0}
    assert "damaged" not in result.summary


def test_annotated_screenshots_are_drawn_with_the_records(tmp_path, monkeypatch):
    workspace = opened(tmp_path, **TEST_ONLY)
    commit(workspace, tmp_path, 0)

    def refused(*_: object) -> bool:
        raise AssertionError("drawn again")

    monkeypatch.setattr(dataset, "annotate", refused)
    result = run_dataset_stage(workspace, CUDAG_STAGE)
    folder = workspace.store.open(result.output)[0]
    drawn = list((folder / "test/annotated").iterdir())
    assert drawn
    assert {path.stat().st_ino for path in drawn} <= {
        inode for inode, _ in records(workspace).values()
    }


def test_a_record_keeps_what_its_line_and_its_row_need(tmp_path):
    commit(opened(tmp_path), tmp_path, 0)
    text = records(opened(tmp_path))["sft.jsonl"][1].decode()
    first, record, *_ = map(json.loads, text.splitlines())
    assert first == {"excluded": {}, "counts": {}}
    assert record.keys() == {"id", "question", "files", "counts", "parts"}
    assert set(record["files"].values()) == {"steps/000/screenshot.png", "steps/000/ui_tree.json"}
    assert json.loads(record["parts"]["line"])["input"]["instruction"] == "Do 0"


def test_no_record_depends_on_a_setting_that_its_form_does_not_name():
    names = set(DatasetSettings.model_fields)
    for form in (form_of(name) for name in ALL if name not in WITHOUT_FORM):
        own = form.own(DatasetSettings(seed=9, license="mit"))
        default = DatasetSettings()
        others = names - set(form.settings)
        assert {name: getattr(own, name) for name in others} == {
            name: getattr(default, name) for name in others
        }
