"""Recognising the format of a path, and validating it."""

import json
import shutil
from pathlib import Path

import pytest

from demo_pipeline.pipeline.validated_formats import validate_recording
from demo_pipeline.pipeline.validation import FORMATS, recognise, validate
from demo_pipeline.problems import Severity, errors
from demo_pipeline.settings import Settings
from demo_pipeline_tests.formats.desktopd import good_dataset
from demo_pipeline_tests.uploads import BREAKING, TYPED, upload


@pytest.fixture
def good(recording: Path, tmp_path: Path) -> Path:
    return upload(recording, tmp_path, "good")


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("index.json", "trajectories/"), "dataset"),
        (("index.json", "metadata.json", "steps.parquet", "trajectories/"), "dataset"),
        (("task.json", "result.json", "steps/", "provenance.parquet"), "trajectory"),
        (("task.json",), "trajectory"),
        (("data.jsonl", "train.jsonl", "val.jsonl", "config.json", "images/"), "cudag"),
        (("samples.jsonl", "trajectories/"), "sft"),
        (("messages.schema.json", "train.jsonl", "val.jsonl", "trajectories/"), "messages"),
        (("meta.json",), "recording"),
        (("input_log.jsonl", "meta.json", "recording.mp4"), "recording"),
        (("examples/", "test_all.json"), "osworld"),
        ((), None),
        (("notes.txt", "pictures/"), None),
    ],
)
def test_a_folder_is_recognised_by_its_files(
    tmp_path: Path, names: tuple[str, ...], kind: str | None
) -> None:
    for name in names:
        if name.endswith("/"):
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).touch()
    assert recognise(tmp_path) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("samples.jsonl", "sft"),
        ("mine.jsonl", "sft"),
        ("task-1.json", "osworld"),
        ("test_all.json", None),
        ("meta.json", None),
        ("input_log.jsonl", None),
        ("train.jsonl", None),
        ("recording.mp4", None),
        ("README", None),
    ],
)
def test_a_file_is_recognised_by_its_suffix_unless_it_is_a_part(
    tmp_path: Path, name: str, kind: str | None
) -> None:
    (tmp_path / name).touch()
    assert recognise(tmp_path / name) == kind


def test_complete_folders_are_valid(good: Path, tmp_path: Path) -> None:
    root = good_dataset.write_dataset(tmp_path / "dataset")
    things = {good: "recording", root: "dataset"}
    things[root / "trajectories" / good_dataset.NAME] = "trajectory"
    for path, kind in things.items():
        assert recognise(path) == kind
        assert errors(validate(path, kind, Settings())) == []


@pytest.mark.parametrize("kind", sorted(FORMATS))
@pytest.mark.parametrize("what", ["nothing", "empty folder", "no text", "empty file"])
def test_any_input_is_answered_with_problems(tmp_path: Path, kind: str, what: str) -> None:
    path = tmp_path / "given.json"
    if what == "empty folder":
        path.mkdir()
    elif what != "nothing":
        path.write_bytes(b"" if what == "empty file" else b"\xff\xfe\x00{")
    found = validate(path, kind, Settings())
    assert found  # an empty file of samples is only a warning
    assert all(problem.message for problem in found)


class TestRecordings:
    @pytest.mark.parametrize("what", sorted(BREAKING))
    def test_a_broken_file_is_reported_with_its_location(self, good: Path, what: str) -> None:
        spoil, _, where = BREAKING[what]
        spoil(good)
        found = errors(validate_recording(good, Settings()))
        assert found
        assert found[0].location.startswith(where)
        assert TYPED not in " ".join(map(str, found))

    def test_every_rejected_line_is_an_error_with_its_number(self, good: Path) -> None:
        log = good / "input_log.jsonl"
        lines = log.read_bytes().splitlines()
        lines[4:4] = [b"not json", b"[]"]
        log.write_bytes(b"\n".join(lines) + b"\n")
        found = errors(validate_recording(good, Settings()))
        assert [problem.line for problem in found] == [5, 6]

    def test_a_differing_id_is_only_a_warning(self, good: Path) -> None:
        meta = json.loads((good / "meta.json").read_text(encoding="utf-8"))
        (good / "meta.json").write_text(json.dumps(meta | {"id": "other"}), encoding="utf-8")
        [problem] = validate_recording(good, Settings())
        assert (problem.code, problem.severity) == ("id_differs", Severity.WARNING)

    def test_a_missing_log_and_a_bad_meta_are_both_reported(self, good: Path) -> None:
        (good / "input_log.jsonl").unlink()
        (good / "meta.json").write_text("{", encoding="utf-8")
        files = {problem.file for problem in errors(validate_recording(good, Settings()))}
        assert files == {"input_log.jsonl", "meta.json"}

    def test_a_trajectory_without_a_step_folder_is_invalid(self, tmp_path: Path) -> None:
        folder = good_dataset.write_trajectory(tmp_path / good_dataset.NAME)
        shutil.rmtree(folder / "steps" / "000")
        assert errors(validate(folder, "trajectory", Settings()))
