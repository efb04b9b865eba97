"""Tests that `forget` leaves no screenshot and no text of the demonstration."""

import errno
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from demo_pipeline.cli.app import app
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.review.review_store import Reviews, forget_demonstration, subject_of
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.stages import STAGES, dataset_stages, is_built
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Recipe
from demo_pipeline_tests.building import build_stage, run_dataset_stage
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectory
from demo_pipeline_tests.named_stages import SFT_STAGE
from demo_pipeline_tests.sample_workspace import live_in, open_workspace, run_all_stages
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, type_text

GONE = "gone"
KEPT = "kept"
# Rare words in the instruction, in the typed text and in a note, for which the tests search.
CANARIES = ("Zaunkoenig", "Wiedehopf", "Pirol")
# Datasets that contain texts and images of a demonstration, and links to its trajectory.
TOLD = (SFT_STAGE, INDEX_STAGE)
NAMES = [stage.name for stage in STAGES]


def record(uploads: Path, name: str, words: str, typed: str, seed: int) -> None:
    acts = (click("Agree"), click("Name"), type_text(typed), click("Rows/b"))
    demonstration = replace(
        script(*acts), title=f"{words} title", content=f"{words} please", seed=seed
    )
    write_recording(uploads / name, demonstration, SMALL)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a root with two demonstrations, two versions of each dataset, and a reviewer's note.

    The note is about the demonstration that the tests remove.
    """
    root = tmp_path_factory.mktemp("forgetting")
    record(root / "uploads", GONE, CANARIES[0], CANARIES[1], 3)
    record(root / "uploads", KEPT, "Amsel", "Drossel", 4)
    workspace = open_workspace(root)
    datasets = [stage for stage in dataset_stages() if is_built(stage, workspace.settings)]
    for name in (GONE, KEPT):  # the first version of a dataset contains only GONE
        run_all_stages(workspace, name)
        for stage in datasets:
            run_dataset_stage(workspace, stage)
    folder, version = workspace.store.open(f"trajectories/{GONE}")
    note = {"text": CANARIES[2]}
    Reviews(workspace.store).make(subject_of(version, GONE), folder, "ann", "note", note)
    return root


def texts(path: Path) -> Iterator[bytes]:
    """Yields the schema and values of a Parquet file as text, or the bytes of another file."""
    if path.suffix != ".parquet":
        yield path.read_bytes()
        return
    table = pq.read_table(path)
    yield str(table.schema).encode()
    for column in table.columns:
        for value in column.to_pylist():
            yield value if isinstance(value, bytes) else str(value).encode()


def traces(root: Path, pictures: set[str]) -> list[str]:
    """Returns the files below a folder that still show the removed demonstration.

    Such a file contains a rare word or an image of the demonstration, or its path contains the id.
    """
    names = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        for data in texts(path):
            words = any(word.encode() in data for word in CANARIES)
            if words or hashlib.sha256(data).hexdigest() in pictures:
                names.append(path.relative_to(root).as_posix())
                break
    links = [path for path in root.rglob("*") if GONE in path.name]
    return names + [path.relative_to(root).as_posix() for path in links]


def pictures_of(workspace: Workspace, name: str) -> set[str]:
    folder = workspace.store.open(f"trajectories/{name}")[0]
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.png")}


def test_forget_is_refused_while_the_demonstration_is_being_built(built, monkeypatch):
    workspace = open_workspace(built)
    live_in(built, monkeypatch)
    with workspace.store.stage(f"ui_trees/{GONE}"):
        refused = CliRunner().invoke(app, ["forget", GONE, "--yes", "--delete-upload"])
    assert refused.exit_code == 2
    assert "wait until its run has ended" in refused.output
    assert (built / "uploads" / GONE).is_dir()
    assert f"trajectories/{GONE}" in workspace.store.outputs()


def test_the_upload_stays_when_the_store_cannot_be_written(built, monkeypatch):
    workspace = open_workspace(built)
    live_in(built, monkeypatch)
    command = ["forget", GONE, "--yes", "--delete-upload"]
    staging = built / "store" / ".staging"
    aside = built / "staging"
    if staging.exists():
        staging.rename(aside)
    staging.touch()  # not even root can create a file below a file
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "nothing was removed: the store" in refused.output
    assert (built / "uploads" / GONE).is_dir()
    staging.unlink()
    with monkeypatch.context() as patch:  # now the removal itself fails, as on a broken disk
        patch.setattr(Store, "erase", failing)
        failed = CliRunner().invoke(app, command)
    assert isinstance(failed.exception, OSError)
    assert (built / "uploads" / GONE).is_dir()
    assert f"trajectories/{GONE}" in workspace.store.outputs()


def failing(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_nothing_of_the_demonstration_is_left_and_the_others_stay(built, monkeypatch):
    workspace = open_workspace(built)
    # Both demonstrations begin with the same empty screen, which does not count.
    pictures = pictures_of(workspace, GONE) - pictures_of(workspace, KEPT)
    assert len(pictures) >= 3
    assert traces(built, pictures)
    kept = workspace.store.open(f"trajectories/{KEPT}")[1]
    before = kept.id
    live_in(built, monkeypatch)
    refused = CliRunner().invoke(app, ["forget", GONE, "--yes"])
    assert refused.exit_code == 2
    assert "--delete-upload" in refused.output
    assert (built / "uploads" / GONE).is_dir()
    done = CliRunner().invoke(app, ["forget", GONE, "--yes", "--delete-upload"])
    assert done.exit_code == 0, done.output
    assert "trajectory_index" in done.output or "dataset" in done.output
    assert traces(built, pictures) == []
    folder, kept = workspace.store.open(f"trajectories/{KEPT}")
    assert kept.id == before
    assert (folder / "steps/000/screenshot.png").is_file()
    run_dataset_stage(workspace, dataset_stages()[0])
    assert workspace.store.verify(f"trajectories/{KEPT}") == []
    again = CliRunner().invoke(app, ["forget", GONE, "--yes"])
    assert (again.exit_code, f"{GONE}: not found" in again.output) == (1, True)
    assert list_quarantine(workspace.store) == []


def commit(store: Any, output: str, stage: str, text: str, inputs: dict[str, str]) -> None:
    with store.stage(output) as staging:
        (staging.path / "file.txt").write_text(text)
        store.commit(staging, Recipe(stage, "1", "", inputs), {})


def test_all_versions_and_their_datasets_are_removed_from_folders_and_buckets(either):
    for number in range(2):
        commit(either, f"trajectories/{GONE}", "trajectories", f"{number}", {})
        commit(either, "sft_samples", "sft_samples", f"{number}", {GONE: str(number)})
    commit(either, f"trajectories/{KEPT}", "trajectories", "kept", {"actions": "x"})
    commit(either, "messages", "messages", "kept alone", {KEPT: "x"})
    commit(either, "dataset_statistics", "dataset_statistics", "sum", {"sft_samples": "x"})
    either.put_document(f"quarantine/{GONE}/actions.json", b"{}")
    either.put_document(f"reviews/{KEPT}/{'a' * 32}.json", b"{}")
    gone = forget_demonstration(either, GONE, NAMES)
    assert gone == ([f"trajectories/{GONE}"], ["dataset_statistics", "sft_samples"], 1)
    assert {name for name, _ in either.versions()} == {f"trajectories/{KEPT}", "messages"}
    assert either.outputs() == ["messages", f"trajectories/{KEPT}"]
    assert either.list_documents("reviews") == [f"reviews/{KEPT}/{'a' * 32}.json"]


def test_no_word_and_no_screenshot_is_left_in_a_bucket(moto_url, tmp_path, monkeypatch):
    (tmp_path / "uploads").mkdir()
    live_in(tmp_path, monkeypatch)
    monkeypatch.setenv("DEMO_PIPELINE_STORE", moto_url)
    workspace = Workspace.open(Settings())
    typed = [CLICK, ("type", {"text": CANARIES[1]})]
    gone = make_trajectory(tmp_path / "made", GONE, typed, instruction=CANARIES[0], shade=100)
    commit_trajectory(workspace, gone)
    for stage in TOLD:
        run_dataset_stage(workspace, stage)
    for kind, text in (("note", CANARIES[2]), ("instruction", CANARIES[2])):
        folder, version = workspace.store.open(f"trajectories/{GONE}")
        subject = subject_of(version, GONE)
        Reviews(workspace.store).make(subject, folder, "ann", kind, {"text": text})
    build_stage(workspace, RECORDS_STAGE, GONE)
    commit_trajectory(workspace, make_trajectory(tmp_path / "made", KEPT, [CLICK]))
    for stage in TOLD:
        run_dataset_stage(workspace, stage)
    pictures = pictures_of(workspace, GONE)
    assert len(traces(downloaded(moto_url, tmp_path / "before"), pictures)) > 10
    done = CliRunner().invoke(app, ["forget", GONE, "--yes"])
    assert done.exit_code == 0, done.output
    assert traces(downloaded(moto_url, tmp_path / "after"), pictures) == []
    assert traces(tmp_path / "cache", pictures) == []
    assert f"trajectories/{KEPT}" in workspace.store.outputs()


def downloaded(url: str, folder: Path) -> Path:
    """Downloads every object of a bucket into a folder."""
    objects = Bucket(url, folder)
    for info in objects.listing():
        target = folder / info.key
        target.parent.mkdir(parents=True, exist_ok=True)
        objects.fetch(info.key, info.etag, target)
    return folder


def test_a_dataset_with_an_unreadable_manifest_is_also_removed(tmp_path):
    store = Store(tmp_path)
    commit(store, "sft_samples", "sft_samples", "1", {KEPT: "x"})
    [manifest] = (tmp_path / ".versions/sft_samples").glob("*/manifest.json")
    manifest.write_text("{")
    assert forget_demonstration(store, GONE, NAMES)[1] == ["sft_samples"]


def test_a_link_in_the_uploads_is_removed_and_its_target_stays(tmp_path):
    workspace = open_workspace(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_text("x")
    (tmp_path / "uploads").mkdir()
    (tmp_path / "uploads" / GONE).symlink_to(tmp_path / "elsewhere")
    assert workspace.uploads.remove(GONE)
    assert (tmp_path / "elsewhere/file").read_text() == "x"
    assert not workspace.uploads.remove(GONE)
