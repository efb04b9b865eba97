"""Imports recordings of ShowUI-Aloha: a text log `input_log_DATE_TIME.txt` and a video.

Times in the log count from the start of the recording. Positions are logical pixels of the desktop.
The log contains movements of the pointer only while a button is pressed. It contains names of keys
instead of typed characters, so the state of Caps Lock is unknown.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    wheel,
)
from demo_pipeline.importers.source_values import (
    UnreadableSourceError,
    as_object,
    json_lines,
    json_members,
    number,
    plain_text,
    screen_size,
    zoneless_time,
)
from demo_pipeline.importers.video_remux import video_shape

_LOG = re.compile(r"input_log_\d{8}_(\d{6})\.txt")
_VIDEOS = (".mp4", ".mkv", ".webm", ".mov")
_METADATA = "# Metadata:"
_MOST_HEADER_LINES = 20  # the line with the metadata must be one of the first 20 lines
_TIME = re.compile(r"(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_PLACED = re.compile(r"(\w+) at \((-?\d+), *(-?\d+)\)")
_KEY = re.compile(r"(Key Press|Key Release|Hotkey): (\S.*)")
_TURNS = {"ScrollUp": 1, "ScrollDown": -1}
_BUTTONS = {"L": "Left", "R": "Right", "M": "Middle"}
_PROGRAM_OF_WINDOWS = ".exe - "  # titles of windows contain this text only in logs from Windows
_LOST = (
    "the time zone of the start, which is taken as UTC",
    "titles of windows",
    "movements of the pointer without a button: the recorder does not log them",
    "sound of the video",
)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the recordings in a folder, each with its videos.

    A video belongs to the log whose time of day is in the video's name. If a folder has only one
    log, and no video's name contains the log's time, all videos of the folder belong to this log.
    """
    logs = [match for name in sorted(names) if (match := _LOG.fullmatch(name))]
    names_of_videos = [name for name in sorted(names) if name.lower().endswith(_VIDEOS)]
    recordings = []
    for match in logs:
        own = [name for name in names_of_videos if match[1] in re.sub(r"\D", "", name)]
        if not own and len(logs) == 1:
            own = names_of_videos
        log = folder / match[0]
        videos = tuple(folder / name for name in own)
        name = folder.resolve().name if len(logs) == 1 else log.stem
        recordings.append(SourceFiles(folder=folder, name=name, logs=(log,), videos=videos))
    return recordings


def _read(source: SourceFiles) -> SourceRecording:
    log = source.logs[0]
    video = source.only_video("put one video next to it")
    metadata = _metadata(log)
    began = zoneless_time(metadata.get("video_start_time"), "%Y-%m-%d %H:%M:%S.%f")
    if began is None:
        message = "video_start_time: expected a time such as 2025-09-12 08:54:17.407"
        raise UnreadableSourceError(f"{log}: {message}")
    damaged = list[str]()
    left_out = Counter[str]()
    events = list(json_lines(log, damaged, comment=b"#"))
    platform = ""
    if any(_PROGRAM_OF_WINDOWS in plain_text(event.get("message")) for event in events):
        platform = "windows"
    displays = list(_displays(metadata.get("screen_info")))
    display = _recorded_display(displays, video_shape(video)[:2], _presses(events))
    if display is None and displays:
        damaged.append(
            f"{log.name}: presses lie on several displays, and the log does not say which display "
            "the video shows: all positions are left out"
        )
    reader = _EventReader(platform, display, left_out)
    zero = began.timestamp() * 1000
    lines = list(chain.from_iterable(reader.lines(event, zero) for event in events))
    return SourceRecording(
        recorded_at=began,
        platform=platform,
        lines=lines,
        video=(VideoPart(video),),
        screen=screen_size(*display[2:]) if display is not None else None,
        lost=list(_LOST),
        left_out=left_out,
        damaged=damaged,
    )


_Display = tuple[float, float, float, float]  # left, top, width and height in logical pixels


def _metadata(log: Path) -> dict[str, Any]:
    """Returns the JSON object in the line `# Metadata: …`; empty if the JSON is damaged.

    Raises:
        UnreadableSourceError: none of the first lines of the log begins with `# Metadata:`.
    """
    with log.open("rb") as stream:
        for _, line in zip(range(_MOST_HEADER_LINES), stream, strict=False):
            if line.startswith(_METADATA.encode()):
                return json_members(line.removeprefix(_METADATA.encode())) or {}
    raise UnreadableSourceError(f"{log}: the line '{_METADATA}' is missing")


def _displays(value: Any) -> Iterator[_Display]:
    """Yields the displays in the metadata, in the order of their keys."""
    for _, display in sorted(as_object(value).items()):
        if not isinstance(display, dict):
            continue
        scale = number(display.get("scale_factor")) or 1.0
        names = ("x0", "y0", "width", "height")
        left, top, width, height = (number(display.get(name)) or 0.0 for name in names)
        if width > 0 and height > 0 and scale > 0:
            yield left, top, width / scale, height / scale


def _recorded_display(
    displays: Sequence[_Display], video: tuple[int, int], presses: Iterable[tuple[float, float]]
) -> _Display | None:
    """Returns the display that the video shows; None if unknown.

    The video shows the first display. If there are several displays, the result is None unless all
    presses are on the first one.

    Args:
        displays: the displays in the metadata. If there are none, a display with the size of the
            video is assumed.
        video: width and height of the video, pixels.
        presses: positions of all clicks, drags and scrolls.
    """
    if not displays:
        return 0.0, 0.0, float(video[0]), float(video[1])
    if len(displays) == 1:
        return displays[0]
    left, top, width, height = displays[0]
    for x, y in presses:
        if not (left <= x < left + width and top <= y < top + height):
            return None
    return displays[0]


def _presses(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[float, float]]:
    """Yields the positions of all events with a position: clicks, drags and scrolls."""
    for event in events:
        if match := _PLACED.fullmatch(plain_text(event.get("message"))):
            yield float(match[2]), float(match[3])


class _EventReader:
    """Converts the events, in order, to lines of input_log.jsonl.

    A press that the log contains twice, as a click and as the start of a drag, is read once.
    """

    def __init__(self, platform: str, display: _Display | None, left_out: Counter[str]) -> None:
        self._platform = platform
        self._display = display
        self._left_out = left_out
        self._down: set[str] = set()
        self._held: set[str] = set()

    def lines(self, event: Mapping[str, Any], zero: float) -> Iterator[SourceLine]:
        """Yields the lines of input_log.jsonl for an event; counts ignored events in `left_out`.

        Args:
            event: a line of the source's log.
            zero: start of the recording, epoch milliseconds.
        """
        message = plain_text(event.get("message"))
        match = _TIME.fullmatch(plain_text(event.get("timestamp")))
        if match is None:
            self._left_out["events without a time"] += 1
            return
        hours, minutes, seconds = (int(part) for part in match.groups()[:3])
        fraction = float(f"0.{match[4] or 0}")
        time = zero + ((hours * 60 + minutes) * 60 + seconds + fraction) * 1000
        if placed := _PLACED.fullmatch(message):
            place = self._place(float(placed[2]), float(placed[3]))
            yield from self._pointer(placed[1], place, time)
        elif key := _KEY.fullmatch(message):
            yield from self._key(key[1], key[2].strip(), time)
        elif "Active Window" in message:
            self._left_out["changes of the front window"] += 1
        elif not message.startswith("{"):  # "{" begins the list of displays
            self._left_out["events of another kind"] += 1

    def _place(self, x: float, y: float) -> dict[str, float]:
        """Returns a desktop position relative to the display; empty if the display is unknown."""
        if self._display is None:
            return {}
        return {"x": x - self._display[0], "y": y - self._display[1]}

    def _pointer(self, kind: str, place: dict[str, float], time: float) -> Iterator[SourceLine]:
        if kind in _TURNS:
            if place:
                yield SourceLine("mousemove", place, time)
            yield SourceLine("mousewheel", wheel(_TURNS[kind], self._platform), time)
            return
        button = _BUTTONS.get(kind[0], "Left")
        if kind.endswith(("Click", "DragStart")):
            if button not in self._down:
                self._down.add(button)
                yield SourceLine("mousedown", place | {"button": button}, time)
        elif kind.endswith(("Release", "DragEnd")):
            if button in self._down:
                self._down.remove(button)
                yield SourceLine("mouseup", place | {"button": button}, time)
        elif kind.endswith("Move"):
            if place:
                yield SourceLine("mousemove", place, time)
        else:
            self._left_out["events of another kind"] += 1

    def _key(self, kind: str, text: str, time: float) -> Iterator[SourceLine]:
        """Yields the lines for a key event.

        A hotkey is logged as one event: its first keys are held, and its last key is pressed.
        """
        if kind == "Key Release":
            self._held.discard(text)
            yield SourceLine("keyup", self._data(text), time)
            return
        names = text.split("+")
        if text.endswith("++"):  # for example `Hotkey: CTRL++`, where the last key is the plus key
            names = [*names[:-2], "+"]
        for name in filter(None, names[:-1]):
            if name not in self._held:
                self._held.add(name)
                yield SourceLine("keydown", self._data(name), time)
        if kind == "Hotkey" and len(names) == 1:
            self._held.add(text)
        yield SourceLine("keydown", self._data(names[-1] or "+"), time)

    def _data(self, name: str) -> dict[str, Any]:
        return pynput_key(pynput_name(name), self._platform, typed=False)


SHOWUI_ALOHA = Importer(
    tool="ShowUI-Aloha",
    files="input_log_DATE_TIME.txt with one video",
    find=_find,
    read=_read,
)
