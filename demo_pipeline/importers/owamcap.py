"""OWAMcap: the files that `ocap` of open-world-agents writes, an `.mcap` log and a Matroska video.

Belongs here: its topics (screen, mouse, mouse/raw, keyboard, window), of all versions since 0.3,
and from which part of the screen the video is. `ocap` runs on Windows only: positions are pixels of
the whole desktop, keys are virtual-key codes, and a notch of the wheel is one.

A picture's time in the video is that of the picture before it, up to seconds too early when nothing
moved; its message says when it was taken. So the video gets the times of the messages.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_pipeline.importers.source_keys import virtual_key
from demo_pipeline.importers.source_recording import (
    PYNPUT_KEY_EVENTS,
    Importer,
    SourceFiles,
    SourceLine,
    SourceRecording,
    UnreadableSourceError,
    VideoPart,
    as_list,
    json_members,
    moment,
    number,
    numbers,
    plain_text,
    pointer_lines,
)
from demo_pipeline.importers.video_remux import video_shape

_MAGIC = b"\x89MCAP0\r\n"
_LOST = (
    "sound and subtitles of the video",
    "titles of windows, and the states of mouse and keyboard once a second",
    "the topic mouse/raw: the same movements and presses, without a place",
)
_VIDEOS = (".mkv", ".mp4")
# The invisible border of a window, pixels a side: 6 and 8 in recordings, 8 at 100 % of scaling.
_MOST_BORDER = 20


class _Message(NamedTuple):
    """Of the log: its topic, epoch milliseconds, and its JSON."""

    topic: str
    time: float
    data: dict[str, Any]


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """A recording for each `.mcap`, with the video of the same name next to it."""
    logs = (folder / name for name in sorted(names) if name.lower().endswith(".mcap"))
    return [_found(log, names) for log in logs]


def _found(log: Path, names: Sequence[str]) -> SourceFiles:
    videos = [video for end in _VIDEOS if (video := log.with_suffix(end)).name in names]
    return SourceFiles(folder=log.parent, name=log.stem, logs=(log,), videos=tuple(videos[:1]))


def _read(source: SourceFiles) -> SourceRecording:
    log = source.logs[0]
    damaged = list[str]()
    left_out = Counter[str]()
    messages = list(_messages(log, damaged, ("screen", "window")))
    frames = [message for message in messages if message.topic == "screen"]
    if not frames:
        reason = next(iter(damaged), "holds no picture of ocap")
        raise UnreadableSourceError(f"{log}: {reason}")
    video = _video_of(source, frames)
    size = video_shape(video)[:2]
    taken = _taken(frames)
    zero = min(taken.values(), default=frames[0].time)
    inputs = ("mouse", "keyboard")
    place = _CapturedPlace(messages, frames, size, _presses(_messages(log, [], inputs)))
    if not place.is_known:
        damaged.append(
            f"{log.name}: presses lie outside of a video of the first display, and the log does "
            "not say which display was filmed: their positions are left out"
        )
    return SourceRecording(
        recorded_at=moment(zero, log),
        platform="windows",
        lines=_lines(_messages(log, [], inputs), place, left_out),
        video=(VideoPart(video, times_s={s: (at - zero) / 1000 for s, at in taken.items()}),),
        video_zero_ms=zero,
        screen=size,
        lost=[*_LOST, *place.lost],
        left_out=left_out,
        damaged=damaged,
    )


def _messages(log: Path, damaged: list[str], topics: Sequence[str]) -> Iterator[_Message]:
    """Yield what can be read of the topics, in the order of the file."""
    try:
        from mcap.reader import NonSeekingReader  # noqa: PLC0415 - only of the extra `owamcap`
    except ImportError:
        raise UnreadableSourceError(f"{log}: needs the package mcap: pip install mcap") from None
    count = 0
    unreadable = 0
    with log.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise UnreadableSourceError(f"{log}: is not an MCAP file, or its first bytes are lost")
        stream.seek(0)
        try:
            read = NonSeekingReader(stream).iter_messages(topics=topics, log_time_order=False)
            for _, channel, message in read:
                count += 1
                data = json_members(message.data)
                unreadable += data is None
                if data is not None:
                    time = number(data.get("timestamp")) or message.publish_time
                    yield _Message(channel.topic, time / 1e6, data)
        except Exception:  # noqa: BLE001 - of the packers: struct, lz4, zstandard
            damaged.append(f"{log.name}: is cut off or damaged after {count} pictures and windows")
    if unreadable:
        damaged.append(f"{log.name}: {unreadable} messages are not readable JSON")


def _media(frame: _Message) -> tuple[str, float | None]:
    """Where a frame is: name of the video and seconds in it; versions differ in the keys."""
    reference = frame.data.get("media_ref")
    media = reference if isinstance(reference, dict) else frame.data
    place = number(media.get("pts_ns", media.get("pts")))
    name = plain_text(media.get("uri", media.get("path")))
    return name, None if place is None else place / 1e9


def _video_of(source: SourceFiles, frames: Sequence[_Message]) -> Path:
    """The video that the frames name, if it is next to the log; else the one of the log's name."""
    names = {_media(frame)[0] for frame in frames}
    if any(name.startswith("data:") for name in names):
        raise UnreadableSourceError(f"{source.place}: its pictures are in the log, not in a video")
    base = source.folder.resolve()
    for name in sorted(names - {""}):
        video = (base / name.removeprefix("file://")).resolve()
        if video.is_relative_to(base) and video.is_file():
            return video
    if source.videos:
        return source.videos[0]
    wanted = ", ".join(sorted(Path(name).name for name in names - {""})) or "the .mkv of its name"
    raise UnreadableSourceError(f"{source.place}: its video is missing: put {wanted} next to it")


def _taken(frames: Sequence[_Message]) -> dict[float, float]:
    """Seconds in the video → epoch milliseconds of when that picture was taken, ascending."""
    taken: dict[float, float] = {}
    latest = 0.0
    for frame in frames:
        utc_ns = number(frame.data.get("utc_ns"))
        place = _media(frame)[1]
        time = frame.time if utc_ns is None else utc_ns / 1e6
        if place is not None and place not in taken and time > latest:
            taken[place] = latest = time
    return taken


class _CapturedPlace:
    """The part of the desktop that the video shows, at each time.

    The video is of a window if windows are reported that are larger than it by their invisible
    border; else of a display: of the one whose corner is the desktop's origin, if all `presses`
    lie on it. Otherwise it may be of any, and no place is known.
    """

    def __init__(
        self,
        messages: Sequence[_Message],
        frames: Sequence[_Message],
        video: tuple[int, int],
        presses: Iterable[tuple[float, float]],
    ) -> None:
        self._shape = next(filter(None, map(_source_shape, frames)), video)
        ratios = (video[0] / self._shape[0], video[1] / self._shape[1])
        as_it_was = all(abs(video[axis] - self._shape[axis]) <= 1 for axis in (0, 1))
        self._scale = (1.0, 1.0) if as_it_was else ratios  # encoders need even numbers of pixels
        windows = [message for message in messages if message.topic == "window"]
        corners = ((m.time, self._corner(m.data.get("rect"))) for m in windows)
        self._corners = [(time, corner) for time, corner in corners if corner is not None]
        width, height = self._shape
        on_it = all(0 <= x < width and 0 <= y < height for x, y in presses)
        self.is_known = bool(self._corners) or on_it

    def _corner(self, rect: Any) -> tuple[float, float] | None:
        """The corner of the video for a window of this rectangle; None if it is not the window."""
        sides = numbers(as_list(rect))
        if len(sides) != 4:
            return None
        left, top, right, bottom = sides
        across = right - left - self._shape[0]
        down = bottom - top - self._shape[1]
        border = across / 2
        if not (0 <= border <= _MOST_BORDER and 0 <= down - border <= border):
            return None
        return left + border, top + down - border

    @property
    def lost(self) -> list[str]:
        """The parts of the desktop that the video does not show, as sentences."""
        if self._corners:
            return ["what lies outside of the captured window"]
        return ["which display was captured: it is taken for the one at the desktop's origin"]

    def of(self, x: float, y: float, time: float) -> dict[str, float | None]:
        """A place of the desktop as pixels of the video, which may be outside it."""
        if not self.is_known:
            return {"x": None, "y": None}
        left, top = next((c for at, c in reversed(self._corners) if at <= time), (None, None))
        if left is None or top is None:
            left, top = self._corners[0][1] if self._corners else (0.0, 0.0)
        return {"x": (x - left) * self._scale[0], "y": (y - top) * self._scale[1]}


def _presses(inputs: Iterable[_Message]) -> Iterator[tuple[float, float]]:
    """Yield where buttons and the wheel were used; moves may go beyond every display's edge."""
    for _, _, data in inputs:
        place = numbers(data.get(axis) for axis in "xy")
        if data.get("event_type") in {"click", "scroll"} and place:
            yield place[0], place[1]


def _source_shape(frame: _Message) -> tuple[float, float] | None:
    shape = frame.data.get("source_shape", frame.data.get("original_shape"))
    sides = numbers(as_list(shape))
    if len(sides) != 2 or min(sides) <= 0:
        return None
    return sides[0], sides[1]


def _lines(
    messages: Iterable[_Message], place: _CapturedPlace, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yield the lines for messages of mouse and keyboard; none for what has no meaning."""
    for topic, time, data in messages:
        kind = plain_text(data.get("event_type"))
        code = number(data.get("vk"))
        if topic == "mouse":
            position = numbers(data.get(axis) for axis in "xy")
            at = place.of(position[0], position[1], time) if position else {}
            yield from pointer_lines(kind, data | at, time, "windows", left_out)
        elif kind in PYNPUT_KEY_EVENTS and code is not None:
            yield SourceLine(PYNPUT_KEY_EVENTS[kind], {"key": virtual_key(int(code))}, time)


OWAMCAP = Importer(
    tool="OWAMcap (ocap of open-world-agents)",
    files="NAME.mcap with its NAME.mkv",
    find=_find,
    read=_read,
)
