"""Records videos of a scripted task, and finds the correct frame for each action.

The results are independent of the code under test. Every frame is decoded from the start of the
video, and its number is read from the image. The script says what the screen shows at each frame.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from demo_pipeline.observation.clock.clock import Clock
from demo_pipeline_tests.observation.made import Observed, observe
from demo_pipeline_tests.simulator.form import script
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number, stamp
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import (
    GroundTruth,
    RecordingOptions,
    write_documents,
    write_recording,
)
from demo_pipeline_tests.simulator.script import (
    IntendedAction,
    Script,
    click,
    drag,
    right_click,
    type_text,
)
from demo_pipeline_tests.simulator.video import Frame, VideoOptions, encode

_FORM = script(
    click("Agree"),
    click("Name"),
    type_text("ab"),
    right_click("Rows/c"),
    drag("Form/title bar", 60, 40),
)
STORY = replace(_FORM, lead_in_ms=500, tail_ms=900)
_TICKS = 90_000
_REST_MS = 300  # milliseconds of rest that separate two movements of the pointer
_LEAD_MS = 50
_CLOCK_ERROR_S = 0.01 + 1e-6  # a frame at most this long before a movement may already show it

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Shown:
    """A frame of a video: the number drawn on it, and its presentation time in seconds."""

    number: int | None
    time: float


def every_frame(video: Path, quarter_turns: int = 0) -> list[Shown]:
    """Returns all frames of a video.

    Each image is turned left by `quarter_turns` times 90 degrees before its number is read.
    """
    with av.open(str(video)) as container:
        return [
            Shown(
                read_frame_number(np.rot90(frame.to_ndarray(format="rgb24"), quarter_turns)),
                float(frame.pts * frame.time_base),
            )
            for frame in container.decode(video=0)
        ]


def simulated(root: Path, options: RecordingOptions) -> Observed:
    """Records the scripted task, and runs the stages up to `screenshots`."""
    folder = root / "uploads" / "demo"
    return observe(folder, root / "store", write_recording(folder, STORY, options))


def painted(
    root: Path,
    options: RecordingOptions,
    write: Callable[[Path, Painter, GroundTruth], None],
    story: Script = STORY,
) -> Observed:
    """Records a scripted task with a video that `write` makes, and runs the stages."""
    folder = root / "uploads" / "demo"
    truth = write_documents(folder, story, options)
    painter = Painter(story.desktop.at(options.width, options.height))
    write(folder / "recording.mp4", painter, truth)
    return observe(folder, root / "store", truth)


def write_turned(path: Path, painter: Painter, truth: GroundTruth, quarter_turns: int) -> None:
    """Writes a video of the screen, turned right by `quarter_turns` times 90 degrees."""
    width, height = truth.screen

    def images() -> Iterable[tuple[int, Picture]]:
        for frame in truth.frames:
            flat = painter.planes(truth.timeline.at(frame.wall_ms), frame.number).ravel()
            luma = width * height
            parts = (
                flat[:luma].reshape(height, width),
                flat[luma : luma * 5 // 4].reshape(height // 2, width // 2),
                flat[luma * 5 // 4 :].reshape(height // 2, width // 2),
            )
            turned = np.concatenate([np.rot90(part, -quarter_turns).ravel() for part in parts])
            side = height if quarter_turns % 2 else width
            yield frame.pts, turned.reshape(-1, side)

    size = (height, width) if quarter_turns % 2 else (width, height)
    encode(path, images(), size, VideoOptions(preset="ultrafast", gop=30))


def write_444(path: Path, painter: Painter, truth: GroundTruth) -> None:
    """Writes a video without chroma subsampling, so that width and height may be odd."""
    with av.open(str(path), "w", format="mp4") as output:
        stream: Any = output.add_stream("libx264", rate=15)
        stream.width, stream.height = truth.screen
        stream.pix_fmt = "yuv444p"
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = Fraction(1, _TICKS)
        stream.options = {"preset": "ultrafast", "crf": "27"}
        for frame in truth.frames:
            drawn = painter.draw(truth.timeline.at(frame.wall_ms))
            planes = av.VideoFrame.from_ndarray(drawn, "bgr24").reformat(format="yuv444p")
            array = planes.to_ndarray()
            stamp(array[0], frame.number)
            image = av.VideoFrame.from_ndarray(array, format="yuv444p")
            image.pts = frame.pts
            image.time_base = Fraction(1, _TICKS)
            output.mux(stream.encode(image))
        output.mux(stream.encode(None))


def with_short_end(truth: GroundTruth) -> GroundTruth:
    """Returns the ground truth with an additional frame, a millisecond after the last one."""
    last = truth.frames[-1]
    end = Frame(last.number + 1, last.pts + _TICKS // 1000, last.wall_ms + 1)
    return replace(truth, frames=(*truth.frames, end))


def write_plain(path: Path, painter: Painter, truth: GroundTruth) -> None:
    """Writes an ordinary video with the frames of `truth`."""
    planes = ((f.pts, painter.planes(truth.timeline.at(f.wall_ms), f.number)) for f in truth.frames)
    encode(path, planes, truth.screen, VideoOptions(preset="ultrafast"))


@dataclass(frozen=True)
class Rule:
    """Finds the correct frame before an action, because the screen of every frame is known."""

    frames: Sequence[Shown]
    truth: GroundTruth
    clock: Clock

    def names(self, position: int) -> Shown:
        """Returns the frame that must be chosen for the action with this index.

        The candidates are the frames after the previous action that precede the press by at least
        the minimum lead. The last candidates that all show the same screen form a run. The rule
        chooses the latest frame of the run before the pointer moved, otherwise the first frame.
        """
        action = self.truth.actions[position]
        since = self.truth.actions[position - 1].end_ms if position else float("-inf")
        limit = self.clock.video_time(action.press_ms) - self._lead()
        asked = [f for f in self.frames if self.clock.video_time(since) <= f.time <= limit + 1e-6]
        if not asked:
            return max((f for f in self.frames if f.time <= limit + 1e-6), key=lambda f: f.time)
        run = [f for f in asked if self._still(f, asked[-1])]
        approach_start = self.clock.video_time(self._approach_start(action, since))
        approach_start = min(limit, approach_start - _CLOCK_ERROR_S)
        before = [frame for frame in run if frame.time < approach_start]
        return before[-1] if before else run[0]

    def _lead(self) -> float:
        """Returns the minimum time between the frame and the press, seconds.

        The lead is at least the 10th percentile of the frame intervals. The mean interval of a
        variable frame rate depends on how much the screen changed, so it is not used.
        """
        grab_s = float(np.percentile(np.diff([frame.time for frame in self.frames]), 10))
        return max(_LEAD_MS / 1000, self.clock.uncertainty_ms / 1000, grab_s)

    def _screen(self, frame: Shown) -> Any:
        assert frame.number is not None
        return self.truth.timeline.at(self.truth.frames[frame.number].wall_ms).state

    def _still(self, frame: Shown, last: Shown) -> bool:
        """Returns whether all frames from `frame` to `last` show the same screen."""
        between = [f for f in self.frames if frame.time <= f.time <= last.time]
        return all(self._screen(f) == self._screen(last) for f in between)

    def _approach_start(self, action: IntendedAction, since: float) -> float:
        """Returns when the pointer movement that ended at the press began.

        Returns infinity for keys, which need no movement.
        """
        if action.action_type in {"type", "hotkey"}:
            return float("inf")
        moves = [ms for ms in self.truth.timeline.move_ms if since < ms <= action.press_ms]
        start = moves[-1]
        for ms in reversed(moves):
            if start - ms >= _REST_MS:
                break
            start = ms
        return float(start)
