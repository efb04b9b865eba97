"""The types and readers that all importers share.

An importer reads a recording of another tool into a `SourceRecording`, which upload_folder.py
writes as an upload, or into a `SourceTrajectory`, which trajectory_folder.py writes as a
trajectory.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from types import MappingProxyType
from typing import Any, NamedTuple

from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.importers.source_trajectory import SourceTrajectory

# The wheel of the log, which differs by platform: see `wheel`.
_NOTCH = 120
_PIXELS_OF_A_LINE = 10
_BUTTON_EVENTS = {True: "mousedown", False: "mouseup"}
_BUTTONS = {"left": "Left", "right": "Right", "middle": "Middle"}
_YEAR_3000_MS = 32_503_680_000_000
_LONGEST_NAME = 255  # bytes, of a file
_LARGEST = 1e20  # of numbers; nanoseconds of the year 3000 have 3e19


PYNPUT_KEY_EVENTS = {"press": "keydown", "release": "keyup"}
"""pynput's kinds of events of keys → events of the log."""


class UnreadableSourceError(Exception):
    """A recording of another tool cannot be imported; the message names the file and the reason."""


@dataclass(frozen=True, kw_only=True)
class SourceFiles:
    """A recording of another tool, as found by the names of its files.

    Attributes:
        folder: that it lies in.
        name: by which people know it; the id begins with it.
        logs: the files whose content makes the id.
        videos: files of the video, in order, as far as their names tell.
        others: read if they are there.
        id: that the source gives it; empty: it follows from the name and the logs.
    """

    folder: Path
    name: str
    logs: tuple[Path, ...]
    videos: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    id: str = ""

    @property
    def place(self) -> Path:
        """The path that messages name: its only log, or its folder."""
        if len(self.logs) == 1:
            return self.logs[0]
        return self.folder

    @property
    def files(self) -> tuple[Path, ...]:
        """All that is read of it."""
        return (*self.logs, *self.videos, *self.others)


class SourceLine(NamedTuple):
    """A line of input_log.jsonl; `time` is in epoch milliseconds."""

    event: str
    data: dict[str, Any]
    time: float


class VideoPart(NamedTuple):
    """A video, or one of several in order.

    Attributes:
        path: of its file.
        begins_s: seconds in the whole at which its time 0 is.
        times_s: seconds of pictures in the file → when they were taken, ascending, where the
            recording knows it better than the file.
    """

    path: Path
    begins_s: float = 0.0
    times_s: Mapping[float, float] = MappingProxyType({})


@dataclass(kw_only=True)
class SourceRecording:
    """A recording with a video, as an importer read it.

    Attributes:
        recorded_at: start of the video, with time zone, as exact as the source allows.
        platform: windows, macos, linux, or empty.
        lines: of the log; mouse positions are in the space of `screen`.
        video: in one part, or in several that follow each other.
        video_zero_ms: epoch milliseconds of the video's time 0 by the clock of the lines; None: the
            source does not say it exactly, and the pipeline finds it in the pictures.
        screen: width and height of the space of positions; None: that of the video's pixels.
        task: what the person was to do; empty: not said.
        status: completed, failed or aborted; empty: not said.
        application: the main one; empty: not said.
        lost: sentences: what was in the source and is not in the upload.
        left_out: the same for single events: kind → how many.
        damaged: sentences: what could not be read.
    """

    recorded_at: datetime
    platform: str
    lines: Iterable[SourceLine]
    video: Sequence[VideoPart]
    video_zero_ms: float | None = None
    screen: tuple[int, int] | None = None
    task: str = ""
    status: str = ""
    application: str = ""
    arch: str = ""
    version: str = ""
    lost: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Importer:
    """One tool.

    Attributes:
        tool: its name for people.
        files: by which files it is recognised, for people.
        find: the recordings in a folder with files of these names, in order.
        read: reads one that has a video, which becomes an upload; None: it has none.
        read_trajectory: reads one that has screenshots, which is published as a trajectory; None:
            it has a video, or is an OSWorld-Desktopd trajectory already.

    Both raise `UnreadableSourceError`.
    """

    tool: str
    files: str
    find: Callable[[Path, Sequence[str]], list[SourceFiles]]
    read: Callable[[SourceFiles], SourceRecording] | None = None
    read_trajectory: Callable[[SourceFiles], SourceTrajectory] | None = None


def wheel(notches: float, platform: str) -> dict[str, Any]:
    """The data of a `mousewheel` line for notches (macOS: lines of text), positive = up.

    The documented unit is 120 a notch, positive = down. Recorders on macOS log pixels, positive =
    up, and are read so: a line that macOS reports stands for ten pixels, Apple's own default.
    """
    if platform == "macos":
        return {"delta": notches * _PIXELS_OF_A_LINE}
    return {"delta": -notches * _NOTCH}


def pointer_lines(
    kind: str, event: Mapping[str, Any], time: float, platform: str, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yield the lines for an event of pynput's mouse listener, which most recorders have.

    Args:
        kind: move, click or scroll; anything else is counted in `left_out`.
        event: with x, y, button, pressed, dx, dy as `kind` has them.
        time: epoch milliseconds.
        platform: windows, macos, linux, or empty.
        left_out: counts what the log has no line for.
    """
    place = dict(zip("xy", numbers(event.get(axis) for axis in "xy"), strict=False))
    if kind == "click":
        named = plain_text(event.get("button")) or "unknown"
        data = place | {"button": _BUTTONS.get(named, named)}
        yield SourceLine(_BUTTON_EVENTS[bool(event.get("pressed"))], data, time)
    elif kind in {"move", "scroll"}:
        if place:
            yield SourceLine("mousemove", place, time)
        if kind == "scroll" and (turned := number(event.get("dy"))):
            yield SourceLine("mousewheel", wheel(turned, platform), time)
        left_out["sideways turns of the wheel"] += bool(number(event.get("dx")))
    else:
        left_out["events of another kind"] += 1


def json_object(path: Path) -> dict[str, Any]:
    """A JSON file that is an object. Raises `UnreadableSourceError`."""
    try:
        value = load_json(path)
    except JsonFileError as error:
        raise UnreadableSourceError(f"{path}: {error.message}") from None
    if not isinstance(value, dict):
        raise UnreadableSourceError(f"{path}: expected a JSON object")
    return value


def json_members(data: bytes) -> dict[str, Any] | None:
    """The members of a JSON object; None for anything else."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_lines(
    path: Path, damaged: list[str], *, comment: bytes | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file; lines that begin with `comment` are skipped.

    Lines that are not objects are reported in `damaged`, all together.
    """
    unreadable = 0
    first = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip() or (comment is not None and line.startswith(comment)):
                continue
            if (value := json_members(line)) is not None:
                yield value
            else:
                unreadable = unreadable + 1
                first = first or number
    if unreadable:
        lines = "1 line is" if unreadable == 1 else f"{unreadable} lines are"
        damaged.append(f"{path.name}:{first}: {lines} not readable; the others were read")


def as_object(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The value if it is a JSON list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or abs(value) >= _LARGEST:
        return None
    return float(value)


def numbers(values: Iterable[Any]) -> list[float]:
    """The values as finite numbers; empty if one of them is not a number."""
    finite = list[float]()
    for value in values:
        if (size := number(value)) is None:
            return []
        finite.append(size)
    return finite


def screen_size(width: Any, height: Any) -> tuple[int, int] | None:
    """Width and height as whole pixels; None unless both are numbers above 0."""
    sides = numbers((width, height))
    if not sides or min(sides) <= 0:
        return None
    return round(sides[0]), round(sides[1])


def moment(milliseconds: float, where: Path) -> datetime:
    """A time of the epoch in UTC. Raises `UnreadableSourceError` outside the years 1970 to 2999."""
    if not 0 <= milliseconds < _YEAR_3000_MS:
        raise UnreadableSourceError(f"{where}: when it was recorded is not a time since 1970")
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def file_name(value: Any) -> str:
    """The name of a file without its folders; empty for anything that cannot be one."""
    name = PureWindowsPath(plain_text(value)).name
    try:
        is_possible = "\0" not in name and len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        is_possible = False
    return name * is_possible


def plain_text(value: Any) -> str:
    """A text without white space around it; empty for anything else."""
    return value.strip() if isinstance(value, str) else ""
