"""Data types for importers, and for recordings with a video from other tools.

An importer returns a `SourceRecording` with a video, which upload_folder.py writes as an upload, or
a `SourceTrajectory` with screenshots, which trajectory_folder.py writes as a trajectory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from demo_pipeline.importers.source_facts import SourceFacts, SourceFiles
from demo_pipeline.importers.source_trajectory import SourceTrajectory
from demo_pipeline.importers.source_values import number, numbers, plain_text

_NOTCH = 120  # `delta` of a `mousewheel` line for one notch on Windows and Linux
_PIXELS_OF_A_LINE = 10  # `delta` for one line of text on macOS; Apple's default
_BUTTON_EVENTS = {True: "mousedown", False: "mouseup"}
_BUTTONS = {"left": "Left", "right": "Right", "middle": "Middle"}

PYNPUT_KEY_EVENTS = {"press": "keydown", "release": "keyup"}
"""Maps pynput's names of key events to those of input_log.jsonl."""


class SourceLine(NamedTuple):
    """A line of input_log.jsonl; `time` is in epoch milliseconds."""

    event: str
    data: dict[str, Any]
    time: float


class VideoPart(NamedTuple):
    """A file of a recording's video. The video may consist of several files in order.

    Attributes:
        begins_s: time in the whole video at which this file begins, seconds.
        times_s: maps the times of frames in the file to their capture times, which ascend and
            count from the first capture. Both are in seconds. Empty unless the source logs capture
            times.
    """

    path: Path
    begins_s: float = 0.0
    times_s: Mapping[float, float] = MappingProxyType({})


@dataclass(kw_only=True)
class SourceRecording(SourceFacts):
    """A recording with a video, as an importer reads it.

    Attributes:
        recorded_at: start of the video, with time zone, as exact as the source allows.
        lines: the lines of input_log.jsonl; for mouse positions, see `screen`.
        video: the files of the video, in order.
        video_zero_ms: start of the video on the clock of `lines`, epoch milliseconds. None if the
            source has no exact time.
        screen: width and height of the screen in the unit of mouse positions. None if mouse
            positions are pixels of the video.
        arch, version: the computer's architecture and the recorder's version; may be empty.
    """

    recorded_at: datetime
    lines: Iterable[SourceLine]
    video: Sequence[VideoPart]
    video_zero_ms: float | None = None
    screen: tuple[int, int] | None = None
    arch: str = ""
    version: str = ""


@dataclass(frozen=True, kw_only=True)
class Importer:
    """Finds and reads the recordings of one tool.

    `read` and `read_trajectory` raise `UnreadableSourceError`.

    Attributes:
        tool: the tool's name for people.
        files: describes, for people, the files that identify a recording of this tool.
        find: takes a folder and the names of its files, and returns the folder's recordings in
            order.
        read: reads a recording with a video; None if the tool's recordings have no video.
        read_trajectory: reads a recording with screenshots; None if the tool's recordings have a
            video, or are OSWorld-Desktopd trajectories.
    """

    tool: str
    files: str
    find: Callable[[Path, Sequence[str]], list[SourceFiles]]
    read: Callable[[SourceFiles], SourceRecording] | None = None
    read_trajectory: Callable[[SourceFiles], SourceTrajectory] | None = None


def wheel(notches: float, platform: str) -> dict[str, Any]:
    """Returns the data of a `mousewheel` line of input_log.jsonl.

    On Windows and Linux, a notch counts 120 in the log, and positive values mean down. On macOS,
    each line of text that macOS reports counts ten pixels, and positive values mean up.

    Args:
        notches: notches of the wheel, or lines of text on macOS. Positive values mean up.
        platform: windows, macos, linux, or empty.
    """
    if platform == "macos":
        return {"delta": notches * _PIXELS_OF_A_LINE}
    return {"delta": -notches * _NOTCH}


def pointer_lines(
    kind: str, event: Mapping[str, Any], time: float, platform: str, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yields the lines of input_log.jsonl for an event of pynput's mouse listener.

    Args:
        kind: move, click or scroll; other kinds yield no line and are counted in `left_out`.
        event: the arguments of the listener: x, y, button, pressed, dx, dy.
        time: epoch milliseconds.
        platform: windows, macos, linux, or empty.
        left_out: counts events that cannot be written to input_log.jsonl.
    """
    place = dict(zip("xy", numbers(event.get(axis) for axis in "xy"), strict=False))
    if kind == "click":
        button = plain_text(event.get("button")) or "unknown"
        data = place | {"button": _BUTTONS.get(button, button)}
        yield SourceLine(_BUTTON_EVENTS[bool(event.get("pressed"))], data, time)
    elif kind in {"move", "scroll"}:
        if place:
            yield SourceLine("mousemove", place, time)
        if kind == "scroll" and (notches := number(event.get("dy"))):
            yield SourceLine("mousewheel", wheel(notches, platform), time)
        left_out["sideways turns of the wheel"] += bool(number(event.get("dx")))
    else:
        left_out["events of another kind"] += 1
