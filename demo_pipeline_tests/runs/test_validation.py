"""Tests how `demo-pipeline validate` recognises the format of a path and validates the path."""

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.problems import DemonstrationError, Severity, errors
from demo_pipeline.recording import events
from demo_pipeline.runs.validation import (
    FORMATS,
    recognise,
    unreadable_files,
    validate,
    validate_recording,
)
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline_tests.datasets.builders import make_trajectory
from demo_pipeline_tests.exports.forms import build_sft
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages, write_demos
from demo_pipeline_tests.uploads import upload

DAY_MS = 86_400_000
ERROR = Severity.ERROR
WARNING = Severity.WARNING


def change_lines(folder: Path, change: Callable[[str], str]) -> None:
    log = folder / "input_log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines()
    log.write_text("".join(change(line) + "\n" for line in lines), encoding="utf-8")


def shifted(line: str, milliseconds: int) -> str:
    event = json.loads(line)
    return json.dumps(event | {"time": event["time"] + milliseconds})


def in_seconds(line: str) -> str:
    event = json.loads(line)
    return json.dumps(event | {"time": event["time"] / 1000})


def scans(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """Returns a function that changes the data of every scan in a recording."""

    def of_line(line: str) -> str:
        event = json.loads(line)
        if event["event"] == "axtree":
            change(event["data"])
        return json.dumps(event)

    return lambda folder: change_lines(folder, of_line)


def meta(**values: Any) -> Callable[[Path], None]:
    """Returns a function that sets keys of meta.json. The value `...` removes a key."""

    def change(folder: Path) -> None:
        path = folder / "meta.json"
        changed = json.loads(path.read_text(encoding="utf-8")) | values
        kept = {key: value for key, value in changed.items() if value is not ...}
        path.write_text(json.dumps(kept, indent=2), encoding="utf-8")

    return change


TALLER = {"width": 1920, "height": 1200}
SPOILED: dict[str, tuple[Callable[[Path], None], str, Severity]] = {
    "times in seconds": (lambda folder: change_lines(folder, in_seconds), "time_unit", ERROR),
    "another day": (
        lambda folder: change_lines(folder, lambda line: shifted(line, 2 * DAY_MS)),
        "log_not_of_this_recording",
        ERROR,
    ),
    "no instruction": (meta(title="", description="", quest={}), "no_instruction", ERROR),
    "no timestamp": (meta(timestamp=...), "invalid_field", ERROR),
    "a status that is a list": (meta(status=[]), "invalid_field", ERROR),
    "a title that is an object": (meta(title={}), "invalid_field", ERROR),
    "no locale and no version": (meta(locale=..., version=...), "missing_field", WARNING),
    "no reason": (meta(reason=...), "missing_field", WARNING),
    "a reason that is null": (meta(reason=None), "missing_field", WARNING),
    "no quest": (meta(quest=...), "missing_field", WARNING),
    "no monitor": (meta(primary_monitor=...), "missing_field", WARNING),
    "no platform": (meta(platform=...), "missing_platform", WARNING),
    "another platform": (meta(platform="amiga"), "unknown_platform", WARNING),
    "another status": (meta(status="lost"), "unknown_status", WARNING),
    "another reason": (meta(reason="lost"), "unknown_reason", WARNING),
    "a negative duration": (meta(duration_seconds=-1), "negative_duration", WARNING),
    "a long duration": (meta(duration_seconds=600), "other_duration", WARNING),
    "a duration in milliseconds": (meta(duration_seconds=7000), "other_duration", WARNING),
    "another shape": (meta(primary_monitor=TALLER), "other_shape", WARNING),
    "no tree": (scans(lambda data: data.pop("tree")), "unreadable_scan", ERROR),
    "a tree of text": (scans(lambda data: data.update(tree="x")), "unreadable_scan", ERROR),
}
MALFORMED: dict[str, Callable[[Any], object]] = {
    "an element that is a number": lambda tree: tree.append(5),
    "a role that is a number": lambda tree: tree[0]["children"][0].update(role=7),
    "a role that is null": lambda tree: tree[0].update(role=None),
    "a box with text": lambda tree: tree[0]["bbox"].update(x="left"),
}
DATA_KEYS = ("duration", "queries", "focused_element")
NODE_KEYS = ("role", "bbox", "states", "value", "name", "description", "children")


def of_tree(spoil: Callable[[Any], object]) -> Callable[[Path], None]:
    return scans(lambda data: spoil(data["tree"]))


def without_key(key: str) -> Callable[[Path], None]:
    """Returns a function that removes a documented key from every scan."""
    return scans(lambda data: data.pop(key))


def without_node_key(key: str) -> Callable[[Path], None]:
    """Returns a function that removes a documented key from the first element of every scan."""
    return of_tree(lambda tree: tree[0].pop(key))


for name, spoil in MALFORMED.items():
    SPOILED[name] = (of_tree(spoil), "malformed_scan", WARNING)
for key in DATA_KEYS:
    SPOILED[f"a scan without {key}"] = (without_key(key), "malformed_scan", WARNING)
for key in NODE_KEYS:
    SPOILED[f"an element without {key}"] = (without_node_key(key), "malformed_scan", WARNING)


def box(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "width": width, "height": height}


def element(bbox: dict[str, int], role: str, name: str) -> dict[str, Any]:
    """Returns an element of a UI tree with every documented key."""
    states = {"enabled": True, "keyboard_focusable": False, "visible": True}
    texts = {"role": role, "name": name, "description": "", "value": ""}
    return {"bbox": bbox, "children": [], "states": states, **texts}


def first_scan(folder: Path) -> int:
    """Returns the number of the first log line with a scan."""
    lines = (folder / "input_log.jsonl").read_text(encoding="utf-8").splitlines()
    numbers = (n for n, line in enumerate(lines, 1) if json.loads(line)["event"] == "axtree")
    return next(numbers)


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
        (("tasks/", "images/", "metadata.json", "README.md"), "agentnetbench"),
        (("config.json", "images/"), "cudag"),
        ((), None),
        (("notes.txt", "pictures/"), None),
    ],
)
def test_a_folder_is_recognised_by_its_files(tmp_path, names, kind):
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
def test_a_file_is_recognised_by_its_suffix_unless_it_is_a_part(tmp_path, name, kind):
    (tmp_path / name).touch()
    assert recognise(tmp_path / name) == kind


@pytest.mark.parametrize("kind", sorted(FORMATS))
@pytest.mark.parametrize("what", ["nothing", "empty folder", "no text", "empty file"])
def test_any_input_is_answered_with_problems(tmp_path, kind, what):
    path = tmp_path / "given.json"
    if what == "empty folder":
        path.mkdir()
    elif what == "empty file":
        path.write_bytes(b"")
    elif what == "no text":
        path.write_bytes(b"\xff\xfe\x00{")
    problems = validate(path, kind, Settings())
    assert problems  # an empty file of samples is only a warning
    assert all(problem.message for problem in problems)


class TestRecordings:
    def test_every_rejected_line_is_an_error_with_its_number(self, good):
        log = good / "input_log.jsonl"
        lines = log.read_bytes().splitlines()
        lines[4:4] = [b"not json", b"[]"]
        log.write_bytes(b"\n".join(lines) + b"\n")
        problems = errors(validate_recording(good, Settings()))
        assert [problem.line for problem in problems] == [5, 6]

    @pytest.mark.parametrize("what", sorted(SPOILED))
    def test_what_the_pipeline_finds_is_found_with_its_code(self, good, what):
        spoil, code, severity = SPOILED[what]
        spoil(good)
        problems = validate_recording(good, Settings())
        assert {(problem.code, problem.severity) for problem in problems} == {(code, severity)}
        assert all(problem.demonstration == "" for problem in problems)

    @pytest.mark.parametrize("key", DATA_KEYS)
    def test_a_key_that_scans_lack_is_named_with_the_first_line(self, good, key):
        without_key(key)(good)
        [problem] = validate_recording(good, Settings())
        assert problem.line == first_scan(good)
        assert problem.message.endswith(f"first: data.{key}: Field required")

    @pytest.mark.parametrize("key", NODE_KEYS[1:-1])
    def test_a_key_that_an_element_lacks_is_named_with_the_first_line(self, good, key):
        without_node_key(key)(good)
        [problem] = validate_recording(good, Settings())
        assert problem.line == first_scan(good)
        assert re.search(rf"first: 1 of \d+ elements have no {key}$", problem.message)

    def test_a_scan_that_the_recorders_own_hit_test_contradicts_is_named(self, good):
        """The recorder found a button where the tree has only a window and a label."""

        def contradict(data):
            unlisted = element(box(300, 100, 40, 20), "Button", "Not in the tree")
            window = element(box(0, 0, 640, 360), "Window", "Shop")
            label = element(box(310, 105, 100, 12), "Text", "Price")
            data["tree"] = [window | {"children": [label]}]
            data["queries"]["random1"] = {"element": unlisted, "position": {"x": 320, "y": 110}}

        scans(contradict)(good)
        [problem] = validate_recording(good, Settings())
        assert (problem.code, problem.severity) == ("contradicted_scan", WARNING)
        assert problem.line == first_scan(good)
        assert "Not in the tree" not in str(problem)

    def test_a_key_that_no_table_has_is_a_warning_without_its_name(self, good):
        log = good / "input_log.jsonl"
        lines = log.read_text(encoding="utf-8").splitlines()
        last = max(json.loads(line)["time"] for line in lines)
        press = {"event": "keydown", "data": {"key": "Hyper"}, "time": last + 1}
        log.write_text("\n".join([*lines, json.dumps(press)]) + "\n", encoding="utf-8")
        problems = validate_recording(good, Settings())
        codes = [
            "unknown_key",
            "keyboard_layout",
        ]  # the typed text before the unknown key may be incomplete
        assert [problem.code for problem in problems] == codes
        assert {problem.severity for problem in problems} == {Severity.WARNING}
        assert "Hyper" not in str(problems[0])

    def test_the_code_is_that_of_the_quarantined_demonstration(self, tmp_path):
        write_demos(tmp_path / "uploads")
        folder = tmp_path / "uploads" / "first"
        change_lines(folder, lambda line: shifted(line, -3 * DAY_MS))
        with pytest.raises(DemonstrationError) as caught:
            run_all_stages(open_workspace(tmp_path), "first")
        [problem] = errors(validate_recording(folder, Settings()))
        assert [problem.code for problem in caught.value.problems] == [problem.code]

    def test_a_log_with_too_many_lines_is_refused(self, good, monkeypatch):
        monkeypatch.setattr(events, "_MAX_LINES", 5)
        [problem] = validate_recording(good, Settings())
        assert problem.code == "log_too_long"

    def test_a_missing_log_and_a_bad_meta_are_both_reported(self, good):
        (good / "input_log.jsonl").unlink()
        (good / "meta.json").write_text("{", encoding="utf-8")
        files = {problem.file for problem in errors(validate_recording(good, Settings()))}
        assert files == {"input_log.jsonl", "meta.json"}


def damaged_pixels(data: bytes) -> bytes:
    """Returns a PNG with correct checksums whose pixels cannot be decompressed."""
    at = data.index(b"IDAT")
    size = int.from_bytes(data[at - 4 : at], "big")
    body = data[at : at + 4] + bytes(size)
    return data[:at] + body + zlib.crc32(body).to_bytes(4, "big") + data[at + 8 + size :]


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize("name", ["sft", "trajectory"])
@pytest.mark.parametrize("damage", [flipped, damaged_pixels])
def test_pictures_are_decoded(tmp_path, name, damage):
    demo = make_trajectory(tmp_path, "one")
    folder = demo.path
    if name == "sft":
        folder = tmp_path / "sft"
        build_sft([demo], folder, DatasetSettings())
    assert errors(validate(folder, name, Settings())) == []
    picture = next(folder.rglob("steps/000/screenshot.png"))
    data = picture.read_bytes()
    picture.unlink()
    picture.write_bytes(damage(data))
    [problem] = errors(validate(folder, name, Settings()))
    assert re.search("checksum of a chunk|pixels that cannot be decoded", problem.message)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("index.json", "a JSON document has 256 MiB at most"),
        ("000.png", "a picture has 256 MiB at most"),
        ("train.jsonl", "has holes"),
    ],
)
def test_a_file_that_would_cost_all_memory_is_named(tmp_path, name, reason):
    with (tmp_path / name).open("wb") as file:
        file.truncate(40 * 2**30)
    [sentence] = unreadable_files(tmp_path)
    assert name in sentence
    assert reason in sentence
