"""VideoCUA of CUA-Suite: a folder with `action_log.json` and `video/video.mp4`.

The log has whole actions, at seconds of the video: a click or a text becomes presses and releases
that follow each other in short steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from demo_pipeline.importers.source_keys import pynput_key
from demo_pipeline.importers.source_recording import (
    Importer,
    SourceFiles,
    SourceLine,
    SourceRecording,
    UnreadableSourceError,
    VideoPart,
    as_object,
    json_object,
    number,
    plain_text,
)

_LOG = "action_log.json"
_VIDEO = Path("video") / "video.mp4"
_UNKNOWN_DATE = datetime(2000, 1, 1, tzinfo=UTC)
_PRESS_MS = 40.0  # from a press to its release, and from there to the next press
_BUTTONS = {"right": "Right", "middle": "Middle"}
_TEXTS = frozenset({"TYPE", "TYPING", "TEXT"})
_ENDS = frozenset({"TERMINATE_SUCCESS", "TERMINATE", "AFTER_LAST_ACTION"})
_LOST = (
    "the date: 2000-01-01 stands for it, and times are seconds of the video",
    "how long keys and buttons were held: the log has whole actions, and 40 ms stand for it",
    "groundcua_id, the elements of another data set",
    "sound of the video",
)
_KEY_NAMES = {
    "return": "enter",
    "escape": "esc",
    "control": "ctrl",
    "win": "cmd",
    "winleft": "cmd",
    "super": "cmd",
    "meta": "cmd",
    "command": "cmd",
    "pageup": "page_up",
    "pagedown": "page_down",
    "capslock": "caps_lock",
}


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """The folder, if it holds the log."""
    if _LOG not in names:
        return []
    video = folder / _VIDEO
    videos = (video,) if video.is_file() else ()
    name = folder.resolve().name
    return [SourceFiles(folder=folder, name=name, logs=(folder / _LOG,), videos=videos)]


def _read(source: SourceFiles) -> SourceRecording:
    log = source.logs[0]
    document = json_object(log)
    if not source.videos:
        raise UnreadableSourceError(f"{log}: its video is missing: put it at {_VIDEO} next to it")
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
        video=(VideoPart(source.videos[0]),),
        task=plain_text(document.get("task_instruction")),
        application=plain_text(document.get("platform")),  # it holds the application's name
        status="completed" if "TERMINATE_SUCCESS" in kinds else "",
        lost=list(_LOST),
        left_out=reader.left_out,
    )


def _kind(action: Any) -> str:
    return plain_text(as_object(action).get("action_type")).upper()


class _ActionReader:
    """Reads the actions in order; no line is earlier than the one before it."""

    def __init__(self, left_out: Counter[str]) -> None:
        self.left_out = left_out
        self._place: dict[str, float] = {}
        self._is_down = False
        self._next = 0.0

    def lines(self, action: Any, zero: float) -> Iterator[SourceLine]:
        """Yield the lines for an action; what has none is counted."""
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
            turned = number(given.get("scrollY")) or number(given.get("scroll"))
            self.left_out["sideways turns of the wheel"] += bool(number(given.get("scrollX")))
            if turned:
                yield self._line("mousewheel", {"delta": turned})
        elif kind == "MOUSE_DOWN":
            self._is_down = True
            yield self._line("mousedown", self._place | button)
        elif kind == "MOUSE_UP" or begins_drag:
            self._is_down = False
            yield self._line("mouseup", self._place | button)

    def _keys(self, names: Sequence[str], *, typed: bool = False) -> Iterator[SourceLine]:
        """Keys that are pressed one after the other and released in the other order."""
        keys = [_key(name, typed=typed) for name in names]
        for key in keys:
            yield self._line("keydown", key)
        for key in reversed(keys):
            yield self._line("keyup", {"key": key["key"]})

    def _line(self, event: str, data: dict[str, Any]) -> SourceLine:
        time = self._next
        self._next += _PRESS_MS
        return SourceLine(event, data, time)


def _names(given: Mapping[str, Any]) -> list[str]:
    """The keys of an action: a list, or names joined by `+`."""
    keys = given.get("keys")
    if isinstance(keys, list):
        return [key for key in keys if isinstance(key, str) and key]
    text = plain_text(given.get("key")) or plain_text(given.get("text"))
    return [text] if text == "+" else [name.strip() for name in text.split("+") if name.strip()]


def _key(name: str, *, typed: bool = False) -> dict[str, Any]:
    """The data of a key; of a text it has its character."""
    if name in {"\n", "\r"}:
        return {"key": "Return"}
    lower = name.lower()
    return pynput_key(name if typed else _KEY_NAMES.get(lower, lower), "", typed=typed)


VIDEO_CUA = Importer(
    tool="VideoCUA (CUA-Suite)",
    files="action_log.json with video/video.mp4",
    find=_find,
    read=_read,
)
