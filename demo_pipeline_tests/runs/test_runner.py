"""The stages of one demonstration: what is rebuilt when, and what happens to broken uploads."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.failures import UploadChangedError
from demo_pipeline.runs.quarantine import list_quarantine, read_quarantine
from demo_pipeline.runs.stage_runs import RefusedError, build_stage, is_up_to_date
from demo_pipeline.runs.stages import STAGE_BY_NAME, STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import ActionSettings, TrajectorySettings
from demo_pipeline.stage import Stage, Summary
from demo_pipeline.store.uploads import Uploads, changed_while_read
from demo_pipeline_tests.sample_workspace import (
    contents,
    copy_of,
    open_workspace,
    run_all_stages,
    run_catalog,
)

LOG, META, VIDEO = "input_log.jsonl", "meta.json", "recording.mp4"


@pytest.fixture
def root(made_root: Path, tmp_path: Path) -> Path:
    """A copy of two demonstrations taken to their trajectories."""
    return copy_of(made_root, tmp_path / "root")


def redone(workspace: Workspace, demonstration: str = "first") -> list[str]:
    return [
        name
        for name, status in run_all_stages(workspace, demonstration).items()
        if status == "made"
    ]


# --- what is redone


def test_a_second_run_builds_nothing(root: Path) -> None:
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    assert is_up_to_date(workspace, "first")
    assert redone(workspace) == []
    assert contents(workspace, "first") == before


def test_a_forced_build_gives_the_same_bytes(root: Path) -> None:
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    for stage in STAGES:
        made = build_stage(workspace, stage, "first", force=True)
        assert made.status == "made"
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
def test_only_the_output_with_a_lost_file_and_what_links_it_are_rebuilt(
    root: Path, stage: str, file: str, linking: list[str]
) -> None:
    workspace = open_workspace(root)
    before = contents(workspace, "first")
    folder = workspace.store.open(STAGE_BY_NAME[stage].output("first"))[0]
    (folder / file).unlink()
    assert not is_up_to_date(workspace, "first")
    assert redone(workspace) == [stage, *linking]
    assert contents(workspace, "first") == before


def test_a_stricter_limit_is_a_warning_and_changes_no_byte(root: Path) -> None:
    before = contents(open_workspace(root), "first")
    workspace = open_workspace(root, trajectories=TrajectorySettings(max_leak_rate=0.9))
    assert redone(workspace) == ["trajectories"]
    assert contents(workspace, "first") == before


def test_a_contact_sheet_needs_only_the_trajectory(root: Path) -> None:
    workspace = open_workspace(root)
    before = contents(workspace, "first")["contact_sheets"]
    shutil.rmtree(root / "uploads" / "first")
    assert (
        build_stage(workspace, STAGE_BY_NAME["contact_sheets"], "first", force=True).status
        == "made"
    )
    assert contents(workspace, "first")["contact_sheets"] == before


def test_a_setting_that_changes_no_action_rebuilds_only_the_actions(root: Path) -> None:
    workspace = open_workspace(root, actions=ActionSettings(pause_ms=2001))
    assert redone(workspace) == ["actions"]


def test_a_changed_upload_is_processed_again(root: Path) -> None:
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


def test_an_upload_that_differs_from_its_manifest_stops_the_stages_that_read_it(root: Path) -> None:
    workspace = open_workspace(root)
    with (root / "uploads" / "first" / LOG).open("ab") as log:
        log.write(b"\n")
    with pytest.raises(UploadChangedError):
        build_stage(workspace, STAGE_BY_NAME["events"], "first", force=True)
    assert redone(workspace)[:2] == ["raw_recordings", "events"]
    assert list_quarantine(workspace.store) == []


def test_a_stage_without_its_inputs_names_them(root: Path) -> None:
    shutil.rmtree(root / "store")
    with pytest.raises(RefusedError, match="recordings/first"):
        build_stage(open_workspace(root), STAGE_BY_NAME["events"], "first")


def test_the_manifest_records_every_check(root: Path) -> None:
    workspace = open_workspace(root)
    for stage in STAGES:
        version = workspace.store.current(stage.output("first"))
        assert version is not None
        checks = {check.name: check for check in version.manifest.checks}
        assert set(checks) == {check.name for check in stage.checks}
        assert all(check.passed for check in checks.values())


def test_a_log_in_seconds_gives_the_same_actions_with_one_warning(root: Path) -> None:
    pipeline = open_workspace(root)
    before = contents(pipeline, "first")
    log = root / "uploads" / "first" / LOG
    lines = [json.loads(line) for line in log.read_bytes().splitlines()]
    for line in lines:
        line["time"] /= 1000
        if "duration" in line["data"]:
            line["data"]["duration"] /= 1000
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run_all_stages(pipeline, "first")
    version = pipeline.store.current("events/first")
    assert version is not None
    failed = [check for check in version.manifest.checks if not check.passed]
    assert [(check.name, check.blocking) for check in failed] == [("no_rejected_lines", False)]
    [problem] = failed[0].problems
    assert (problem.code, problem.remedy) == ("time_unit", "write `time` in epoch milliseconds")
    after = contents(pipeline, "first")
    assert after["actions"] == before["actions"]


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
    "no_meta": (lambda folder: (folder / META).unlink(), "raw_recordings", META, None),
    "empty_video": (
        lambda folder: (folder / VIDEO).write_bytes(b""),
        "raw_recordings",
        VIDEO,
        None,
    ),
    "text_as_video": (
        lambda folder: (folder / VIDEO).write_bytes(b"#EXTM3U\n/etc/hostname\n"),
        "raw_recordings",
        VIDEO,
        None,
    ),
    "empty_log": (lambda folder: (folder / LOG).write_bytes(b""), "raw_recordings", LOG, 1),
    "garbage": (_garbage_log, "events", LOG, 1),
    "no_instruction": (_no_instruction, "trajectories", META, None),
    "no_folder": (shutil.rmtree, "raw_recordings", ".", None),
}


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize("kind", sorted(BREAKS))
def test_a_broken_upload_is_quarantined_and_released_when_corrected(root: Path, kind: str) -> None:
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


def test_readers_keep_the_last_good_version_of_what_broke(root: Path) -> None:
    workspace = open_workspace(root)
    before = contents(workspace, "first")["trajectories"]
    _garbage_log(root / "uploads" / "first")
    with pytest.raises(DemonstrationError):
        run_all_stages(workspace, "first")
    assert contents(workspace, "first")["trajectories"] == before
    assert not is_up_to_date(workspace, "first")


def test_a_few_bad_lines_are_only_rejected(root: Path) -> None:
    """Incomplete lines are warnings with their numbers; the demonstration is processed."""
    workspace = open_workspace(root)
    path = root / "uploads" / "first" / LOG
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:4], b"{torn", *lines[4:], b'{"event":']))
    assert set(run_all_stages(workspace, "first").values()) <= {"made", "unchanged"}
    version = workspace.store.current("events/first")
    assert version is not None
    check = next(c for c in version.manifest.checks if c.name == "no_rejected_lines")
    assert not check.passed
    assert [problem.line for problem in check.problems] == [5, len(lines) + 2]
    assert list_quarantine(workspace.store) == []


# --- uploads that change, or seem to


class Unsteady:
    """Uploads that report a change `times` times while their listing does not change."""

    def __init__(self, uploads: Uploads, times: int) -> None:
        self._uploads, self.left = uploads, times

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


def test_bytes_that_always_differ_from_the_listing_quarantine_the_demonstration(root: Path) -> None:
    """A server with wrong ETags superseded every run, and each requested the next."""
    workspace = unsteady(root, 2)
    with pytest.raises(DemonstrationError, match="its listing, which did not change"):
        build_stage(workspace, STAGES[0], "first")
    record = read_quarantine(workspace.store, "first")
    assert record is not None
    assert [(one["code"], one["file"]) for one in record.problems] == [("unreadable_file", VIDEO)]
    assert workspace.store.outputs() == []


def test_a_download_that_failed_once_is_repeated(root: Path) -> None:
    workspace = unsteady(root, 1)
    assert build_stage(workspace, STAGES[0], "first").status == "made"
    assert list_quarantine(workspace.store) == []


def _replaced(root: Path) -> Stage:
    """The first stage, during which the upload is replaced by an equally valid one."""

    def build(context: RecordingInputs, out: Path) -> Summary:
        (root / "uploads" / "first" / META).touch()
        return STAGES[0].build(context, out)

    return replace(STAGES[0], build=build)


def test_an_upload_replaced_during_the_stage_is_not_committed(root: Path) -> None:
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


@pytest.mark.no_cover  # other tests run the same lines
def test_a_real_recording_passes_every_check(tmp_path: Path) -> None:
    """The committed web recording: its clock is off, its wheel counts the other way."""
    samples = Path(__file__).resolve().parents[2] / "data" / "samples"
    shutil.copytree(samples / "20261121_212358", tmp_path / "uploads" / "20261121_212358")
    workspace = open_workspace(tmp_path)
    run_catalog(workspace)
    for stage in STAGES:
        made = build_stage(workspace, stage, "20261121_212358")
        assert made.status == "made"
        assert [str(p) for check in made.checks for p in check.problems] == []
    version = workspace.store.current("screenshots/20261121_212358")
    assert version is not None
    assert version.manifest.summary["avoidable_leaks"] == 0
    folder = workspace.store.open("trajectories/20261121_212358")[0]
    steps = sorted((folder / "steps").iterdir())
    actions = [json.loads((step / "action.json").read_bytes()) for step in steps]
    scrolls = [a["parameters"] for a in actions if a["action_type"] == "scroll"]
    assert [scroll["direction"] for scroll in scrolls] == ["down"]
    assert len(actions) == 15
    assert redone(workspace, "20261121_212358") == []
