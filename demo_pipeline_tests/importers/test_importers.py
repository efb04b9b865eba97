"""Tests that a recording is unchanged if it is written in the format of a tool and imported."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.importers.source_keys import pynput_key, virtual_key
from demo_pipeline.importers.source_recording import wheel
from demo_pipeline.recording.key_names import lookup
from demo_pipeline.recording.manifest import examine
from demo_pipeline_tests.importers import source_forms
from demo_pipeline_tests.importers.conftest import run_import
from demo_pipeline_tests.importers.source_forms import began, log_of, video_times

POINTER = {"mousemove", "mousedown", "mouseup", "mousewheel"}
WHOLE: dict[str, Callable[[Path, Path], Path]] = {
    "owamcap": source_forms.owamcap,
    "agentnet": source_forms.agentnet,
    "openadapt": source_forms.openadapt,
}


def input_of(folder: Path) -> Iterator[tuple[Any, ...]]:
    """Yields the input events, with milliseconds from the first event.

    Importers log a movement before each turn of the wheel. Movements to the same position are left
    out.
    """
    zero = None
    at = None
    for line in log_of(folder):
        data = line["data"]
        event = line["event"]
        if event not in POINTER | {"keydown", "keyup"}:
            continue
        place = (data["x"], data["y"]) if "x" in data else None
        if event == "mousemove" and place == at:
            continue
        at = place or at
        zero = line["time"] if zero is None else zero
        what = data.get("button") or data.get("delta")
        if "key" in data:
            what = lookup(data["key"], "windows").name
        yield line["time"] - zero, event, place, what


@pytest.mark.parametrize("tool", WHOLE)
def test_a_recording_is_the_same_after_the_import_from_every_tool(form, tmp_path, bring, tool):
    source = WHOLE[tool](form, tmp_path / "source")
    imported = bring(source, "--task", "Tick the box", "--status", "completed")
    mine = list(input_of(imported))
    theirs = list(input_of(form))
    assert len(mine) == len(theirs)
    for imported_event, event in zip(mine, theirs, strict=True):
        assert imported_event[1:] == event[1:]
        assert abs(imported_event[0] - event[0]) <= 1  # the times are rounded twice
    manifest = examine(imported, imported.name)
    before = examine(form, form.name)
    assert manifest.video.frames == before.video.frames
    assert manifest.video.last_pts_s == pytest.approx(before.video.last_pts_s, abs=0.002)
    meta = manifest.parsed_meta()
    assert (meta.platform, meta.status, meta.reason) == ("windows", "completed", "done")
    assert meta.quest is not None
    assert meta.quest.content == "Tick the box"
    assert manifest.warnings == ()


def test_the_log_has_the_time_of_the_first_frame_if_the_tool_logs_it(form, tmp_path, bring):
    for tool in ("owamcap", "openadapt"):
        imported = bring(WHOLE[tool](form, tmp_path / tool))
        first = log_of(imported)[0]
        assert first["event"] == "ffmpeg_stderr"
        assert f"start: {began(form) / 1000:.3f}" in first["data"]["output"]


def test_the_video_of_a_display_is_not_moved(form, tmp_path, bring):
    source = source_forms.owamcap(form, tmp_path / "source", window=False)
    assert [line[2] for line in input_of(bring(source))] == [line[2] for line in input_of(form)]


def test_positions_are_left_out_if_the_display_of_the_video_is_unknown(form, tmp_path):
    clip = source_forms.owamcap(form, tmp_path / "source", window=False, corner=(640, 0))
    result = run_import(clip, "--to", tmp_path / "uploads")
    assert result.exit_code == 1
    assert "does not say which display the video shows" in " ".join(result.stderr.split())
    [folder] = (tmp_path / "uploads").iterdir()
    events = list(input_of(folder))
    assert {place for _, _, place, _ in events} == {None}
    theirs = [line for line in input_of(form) if line[1] != "mousemove"]
    assert [(event, what) for _, event, _, what in events] == [
        (event, what) for _, event, _, what in theirs
    ]


def test_frames_have_the_times_at_which_they_were_captured(form, tmp_path, bring):
    source = source_forms.owamcap(form, tmp_path / "source", late=True)
    right = video_times(form / "recording.mp4")
    assert video_times(source.with_suffix(".mkv")) != pytest.approx(right, abs=0.002)
    assert video_times(bring(source) / "recording.mp4") == pytest.approx(right, abs=0.002)


def test_trees_of_agentnet_keep_roles_and_boxes(form, tmp_path, bring):
    imported = bring(source_forms.agentnet(form, tmp_path / "source"))
    [scan] = [line for line in log_of(imported) if line["event"] == "axtree"]
    [window] = scan["data"]["tree"]
    assert (window["role"], window["bbox"]["x"], window["bbox"]["width"]) == (
        "WindowControl",
        -8,
        656,
    )
    assert window["children"][0]["name"] == "OK"


def test_the_element_at_a_press_is_a_scan_if_the_last_tree_lacks_it(form, tmp_path, bring):
    source = source_forms.agentnet(form, tmp_path / "source")
    presses = source_forms.presses_of_agentnet(source)
    in_tree = source_forms.element_of_agentnet(presses[0], "OK", "ButtonControl", inside=True)
    tick = source_forms.element_of_agentnet(presses[1] + 0.01, "Tick", "CheckBoxControl")
    unpressed = source_forms.element_of_agentnet(presses[-1] + 30, "Help", "ButtonControl")
    source_forms.write_elements_of_agentnet(source, [in_tree, tick, unpressed])
    lines = log_of(bring(source))
    scans = [line for line in lines if line["event"] == "axtree"]
    names = [line["data"]["tree"][0]["name"] for line in scans]
    assert sorted(names) == ["Form", "Tick"]
    pressed = [line["time"] for line in lines if line["event"] == "mousedown"]
    assert scans[names.index("Tick")]["time"] == pressed[1]


def test_showui_aloha_lacks_movements_and_the_import_reports_it(form, tmp_path, bring):
    source = source_forms.showui_aloha(form, tmp_path / "source")
    imported = bring(source, "--task", "Tick the box", "--status", "completed")
    mine = [line for line in input_of(imported) if line[1] != "mousemove"]
    theirs = [line for line in input_of(form) if line[1] != "mousemove"]
    assert [line[1:] for line in mine] == [
        (event, place, what) for _, event, place, what in (*split_notches(theirs),)
    ]
    manifest = examine(imported, imported.name)
    assert manifest.parsed_meta().platform == "windows"
    assert manifest.recorded_at.isoformat() == "2025-09-12T08:54:17.407000+00:00"
    lost = json.loads((imported / "source.json").read_text())["not_carried_over"]
    assert any(text.startswith("movements of the pointer") for text in lost)


def split_notches(lines: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Splits turns of the wheel into one line for each notch, as some recorders log them."""
    for time, event, place, what in lines:
        if event == "mousewheel":
            delta = 120 if what > 0 else -120
            for _ in range(abs(what) // 120):
                yield time, event, place, delta
        else:
            yield time, event, place, what


def test_positions_of_showui_aloha_are_left_out_after_a_press_on_a_second_display(form, tmp_path):
    displays = {
        "0": {"x0": -640, "y0": 0, "width": 640, "height": 360, "scale_factor": 1.0},
        "1": {"x0": 0, "y0": 0, "width": 640, "height": 360, "scale_factor": 1.0},
    }
    source = source_forms.showui_aloha(form, tmp_path / "source", displays=displays)
    result = run_import(source, "--to", tmp_path / "uploads")
    assert result.exit_code == 1
    assert "does not say which display the video shows" in " ".join(result.stderr.split())
    [folder] = (tmp_path / "uploads").iterdir()
    assert {place for _, _, place, _ in input_of(folder)} == {None}


def test_actions_of_video_cua_become_presses_and_releases(form, tmp_path, bring):
    imported = bring(source_forms.video_cua(form, tmp_path / "51533"))
    lines = [line for line in log_of(imported) if line["event"] != "ffmpeg_stderr"]
    zero = 946_684_800_000
    pointer = [
        (line["time"] - zero, line["event"], line["data"].get("x"), line["data"].get("button"))
        for line in lines
        if line["event"].startswith("mouse")
    ]
    assert pointer == [
        (1000, "mousemove", 50, None),
        (1040, "mousedown", 51, "Left"),
        (1080, "mouseup", 51, "Left"),
        (2000, "mousedown", 9, "Left"),
        (2040, "mouseup", 9, "Left"),
        (2080, "mousedown", 9, "Left"),
        (2120, "mouseup", 9, "Left"),
        (2500, "mousedown", 9, "Right"),
        (2540, "mouseup", 9, "Right"),
        (3000, "mousedown", 9, "Left"),
        (3200, "mousemove", 90, None),
        (3400, "mouseup", 90, "Left"),
        (4000, "mousemove", 7, None),
        (4040, "mousewheel", None, None),
    ]
    keys = [(line["data"]["key"], line["event"]) for line in lines if "key" in line["data"]]
    assert keys[:4] == [("KeyL", "keydown"), ("KeyL", "keyup")] * 2
    assert [key for key, event in keys if event == "keydown"][2:] == [
        "Return",
        "ControlLeft",
        "KeyS",
        "Return",
    ]
    meta = examine(imported, imported.name).parsed_meta()
    assert (meta.status, meta.reason) == ("completed", "done")
    assert meta.quest is not None
    assert (meta.quest.content, meta.quest.app) == ("Organize research topics", "Joplin")


def test_segments_of_crowd_cast_are_joined_in_order(form, tmp_path, bring):
    imported = bring(source_forms.crowd_cast(form, tmp_path / "source"), "--task", "Tick the box")
    lines = log_of(imported)
    manifest = examine(imported, imported.name)
    before = examine(form, form.name)
    assert manifest.video.frames == 2 * before.video.frames
    assert manifest.video.last_pts_s == pytest.approx(60 + before.video.last_pts_s, abs=0.002)
    presses = [line for line in lines if line["event"] == "mousedown"]
    assert len(presses) == 2 * sum(line["event"] == "mousedown" for line in log_of(form))
    assert all("x" not in press["data"] for press in presses)
    half = len(presses) // 2
    assert presses[half]["time"] - presses[0]["time"] == 60_000
    assert sum(line["event"] == "redacted" for line in lines) == 2
    source = json.loads((imported / "source.json").read_text())
    assert any("positions of clicks and scrolls" in text for text in source["not_carried_over"])


def test_pauses_of_duck_track_are_left_out_because_the_video_has_none(form, tmp_path, bring):
    source = source_forms.agentnet(form, tmp_path / "source")
    events = [json.loads(line) for line in (source / "events.jsonl").read_text().splitlines()]
    half = len(events) // 2
    pause = events[half]["time_stamp"]
    for event in events[half:]:
        event["time_stamp"] += 100
    events[half:half] = [
        {"time_stamp": pause, "action": "pause"},
        {"time_stamp": pause + 100, "action": "resume"},
    ]
    (source / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    last = [line[0] for line in input_of(form)][-1]
    assert [line[0] for line in input_of(bring(source))][-1] == pytest.approx(last, abs=1)


@pytest.mark.parametrize(
    ("name", "platform", "key", "char"),
    [
        ("a", "windows", "A", "a"),
        ("A", "macos", "KeyA", "A"),
        ("%", "linux", "Num5", "%"),
        ("\x03", "windows", "C", None),  # Ctrl and C
        ("é", "windows", "Unknown(233)", "é"),
        ("f12", "linux", "F12", None),
        ("cmd", "macos", "MetaLeft", None),
        (None, "macos", "Unknown(0)", None),
    ],
)
def test_key_names_of_pynput_are_translated(name, platform, key, char):
    data = pynput_key(name, platform)
    assert (data["key"], data.get("actual_char")) == (key, char)


def test_every_virtual_key_with_a_name_is_a_known_key():
    names = {virtual_key(code) for code in range(256)}
    unknown = {name for name in names if not lookup(name, "windows").known}
    others = {name for name in unknown if not name.startswith("Unknown(")}
    assert others == {"Hangul", "Hanja", "Convert", "NonConvert"}
    assert {"A", "Zero", "Numpad9", "F24", "LeftCtrl", "ForwardSlash"} <= names


def test_the_wheel_is_in_the_documented_unit_and_on_macos_in_pixels():
    assert wheel(1, "windows") == {"delta": -120}  # up
    assert wheel(-2, "linux") == {"delta": 240}
    assert wheel(-3, "macos") == {"delta": -30}
