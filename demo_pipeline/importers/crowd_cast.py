"""crowd-cast of p(doom): sessions of five-minute segments, `input_*.msgpack` and a video for each.

The log is positional MessagePack, and the segments of a session are joined. The recorder logs no
place of the pointer on any system: presses come without x and y, and moves are the mouse's own
steps. So keys, wheel and frames are carried over; clicks have an unknown place and are hidden.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from demo_pipeline.importers.source_recording import (
    Importer,
    SourceFiles,
    SourceLine,
    SourceRecording,
    UnreadableSourceError,
    VideoPart,
    as_list,
    number,
    plain_text,
    wheel,
)
from demo_pipeline.importers.video_remux import video_shape

_LOG = re.compile(r"input_(?P<session>.+)_seg(?P<number>\d{4,})(?:_partial_\d+)?\.msgpack")
_VIDEOS = (".mp4", ".mkv")
_VIDEO_FOLDERS = (".", "../recordings")  # of the recorder itself, and of its bucket
# Places in the array of a segment's metadata.
_PLATFORM_PLACE = 12
_TIME_PLACE = 9
_EVENTS = {
    "KeyPress": "keydown",
    "KeyRelease": "keyup",
    "MousePress": "mousedown",
    "MouseRelease": "mouseup",
}
_BUTTONS = ("Left", "Right", "Middle")
_Event = tuple[float, str, list[Any]]
_BETWEEN_S = 0.05  # between the videos of two segments at least: starts are known to the second


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """The sessions in a folder, parted where the video changes its size or is missing."""
    logs = [(match, folder / match[0]) for name in sorted(names) if (match := _LOG.fullmatch(name))]
    groups: list[tuple[Any, str, list[Path], dict[Path, None]]] = []
    for match, log in logs:
        video = _video_of(folder, f"{match['session']}_seg{match['number']}")
        kind = (match["session"], None if video is None else _size(video))
        if not groups or groups[-1][0] != kind:
            first = not groups or groups[-1][0][0] != kind[0]
            name = kind[0] if first else f"{kind[0]}_from_{match['number']}"
            groups.append((kind, name, [], {}))
        groups[-1][2].append(log)
        groups[-1][3].update({} if video is None else {video: None})
    return [
        SourceFiles(folder=folder, name=name, logs=tuple(logs), videos=tuple(videos))
        for _, name, logs, videos in groups
    ]


def _video_of(folder: Path, segment: str) -> Path | None:
    """The video of a segment; None: it has no video."""
    for start, end, place in product(("recording_", ""), _VIDEOS, _VIDEO_FOLDERS):
        path = folder / place / f"{start}{segment}{end}"
        if path.is_file():
            return path
    return None


def _size(video: Path) -> tuple[int, int] | None:
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
    platform = _metadata(first, _PLATFORM_PLACE)
    ends = 0.0
    for video, events in segments.items():
        begins = max((_began(events, source) - zero).total_seconds(), ends)
        ends = begins + video_shape(video)[2] + _BETWEEN_S
        parts.append(VideoPart(video, begins))
        base = zero.timestamp() * 1000 + begins * 1000
        for time_us, kind, data in events:
            lines += _lines(kind, data, base + time_us / 1000, platform, left_out)
    lost = ["the place of every press and turn of the wheel: the recorder does not log it"]
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
    """Microseconds since the segment began, kind and fields of each event."""
    try:
        events = msgspec.msgpack.decode(log.read_bytes(), type=list[tuple[float, tuple[str, Any]]])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise UnreadableSourceError(f"{log}: is cut off, or is not a log of crowd-cast") from None
    return [
        (time, kind, as_list(data)) for time, (kind, data) in events if number(time) is not None
    ]


def _metadata(events: Sequence[_Event], place: int) -> str:
    """A text of a segment's metadata; empty if it has none there."""
    data = next((data for _, kind, data in events if kind == "Metadata"), [])
    return plain_text(next(iter(data[place:]), ""))


def _began(events: Sequence[_Event], source: SourceFiles) -> datetime:
    """When a segment began, to the second."""
    with suppress(ValueError):
        began = datetime.fromisoformat(_metadata(events, _TIME_PLACE))
        if began.tzinfo is not None:
            return began
    raise UnreadableSourceError(f"{source.place}: a segment does not say when it began")


def _lines(
    kind: str, data: list[Any], time: float, platform: str, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yield the lines for an event, and count what has none."""
    match kind, data:
        case "KeyPress" | "KeyRelease", [_, str(name), *_]:
            yield SourceLine(_EVENTS[kind], {"key": name}, time)
        case "MousePress" | "MouseRelease", [button, *_]:
            name = "Other"
            if button in _BUTTONS:
                name = button
            yield SourceLine(_EVENTS[kind], {"button": name}, time)
        case "MouseScroll", [across, int() | float() as turned, *_]:
            left_out["sideways turns of the wheel"] += bool(across)
            if turned:  # on macOS pixels, elsewhere notches
                turn = {"delta": turned} if platform == "macos" else wheel(turned, platform)
                yield SourceLine("mousewheel", turn, time)
        case "MouseMove", _:
            left_out["moves of the mouse by its own steps"] += 1
        case "ContextChanged", _:
            left_out["changes of the front program"] += 1
        case "Redacted", [reason, *_]:
            left_out["spans of input that were withheld (marked in the log)"] += 1
            yield SourceLine("redacted", {"reason": reason}, time)
        case "Metadata", [width, height, _, _, _, _, across, down, *_]:
            screen = {"width": width, "height": height}
            filmed = {"source_width": across, "source_height": down}
            yield SourceLine("display", screen | filmed, time)
        case _:
            left_out["events of an unknown kind"] += 1


CROWD_CAST = Importer(
    tool="crowd-cast",
    files="input_SESSION_segNNNN.msgpack with recording_SESSION_segNNNN.mp4",
    find=_find,
    read=_read,
)
