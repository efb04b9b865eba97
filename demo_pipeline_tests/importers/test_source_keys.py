"""Tests that key names of other recorders are translated to key names of the log."""

# ruff: noqa: RUF001 - the tests need accents

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.importers.agentnet_tool import AGENTNET
from demo_pipeline.importers.openadapt import _MAC_NAMES, _X11_NAMES, OPENADAPT
from demo_pipeline.importers.source_keys import _KEYSYMS
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.recording.key_names import lookup
from demo_pipeline_tests.actions.streams import summaries

PLATFORMS = {"windows": "win32", "macos": "darwin", "linux": "linux"}
# Keys of input methods have a name in the log, but no meaning in this project.
INPUT_METHODS = {"Hangul", "Hanja", "Kanji", "Convert", "NonConvert"}


def read(importer: Importer, folder: Path, platform: str) -> list[str]:
    """Returns the text and the hotkeys that are read from key lines."""
    [recording] = importer.find(folder, sorted(path.name for path in folder.iterdir()))
    assert importer.read is not None
    lines = [
        {"event": line.event, "data": line.data, "time": round(line.time)}
        for line in importer.read(recording).lines
    ]
    return summaries(lines, platform=platform)


def openadapt(folder: Path, platform: str, *keys: tuple[str, str, int | None]) -> list[str]:
    """Imports keys (name, character, code) of OpenAdapt.

    A key whose name is in brackets is held until all keys were pressed.
    """
    rows: list[tuple[Any, ...]] = []
    held: list[tuple[Any, ...]] = []
    for number, (name, char, code) in enumerate(keys):
        is_held = name.startswith("[")
        values = (name.strip("[]") or None, char or None, None if code is None else str(code))
        rows.append(("press", 1 + number * 0.2, *values))
        if is_held:
            held.append(("release", 1 + number * 0.2 + 0.3, *values))
        else:
            rows.append(("release", 1 + number * 0.2 + 0.1, *values))
    rows += held
    with closing(sqlite3.connect(folder / "recording.db")) as database:
        database.execute(
            "CREATE TABLE recording (timestamp REAL, platform TEXT, video_start_time REAL)"
        )
        database.execute("INSERT INTO recording VALUES (?, ?, ?)", (1.0, PLATFORMS[platform], 1.0))
        database.execute(
            "CREATE TABLE action_event (name TEXT, timestamp REAL, key_name TEXT, key_char TEXT, "
            "key_vk TEXT)"
        )
        database.executemany("INSERT INTO action_event VALUES (?, ?, ?, ?, ?)", rows)
        database.commit()
    (folder / "oa_recording-1.mp4").touch()
    return read(OPENADAPT, folder, platform)


def agentnet(folder: Path, system: str, *keys: tuple[str | None, str | None]) -> list[str]:
    """Imports keys (name, printed form) of AgentNet.

    If the printed form is None, the key is logged as DuckTrack logs it.
    """
    events = []
    for number, (name, printed) in enumerate(keys):
        key = {"name": name} if printed is None else {"name": name, "pynput_key": printed}
        for action, late in (("press", 0.0), ("release", 0.1)):
            events.append({"action": action, "time_stamp": 1 + number * 0.2 + late, **key})
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    metadata = {"system": system, "start_time": "2024-11-05 18:56:31", "video_start_timestamp": 0}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    (folder / "video.mp4").touch()
    platform = {"Windows": "windows", "Darwin": "macos", "Linux": "linux"}[system]
    return read(AGENTNET, folder, platform)


def test_every_name_in_the_tables_is_a_key_of_the_log():
    names = {*_MAC_NAMES.values(), *_X11_NAMES.values(), *_KEYSYMS.values()}
    assert {name for name in names if not lookup(name, "linux").known} == INPUT_METHODS


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("num2 num5 num8 num0 decimal num5", ["type 2580.5"]),
        ("num1 add num2 subtract num3 multiply num4 divide num5 equals", ["type 1+2-3*4/5="]),
        ("clear", ["clear"]),
    ],
)
def test_the_keypad_of_openadapt_on_macos(tmp_path, names, expected):
    """OpenAdapt's `_KEY_NAMES` in input_observer/darwin.py names these keys without a character."""
    keys = [(name, "", None) for name in names.split()]
    assert openadapt(tmp_path, "macos", *keys) == expected


def test_enter_and_tab_of_the_keypad_on_linux(tmp_path):
    """xkbcommon reports the characters CR and TAB, so that the recorder logs no name."""
    keys = [("", "4", 13), ("", "2", 11), ("", "\r", 104), ("", "\t", 23)]
    assert openadapt(tmp_path, "linux", *keys) == ["type 42", "enter", "tab"]


def test_shift_and_tab_on_linux(tmp_path):
    keys = [("", "a", 38), ("[shift]", "", 50), ("ISO_Left_Tab", "", 23)]
    assert openadapt(tmp_path, "linux", *keys) == ["type a", "shift+tab"]


def test_altgr_on_linux(tmp_path):
    keys = [("", "a", 38), ("[ISO_Level3_Shift]", "", 108), ("", "@", 24), ("", "b", 56)]
    assert openadapt(tmp_path, "linux", *keys) == ["type a@b"]


@pytest.mark.parametrize(
    ("platform", "keys", "expected"),
    [
        # Versions up to 1.0.1 used pynput, which logs a dead key with its accent.
        ("windows", [("", "´", 221), ("", "é", 69)], ["type é"]),
        ("windows", [("", "´", 221), ("", "e", 69)], ["type é"]),
        ("windows", [("", "'", 221), ("", "é", 69)], ["type é"]),
        ("windows", [("", "^", 220), ("", "e", 69)], ["type ê"]),
        ("windows", [("", "´", 221), ("space", "", 32)], ["type ´"]),
        ("windows", [("", "´", 221), ("", "t", 84)], ["type ´t"]),
        # These keys are not dead: the apostrophe and é of the French layout, and the US caret.
        ("windows", [("", "'", 52), ("", "é", 50)], ["type 'é"]),
        ("windows", [("", "^", 54), ("", "e", 69)], ["type ^e"]),
        ("windows", [("", "'", 222), ("", "e", 69)], ["type 'e"]),
        # versions since 1.0.2
        ("linux", [("dead_acute", "", 21), ("", "é", 26)], ["type é"]),
        ("macos", [("", "", 14), ("", "é", 14)], ["type é"]),
    ],
)
def test_dead_keys_of_openadapt(tmp_path, platform, keys, expected):
    assert openadapt(tmp_path, platform, *keys) == expected


def test_a_character_that_openadapt_left_out_makes_the_text_doubtful(tmp_path):
    """On Windows since 1.0.2, the dead key and the key after it are logged without a character."""
    keys = [("", "c", 67), ("", "", 221), ("", "", 69), ("", "s", 83)]
    assert openadapt(tmp_path, "windows", *keys) == ["type c", "type s"]


def test_keys_under_ctrl_have_no_character_and_are_hotkeys(tmp_path):
    keys = [("[ctrl_l]", "", 162), ("", "", 49)]
    assert openadapt(tmp_path, "windows", *keys) == ["ctrl+1"]


@pytest.mark.parametrize(
    ("system", "keys", "expected"),
    [
        ("Linux", [("2", "'2'"), ("$Unknown (65437)$", "<65437>"), ("8", "'8'")], ["type 258"]),
        ("Linux", [("$Unknown (65056)$", "<65056>")], ["tab"]),
        ("Windows", [("5", "<101>")], ["type 5"]),
        ("Windows", [(None, "<101>")], ["type 5"]),
        ("Windows", [("´", "['´']"), ("e", "'e'")], ["type é"]),
        ("Windows", [("'", '["\'"]'), ("c", "'c'")], ["type ç"]),
        ("Linux", [("´", "['´']"), ("e", "'e'")], ["type é"]),
        # DuckTrack
        ("Windows", [("´", None), ("e", None)], ["type é"]),
        ("Windows", [("'", None), ("e", None)], ["type 'e"]),
    ],
)
def test_keys_of_agentnet_and_ducktrack(tmp_path, system, keys, expected):
    assert agentnet(tmp_path, system, *keys) == expected
