"""Tests that the recorder makes an upload and its truth list on a real desktop.

The test is skipped where the packages of the recorder are not installed.
"""

import json
import shutil
import subprocess
from pathlib import Path

import av
import pytest

from benchmarks.truth.truth_list import read_truth

RECORDER = Path(__file__).resolve().parents[2] / "benchmarks" / "truth" / "recorder"
SYSTEM_PYTHON = "/usr/bin/python3"
PROGRAMS = ("Xvfb", "openbox", "ffmpeg", "setxkbmap", "dbus-daemon", "xdotool", "mousepad")
SCENARIO = """
import programs
from scenario import Scenario
from widgets import find


def prepare(desktop):
    desktop.start("mousepad", "--disable-server")
    programs.wait_for_window("mousepad")
    programs.time.sleep(2)


def run(hand):
    hand.click(find("mousepad", "text"))
    hand.type("Grü\\bß@Zoé")
    hand.press("Control_L", "a")
    hand.think(4)


SCENARIO = Scenario(
    title="Write", app="Mousepad", objectives=["Write"], content="Write a word.",
    prepare=prepare, run=run, width=800, height=600, layout="de", locale="en-GB",
)
"""


def _can_record() -> bool:
    if not all(shutil.which(program) for program in PROGRAMS):
        return False
    check = "import gi, Xlib; gi.require_version('Atspi', '2.0'); gi.require_version('Gdk', '3.0')"
    command = [SYSTEM_PYTHON, "-c", check]
    return Path(SYSTEM_PYTHON).exists() and not subprocess.run(command, check=False).returncode


@pytest.mark.skipif(not _can_record(), reason="the packages of the recorder are not installed")
def test_a_scenario_becomes_an_upload_with_its_truth(tmp_path):
    scenario = tmp_path / "scenario_file.py"
    scenario.write_text(SCENARIO, encoding="utf-8")
    command = [SYSTEM_PYTHON, str(RECORDER / "record.py"), str(scenario)]
    output = subprocess.run(
        [*command, str(tmp_path / "out")], capture_output=True, text=True, check=True, timeout=300
    )
    recording = Path(output.stdout.strip())
    assert output.stderr == ""
    click, typing, select, _ = read_truth(recording / "truth.json").entries
    assert click.kind == "click"
    assert click.target is not None
    assert click.target.role == "text"
    assert typing.text == "Grß@Zoé"
    assert typing.focus is not None
    assert typing.focus.role == "text"
    assert select.keys == ("Control_L", "a")
    lines = (recording / "input_log.jsonl").read_text("utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    pressed = [event["data"]["key"] for event in events if event["event"] == "keydown"]
    assert pressed[-2:] == ["ControlLeft", "KeyA"]
    at_sign_and_accent = ["AltGr", "KeyQ", "ShiftLeft", "KeyY", "KeyO", "Equal", "KeyE"]
    assert pressed[-9:-2] == at_sign_and_accent
    scans = [event["data"]["tree"] for event in events if event["event"] == "axtree"]
    assert "Grß@Zoé" in json.dumps(scans, ensure_ascii=False)
    assert {event["event"] for event in events} >= {"axtree", "mousemove", "mousedown", "mouseup"}
    meta = json.loads((recording / "meta.json").read_text())
    assert (meta["id"], meta["locale"]) == (recording.name, "en-GB")
    with av.open(str(recording / "recording.mp4")) as video:
        assert next(video.decode(video=0)).width == 800
