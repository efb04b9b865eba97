"""Tests exports.json and exports.parquet, which say what the training exports contain."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from demo_pipeline.datasets.index import EXPORTS_SCHEMA
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE
from demo_pipeline.problems import Problem
from demo_pipeline.runs.failures import DefectError, RefusedError
from demo_pipeline.runs.queries import committed_statistics
from demo_pipeline.runs.stages import is_built, training_exports, upstream
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, Settings, export_names
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory, read_lines
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace

DEFAULTS = DatasetSettings().exports
PROBLEM = Problem("unfit", "samples.jsonl", "does not fit")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a root with four trajectories: one failed, and one has mostly hidden actions."""
    (tmp_path / "uploads").mkdir()
    built_from = tmp_path / "made"
    hidden = [(0, "click", "off_screen")] * 3
    commit_trajectories(
        open_workspace(tmp_path),
        [
            make_trajectory(built_from, "one", [CLICK, CLICK], group="shared"),
            make_trajectory(built_from, "two", [CLICK], group="shared", shade=10),
            make_trajectory(built_from, "gone", success=False, group="other", shade=20),
            make_trajectory(built_from, "sparse", [CLICK], group="rare", shade=30, hidden=hidden),
        ],
    )
    return tmp_path


def build(workspace: Workspace) -> None:
    """Builds the enabled training exports, then the index, like the job of the datasets."""
    for stage in (export.stage for export in training_exports().values()):
        if is_built(stage, workspace.settings):
            run_dataset_stage(workspace, stage)
    run_dataset_stage(workspace, INDEX_STAGE)


def states(workspace: Workspace) -> dict[str, dict[str, Any]]:
    """Returns the states of the exports that are built by default."""
    exports = document(workspace)["exports"]
    return {name: exports[name] for name in DEFAULTS}


def document(workspace: Workspace) -> Any:
    folder = workspace.store.open(INDEX_STAGE.folder)[0]
    return json.loads((folder / "exports.json").read_bytes())


def test_every_trajectory_has_its_split_its_group_and_its_records_by_export(root):
    workspace = open_workspace(root)
    build(workspace)
    folder, sft = workspace.store.open(SFT_STAGE.folder)
    samples = len(read_lines(folder / "samples.jsonl"))
    split = next(name for name in ("train", "val", "test") if read_lines(folder / f"{name}.jsonl"))
    index = document(workspace)
    assert index["exports"]["sft"] == {
        "asset": "sft_samples",
        "status": "built",
        "reason": None,
        "output": "sft",
        "version": sft.id,
        "bytes": sum(file.size for file in sft.manifest.files),
        "trajectories": 2,
        "records": samples,
    }
    statuses = {name: state["status"] for name, state in index["exports"].items()}
    assert {name for name, status in statuses.items() if status == "built"} == set(DEFAULTS)
    assert {statuses[name] for name in statuses.keys() - set(DEFAULTS)} == {"disabled"}
    assert index["exports"]["cudag"]["output"].startswith("datasets/demonstrations--")
    member = index["trajectories"]["one"]
    assert member == {
        "split": split,
        "split_group": "shared",
        "left_out": None,
        "records": {"sft": 2, "messages": 3, "cudag": 3},  # with a record for the end of the task
    }
    assert index["trajectories"]["two"]["split"] == split
    none = {"sft": 0, "messages": 0, "cudag": 0}
    assert index["trajectories"]["gone"] == {
        "split": None,
        "split_group": "other",
        "left_out": "failed",
        "records": none,
    }
    sparse = index["trajectories"]["sparse"]
    assert (sparse["left_out"], sparse["records"]) == ("incomplete", none)


def test_exports_parquet_agrees_with_exports_json(root):
    workspace = open_workspace(root)
    build(workspace)
    index = document(workspace)
    folder = workspace.store.open(INDEX_STAGE.folder)[0]
    table = pq.read_table(folder / "exports.parquet")
    assert table.schema.equals(EXPORTS_SCHEMA)
    rows = table.to_pylist()
    assert len(rows) == 4 * len(index["exports"])
    for row in rows:
        trajectory = index["trajectories"][row["trajectory_id"]]
        state = index["exports"][row["export"]]
        assert row["records"] == trajectory["records"].get(row["export"], 0)
        assert (row["version"], row["bytes"] or 0) == (state["version"], state["bytes"])
        assert {key: row[key] for key in ("split", "split_group", "left_out")} == {
            key: trajectory[key] for key in ("split", "split_group", "left_out")
        }


def test_the_statistics_show_the_exports(root):
    workspace = open_workspace(root, datasets={"exports": ["sft", "cudag"]})
    build(workspace)
    assert run_dataset_stage(workspace, STATISTICS_STAGE).status == "made"
    sizes = {name: state["bytes"] for name, state in states(workspace).items()}
    columns = [
        (row["export"], row["status"], row["bytes"], row["records"])
        for row in committed_statistics(workspace)["exports"]
        if row["export"] in DEFAULTS
    ]
    assert columns == [
        ("cudag", "built", sizes["cudag"], 5),
        ("messages", "disabled", None, 0),
        ("sft", "built", sizes["sft"], 3),
    ]


def test_a_disabled_export_is_recorded_as_such(root):
    build(open_workspace(root))
    fewer = open_workspace(root, datasets={"exports": ["sft"]})
    build(fewer)
    assert states(fewer)["messages"] == {
        "asset": "messages_dataset",
        "status": "disabled",
        "reason": None,
        "output": None,
        "version": None,
        "bytes": 0,
        "trajectories": 0,
        "records": 0,
    }
    assert document(fewer)["trajectories"]["one"]["records"] == {"sft": 2}
    assert run_dataset_stage(fewer, SFT_STAGE).status == "unchanged"


def test_an_export_that_was_never_built_is_missing(root):
    workspace = open_workspace(root)
    run_dataset_stage(workspace, INDEX_STAGE)
    assert {state["status"] for state in states(workspace).values()} == {"missing"}


def test_an_export_of_other_trajectories_or_settings_is_outdated(root):
    build(open_workspace(root))
    other = open_workspace(root, datasets=DatasetSettings(seed=5))
    run_dataset_stage(other, SFT_STAGE)
    run_dataset_stage(other, INDEX_STAGE)
    assert [state["status"] for state in states(other).values()] == [
        "built",
        "outdated",
        "outdated",
    ]
    more = make_trajectory(root / "more", "more", shade=40)
    commit_trajectories(other, [more])
    run_dataset_stage(other, INDEX_STAGE)
    assert {state["status"] for state in states(other).values() if state["version"]} == {"outdated"}


@pytest.mark.parametrize("how", ["rejected", "error"])
def test_a_failed_export_is_recorded_with_its_reason_and_its_last_good_version(root, how):
    build(open_workspace(root))
    workspace = open_workspace(root, datasets=DatasetSettings(seed=5))
    before = workspace.store.current(SFT_STAGE.folder)
    assert before is not None
    if how == "rejected":
        check = replace(SFT_STAGE.checks[0], run=lambda *_: [PROBLEM])
        with pytest.raises(RefusedError):
            run_dataset_stage(workspace, replace(SFT_STAGE, checks=(check,)))
    else:
        with pytest.raises(DefectError):
            run_dataset_stage(workspace, replace(SFT_STAGE, build=lambda *_: {"x": 1 // 0}))
    assert run_dataset_stage(workspace, INDEX_STAGE).status == "made"
    state = states(workspace)["sft"]
    reason = "sft_schema" if how == "rejected" else "ZeroDivisionError"
    assert (state["status"], state["reason"], state["version"]) == ("failed", reason, before.id)
    assert document(workspace)["trajectories"]["one"]["records"]["sft"] == 2
    for stage in (SFT_STAGE, INDEX_STAGE):
        assert run_dataset_stage(workspace, stage).status == "made"
    assert (states(workspace)["sft"]["status"], states(workspace)["sft"]["reason"]) == (
        "built",
        None,
    )


def test_exports_without_a_record_are_built_and_empty(tmp_path):
    (tmp_path / "uploads").mkdir()
    workspace = open_workspace(tmp_path)
    commit_trajectories(workspace, [make_trajectory(tmp_path / "made", "gone", success=False)])
    build(workspace)
    records_of_status = {state["status"]: state["records"] for state in states(workspace).values()}
    assert records_of_status == {"built": 0}


def test_the_index_is_built_again_only_when_an_export_changed(root):
    workspace = open_workspace(root)
    build(workspace)
    assert run_dataset_stage(workspace, INDEX_STAGE).status == "unchanged"
    workspace.store.remove(MESSAGES_STAGE.folder)
    assert run_dataset_stage(workspace, INDEX_STAGE).status == "made"
    assert states(workspace)["messages"]["status"] == "missing"


def test_every_training_export_comes_before_the_index():
    names = training_exports().keys()
    assert names > {"sft_samples", "messages_dataset", "cudag_dataset"}
    settings = Settings(datasets={"exports": export_names()})
    assert set(upstream(INDEX_STAGE, settings)) == {"records", *names}
