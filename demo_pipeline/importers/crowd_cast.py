"""Imports recordings of crowd-cast (p(doom)): `input_*.msgpack` files with a video for each.

A session consists of segments of five minutes, which the importer joins. The log is MessagePack; an
event is an array whose fields are identified by their index. The recorder never logs positions of
the pointer: presses have no x and y, and movements are relative. Therefore clicks become hidden
actions, and only keys, wheel and video are imported unchanged.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import (
    Importer,
    SourceLine,
    SourceRecording,
    VideoPart,
    wheel,
)
from demo_pipeline.importers.source_values import UnreadableSourceError, as_list, number, plain_text
from demo_pipeline.importers.video_remux import video_shape

_LOG = re.compile(r"input_(?P<session>.+)_seg(?P<number>\d{4,})(?:_partial_\d+)?\.msgpack")
_VIDEOS = (".mp4", ".mkv")
# Folders of the videos relative to the log: on the recorder's disk, and in its upload bucket.
_VIDEO_FOLDERS = (".", "../recordings")
# Indexes in the array of a segment's metadata.
_PLATFORM_INDEX = 12
_TIME_INDEX = 9
_EVENTS = {
    "KeyPress": "keydown",
    "KeyRelease": "keyup",
    "MousePress": "mousedown",
    "MouseRelease": "mouseup",
}
_BUTTONS = ("Left", "Right", "Middle")
_Event = tuple[float, str, list[Any]]  # microseconds since the start of the segment, kind, fields
# Minimum pause between the videos of two segments, seconds. A segment whose logged start leaves a
# shorter pause is moved to a later time, because logged starts are exact only to the second.
_BETWEEN_S = 0.05


@dataclass
class _Segments:
    """Consecutive segments of a session with equal video size, or without a readable video."""

    session: str
    size: tuple[int, int] | None
    name: str
    logs: list[Path] = field(default_factory=list)
    videos: list[Path] = field(default_factory=list)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the recordings in a folder: one per session, or several if the video size changes.

    Consecutive segments without a readable video form a separate recording.
    """
    groups = list[_Segments]()
    for name in sorted(names):
        match = _LOG.fullmatch(name)
        if match is None:
            continue
        session = match["session"]
        video = _video_of(folder, f"{session}_seg{match['number']}")
        size = None if video is None else _size(video)
        if not groups or groups[-1].session != session:
            groups.append(_Segments(session, size, session))
        elif groups[-1].size != size:
            groups.append(_Segments(session, size, f"{session}_from_{match['number']}"))
        groups[-1].logs.append(folder / name)
        if video is not None and video not in groups[-1].videos:
            groups[-1].videos.append(video)
    return [
        SourceFiles(
            folder=folder, name=group.name, logs=tuple(group.logs), videos=tuple(group.videos)
        )
        for group in groups
    ]


def _video_of(folder: Path, segment: str) -> Path | None:
    """Returns the video of a segment; None if the segment has no video."""
    for start, end, place in product(("recording_", ""), _VIDEOS, _VIDEO_FOLDERS):
        path = folder / place / f"{start}{segment}{end}"
        if path.is_file():
            return path
    return None


def _size(video: Path) -> tuple[int, int] | None:
    """Returns width and height of a video; None if the video cannot be read."""
    try:
        return video_shape(video)[:2]
    except UnreadableSourceError:
        return None


def _read(source: SourceFiles) -> SourceRecording:
    if not source.videos:
        message = "its video is missing: put it next to the log"
        raise UnreadableSourceError(f"{source.logs[0]}: {message}")
    segments: dict[Path, list[_Event]] = {}
    for log in source.logs:
        match = _LOG.fullmatch(log.name)
        name = f"{match['session']}_seg{match['number']}" if match else ""
        video = next(video for video in source.videos if video.stem.endswith(name))
        segments.setdefault(video, []).extend(_events(log))
    left_out = Counter[str]()
    lines = list[SourceLine]()
    parts = list[VideoPart]()
    first = next(iter(segments.values()))
    zero = _began(first, source)
    platform = _metadata(first, _PLATFORM_INDEX)
    ends = 0.0
    for video, events in segments.items():
        begins = max((_began(events, source) - zero).total_seconds(), ends)
        ends = begins + video_shape(video)[2] + _BETWEEN_S
        parts.append(VideoPart(video, begins))
        base = zero.timestamp() * 1000 + begins * 1000
        for time_us, kind, data in events:
            lines += _lines(kind, data, base + time_us / 1000, platform, left_out)
    lost = ["the positions of clicks and scrolls: the recorder does not log them"]
    return SourceRecording(
        recorded_at=zero,
        platform=platform,
        lines=lines,
        video=parts,
        video_zero_ms=zero.timestamp() * 1000,
        lost=lost,
        left_out=left_out,
    )


def _events(log: Path) -> list[_Event]:
    """Returns the events in the log of a segment."""
    try:
        events = msgspec.msgpack.decode(log.read_bytes(), type=list[tuple[float, tuple[str, Any]]])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UnreadableSourceError(f"{log}: is cut off, or is not a log of crowd-cast") from None
    return [
        (time, kind, as_list(data)) for time, (kind, data) in events if number(time) is not None
    ]


def _metadata(events: Sequence[_Event], index: int) -> str:
    """Returns the text at an index of a segment's metadata; empty if there is no text."""
    data = next((data for _, kind, data in events if kind == "Metadata"), [])
    return plain_text(next(iter(data[index:]), ""))


def _began(events: Sequence[_Event], source: SourceFiles) -> datetime:
    """Returns the start of a segment, with time zone, exact to the second."""
    with suppress(ValueError):
        began = datetime.fromisoformat(_metadata(events, _TIME_INDEX))
        if began.tzinfo is not None:
            return began
    raise UnreadableSourceError(f"{source.place}: the start time of a segment is missing")


def _lines(
    kind: str, data: list[Any], time: float, platform: str, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yields the lines of input_log.jsonl for an event; counts ignored events in `left_out`."""
    match kind, data:
        case "KeyPress" | "KeyRelease", [_, str(name), *_]:
            yield SourceLine(_EVENTS[kind], {"key": name}, time)
        case "MousePress" | "MouseRelease", [button, *_]:
            name = "Other"
            if button in _BUTTONS:
                name = button
            yield SourceLine(_EVENTS[kind], {"button": name}, time)
        case "MouseScroll", [across, int() | float() as up, *_]:
            left_out["sideways turns of the wheel"] += bool(across)
            if up and platform == "macos":  # `up` counts pixels
                yield SourceLine("mousewheel", {"delta": up}, time)
            elif up:  # `up` counts notches
                yield SourceLine("mousewheel", wheel(up, platform), time)
        case "MouseMove", _:
            left_out["relative movements of the mouse"] += 1
        case "ContextChanged", _:
            left_out["changes of the front program"] += 1
        case "Redacted", [reason, *_]:
            left_out["spans of input that the recorder withheld; the log marks them"] += 1
            yield SourceLine("redacted", {"reason": reason}, time)
        case "Metadata", [width, height, _, _, _, _, source_width, source_height, *_]:
            display = {
                "width": width,
                "height": height,
                "source_width": source_width,
                "source_height": source_height,
            }
            yield SourceLine("display", display, time)
        case _:
            left_out["events of an unknown kind"] += 1


CROWD_CAST = Importer(
    tool="crowd-cast",
    files="input_SESSION_segNNNN.msgpack with recording_SESSION_segNNNN.mp4",
    find=_find,
    read=_read,
)
