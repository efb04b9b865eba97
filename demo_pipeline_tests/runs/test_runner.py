"""Tests when the stages of a demonstration are rebuilt, and what happens to broken uploads."""

import errno
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.failures import TransientError, UploadChangedError
from demo_pipeline.runs.quarantine import (
    list_quarantine,
    quarantine_demonstration,
    read_quarantine,
)
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import ActionSettings, TrajectorySettings
from demo_pipeline.stage import Stage, Summary
from demo_pipeline.store.uploads import Uploads, changed_while_read
from demo_pipeline_tests.building import build_stage, is_up_to_date
from demo_pipeline_tests.sample_workspace import (
    contents,
    copy_of,
    open_workspace,
    run_all_stages,
    run_catalog,
)

LOG = "input_log.jsonl"
META = "meta.json"
VIDEO = "recording.mp4"


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """Returns a copy of a root with two demonstrations, processed up to the trajectories."""
    return copy_of(made_root, tmp_path / "root")


def redone(workspace: Workspace, demonstration: str = "first") -> list[str]:
    return [
        name
        for name, status in run_all_stages(workspace, demonstration).items()
        if status == "made"
    ]


# --- rebuilds


def test_a_second_run_builds_nothing(root):
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    assert is_up_to_date(workspace, "first")
    assert redone(workspace) == []
    assert contents(workspace, "first") == before


def test_a_forced_build_gives_the_same_bytes(root):
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    for stage in STAGES:
        result = build_stage(workspace, stage, "first", force=True)
        assert result.status == "made"
    assert contents(workspace, "first") == before


@pytest.mark.parametrize(
    ("stage", "file", "linking"),
    [
        ("events", "events.parquet", []),
        ("actions", "actions.parquet", []),
        ("screenshots", "001.png", []),
        ("ui_trees", "000.json", []),
        ("trajectories", "task.json", ["records"]),
        ("contact_sheets", "sheet.jpg", []),
    ],
)
def test_only_the_output_with_a_lost_file_and_what_links_it_are_rebuilt(root, stage, file, linking):
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    folder = workspace.store.open(STAGE_BY_NAME[stage].output("first"))[0]
    (folder / file).unlink()
    assert not is_up_to_date(workspace, "first")
    assert redone(workspace) == [stage, *linking]
    assert contents(workspace, "first") == before


def test_another_leak_limit_is_a_warning_and_changes_no_byte(root, monkeypatch):
    before = contents(open_workspace(root), "first")
    monkeypatch.setattr(TrajectorySettings, "REMOVED", {"max_leak_rate": 0.9})
    workspace = open_workspace(root)
    assert redone(workspace) == ["trajectories"]
    assert contents(workspace, "first") == before


def test_a_setting_that_changes_no_action_rebuilds_only_the_actions(root):
    workspace = open_workspace(root, actions=ActionSettings(stop_shortcut=("f9",)))
    assert redone(workspace) == ["actions"]


def test_a_changed_upload_is_processed_again(root):
    workspace = open_workspace(root)
    path = root / "uploads" / "first" / META
    meta = json.loads(path.read_bytes())
    meta["quest"]["content"] = "Please do something else."
    path.write_text(json.dumps(meta), encoding="utf-8")
    assert not is_up_to_date(workspace, "first")
    assert is_up_to_date(workspace, "second")
    assert redone(workspace)[0] == "raw_recordings"
    folder = workspace.store.open("trajectories/first")[0]
    task = json.loads((folder / "task.json").read_bytes())
    assert task["instruction"] == "Please do something else."
    assert is_up_to_date(workspace, "first")


def test_an_upload_that_differs_from_its_manifest_stops_the_stages_that_read_it(root):
    workspace = open_workspace(root)
    with (root / "uploads" / "first" / LOG).open("ab") as log:
        log.write(b"\n")
    with pytest.raises(UploadChangedError):
        build_stage(workspace, STAGE_BY_NAME["events"], "first", force=True)
    assert redone(workspace)[:2] == ["raw_recordings", "events"]
    assert list_quarantine(workspace.store) == []


# --- broken uploads


def _break_meta(folder: Path) -> None:
    text = (folder / META).read_text(encoding="utf-8")
    (folder / META).write_text(text.replace('"status":', '"status"', 1), encoding="utf-8")


def _garbage_log(folder: Path) -> None:
    (folder / LOG).write_bytes(b"\x00\xff garbage\n{half a line\n" * 30)


def _no_instruction(folder: Path) -> None:
    meta = json.loads((folder / META).read_bytes())
    meta.update(title="", description="", quest=None)
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")


def _another_day(folder: Path) -> None:
    meta = json.loads((folder / META).read_bytes())
    meta["timestamp"] = "2031-01-05T09:00:00+00:00"
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")


BREAKS: dict[str, tuple[Any, str, str, int | None]] = {
    "another_day": (_another_day, "events", LOG, 1),
    "meta": (_break_meta, "raw_recordings", META, 5),
    "no_video": (lambda folder: (folder / VIDEO).unlink(), "raw_recordings", VIDEO, None),
    "garbage": (_garbage_log, "events", LOG, 1),
    "no_instruction": (_no_instruction, "trajectories", META, None),
}


@pytest.mark.parametrize("kind", sorted(BREAKS))
def test_a_broken_upload_is_quarantined_and_released_when_corrected(root, kind):
    damage, stage, file, line = BREAKS[kind]
    good = root / "good"
    shutil.copytree(root / "uploads" / "first", good)
    shutil.rmtree(root / "store")
    workspace = open_workspace(root)
    damage(root / "uploads" / "first")
    with pytest.raises(DemonstrationError) as caught:
        run_all_stages(workspace, "first")
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == (file, line)
    record = read_quarantine(workspace.store, "first")
    assert record is not None
    assert record.stage == stage
    assert record.problems[0]["file"] == file
    assert record.problems[0]["demonstration"] == "first"
    assert record.problems[0]["remedy"]
    assert "garbage" not in json.dumps(record.problems)
    assert str(root) not in json.dumps(record.problems)
    assert "first" not in {name.partition("/")[2] for name in workspace.store.outputs(stage)}

    shutil.rmtree(root / "uploads" / "first", ignore_errors=True)
    shutil.copytree(good, root / "uploads" / "first")
    run_all_stages(workspace, "first")
    assert read_quarantine(workspace.store, "first") is None
    assert is_up_to_date(workspace, "first")


def _without_instruction(root: Path) -> Workspace:
    """Returns a workspace in which the next stage, `trajectories`, will reject the first upload."""
    shutil.rmtree(root / "store")
    _no_instruction(root / "uploads" / "first")
    workspace = open_workspace(root)
    run_catalog(workspace)
    for stage in STAGES:
        if stage.name == "trajectories":
            return workspace
        build_stage(workspace, stage, "first")
    raise AssertionError("there is no such stage")


def test_a_rejection_that_cannot_be_stored_is_a_transient_error(root, monkeypatch):
    """Otherwise the run would end as rejected without a record, and the next run would retry."""
    workspace = _without_instruction(root)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(workspace.store, "put_document", full)
    with pytest.raises(TransientError, match="No space left"):
        build_stage(workspace, STAGE_BY_NAME["trajectories"], "first")
    monkeypatch.undo()
    assert list_quarantine(workspace.store) == []
    with pytest.raises(DemonstrationError):
        build_stage(workspace, STAGE_BY_NAME["trajectories"], "first")
    assert [record.stage for record in list_quarantine(workspace.store)] == ["trajectories"]


def test_the_record_of_a_renamed_stage_is_released_by_the_first_stage(root):
    workspace = open_workspace(root)
    quarantine_demonstration(workspace.store, "first", "calibration", None, [])
    for stage in STAGES[1:]:
        build_stage(workspace, stage, "first")
    assert read_quarantine(workspace.store, "first") is not None
    build_stage(workspace, STAGES[0], "first")
    assert read_quarantine(workspace.store, "first") is None


def test_a_record_is_released_only_by_the_stage_that_wrote_it(root):
    workspace = open_workspace(root)
    problem = Problem("odd", LOG, "is odd")
    quarantine_demonstration(workspace.store, "first", "events", None, [problem])
    build_stage(workspace, STAGES[0], "first")
    with pytest.raises(DemonstrationError):
        build_stage(workspace, STAGE_BY_NAME["actions"], "first")
    assert read_quarantine(workspace.store, "first") is not None
    build_stage(workspace, STAGE_BY_NAME["events"], "first")
    assert read_quarantine(workspace.store, "first") is None


# --- uploads that change or seem to change


class Unsteady:
    """Uploads whose first `times` reads report a change, although the listing is unchanged."""

    def __init__(self, uploads: Uploads, times: int) -> None:
        self._uploads = uploads
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._uploads, name)

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        if self.left:
            self.left -= 1
            raise DemonstrationError(changed_while_read(demonstration, VIDEO))
        with self._uploads.open(demonstration, identity) as folder:
            yield folder


def unsteady(root: Path, times: int) -> Workspace:
    shutil.rmtree(root / "store")
    workspace = open_workspace(root)
    uploads: Any = Unsteady(workspace.uploads, times)
    return replace(workspace, uploads=uploads)


def test_bytes_that_always_differ_from_the_listing_quarantine_the_demonstration(root):
    """Otherwise each run over a server with wrong ETags would be superseded and request another."""
    workspace = unsteady(root, 2)
    with pytest.raises(DemonstrationError, match="its listing, which did not change"):
        build_stage(workspace, STAGES[0], "first")
    record = read_quarantine(workspace.store, "first")
    assert record is not None
    assert [(problem["code"], problem["file"]) for problem in record.problems] == [
        ("unreadable_file", VIDEO)
    ]
    assert workspace.store.outputs() == []


def test_a_download_that_failed_once_is_repeated(root):
    workspace = unsteady(root, 1)
    assert build_stage(workspace, STAGES[0], "first").status == "made"
    assert list_quarantine(workspace.store) == []


def _replaced(root: Path) -> Stage:
    """Returns the first stage, changed so that a file of the upload changes during the build."""

    def build(context: RecordingInputs, out: Path) -> Summary:
        (root / "uploads" / "first" / META).touch()
        return STAGES[0].build(context, out)

    return replace(STAGES[0], build=build)


def test_an_upload_replaced_during_the_stage_is_not_committed(root):
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    version = workspace.store.current("recordings/first")
    with pytest.raises(UploadChangedError):
        build_stage(workspace, _replaced(root), "first", force=True)
    assert workspace.store.current("recordings/first") == version
    assert contents(workspace, "first") == before
    assert list_quarantine(workspace.store) == []
    assert build_stage(workspace, STAGES[0], "first", force=True).status == "made"


# --- a real recording
