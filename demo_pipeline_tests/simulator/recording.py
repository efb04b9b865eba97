"""Writes the three files of a Training Gym recording and returns the ground truth about them."""

import heapq
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demo_pipeline_tests.simulator.input_device import Wheel
from demo_pipeline_tests.simulator.keys import Platform
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.performer import Performer
from demo_pipeline_tests.simulator.script import (
    IntendedAction,
    Pause,
    Performance,
    ScreenTimeline,
    Script,
)
from demo_pipeline_tests.simulator.trees import scans
from demo_pipeline_tests.simulator.video import Frame, VideoOptions, encode, frame_schedule

_SYSTEMS: dict[Platform, tuple[str, str]] = {
    "windows": ("x86_64", "10.0.26100"),
    "macos": ("aarch64", "15.3.1"),
    "linux": ("x86_64", "6.8"),
}


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How the recorder writes a demonstration.

    Attributes:
        platform: decides the names of keys and roles.
        width: width of the screen in pixels; an even number.
        height: height of the screen in pixels; an even number.
        video: how the screen is encoded.
        xy_on_buttons: whether presses and releases of buttons log the pointer's position.
        wheel: `documented` logs 120 for a notch down. `recorder` logs 1 for a notch up (100 pixels
            on macOS).
        characters: returns the value that a press logs as `actual_char` for its character. The
            character is empty if the press types none. None leaves `actual_char` out, as older
            recorders do.
        time_unit_ms: length of the log's unit of time in milliseconds.
        scan_every_s: seconds between the starts of accessibility scans; None means no scans.
        scan_padding: number of additional nodes in every scan, about 260 bytes each.
        ffmpeg_start_line: whether to log a line with the epoch time of the first frame.
    """

    platform: Platform = "windows"
    width: int = 1920
    height: int = 1080
    video: VideoOptions = field(default_factory=VideoOptions)
    xy_on_buttons: bool = True
    wheel: Wheel = "documented"
    characters: Callable[[str], str] | None = None
    time_unit_ms: float = 1
    scan_every_s: float | None = 3.0
    scan_padding: int = 0
    ffmpeg_start_line: bool = False


@dataclass(frozen=True)
class GroundTruth:
    """The facts that a perfect reader would find in a recording.

    Times are epoch milliseconds, boxes are in screen pixels, and `frames` are in presentation
    order. `timeline.at(ms)` returns the contents of the screen at a time.
    """

    timestamp_ms: int
    end_ms: int
    screen: tuple[int, int]
    actions: tuple[IntendedAction, ...]
    pauses: tuple[Pause, ...]
    frames: tuple[Frame, ...]
    timeline: ScreenTimeline


def perform(demonstration: Script, options: RecordingOptions) -> Performance:
    """Performs the script on a screen of the size in the options."""
    size = (options.width, options.height)
    performer = Performer(
        demonstration,
        size,
        options.platform,
        xy_on_buttons=options.xy_on_buttons,
        wheel=options.wheel,
        characters=options.characters,
    )
    return performer.perform()


def write_recording(dest: Path, demonstration: Script, options: RecordingOptions) -> GroundTruth:
    """Writes input_log.jsonl, meta.json and recording.mp4 to `dest`, whose name becomes the id."""
    truth = write_documents(dest, demonstration, options)
    painter = Painter(demonstration.desktop.at(options.width, options.height))
    pictures = _pictures(painter, truth, numbered=options.video.frame_numbers)
    encode(dest / "recording.mp4", pictures, truth.screen, options.video)
    return truth


def write_documents(dest: Path, demonstration: Script, options: RecordingOptions) -> GroundTruth:
    """Writes a recording without the video, for tests of the log and the ground truth."""
    performance = perform(demonstration, options)
    dest.mkdir(parents=True, exist_ok=True)
    with (dest / "input_log.jsonl").open("w", encoding="utf-8", newline="\n") as log:
        for line in log_lines(performance, options):
            log.write(log_text(_timed(line, options.time_unit_ms)) + "\n")
    meta = _meta(dest.name, demonstration, options, performance)
    text = json.dumps(meta, ensure_ascii=False, indent=2) + "\n"
    (dest / "meta.json").write_text(text, encoding="utf-8", newline="\n")
    start = performance.start_ms
    end = performance.end_ms
    return GroundTruth(
        timestamp_ms=start,
        end_ms=end,
        screen=(options.width, options.height),
        actions=tuple(performance.actions),
        pauses=tuple(performance.pauses),
        frames=tuple(frame_schedule(options.video, start, end, demonstration.seed)),
        timeline=performance.timeline,
    )


def _timed(line: dict[str, Any], unit_ms: float) -> dict[str, Any]:
    """Returns a log line with its times in another unit."""
    if unit_ms == 1:
        return line
    data = line["data"]
    if "duration" in data:
        data = {**data, "duration": data["duration"] / unit_ms}
    return {**line, "data": data, "time": line["time"] / unit_ms}


def log_text(line: dict[str, Any]) -> str:
    """Returns a line of the log as compact JSON without a line end."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def log_lines(performance: Performance, options: RecordingOptions) -> Iterator[dict[str, Any]]:
    """Yields the log lines in the order of writing.

    A scan is written when it ends, but its time is the start of the scan.
    """
    inputs = ((event["time"], event) for event in performance.events)
    streams: list[Iterator[tuple[int, dict[str, Any]]]] = [inputs]
    if options.scan_every_s is not None:
        every = round(options.scan_every_s * 1000)
        streams.append(scans(performance, options.platform, every, options.scan_padding))
    if options.ffmpeg_start_line:
        streams.append(iter([_start_line(performance, options)]))
    for _, line in heapq.merge(*streams, key=lambda item: item[0]):
        yield line


def _start_line(performance: Performance, options: RecordingOptions) -> tuple[int, dict[str, Any]]:
    first = performance.start_ms + round(options.video.video_start_s * 1000)
    text = f"  Duration: N/A, start: {first / 1000:.6f}, bitrate: N/A\n"
    return first, {"event": "ffmpeg_stderr", "data": {"output": text}, "time": first}


def _meta(
    identifier: str, script: Script, options: RecordingOptions, performance: Performance
) -> dict[str, Any]:
    arch, version = _SYSTEMS[options.platform]
    return {
        "id": identifier,
        "timestamp": script.timestamp,
        "duration_seconds": (performance.end_ms - performance.start_ms) // 1000,
        "status": script.status,
        "title": script.title,
        "description": "",
        "platform": options.platform,
        "arch": arch,
        "version": version,
        "locale": "en-US",
        "primary_monitor": {"width": options.width, "height": options.height},
        "reason": script.reason,
        "quest": {
            "title": script.title,
            "app": script.app,
            "icon_url": "",
            "objectives": list(script.objectives),
            "content": script.content,
            "pool_id": "000000000000000000000000",
            "reward": {"time": performance.end_ms, "max_reward": 5},
        },
    }


def _pictures(
    painter: Painter, truth: GroundTruth, *, numbered: bool
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    for frame in truth.frames:
        number = frame.number if numbered else None
        yield frame.pts, painter.planes(truth.timeline.at(frame.wall_ms), number)
