"""Imports recordings of OpenAdapt Capture (openadapt-capture 1.x): folders with `recording.db`.

The SQLite database contains the tables `recording` and `action_event`, with times in epoch seconds.
The video is next to the database. Positions are screen points, or pixels of the video if a window
or several displays were captured.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_keys import (
    DEAD_KEY,
    UNNAMED_SOURCE_KEY,
    DeadKeys,
    dead_accent,
    pynput_key,
)
from demo_pipeline.importers.source_recording import (
    PYNPUT_KEY_EVENTS,
    Importer,
    SourceLine,
    SourceRecording,
    VideoPart,
    pointer_lines,
)
from demo_pipeline.importers.source_values import (
    UnreadableSourceError,
    moment,
    number,
    plain_text,
    screen_size,
)
from demo_pipeline.recording.key_names import lookup

_DATABASE = "recording.db"
_VIDEO = "oa_recording-"
_PLATFORMS = {"win32": "windows", "darwin": "macos", "linux": "linux"}
# The recorder's configuration contains one of these words if the recorder captured a window or
# several displays.
_SCOPES = ("capture_window", "capture_desktop")
_Row = dict[str, Any]


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the folder as one recording if it contains the database, else an empty list."""
    if _DATABASE not in names:
        return []
    videos = sorted(name for name in names if name.startswith(_VIDEO) and name.endswith(".mp4"))
    return [
        SourceFiles(
            folder=folder,
            name=folder.resolve().name,
            logs=(folder / _DATABASE,),
            videos=tuple(folder / name for name in videos or {"video.mp4"} & set(names)),
        )
    ]


def _read(source: SourceFiles) -> SourceRecording:
    database = source.logs[0]
    video = source.only_video(f"expected one {_VIDEO}*.mp4 next to it")
    tables = _tables(database)
    if len(tables["recording"]) != 1:
        count = len(tables["recording"])
        raise UnreadableSourceError(f"{database}: expected one recording, not {count}")
    recording = tables["recording"][0]
    began = number(recording.get("video_start_time"))
    at = began or number(recording.get("timestamp")) or -1.0
    platform = _PLATFORMS.get(plain_text(recording.get("platform")), "")
    left_out = Counter[str]()
    events = tables["action_event"]
    keys = _Keys(events, platform)
    lines = list[SourceLine]()
    for row in events:
        lines += _lines(row, keys, left_out)
    lost = ["windows, narration, browser events and screenshots in the database"]
    observed = sum(1 for row in events if row.get("structural_observation"))
    if observed:
        lost.append(f"the elements at {observed} actions: the trees around them are not recorded")
    scoped = any(scope in plain_text(recording.get("config")) for scope in _SCOPES)
    screen = screen_size(recording.get("monitor_width"), recording.get("monitor_height"))
    if scoped:
        screen = None
    return SourceRecording(
        recorded_at=moment(at * 1000, database),
        platform=platform,
        lines=sorted(lines, key=attrgetter("time")),
        video=(VideoPart(video),),
        video_zero_ms=None if began is None else began * 1000,
        screen=screen,
        task=plain_text(recording.get("task_description")),
        lost=lost,
        left_out=left_out,
    )


def _tables(database: Path) -> dict[str, list[_Row]]:
    """Returns a mapping from the tables `recording` and `action_event` to their rows.

    Raises:
        UnreadableSourceError: the database is damaged.
    """
    try:
        uri = f"file:{quote(str(database.resolve()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            [(fault,)] = connection.execute("PRAGMA quick_check(1)")
            [(page,)] = connection.execute("PRAGMA page_size")
            if fault != "ok" or database.stat().st_size % page:
                raise UnreadableSourceError(f"{database}: is damaged or cut off")
            return {
                table: [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608
                for table in ("recording", "action_event")
            }
    except (sqlite3.Error, UnicodeError) as error:
        reason = str(error) if isinstance(error, sqlite3.Error) else "holds damaged text"
        raise UnreadableSourceError(f"{database}: cannot be read: {reason}") from None


def _lines(row: _Row, keys: "_Keys", left_out: Counter[str]) -> Iterator[SourceLine]:
    """Yields the lines of input_log.jsonl for an action; counts ignored actions in `left_out`."""
    seconds = number(row.get("timestamp"))
    kind = plain_text(row.get("name"))
    if seconds is None or row.get("disabled"):
        left_out["actions without a time, or disabled"] += 1
        return
    time = seconds * 1000
    if kind in PYNPUT_KEY_EVENTS:
        read = {"press": keys.pressed, "release": keys.released}[kind]
        yield SourceLine(PYNPUT_KEY_EVENTS[kind], read(row), time)
        return
    event = {name.removeprefix("mouse_").removesuffix("_name"): row[name] for name in row}
    yield from pointer_lines(kind, event, time, keys.platform, left_out)


def _words(text: str) -> dict[str, str]:
    """Parses a table of pairs `name=key`, separated by white space."""
    return dict(pair.split("=") for pair in text.split())


# Key names that pynput does not have: name in the recorder's log = name in input_log.jsonl. On
# macOS, the recorder has its own names; on Linux, it logs the names of X11's keysyms.
_MAC_NAMES = _words("""
    num0=Kp0 num1=Kp1 num2=Kp2 num3=Kp3 num4=Kp4 num5=Kp5 num6=Kp6 num7=Kp7 num8=Kp8 num9=Kp9
    decimal=KpDecimal add=KpPlus subtract=KpMinus multiply=KpMultiply divide=KpDivide
    equals=KpEqual clear=Clear fn=Function
""")
_X11_NAMES = _words("""
    KP_Enter=KpReturn KP_Tab=Tab ISO_Left_Tab=Tab ISO_Level3_Shift=AltGr Mode_switch=AltGr
    Prior=PageUp Next=PageDown Print=PrintScreen Num_Lock=NumLock Scroll_Lock=ScrollLock
    KP_Home=Home KP_End=End KP_Prior=PageUp KP_Page_Up=PageUp KP_Next=PageDown
    KP_Page_Down=PageDown KP_Left=LeftArrow KP_Right=RightArrow KP_Up=UpArrow KP_Down=DownArrow
    KP_Insert=Insert KP_Delete=Delete KP_Begin=Clear Hangul_Hanja=Hanja Henkan_Mode=Convert
    Henkan=Convert Muhenkan=NonConvert Hiragana_Katakana=KanaMode XF86AudioMute=VolumeMute
    XF86AudioLowerVolume=VolumeDown XF86AudioRaiseVolume=VolumeUp XF86AudioPlay=PlayPause
    XF86AudioNext=NextTrack XF86AudioPrev=PreviousTrack
""")
# On Linux the recorder logs the keys KP_Enter and KP_Tab as characters instead of names.
_X11_CHARACTERS = {"\r": "KpReturn", "\t": "Tab"}
_DEAD_NAME = "dead_"  # prefix of the names of X11's dead keys
# Largest key code that types a character on macOS, not counting the keypad.
_LAST_MAC_CHARACTER = 50
_TYPES_NOTHING = frozenset({"ctrl", "alt", "cmd"})  # while these are held, keys type no character


class _Keys:
    """Converts the presses and releases of keys, in order of time, to data of log lines.

    The recorder logs no character for a key in three cases: the key is dead; the key follows a dead
    key (on Windows since version 1.0.2); Ctrl, Alt or Command is held.
    """

    def __init__(self, events: Sequence[_Row], platform: str) -> None:
        self.platform = platform
        self._dead_keys = DeadKeys(platform)
        self._held: set[str] = set()
        typed = [row for row in events if row.get("name") == "press" and row.get("key_char")]
        self._accents = {
            id(row): dead_accent(
                str(row["key_char"]), _code(row), str(following["key_char"]), _code(following)
            )
            for row, following in pairwise([*typed, {"key_char": ""}])
        }

    def pressed(self, row: _Row) -> dict[str, Any]:
        """Returns the data of the log line for a press."""
        name = plain_text(row.get("key_name"))
        char = row.get("key_char")
        code = _code(row)
        data = self._data(row)
        shortcut = _TYPES_NOTHING & {held.partition("_")[0] for held in self._held}
        if name:
            self._held.add(name)
        if name.startswith(_DEAD_NAME):
            return {**data, "actual_char": DEAD_KEY}
        if name or char or shortcut or code is None:
            return self._dead_keys.pressed(data, self._accents.get(id(row), ""))
        if self.platform == "macos" and code <= _LAST_MAC_CHARACTER:
            return {**data, "actual_char": DEAD_KEY}
        if self.platform == "windows" and lookup(data["key"], self.platform).char:
            return self._dead_keys.unknown(data)
        return data

    def released(self, row: _Row) -> dict[str, Any]:
        """Returns the data of the log line for a release."""
        self._held.discard(plain_text(row.get("key_name")))
        return self._dead_keys.released(self._data(row))

    def _data(self, row: _Row) -> dict[str, Any]:
        """Returns the data of a log line for a key, from the key's name, character or code."""
        name = plain_text(row.get("key_name"))
        char = row.get("key_char")
        code = _code(row)
        named = None
        if self.platform == "macos":
            named = _MAC_NAMES.get(name)
        elif self.platform == "linux":
            named = _X11_NAMES.get(name) if name else _X11_CHARACTERS.get(char or "")
            if len(name) == 1 and not char:  # a dead key could not be combined with this key
                named = UNNAMED_SOURCE_KEY
        if named is not None:
            return {"key": named}
        if char and len(char) > 1 and not name:  # an accent and a letter that do not combine
            return {"key": UNNAMED_SOURCE_KEY, "actual_char": char}
        return pynput_key(name or char, self.platform, code=code)


def _code(row: _Row) -> int | None:
    """Returns the code of a key; None if no code was recorded."""
    code = plain_text(row.get("key_vk") or row.get("canonical_key_vk"))
    if not code.isdecimal():
        return None
    return int(code)


OPENADAPT = Importer(
    tool="OpenAdapt Capture",
    files=f"{_DATABASE} with {_VIDEO}*.mp4 in one folder",
    find=_find,
    read=_read,
)
