"""Imports OWAMcap recordings: an `.mcap` log and a Matroska video of `ocap` (open-world-agents).

All versions since 0.3 are supported. `ocap` runs on Windows only. Positions are pixels of the whole
desktop, keys are virtual-key codes, and a notch of the wheel counts 1.

In the video, each frame has the time of the previous frame. This time can be seconds too early.
Therefore frames of the imported video get their capture times from the log.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_keys import virtual_key
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
    as_list,
    json_members,
    moment,
    number,
    numbers,
    plain_text,
)
from demo_pipeline.importers.video_remux import video_shape

_MAGIC = b"\x89MCAP0\r\n"
_LOST = (
    "sound and subtitles of the video",
    "titles of windows, and the states of mouse and keyboard once a second",
    "the topic mouse/raw: the same movements and presses, without positions",
)
_VIDEOS = (".mkv", ".mp4")
# Maximum width of the invisible border at each side of a window, pixels. Borders in recordings are
# 6 or 8 pixels wide; 8 is the width at a display scale of 100 %.
_MOST_BORDER = 20


class _Message(NamedTuple):
    """A message of the log; `time` is in epoch milliseconds."""

    topic: str
    time: float
    data: dict[str, Any]


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns a recording for each `.mcap` file, with the video of the same name."""
    recordings = list[SourceFiles]()
    for name in sorted(names):
        if not name.lower().endswith(".mcap"):
            continue
        log = folder / name
        videos = [log.with_suffix(suffix) for suffix in _VIDEOS]
        existing = [video for video in videos if video.name in names]
        recordings.append(
            SourceFiles(folder=folder, name=log.stem, logs=(log,), videos=tuple(existing[:1]))
        )
    return recordings


def _read(source: SourceFiles) -> SourceRecording:
    log = source.logs[0]
    damaged = list[str]()
    left_out = Counter[str]()
    messages = list(_messages(log, damaged, ("screen", "window")))
    frames = [message for message in messages if message.topic == "screen"]
    if not frames:
        reason = next(iter(damaged), "has no frame of ocap")
        raise UnreadableSourceError(f"{log}: {reason}")
    video = _video_of(source, frames)
    size = video_shape(video)[:2]
    taken = _taken(frames)
    zero = min(taken.values(), default=frames[0].time)
    inputs = ("mouse", "keyboard")
    area = _CapturedArea(messages, frames, size, _presses(_messages(log, [], inputs)))
    if not area.is_known:
        damaged.append(
            f"{log.name}: presses lie outside the first display, and the log does not say which "
            "display the video shows: all positions are left out"
        )
    return SourceRecording(
        recorded_at=moment(zero, log),
        platform="windows",
        lines=_lines(_messages(log, [], inputs), area, left_out),
        video=(VideoPart(video, times_s={s: (at - zero) / 1000 for s, at in taken.items()}),),
        video_zero_ms=zero,
        screen=size,
        lost=[*_LOST, *area.lost],
        left_out=left_out,
        damaged=damaged,
    )


def _messages(log: Path, damaged: list[str], topics: Sequence[str]) -> Iterator[_Message]:
    """Yields the readable messages of the given topics, in the order of the file.

    After the last message, sentences about unreadable parts are added to `damaged`.
    """
    try:
        from mcap.reader import NonSeekingReader  # noqa: PLC0415 - an optional dependency
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
        # For a damaged file, the libraries mcap, struct, lz4 and zstandard raise errors without a
        # common type.
        except Exception:  # noqa: BLE001
            damaged.append(f"{log.name}: is cut off or damaged after {count} messages")
    if unreadable:
        damaged.append(f"{log.name}: {unreadable} messages are not readable JSON")


def _media(frame: _Message) -> tuple[str, float | None]:
    """Returns the name of a frame's video, and the frame's time in the video in seconds.

    The time is None if it was not recorded.
    """
    reference = frame.data.get("media_ref")
    media = reference if isinstance(reference, dict) else frame.data
    time_ns = number(media.get("pts_ns", media.get("pts")))
    name = plain_text(media.get("uri", media.get("path")))
    return name, None if time_ns is None else time_ns / 1e9


def _video_of(source: SourceFiles, frames: Sequence[_Message]) -> Path:
    """Returns the video that the frames refer to, or else the video with the log's name."""
    names = {_media(frame)[0] for frame in frames}
    if any(name.startswith("data:") for name in names):
        raise UnreadableSourceError(f"{source.place}: its frames are in the log, not in a video")
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
    """Maps the times of frames in the video (seconds) to capture times (epoch milliseconds).

    Frames are left out if their time in the video is unknown or already in the mapping, or if they
    were not captured later than the previous frame in the mapping.
    """
    taken: dict[float, float] = {}
    latest = 0.0
    for frame in frames:
        utc_ns = number(frame.data.get("utc_ns"))
        seconds = _media(frame)[1]
        time = frame.time if utc_ns is None else utc_ns / 1e6
        if seconds is not None and seconds not in taken and time > latest:
            taken[seconds] = time
            latest = time
    return taken


class _CapturedArea:
    """The part of the desktop that the video shows. If this part is a window, it may move.

    - If the log reports a window with the size of the video plus an invisible border, the video
      shows this window.
    - Otherwise, if all presses are on the display at the desktop's origin, the video shows this
      display.
    - Otherwise the display is unknown, and positions cannot be converted.

    Attributes:
        is_known: whether positions can be converted to pixels of the video.
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
        # A difference of one pixel is not scaling, because encoders need an even width and height.
        is_unscaled = all(abs(video[axis] - self._shape[axis]) <= 1 for axis in (0, 1))
        self._scale = (1.0, 1.0) if is_unscaled else ratios
        # Pairs of a time and the position of the video's top left corner on the desktop.
        self._corners = list[tuple[float, tuple[float, float]]]()
        for message in messages:
            if message.topic != "window":
                continue
            corner = self._corner(message.data.get("rect"))
            if corner is not None:
                self._corners.append((message.time, corner))
        width, height = self._shape
        on_first_display = all(0 <= x < width and 0 <= y < height for x, y in presses)
        self.is_known = bool(self._corners) or on_first_display

    def _corner(self, rect: Any) -> tuple[float, float] | None:
        """Converts a window's rectangle to the desktop position of the video's top left corner.

        Returns None if the size of the window does not match the video.
        """
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
        """Sentences about facts of the desktop that the recording does not contain."""
        if self._corners:
            return ["the screen outside the captured window"]
        return ["which display was captured: the display at the desktop's origin is assumed"]

    def pixels(self, x: float, y: float, time: float) -> dict[str, float | None]:
        """Converts a position on the desktop to pixels; the result may be outside the video.

        Args:
            x: pixels of the desktop.
            y: pixels of the desktop.
            time: epoch milliseconds.
        """
        if not self.is_known:
            return {"x": None, "y": None}
        left, top = self._corners[0][1] if self._corners else (0.0, 0.0)
        for begin, corner in reversed(self._corners):
            if begin <= time:
                left, top = corner
                break
        return {"x": (x - left) * self._scale[0], "y": (y - top) * self._scale[1]}


def _presses(inputs: Iterable[_Message]) -> Iterator[tuple[float, float]]:
    """Yields the positions of clicks and scrolls.

    Movements are ignored, because their positions may be outside all displays.
    """
    for _, _, data in inputs:
        place = numbers(data.get(axis) for axis in "xy")
        if data.get("event_type") in {"click", "scroll"} and place:
            yield place[0], place[1]


def _source_shape(frame: _Message) -> tuple[float, float] | None:
    """Returns the size of a frame before it was scaled for the video; None if not recorded."""
    shape = frame.data.get("source_shape", frame.data.get("original_shape"))
    sides = numbers(as_list(shape))
    if len(sides) != 2 or min(sides) <= 0:
        return None
    return sides[0], sides[1]


def _lines(
    messages: Iterable[_Message], area: _CapturedArea, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yields lines of input_log.jsonl for mouse and keyboard messages; ignores other messages."""
    for topic, time, data in messages:
        kind = plain_text(data.get("event_type"))
        code = number(data.get("vk"))
        if topic == "mouse":
            position = numbers(data.get(axis) for axis in "xy")
            pixels = area.pixels(position[0], position[1], time) if position else {}
            yield from pointer_lines(kind, data | pixels, time, "windows", left_out)
        elif kind in PYNPUT_KEY_EVENTS and code is not None:
            yield SourceLine(PYNPUT_KEY_EVENTS[kind], {"key": virtual_key(int(code))}, time)


OWAMCAP = Importer(
    tool="OWAMcap (ocap of open-world-agents)",
    files="NAME.mcap with its NAME.mkv",
    find=_find,
    read=_read,
)
