"""A recording of another tool that has a video, and the description of an importer.

An importer reads its tool's files into a `SourceRecording`, which upload_folder.py writes as an
upload, or into a `SourceTrajectory`, which trajectory_folder.py writes as a trajectory.
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

# Units of `delta` in a `mousewheel` line, see `wheel`.
_NOTCH = 120  # `delta` for a notch of the wheel on Windows and Linux
_PIXELS_OF_A_LINE = 10  # `delta` for a line of text on macOS, Apple's default
_BUTTON_EVENTS = {True: "mousedown", False: "mouseup"}
_BUTTONS = {"left": "Left", "right": "Right", "middle": "Middle"}

PYNPUT_KEY_EVENTS = {"press": "keydown", "release": "keyup"}
"""Names of key events in pynput → names in the log."""


class SourceLine(NamedTuple):
    """A line of input_log.jsonl; `time` is in epoch milliseconds."""

    event: str
    data: dict[str, Any]
    time: float


class VideoPart(NamedTuple):
    """A video file. The video of a recording consists of one such file, or of several in order.

    Attributes:
        path: the file.
        begins_s: position of the file's time 0 in the whole video, seconds.
        times_s: time of a frame in the file → time at which the frame was captured, both in
            seconds, ascending; empty unless the source logs the capture times.
    """

    path: Path
    begins_s: float = 0.0
    times_s: Mapping[float, float] = MappingProxyType({})


@dataclass(kw_only=True)
class SourceRecording(SourceFacts):
    """A recording with a video, as an importer reads it.

    Attributes:
        recorded_at: start of the video, with time zone, as exact as the source allows.
        lines: the lines of the log; mouse positions are in the space of `screen`.
        video: the files of the video, in order.
        video_zero_ms: time on the clock of `lines` at the video's time 0, epoch milliseconds; None:
            the source has no exact time, so that the pipeline measures this time in the frames.
        screen: width and height of the space of mouse positions; None: the video's pixels.
        arch: the computer's architecture; empty: not recorded.
        version: the recorder's version; empty: not recorded.
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
        files: the files by which its recordings are recognised, for people.
        find: takes a folder and the names of its files, and returns the recordings in it in order.
        read: reads a recording with a video, which becomes an upload; None: the tool's
            recordings have no video.
        read_trajectory: reads a recording with screenshots, which is published as a trajectory;
            None: the tool's recordings have a video, or are OSWorld-Desktopd trajectories.
    """

    tool: str
    files: str
    find: Callable[[Path, Sequence[str]], list[SourceFiles]]
    read: Callable[[SourceFiles], SourceRecording] | None = None
    read_trajectory: Callable[[SourceFiles], SourceTrajectory] | None = None


def wheel(notches: float, platform: str) -> dict[str, Any]:
    """Returns the data of a `mousewheel` line.

    On Windows and Linux the log counts 120 for a notch, positive = down. On macOS it counts ten
    pixels for each line of text that macOS reports, positive = up.

    Args:
        notches: notches of the wheel, on macOS lines of text; positive = up.
        platform: windows, macos, linux, or empty.
    """
    if platform == "macos":
        return {"delta": notches * _PIXELS_OF_A_LINE}
    return {"delta": -notches * _NOTCH}


def pointer_lines(
    kind: str, event: Mapping[str, Any], time: float, platform: str, left_out: Counter[str]
) -> Iterator[SourceLine]:
    """Yields the lines for an event of pynput's mouse listener, which most recorders use.

    Args:
        kind: move, click or scroll; other kinds are only counted in `left_out`.
        event: the arguments of the listener: x, y, button, pressed, dx, dy.
        time: epoch milliseconds.
        platform: windows, macos, linux, or empty.
        left_out: counts the events that the log has no line for.
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
