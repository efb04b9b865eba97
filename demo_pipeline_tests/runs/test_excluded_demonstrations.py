"""Tests that training exports contain nothing of contaminated, failed or aborted demonstrations."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.runs.export import export_datasets
from demo_pipeline.runs.stages import dataset_stages, training_exports
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.seen_screens import element, make_seen
from demo_pipeline_tests.datasets.stores import commit_trajectories, every_file
from demo_pipeline_tests.named_stages import AGENTNETBENCH_STAGE, STEP_LABELS_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace

TYPING = ("type", {"text": "typed words"})
ABORTED = {"status": "aborted", "reason": ""}


def demonstrations(root: Path) -> tuple[list[DatasetTrajectory], list[DatasetTrajectory]]:
    """Returns the demonstrations for training exports, and those that must be left out."""
    save = element("button", "Save", (100, 200, 80, 31))
    good = [
        make_seen(root, f"good{n}", [CLICK, TYPING], save, instruction=f"Task {n}", shade=10 * n)
        for n in range(6)
    ]
    bad: dict[str, dict[str, Any]] = {
        "zzbenchmark": {"osworld": "7a5a7856-f1b6-42a4-ade9-1ca81ca0f263"},
        "zzfailed": {"success": False},
        "zzaborted": {"success": False, "rows": {0: ABORTED, 1: ABORTED}},
    }
    excluded = [
        make_trajectory(
            root,
            name,
            [CLICK, ("type", {"text": f"{name} typed"})],
            instruction=f"Instruction of {name}",
            application=f"{name} app",
            shade=100 + 10 * number,
            **options,
        )
        for number, (name, options) in enumerate(bad.items())
    ]
    for demo in excluded:
        for step in demo.path.glob("steps/*/ui_tree.json"):
            tree = json.loads(step.read_text())
            tree["root"]["name"] = f"Desktop of {demo.id}"
            step.write_text(json.dumps(tree))
    return good, excluded


def readable(path: str, data: bytes, scratch: Path) -> str:
    """Returns the text of a file, or the rows of a Parquet file, which is compressed."""
    if not path.endswith(".parquet"):
        return data.decode("utf-8", "replace")
    scratch.write_bytes(data)
    return str(pq.read_table(scratch).to_pylist())


def test_nothing_of_an_excluded_demonstration_is_in_any_training_export(tmp_path):
    (tmp_path / "uploads").mkdir()
    chosen = {"image_mode": "copy"}
    workspace = open_workspace(tmp_path, datasets=chosen)
    good, excluded = demonstrations(tmp_path / "made")
    commit_trajectories(workspace, [*good, *excluded])
    outputs = []
    for stage in dataset_stages():
        if stage.reads_trajectories:
            result = run_dataset_stage(workspace, stage)
            assert result.status == "made", result.checks
            if stage.name in training_exports():
                outputs.append(result.output)
    assert len(outputs) == len(training_exports())
    export_datasets(workspace.store, tmp_path / "exported")
    hashes = set()
    for demo in excluded:
        paths = [path for path in demo.path.rglob("*") if path.is_file()]
        hashes |= {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    for output in outputs:
        if output == STEP_LABELS_STAGE.folder:  # the only export with failed demonstrations
            continue
        folder = workspace.store.open(output)[0]
        files = every_file(folder)
        # AgentNetBench uses only the split `test`, which is empty if there are few tasks.
        assert output == AGENTNETBENCH_STAGE.folder or names(files, tmp_path / "scratch")
        assert_free(files, hashes, tmp_path / "scratch")
        assert_free(every_file(tmp_path / "exported" / output), hashes, tmp_path / "scratch")
    folder = workspace.store.open(STEP_LABELS_STAGE.folder)[0]
    files = every_file(folder)
    assert names(files, tmp_path / "scratch")
    assert_free(files, set(), tmp_path / "scratch", ("zzbenchmark", "zzaborted"))
    assert_indexed(workspace, excluded)


def names(files: dict[str, bytes], scratch: Path) -> bool:
    """Returns whether any file names one of the demonstrations for training exports."""
    return any("good0" in path + readable(path, data, scratch) for path, data in files.items())


def assert_free(
    files: dict[str, bytes],
    excluded: set[str],
    scratch: Path,
    words: tuple[str, ...] = ("zzbenchmark", "zzfailed", "zzaborted"),
) -> None:
    for path, data in files.items():
        assert hashlib.sha256(data).hexdigest() not in excluded, path
        text = path + readable(path, data, scratch)
        for word in words:
            assert word not in text, path


def assert_indexed(workspace: Workspace, excluded: list[DatasetTrajectory]) -> None:
    """Asserts that the index lists the excluded demonstrations and why exports leave them out."""
    folder = workspace.store.open(INDEX_STAGE.folder)[0]
    index = json.loads((folder / "index.json").read_bytes())
    exports = json.loads((folder / "exports.json").read_bytes())
    assert {entry["id"] for entry in index["trajectories"]} >= {demo.id for demo in excluded}
    reasons = {key: value["left_out"] for key, value in exports["trajectories"].items()}
    assert {key: reason for key, reason in reasons.items() if reason} == {
        "zzbenchmark": "contaminated",
        "zzfailed": "failed",
        "zzaborted": "aborted",
    }
