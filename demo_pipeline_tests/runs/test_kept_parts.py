"""Datasets that are built from kept parts are those that are built from nothing."""

import os
import random
import shutil
from pathlib import Path

import pytest

from demo_pipeline.exports import dataset_counts
from demo_pipeline.exports.cudag import files
from demo_pipeline.exports.cudag.files import annotate
from demo_pipeline.exports.sft import SftExporter
from demo_pipeline.files import atomic_write
from demo_pipeline.files.json_files import load_json
from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE
from demo_pipeline_tests.datasets.builders import make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.sample_workspace import open_workspace

STAGES = ("sft_samples", "messages_dataset", "cudag_dataset", "trajectory_index")
STEPS = (("click", {"x": 500, "y": 300, "button": "left"}), ("type", {"text": "hello"}))
SETTINGS = DatasetSettings(
    val_ratio=0.3, train_ratio=0.4, test_ratio=0.3, timestamp="20260101_000000"
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two trajectories, so that a few trajectories give several."""
    monkeypatch.setattr(atomic_write, "MEAN_SIZE", 2)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight committed trajectories."""
    for number in range(8):
        commit(tmp_path, number)
    return tmp_path


def commit(root: Path, number: int, **changes: object) -> None:
    name = f"demo_{number:02d}"
    shutil.rmtree(root / "made" / "trajectories" / name, ignore_errors=True)
    values = {"instruction": f"Do task {number}", "group": f"task_{number}", "shade": number}
    made = make_trajectory(root / "made", name, STEPS, **{**values, **changes})  # type: ignore[arg-type]
    workspace = open_workspace(root)
    commit_trajectory(workspace, made)
    with workspace.store.open(TRAJECTORIES_STAGE.output(name)) as (folder, _):
        for file in folder.rglob("*.*"):  # as if it had not been recorded just now
            written = file.stat().st_mtime - 3600
            os.utime(file, (written, written))


def build_and_compare(workspace: Workspace, stages: tuple[str, ...] = STAGES) -> None:
    for name in stages:
        stage = DATASET_STAGE_BY_NAME[name]
        made = run_dataset_stage(workspace, stage)
        again = run_dataset_stage(workspace, stage, force=True)
        assert made.version is not None, made.checks
        assert made.version == again.version
        assert workspace.store.verify(made.output) == []


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize(
    ("seed", "stages"), [(1, STAGES[2:3]), (2, STAGES[:1]), (3, STAGES[1:2]), (4, STAGES[3:])]
)
def test_any_changes_give_what_a_build_from_nothing_gives(
    root: Path, seed: int, stages: tuple[str, ...]
) -> None:
    chance, settings = random.Random(seed), SETTINGS
    build_and_compare(open_workspace(root, datasets=settings), stages)
    for step in range(3):
        number = chance.randrange(8)
        kind = chance.choice(["add", "remove", "change", "join", "fail", "settings"])
        if kind == "add":
            commit(root, 10 + step)
        elif kind == "remove":
            name = TRAJECTORIES_STAGE.output(f"demo_{number:02d}")
            open_workspace(root).store.remove(name)
        elif kind == "change":
            commit(root, number, application="firefox")
        elif kind == "join":  # the other trajectory may move to another split
            commit(root, number, group="task_1")
        elif kind == "fail":
            commit(root, number, success=False)
        else:
            settings = settings.model_copy(
                update={"seed": step + 5, "name_prefix": f"prefix-{step}"}
            )
        build_and_compare(open_workspace(root, datasets=settings), stages)


@pytest.mark.no_cover  # other tests run the same lines
def test_equal_tasks_in_two_splits_are_compared_with_all(root: Path) -> None:
    workspace = open_workspace(root, datasets=SETTINGS)
    build_and_compare(workspace, ("sft_samples",))
    for number in range(10, 16):
        commit(root, number, instruction="The same words", shade=1)
    build_and_compare(workspace, ("sft_samples", "cudag_dataset"))


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("changes", [{"prompt_style": "grounding"}, {"image_mode": "jpeg"}])
def test_other_kinds_of_records_are_the_same(root: Path, changes: dict[str, str]) -> None:
    settings = SETTINGS.model_copy(update=changes)
    build_and_compare(open_workspace(root, datasets=settings), ("cudag_dataset",))
    commit(root, 10)
    build_and_compare(open_workspace(root, datasets=settings), ("cudag_dataset",))


def exported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trajectories whose samples are made from now on."""
    ids: list[str] = []
    records = SftExporter.records

    def noted(self, candidate, trajectory, rows):
        ids.append(trajectory.id)
        return records(self, candidate, trajectory, rows)

    monkeypatch.setattr(SftExporter, "records", noted)
    return ids


def run_sft(workspace: Workspace, *, force: bool = False) -> str | None:
    version = run_dataset_stage(
        workspace, DATASET_STAGE_BY_NAME["sft_samples"], force=force
    ).version
    return version.id if version else None


def annotated(workspace: Workspace) -> dict[str, Path]:
    """The annotated images of the CUDAG dataset that is published, by name."""
    (output,) = workspace.store.outputs("datasets")
    with workspace.store.open(output) as (folder, _):
        return {path.name: path for path in (folder / "test" / "annotated").iterdir()}


def test_annotated_images_are_drawn_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of an earlier version is linked."""
    workspace, drawn = open_workspace(root, datasets=SETTINGS), list[str]()

    def noted(source, target, metadata):
        drawn.append(target.name)
        return annotate(source, target, metadata)

    monkeypatch.setattr(files, "annotate", noted)
    run_dataset_stage(workspace, DATASET_STAGE_BY_NAME["cudag_dataset"])
    before = annotated(workspace)
    assert sorted(drawn) == sorted(before)
    assert len(before) > 1
    drawn.clear()
    commit(root, 20)
    run_dataset_stage(workspace, DATASET_STAGE_BY_NAME["cudag_dataset"])
    after, again = annotated(workspace), set(drawn)
    assert again < after.keys()
    kept = [name for name in after if name not in again]
    assert all(after[name].samefile(before[name]) for name in kept)
    build_and_compare(workspace, ("cudag_dataset",))


@pytest.mark.parametrize("damage", [b"", b"other"])
def test_an_annotated_image_that_was_written_to_is_drawn_again(root: Path, damage: bytes) -> None:
    workspace = open_workspace(root, datasets=SETTINGS)
    run_dataset_stage(workspace, DATASET_STAGE_BY_NAME["cudag_dataset"])
    for path in annotated(workspace).values():
        path.write_bytes(damage + path.read_bytes()[len(damage) :] if damage else b"")
    commit(root, 20)
    build_and_compare(workspace, ("cudag_dataset",))


def test_damaged_or_removed_parts_are_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, ids = open_workspace(root), exported(monkeypatch)
    run_sft(workspace)
    for part in (root / "store" / ".parts").glob("*/*"):
        data = bytearray(part.read_bytes())
        data[-1] ^= 1
        part.write_bytes(data)
    ids.clear()
    commit(root, 20)
    damaged = run_sft(workspace)
    assert len(ids) == 9
    shutil.rmtree(root / "store" / ".parts")
    commit(root, 20, application="firefox")
    commit(root, 20)
    assert run_sft(workspace, force=True) == damaged


def test_a_crash_leaves_the_version_before_and_usable_parts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = open_workspace(root)
    before = run_sft(workspace)
    commit(root, 20)
    commit(root, 0, application="firefox")
    with monkeypatch.context() as patch:
        records = SftExporter.records

        def crash(self, candidate, trajectory, rows):
            if trajectory.id == "demo_20":
                raise KeyboardInterrupt
            return records(self, candidate, trajectory, rows)

        patch.setattr(SftExporter, "records", crash)
        with pytest.raises(KeyboardInterrupt):
            run_sft(workspace)
    current = workspace.store.current("sft")
    assert current is not None
    assert current.id == before
    build_and_compare(workspace, ("sft_samples",))


def test_a_picture_that_is_damaged_later_is_found(root: Path) -> None:
    workspace = open_workspace(root)
    run_sft(workspace)
    with workspace.store.open(TRAJECTORIES_STAGE.output("demo_01")) as (folder, _):
        picture = folder / "steps" / "000" / "screenshot.png"
        data = bytearray(picture.read_bytes())
        data[-20] ^= 1
        picture.write_bytes(data)
    commit(root, 20)
    result = run_dataset_stage(workspace, DATASET_STAGE_BY_NAME["sft_samples"])
    assert result.status == "made"
    left_out = result.summary["left_out"]
    assert isinstance(left_out, dict)
    assert left_out["broken"] == 1


def test_garbage_collection_removes_unused_parts(root: Path) -> None:
    workspace = open_workspace(root)
    run_sft(workspace)
    parts = root / "store" / ".parts"
    now = max(part.stat().st_mtime for part in parts.glob("*/*"))
    workspace.store.collect(3600, now + 1800)
    assert any(parts.glob("*/*"))
    workspace.store.collect(3600, now + 7200)
    assert not any(parts.glob("*/*"))
    build_and_compare(workspace, ("sft_samples",))


def test_a_build_does_without_parts_that_cannot_be_kept(root: Path) -> None:
    (root / "store" / ".parts").write_text("no folder")
    build_and_compare(open_workspace(root), ("sft_samples",))


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("name", STAGES[:3])
def test_the_counts_of_a_build_are_those_of_its_files(
    root: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, stage = open_workspace(root, datasets=SETTINGS), DATASET_STAGE_BY_NAME[name]
    commit(root, 10, success=False)
    run_dataset_stage(workspace, stage)
    commit(root, 11)
    run_dataset_stage(workspace, stage)

    def counted(*, force: bool = False) -> dict[str, int]:
        index = DATASET_STAGE_BY_NAME["trajectory_index"]
        made = run_dataset_stage(workspace, index, force=force)
        assert made.version is not None
        with workspace.store.open("dataset") as (folder, _):
            document = load_json(folder / "exports.json")
        assert stage.export is not None
        rows = document["trajectories"].items()
        return {key: row["records"][stage.export.name] for key, row in rows}

    with monkeypatch.context() as patched:
        patched.setattr(dataset_counts, "_counts", None)  # no file is counted
        of_the_build = counted()
    assert counted(force=True) == of_the_build
    assert of_the_build["demo_11"] > 0
    assert of_the_build["demo_10"] == 0
