"""Tests that the manifest describes the required files, lists all problems and detects changes."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.manifest import build_manifest, read_manifest, verified_file

RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "samples"
SAMPLE = "20260105_090000"


@pytest.fixture
def upload(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDINGS / SAMPLE, tmp_path / SAMPLE))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def build(upload: Path, out: Path, name: str = SAMPLE) -> dict[str, Any]:
    return build_manifest(upload, name, out)


def problems_of(upload: Path, out: Path) -> list[tuple[str, str]]:
    with pytest.raises(DemonstrationError) as caught:
        build(upload, out)
    assert {problem.demonstration for problem in caught.value.problems} == {SAMPLE}
    assert all(problem.message and problem.remedy for problem in caught.value.problems)
    assert list(out.iterdir()) == []
    return [(problem.code, problem.location) for problem in caught.value.problems]


def rewrite(upload: Path, **changes: Any) -> None:
    path = upload / "meta.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_other_files_of_newer_recorders_are_listed_but_not_in_the_fingerprint(upload, out):
    without = build(upload, out)["fingerprint"]
    (upload / "input_log_meta.json").write_text('{"timestamp_type": "relative"}')
    (upload / "sft.json").write_text("[]")
    (upload / "checksums.json").symlink_to("/etc/hostname")
    assert build(upload, out)["fingerprint"] == without
    recorded = {file.name: file.size for file in read_manifest(out).other_files}
    assert recorded == {"input_log_meta.json": 30, "sft.json": 2}


def test_a_good_recording(upload, out):
    summary = build(upload, out)
    manifest = read_manifest(out)
    assert (manifest.id, manifest.name, manifest.warnings) == (SAMPLE, SAMPLE, ())
    assert [file.name for file in manifest.files] == list(RECORDING_FILES)
    for file in manifest.files:
        data = (upload / file.name).read_bytes()
        assert (file.size, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert manifest.recorded_at.isoformat() == "2026-01-05T09:00:00.250000+00:00"
    assert (summary["platform"], summary["status"]) == ("windows", "completed")
    assert summary["fingerprint"] == manifest.fingerprint
    assert summary["video"].startswith("h264 1920x1080")
    assert summary["warnings"] == []


def test_the_same_upload_gives_the_same_bytes_in_any_folder(upload, out, tmp_path):
    build(upload, out)
    elsewhere = Path(shutil.copytree(upload, tmp_path / "elsewhere" / "x"))
    again = tmp_path / "again"
    again.mkdir()
    build(elsewhere, again)
    text = (out / "manifest.json").read_bytes()
    assert (again / "manifest.json").read_bytes() == text
    assert str(tmp_path).encode() not in text


def test_the_fingerprint_changes_with_any_byte(upload, out):
    before = build(upload, out)["fingerprint"]
    with (upload / "input_log.jsonl").open("ab") as log:
        log.write(b"\n")
    assert build(upload, out)["fingerprint"] != before


def test_unknown_keys_of_the_meta_are_kept(upload, out):
    rewrite(upload, recorder={"build": 7, "deep": [[[]]]}, quest=None, reason=None)
    build(upload, out)
    manifest = read_manifest(out)
    assert manifest.meta["recorder"] == {"build": 7, "deep": [[[]]]}
    assert manifest.parsed_meta().quest is None


def test_a_missing_platform_is_one_clear_warning(upload, out):
    rewrite(upload, platform=None)
    build(upload, out)
    [warning] = read_manifest(out).warnings
    assert (warning["code"], warning["file"]) == ("missing_platform", "meta.json")
    assert "platform: expected windows, macos or linux" in warning["message"]
    assert warning["remedy"].startswith("add the platform")


def test_a_meta_with_comments_is_read_with_a_warning(upload, out):
    path = upload / "meta.json"
    path.write_text(path.read_text().replace('"status"', '// how it stands\n  "status"'))
    assert len(build(upload, out)["warnings"]) == 1


def test_another_id_in_the_meta_is_a_warning(upload, out):
    rewrite(upload, id="other")
    assert len(build(upload, out)["warnings"]) == 1
    [warning] = read_manifest(out).warnings
    assert (warning["code"], warning["demonstration"]) == ("id_differs", SAMPLE)


# --- all problems are reported together


def test_missing_files_are_problems(tmp_path, out):
    assert problems_of(tmp_path / "nowhere", out) == [
        ("missing_file", name) for name in RECORDING_FILES
    ]


def test_three_broken_files_are_three_problems(upload, out):
    (upload / "input_log.jsonl").write_bytes(b"")
    (upload / "meta.json").write_text('{\n  "id": "x",\n  broken')
    (upload / "recording.mp4").write_bytes(b"no video")
    assert sorted(problems_of(upload, out)) == [
        ("empty_file", "input_log.jsonl:1"),
        ("invalid_json", "meta.json:3"),
        ("video_unreadable", "recording.mp4"),
    ]


def test_a_missing_file_does_not_hide_a_broken_one(upload, out):
    (upload / "recording.mp4").unlink()
    (upload / "meta.json").write_bytes(b"\xff\xfe")
    problems = problems_of(upload, out)
    assert ("missing_file", "recording.mp4") in problems
    assert any(location.startswith("meta.json") for _, location in problems)


def test_a_folder_in_place_of_a_file(upload, out):
    (upload / "recording.mp4").unlink()
    (upload / "recording.mp4").mkdir()
    assert problems_of(upload, out) == [("missing_file", "recording.mp4")]


@pytest.mark.parametrize("value", ["", "[]", "null", "{}", '{"id": 5}', "NaN", '{"a":' * 5000])
def test_an_unusable_meta_is_a_problem(upload, out, value):
    (upload / "meta.json").write_text(value)
    assert {location.split(":")[0] for _, location in problems_of(upload, out)} == {"meta.json"}


# --- files that changed after the manifest was written


@pytest.mark.parametrize("change", ["append", "flip", "remove"])
def test_a_changed_upload_is_noticed(upload, out, change):
    build(upload, out)
    path = upload / "input_log.jsonl"
    data = path.read_bytes()
    if change == "append":
        path.write_bytes(data + b"\n")
    elif change == "flip":
        path.write_bytes(data[:9] + b"?" + data[10:])
    else:
        path.unlink()
    with pytest.raises(DemonstrationError) as caught:
        verified_file(upload, "input_log.jsonl", read_manifest(out))
    [problem] = caught.value.problems
    assert (problem.code, problem.demonstration) == ("upload_changed", SAMPLE)
    assert "process this demonstration again" in problem.remedy


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff", b'{"id": 1}'])
def test_an_invalid_manifest_is_an_error(out, content):
    if content is not None:
        (out / "manifest.json").write_bytes(content)
    with pytest.raises(DemonstrationError) as caught:
        read_manifest(out)
    assert [problem.code for problem in caught.value.problems] == ["invalid_manifest"]
