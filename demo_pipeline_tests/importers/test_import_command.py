"""Tests the command `import` with damaged and with several sources."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from demo_pipeline_tests.importers import source_forms
from demo_pipeline_tests.importers.conftest import run_import
from demo_pipeline_tests.importers.source_forms import log_of
from demo_pipeline_tests.uploads import TYPED

WRITERS: dict[str, Callable[[Path, Path], Path]] = {
    "owamcap": source_forms.owamcap,
    "agentnet": source_forms.agentnet,
    "openadapt": source_forms.openadapt,
    "crowd-cast": source_forms.crowd_cast,
    "showui-aloha": source_forms.showui_aloha,
    "video-cua": source_forms.video_cua,
}
LOGS = {
    "owamcap": "clip.mcap",
    "agentnet": "events.jsonl",
    "openadapt": "recording.db",
    "crowd-cast": "input_abc_seg0001.msgpack",
    "showui-aloha": "input_log_20250912_085417.txt",
    "video-cua": "action_log.json",
}


@pytest.fixture
def source(form: Path, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The test's recording in the format of another tool."""
    WRITERS[request.param](form, tmp_path / "source")
    return request.param, tmp_path / "source"


every_tool = pytest.mark.parametrize("source", WRITERS, indirect=True)


def visible(uploads: Path) -> list[str]:
    """Returns all names in the folder, including hidden drafts."""
    return sorted(path.name for path in uploads.iterdir()) if uploads.exists() else []


@every_tool
def test_a_log_that_is_cut_off_anywhere_is_reported_or_read_in_part(source, tmp_path):
    tool, folder = source
    log = folder / LOGS[tool]
    whole = log.read_bytes()
    uploads = tmp_path / "uploads"
    for share in (0, 0.001, 0.2, 0.5, 0.9, 0.999):
        shutil.rmtree(uploads, ignore_errors=True)
        log.write_bytes(whole[: int(len(whole) * share)])
        result = run_import(folder, "--to", uploads)
        assert result.exit_code == 1, (share, result.output)
        assert log.name in result.stderr
        assert "Traceback" not in result.output
        for name in visible(uploads):
            files = sorted(path.name for path in (uploads / name).iterdir())
            assert files == ["input_log.jsonl", "meta.json", "recording.mp4", "source.json"]
            written = json.loads((uploads / name / "source.json").read_text())
            assert written["damaged"]
            assert log_of(uploads / name)


@every_tool
@pytest.mark.parametrize("spoil", ["missing", "empty", "text", "cut"])
def test_a_missing_or_unreadable_video_is_reported(source, tmp_path, spoil):
    _, folder = source
    videos = [path for path in folder.rglob("*") if path.suffix in {".mp4", ".mkv"}]
    assert videos
    for video in videos:
        data = video.read_bytes()
        video.unlink()
        if spoil != "missing":
            video.write_bytes({"empty": b"", "text": TYPED.encode() * 99, "cut": data[:200]}[spoil])
    uploads = tmp_path / "uploads"
    result = run_import(folder, "--to", uploads)
    assert result.exit_code == 1, result.output
    assert "video" in result.stderr
    assert TYPED not in result.output
    assert visible(uploads) == []


def test_a_playlist_with_the_name_of_a_video_reads_no_other_file(form, tmp_path):
    folder = source_forms.agentnet(form, tmp_path / "source")
    [video] = folder.glob("*.mp4")
    video.write_text(f"#EXTM3U\n#EXTINF:1,\n{form / 'recording.mp4'}\n#EXT-X-ENDLIST\n")
    result = run_import(folder, "--to", tmp_path / "uploads")
    assert result.exit_code == 1
    assert "the video cannot be opened" in result.stderr


def test_wrong_names_and_unknown_files_are_reported(form, tmp_path):
    clip = source_forms.owamcap(form, tmp_path / "source")
    renamed = clip.rename(clip.with_suffix(".bin"))
    text = tmp_path / "notes.mcap"
    text.write_text("no recording")
    (tmp_path / "empty").mkdir()
    for path, words in (
        (renamed, "no recording of a known tool found (OWAMcap"),
        (text, "is not an MCAP file"),
        (tmp_path / "empty", "no recording of a known tool found"),
        (tmp_path / "nowhere", "no such file or folder"),
    ):
        result = run_import(path, "--to", tmp_path / "uploads")
        assert result.exit_code == 1
        assert words in " ".join(result.stderr.split())
    assert visible(tmp_path / "uploads") == []


def test_other_recordings_are_imported_after_a_damaged_one_and_none_twice(form, tmp_path):
    folder = tmp_path / "source"
    uploads = tmp_path / "uploads"
    for number in range(3):
        source_forms.owamcap(form, folder / f"person{number}", f"clip{number}")
    (folder / "person1" / "clip1.mkv").unlink()
    source_forms.agentnet(form, folder / "20241106_someone@example.org_2c05")
    first = run_import(folder, "--to", uploads)
    assert first.exit_code == 1
    assert first.stdout.strip().endswith("3 imported, 1 not imported")
    names = visible(uploads)
    assert len(names) == 3
    assert not any("example" in name for name in names)
    before = {path: path.stat().st_mtime_ns for path in uploads.rglob("*")}
    again = run_import(folder, "--to", uploads)
    assert again.stdout.strip().endswith("3 already there, 1 not imported")
    assert {path: path.stat().st_mtime_ns for path in uploads.rglob("*")} == before
    elsewhere = shutil.copytree(folder, tmp_path / "copy")
    run_import(elsewhere, "--to", uploads)
    assert visible(uploads) == names


def test_unknown_facts_are_empty_and_can_be_stated_in_a_second_import(form, tmp_path):
    clip = source_forms.owamcap(form, tmp_path / "source")
    uploads = tmp_path / "uploads"
    result = run_import(clip, "--to", uploads)
    note = "the task is not known: without --task, the demonstration will be quarantined"
    assert f"1 of 1: {note}" in result.stderr
    [folder] = uploads.iterdir()
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["status"], meta["reason"], meta["quest"], meta["title"]) == ("", None, None, "")
    assert json.loads((folder / "source.json").read_text())["missing"] == ["task", "status"]
    facts = {"task": "Tick the box", "status": "failed", "application": "Form"}
    (clip.parent / "clip.import.json").write_text(json.dumps(facts))
    run_import(clip, "--to", uploads, "--task", "Another task", "--status", "completed")
    [same] = uploads.iterdir()
    assert same == folder
    meta = json.loads((folder / "meta.json").read_text())
    assert (meta["status"], meta["reason"]) == ("completed", "fail")
    assert (meta["quest"]["content"], meta["quest"]["app"]) == ("Tick the box", "Form")
    (clip.parent / "clip.import.json").write_text('{"status": "finished"}')
    result = run_import(clip, "--to", uploads)
    assert result.exit_code == 1
    assert "status: expected one of completed, failed, aborted" in " ".join(result.stderr.split())


def test_a_video_that_ends_before_the_log_is_imported_and_reported(form, tmp_path):
    source = source_forms.agentnet(form, tmp_path / "source")
    lines = (source / "events.jsonl").read_text().splitlines()
    late = json.loads(lines[-1])
    late["time_stamp"] += 60
    (source / "events.jsonl").write_text("\n".join([*lines, json.dumps(late)]))
    result = run_import(source, "--to", tmp_path / "uploads")
    assert result.exit_code == 1
    assert "s before the last event: actions after its end do not become steps" in result.stderr
    assert "1 imported in part" in result.stdout


@pytest.mark.parametrize("value", [None, "x", [], {}, True, 1e300, -1e18, "\ud800"])
def test_values_of_wrong_types_do_not_stop_an_import(form, tmp_path, value):
    source = source_forms.agentnet(form, tmp_path / "source")
    lines = [json.loads(line) for line in (source / "events.jsonl").read_text().splitlines()]
    kinds = {line["action"]: line for line in lines}
    odd = []
    for line in kinds.values():
        odd += [line | {name: value} for name in line]
    trees = (source / "a11y.jsonl").read_text()
    tree = json.loads(trees)
    odd_trees = [tree | {"axtree": tree["axtree"] | {name: value}} for name in tree["axtree"]]
    (source / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines + odd))
    (source / "a11y.jsonl").write_text("".join(json.dumps(line) + "\n" for line in odd_trees))
    source_forms.write_elements_of_agentnet(
        source,
        [
            {"time_stamp": value, "a11y_tree": value},
            *[line | {"a11y_tree": line["axtree"]} for line in odd_trees],
        ],
    )
    result = run_import(source, "--to", tmp_path / "uploads")
    assert not result.exception or isinstance(result.exception, SystemExit)
    assert len(visible(tmp_path / "uploads")) == 1


def test_positions_on_another_display_stay_negative(form, tmp_path, bring):
    source = source_forms.openadapt(form, tmp_path / "source")
    with closing(sqlite3.connect(source / "recording.db")) as database:
        database.execute("UPDATE action_event SET mouse_x = mouse_x - 2000 WHERE name = 'click'")
        database.commit()
    presses = [line["data"]["x"] for line in log_of(bring(source)) if line["event"] == "mousedown"]
    assert presses
    assert max(presses) < 0


def test_a_failed_write_ends_the_command_and_leaves_no_files(form, tmp_path, monkeypatch):
    clip = source_forms.owamcap(form, tmp_path / "source")
    uploads = tmp_path / "uploads"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(uploads / "input_log.jsonl"))

    monkeypatch.setattr("demo_pipeline.importers.upload_folder._write_log", full)
    result = run_import(clip, "--to", uploads)
    assert isinstance(result.exception, OSError)
    assert visible(uploads) == []
