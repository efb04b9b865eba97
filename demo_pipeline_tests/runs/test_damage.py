"""Tests that bytes changed after a commit are reported in every output, and never copied."""

import os
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.runs.damage import damage_problem, verify_outputs
from demo_pipeline.runs.demonstration_outputs import noted_damage
from demo_pipeline.runs.failures import UnusableInputError
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.health import HealthLevel, examine_workspace
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGES, dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import SFT_STAGE
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages


@pytest.fixture
def processed(made_root: Path, tmp_path: Path) -> Workspace:
    """Returns a workspace with all outputs of a demonstration and the hard links between them."""
    shutil.copytree(made_root / "uploads" / "first", tmp_path / "uploads" / "first")
    workspace = open_workspace(tmp_path)
    run_all_stages(workspace, "first")
    return workspace


@pytest.fixture(params=["folder", "bucket"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path, moto_url: str) -> Workspace:
    """Returns a workspace with three trajectories, whose store is in a folder or in a bucket."""
    (tmp_path / "uploads").mkdir()
    store = str(tmp_path / "store") if request.param == "folder" else f"{moto_url}/store"
    places = {name: str(tmp_path / name) for name in ("uploads", "cache")}
    opened = Workspace.open(
        Settings(**places, store=store, osworld_tasks=str(tmp_path / "tasks"))  # type: ignore[arg-type]
    )
    add(opened, tmp_path, "one", "two", "three")
    return opened


IN_FOLDER = pytest.mark.parametrize("workspace", ["folder"], indirect=True)
"""Limits a test to a store in a folder, for damage that cannot happen in a bucket."""


def add(workspace: Workspace, root: Path, *names: str) -> None:
    trajectories = [
        make_trajectory(root / "made", name, [CLICK, CLICK], instruction=f"Task {name}")
        for name in names
    ]
    commit_trajectories(workspace, trajectories)


def flip(path: Path) -> None:
    """Changes one bit of a file in place, and restores the file's modification time."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as stream:  # in place, so that all hard links change
        stream.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def paths(workspace: Workspace) -> Iterator[tuple[str, Path]]:
    """Yields each output with each of its files, including files of linked versions."""
    for name in workspace.store.outputs():
        for folder, _, files in os.walk(workspace.store.open(name)[0], followlinks=True):
            yield from ((name, Path(folder, file)) for file in files)


def test_one_flipped_bit_in_any_file_is_named_in_every_output_that_holds_it(processed):
    files = [(name, path, path.stat().st_ino) for name, path in paths(processed)]
    several = 0
    for inode in {inode for *_, inode in files if inode}:
        held = {name: path for name, path, other in files if other == inode}
        path = next(iter(held.values()))
        if not path.stat().st_size:
            continue
        flip(path)
        damages = verify_outputs(processed).damages
        flip(path)
        assert {damage.output for damage in damages} == held.keys(), path
        assert all("run --verify" in str(damage_problem(damage)) for damage in damages)
        several += len(held) > 1
    assert several > 10
    assert verify_outputs(processed).damages == ()


def test_the_command_that_the_sentence_names_builds_it_again(processed):
    before = {name: processed.store.current(name) for name in processed.store.outputs()}
    for name in ("screenshots/first", "actions/first", "records/first"):
        flip(next(path for output, path in paths(processed) if output == name))
    verification = verify_outputs(processed)
    assert verification.demonstrations == {"first"}
    for stage in STAGES:  # like `run --verify`
        build_stage(processed, stage, "first", force=True)
    assert verify_outputs(processed).damages == ()
    assert {name: processed.store.current(name) for name in processed.store.outputs()} == before


@pytest.mark.parametrize(
    ("stage", "damaged"), [("actions", "events/first"), ("trajectories", "ui_trees/first")]
)
def test_no_demonstration_is_quarantined_for_a_damaged_file(processed, stage, damaged):
    for output, path in list(paths(processed)):
        if output == damaged:
            path.write_bytes(b"\0" * path.stat().st_size)
    [built] = [candidate for candidate in STAGES if candidate.name == stage]
    with pytest.raises(Exception, match=f"{damaged}/.* was changed after its commit"):
        build_stage(processed, built, "first", force=True)
    assert list_quarantine(processed.store) == []


def test_a_file_of_another_size_is_noticed_and_built_again_by_the_next_run(processed):
    path = next(path for output, path in paths(processed) if output == "events/first")
    path.write_bytes(b"short")
    assert processed.store.current("events/first") is None
    statuses = run_all_stages(processed, "first")
    assert statuses["events"] == "made"
    assert verify_outputs(processed).damages == ()


def test_a_damaged_trajectory_is_named_until_it_and_what_holds_it_are_built_again(
    workspace, tmp_path
):
    for stage in (SFT_STAGE, INDEX_STAGE):
        run_dataset_stage(workspace, stage)
    version = workspace.store.current("trajectories/one")
    assert version
    file = "steps/000/screenshot.png"
    if workspace.store.url.startswith("s3"):
        key = f"versions/{version.path}/content/{file}"
        data = workspace.store.objects.read(key) or b""
        workspace.store.objects.put(key, data[:-1] + bytes([data[-1] ^ 1]))
    else:
        flip(workspace.store.open("trajectories/one")[0] / file)
    verification = verify_outputs(workspace)
    named = {damage.file for damage in verification.damages}
    assert {f"trajectories/one/{file}", f"dataset/trajectories/one/{file}"} <= named
    assert verification.demonstrations == {"one"}
    assert verification.datasets
    add(workspace, tmp_path, "one")
    for stage in (SFT_STAGE, INDEX_STAGE):
        run_dataset_stage(workspace, stage, force=True)
    assert verify_outputs(workspace).damages == ()


@IN_FOLDER  # a bucket verifies the bytes of its objects with its own checksums
def test_the_next_run_builds_a_demonstration_again_that_a_dataset_left_out(workspace, tmp_path):
    """This holds even if the damaged file keeps its size, so that only its bytes differ."""
    path = workspace.store.open("records/one")[0] / "sft.jsonl"
    flip(path)
    assert noted_damage(Graph(workspace)) == []
    result = run_dataset_stage(workspace, SFT_STAGE)
    assert result.summary["left_out"]["broken"] == 1
    assert "`demo-pipeline run` builds it again" in result.summary["damaged"][0]["remedy"]
    [problem] = noted_damage(Graph(workspace))
    assert (problem.demonstration, problem.file) == ("one", "records/one/sft.jsonl")
    add(workspace, tmp_path, "one")
    build_stage(workspace, RECORDS_STAGE, "one", force=True)
    assert noted_damage(Graph(workspace)) == []
    assert run_dataset_stage(workspace, SFT_STAGE).summary["left_out"]["broken"] == 0


@IN_FOLDER  # an output in a bucket is complete if it has a manifest
def test_a_damaged_dataset_stops_what_reads_it_and_no_trajectory_is_left_out(workspace):
    for stage in (SFT_STAGE, dataset_stages_by_name()["messages_dataset"], INDEX_STAGE):
        run_dataset_stage(workspace, stage)
    (workspace.store.open(INDEX_STAGE.folder)[0] / "steps.parquet").write_bytes(b"short")
    with pytest.raises(UnusableInputError, match="--select trajectory_index"):
        run_dataset_stage(workspace, dataset_stages_by_name()["dataset_statistics"])


def test_a_dataset_of_a_trajectory_that_is_committed_again_links_the_new_copy(workspace, tmp_path):
    """The cache of a bucket then contains two folders of the same version, with the same files."""
    run_dataset_stage(workspace, INDEX_STAGE)
    before = workspace.store.current("trajectories/one")
    add(workspace, tmp_path, "one")
    again = workspace.store.current("trajectories/one")
    assert before == again
    assert before.place != again.place
    result = run_dataset_stage(workspace, INDEX_STAGE, force=True)
    assert result.status == "made", result.checks


def test_the_doctor_names_a_file_of_another_size(processed):
    def outputs_finding() -> tuple[HealthLevel, str]:
        findings = {finding.check: finding for finding in examine_workspace(processed)}
        return findings["outputs"].level, findings["outputs"].message

    assert outputs_finding()[0] is HealthLevel.OK
    path = processed.store.open("trajectories/first")[0] / "task.json"
    path.write_bytes(path.read_bytes() + b" ")
    level, message = outputs_finding()
    assert level is HealthLevel.ERROR
    assert "`demo-pipeline run --verify`" in message


def test_every_check_says_what_it_compares_and_there_are_few():
    of_demonstrations = list(chain.from_iterable(stage.checks for stage in STAGES))
    of_datasets = list(
        chain.from_iterable(stage.checks for stage in dataset_stages_by_name().values())
    )
    assert [check.name for check in of_demonstrations if not check.compared] == []
    assert len(of_demonstrations) <= 16  # for each check, Dagster takes 0.02 s of a run
    assert [check.name for check in of_datasets if not check.compared] == []
