"""Imports recordings of VideoCUA (CUA-Suite): folders with `action_log.json` and a video.

The log contains complete actions, such as a click or a typed text, with their times in the video.
Each action becomes presses and releases at intervals of 40 ms.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_keys import pynput_key, pynput_name
from demo_pipeline.importers.source_recording import (
    Importer,
    SourceLine,
    SourceRecording,
    VideoPart,
)
from demo_pipeline.importers.source_values import (
    UnreadableSourceError,
    as_object,
    json_object,
    number,
    plain_text,
)

_LOG = "action_log.json"
_VIDEO = Path("video") / "video.mp4"
_UNKNOWN_DATE = datetime(2000, 1, 1, tzinfo=UTC)
_PRESS_MS = 40.0  # assumed time from a press to its release, and from a release to the next press
_BUTTONS = {"right": "Right", "middle": "Middle"}
_TEXTS = frozenset({"TYPE", "TYPING", "TEXT"})
_ENDS = frozenset({"TERMINATE_SUCCESS", "TERMINATE", "AFTER_LAST_ACTION"})
_LOST = (
    "the date, which is not recorded: 2000-01-01 stands for it",
    "how long keys and buttons were held, which is not recorded: 40 ms stand for it",
    "groundcua_id, a reference to elements of another data set",
    "sound of the video",
)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the folder as a recording if it contains the log."""
    if _LOG not in names:
        return []
    video = folder / _VIDEO
    videos = (video,) if video.is_file() else ()
    name = folder.resolve().name
    return [SourceFiles(folder=folder, name=name, logs=(folder / _LOG,), videos=videos)]


def _read(source: SourceFiles) -> SourceRecording:
    log = source.logs[0]
    document = json_object(log)
    video = source.only_video(f"put it at {_VIDEO} next to it")
    actions = document.get("action_log")
    if not isinstance(actions, list) or not actions:
        raise UnreadableSourceError(f"{log}: action_log: expected a list of actions")
    reader = _ActionReader(Counter())
    zero = _UNKNOWN_DATE.timestamp() * 1000
    lines = list(chain.from_iterable(reader.lines(action, zero) for action in actions))
    kinds = {_kind(action) for action in actions}
    return SourceRecording(
        recorded_at=_UNKNOWN_DATE,
        platform="",
        lines=lines,
        video=(VideoPart(video),),
        task=plain_text(document.get("task_instruction")),
        application=plain_text(document.get("platform")),  # "platform" is the application's name
        status="completed" if "TERMINATE_SUCCESS" in kinds else "",
        lost=list(_LOST),
        left_out=reader.left_out,
    )


def _kind(action: Any) -> str:
    return plain_text(as_object(action).get("action_type")).upper()


class _ActionReader:
    """Converts the actions, in order, to log lines with increasing times."""

    def __init__(self, left_out: Counter[str]) -> None:
        self.left_out = left_out
        self._place: dict[str, float] = {}
        self._is_down = False
        self._next = 0.0

    def lines(self, action: Any, zero: float) -> Iterator[SourceLine]:
        """Yields the lines for an action; actions without a line are counted in `left_out`.

        Args:
            action: an action of the source's log.
            zero: start of the video, epoch milliseconds.
        """
        seconds = number(as_object(action).get("timestamp"))
        if seconds is None:
            self.left_out["actions without a time"] += 1
            return
        self._next = max(self._next, zero + seconds * 1000)
        given = as_object(action.get("action_params"))
        kind = _kind(action)
        if kind in {"CLICK", "MOVE_TO", "DRAG_TO", "SCROLL", "MOUSE_DOWN", "MOUSE_UP"}:
            yield from self._pointer(kind, given)
        elif kind in _TEXTS and isinstance(given.get("text"), str):
            for char in given["text"]:
                yield from self._keys([char], typed=True)
        elif kind in {"PRESS", "HOTKEY"} and (names := _names(given)):
            yield from self._keys(names)
        elif kind in {"KEY_DOWN", "KEY_UP"} and (names := _names(given)):
            yield self._line(kind.lower().replace("_", ""), _key(names[0]))
        elif kind not in _ENDS:
            self.left_out["actions of another kind"] += 1

    def _pointer(self, kind: str, given: Mapping[str, Any]) -> Iterator[SourceLine]:
        """Yields the lines for a mouse action.

        If no button is held when a drag begins, the drag also yields a press and a release.
        """
        x = number(given.get("x"))
        y = number(given.get("y"))
        name = plain_text(given.get("text") or given.get("button")).lower()
        button = {"button": _BUTTONS.get(name, "Left")}
        begins_drag = kind == "DRAG_TO" and not self._is_down
        if begins_drag:
            yield self._line("mousedown", self._place | button)
        if x is not None and y is not None:
            self._place = {"x": x, "y": y}
            if kind != "CLICK":
                yield self._line("mousemove", self._place)
        if kind == "CLICK":
            for _ in range(min(max(round(number(given.get("numClicks")) or 1), 1), 3)):
                yield self._line("mousedown", self._place | button)
                yield self._line("mouseup", self._place | button)
        elif kind == "SCROLL":
            delta = number(given.get("scrollY")) or number(given.get("scroll"))
            self.left_out["sideways turns of the wheel"] += bool(number(given.get("scrollX")))
            if delta:
                yield self._line("mousewheel", {"delta": delta})
        elif kind == "MOUSE_DOWN":
            self._is_down = True
            yield self._line("mousedown", self._place | button)
        elif kind == "MOUSE_UP" or begins_drag:
            self._is_down = False
            yield self._line("mouseup", self._place | button)

    def _keys(self, names: Sequence[str], *, typed: bool = False) -> Iterator[SourceLine]:
        """Yields the lines for keys that are pressed in order and released in reverse order."""
        keys = [_key(name, typed=typed) for name in names]
        for key in keys:
            yield self._line("keydown", key)
        for key in reversed(keys):
            yield self._line("keyup", {"key": key["key"]})

    def _line(self, event: str, data: dict[str, Any]) -> SourceLine:
        """Returns a log line, at least `_PRESS_MS` later than the line before it."""
        time = self._next
        self._next += _PRESS_MS
        return SourceLine(event, data, time)


def _names(given: Mapping[str, Any]) -> list[str]:
    """Returns the key names of an action from a list, or from a text with `+` between names."""
    keys = given.get("keys")
    if isinstance(keys, list):
        return [key for key in keys if isinstance(key, str) and key]
    text = plain_text(given.get("key")) or plain_text(given.get("text"))
    if text == "+":  # the plus key
        return [text]
    return [name.strip() for name in text.split("+") if name.strip()]


def _key(name: str, *, typed: bool = False) -> dict[str, Any]:
    """Returns the data of a log line for a key.

    Args:
        typed: whether `name` is a character of a text instead of the key's name.
    """
    if name in {"\n", "\r"}:
        return {"key": "Return"}
    return pynput_key(name if typed else pynput_name(name), "", typed=typed)


VIDEO_CUA = Importer(
    tool="VideoCUA (CUA-Suite)",
    files="action_log.json with video/video.mp4",
    find=_find,
    read=_read,
)
