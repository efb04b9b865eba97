"""Bytes that change after their commit, at equal size and time: built again, or named."""

import json
import os
import re
from pathlib import Path

import pytest

from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.runs.damage import left_out_damage
from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.health import HealthLevel, examine_workspace
from demo_pipeline.runs.stage_runs import run_stage
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, STAGE_BY_NAME
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.named_stages import CUDAG_STAGE, MESSAGES_STAGE, SFT_STAGE
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace

BUILT = (SFT_STAGE, MESSAGES_STAGE, CUDAG_STAGE, INDEX_STAGE)
DOCUMENTS = ("task.json", "result.json", "steps/000/action.json", "provenance.parquet")


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    return copy_of(made_root, tmp_path / "root")


@pytest.fixture(params=["folder", "bucket"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path, moto_url: str) -> Workspace:
    """Three trajectories in a store of either kind."""
    (tmp_path / "uploads").mkdir()
    store = str(tmp_path / "store") if request.param == "folder" else f"{moto_url}/store"
    places = {name: str(tmp_path / name) for name in ("uploads", "cache", "tasks")}
    opened = Workspace.open(
        Settings(
            uploads=places["uploads"],
            store=store,
            cache=places["cache"],
            osworld_tasks=places["tasks"],
        )
    )
    add(opened, tmp_path, "one", "two", "three")
    return opened


def add(workspace: Workspace, root: Path, *names: str) -> None:
    made = [
        make_trajectory(root / "made", name, [CLICK, CLICK], instruction=f"Task {name}")
        for name in names
    ]
    commit_trajectories(workspace, made)


def flip(workspace: Workspace, output: str, file: str) -> None:
    """Change one bit of a file as readers of this machine see it."""
    folder = workspace.store.open(output)[0]
    path = (folder / file).resolve()
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as stream:  # its hard links change with it
        stream.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def indexed(workspace: Workspace) -> set[str]:
    folder = workspace.store.open(INDEX_STAGE.folder)[0]
    index = json.loads((folder / "index.json").read_bytes())
    return {entry["id"] for entry in index["trajectories"]}


def exported(workspace: Workspace) -> set[str]:
    folder = workspace.store.open(SFT_STAGE.folder)[0]
    return set(re.findall(r"trajectories/(\w+)/", (folder / "samples.jsonl").read_text()))


@pytest.mark.parametrize(
    "files",
    [
        {"events": "events.parquet"},
        {"contact_sheets": "sheet.jpg"},
        {"trajectories": "task.json"},
        {"ui_trees": "000.json", "trajectories": "steps/000/ui_tree.json"},
        {"screenshots": "000.png", "trajectories": "steps/000/screenshot.png"},
    ],
    ids=str,
)
def test_a_damaged_output_is_built_again_with_the_inputs_that_share_its_files(
    root: Path, files: dict[str, str]
) -> None:
    workspace = open_workspace(root)
    names = [known.output("first") for known in STAGE_BY_NAME.values()]
    before = [workspace.store.current(name) for name in names]
    for stage, file in files.items():
        flip(workspace, f"{stage}/first", file)
    last = STAGE_BY_NAME[[*files][-1]]
    assert run_stage(workspace, last, "first").status == "made"
    assert not any(workspace.store.verify(name) for name in names)
    assert [workspace.store.current(name) for name in names] == before
    assert run_stage(workspace, last, "first").status == "unchanged"


@pytest.mark.parametrize(
    ("stage", "damaged", "file"),
    [
        ("actions", "recordings", "manifest.json"),
        ("actions", "events", "events.parquet"),
        ("screenshots", "actions", "actions.parquet"),
        ("trajectories", "ui_trees", "000.json"),
        ("trajectories", "screenshots", "000.png"),
    ],
)
def test_a_damaged_input_of_a_build_is_built_again_before_it_is_read(
    root: Path, stage: str, damaged: str, file: str
) -> None:
    """A build that has to be made anyway: its own output is whole."""
    workspace = open_workspace(root)
    names = [known.output("first") for known in STAGE_BY_NAME.values()]
    before = [workspace.store.current(name) for name in names]
    flip(workspace, f"{damaged}/first", file)
    assert run_stage(workspace, STAGE_BY_NAME[stage], "first", force=True).status == "made"
    assert not any(workspace.store.verify(name) for name in names)
    assert [workspace.store.current(name) for name in names] == before


@pytest.mark.parametrize("workspace", ["folder"], indirect=True)
def test_a_damaged_dataset_that_another_reads_is_built_again_before(workspace: Workspace) -> None:
    statistics = DATASET_STAGE_BY_NAME["dataset_statistics"]
    for stage in (SFT_STAGE, MESSAGES_STAGE, INDEX_STAGE, statistics):
        before = run_dataset_stage(workspace, stage).version
    flip(workspace, INDEX_STAGE.folder, "steps.parquet")
    assert run_dataset_stage(workspace, statistics, force=True).version == before
    assert workspace.store.verify(INDEX_STAGE.folder) == []


@pytest.mark.parametrize("workspace", ["folder"], indirect=True)
def test_a_picture_that_a_dataset_shares_with_a_trajectory_costs_that_trajectory(
    workspace: Workspace,
) -> None:
    """The picture is a hard link of the trajectory's, which a dataset does not build."""
    for picture in Path(workspace.store.url).rglob("*.png"):
        os.utime(picture, (0, 0))
    run_dataset_stage(workspace, SFT_STAGE)
    shared = "trajectories/one/steps/000/screenshot.png"
    flip(workspace, SFT_STAGE.folder, shared)
    [problem] = left_out_damage(run_dataset_stage(workspace, SFT_STAGE).summary)
    assert problem.file == shared
    assert exported(workspace) == {"two", "three"}


def test_a_damaged_dataset_is_built_again(workspace: Workspace) -> None:
    first = run_dataset_stage(workspace, SFT_STAGE)
    flip(workspace, SFT_STAGE.folder, "samples.jsonl")
    again = run_dataset_stage(workspace, SFT_STAGE)
    assert again.version == first.version
    assert workspace.store.verify(SFT_STAGE.folder) == []
    assert exported(workspace) == {"one", "two", "three"}


@pytest.mark.parametrize("file", DOCUMENTS)
@pytest.mark.parametrize("workspace", ["folder"], indirect=True)
def test_a_damaged_trajectory_is_not_handed_on_and_costs_no_record(
    workspace: Workspace, tmp_path: Path, file: str
) -> None:
    """The index leaves it out and names it; its records and pictures are as they were made."""
    for stage in BUILT:
        run_dataset_stage(workspace, stage)
    flip(workspace, "trajectories/one", file)
    add(workspace, tmp_path, "four")
    run_dataset_stage(workspace, SFT_STAGE)
    assert exported(workspace) == {"one", "two", "three", "four"}
    result = run_dataset_stage(workspace, INDEX_STAGE)
    [problem] = left_out_damage(result.summary)
    assert (problem.demonstration, problem.file) == ("one", f"trajectories/one/{file}")
    assert problem.remedy == "`demo-pipeline run --verify` builds it again"
    assert result.summary["left_out"] == {"broken": 1, "quarantined": 0}
    assert indexed(workspace) == {"two", "three", "four"}
    add(workspace, tmp_path, "one")
    for stage in BUILT:
        assert left_out_damage(run_dataset_stage(workspace, stage).summary) == []
    assert indexed(workspace) == exported(workspace) == {"one", "two", "three", "four"}


@pytest.mark.parametrize("workspace", ["folder"], indirect=True)
def test_what_one_dataset_found_damaged_the_next_leaves_out_unread(
    workspace: Workspace,
) -> None:
    run_dataset_stage(workspace, SFT_STAGE)
    flip(workspace, "trajectories/one", "task.json")
    run_dataset_stage(workspace, INDEX_STAGE)
    run_dataset_stage(workspace, SFT_STAGE)
    assert indexed(workspace) == exported(workspace) == {"two", "three"}


@pytest.mark.parametrize("workspace", ["bucket"], indirect=True)
def test_a_damaged_copy_of_a_bucket_is_downloaded_again(workspace: Workspace) -> None:
    flip(workspace, "trajectories/one", "task.json")
    result = run_dataset_stage(workspace, SFT_STAGE)
    assert left_out_damage(result.summary) == []
    assert exported(workspace) == {"one", "two", "three"}


@pytest.mark.parametrize("workspace", ["folder"], indirect=True)
@pytest.mark.parametrize("file", DOCUMENTS)
def test_the_doctor_names_damage_when_nothing_is_to_do(workspace: Workspace, file: str) -> None:
    def found() -> tuple[HealthLevel, str]:
        [finding] = [one for one in examine_workspace(workspace) if one.check == "outputs"]
        return finding.level, finding.message

    assert found()[0] is HealthLevel.OK
    flip(workspace, "trajectories/one", file)
    level, message = found()
    assert level is HealthLevel.ERROR
    assert f"trajectories/one/{file}" in message
    assert "`demo-pipeline run --verify`" in message


def test_every_stage_says_what_its_checks_compare() -> None:
    of_demonstrations = [check for stage in STAGE_BY_NAME.values() for check in stage.checks]
    of_datasets = [check for stage in DATASET_STAGE_BY_NAME.values() for check in stage.checks]
    assert [check.name for check in of_demonstrations if not check.compared] == ["osworld_compared"]
    assert [check.name for check in of_datasets if not check.compared] == []
