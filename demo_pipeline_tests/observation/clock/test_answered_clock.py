"""Tests how much of a video is decoded to find the clock of keyboard work."""

from pathlib import Path

import numpy as np
import pytest

from demo_pipeline.observation.clock.clock import documented_clock
from demo_pipeline.observation.clock.clock_search import ClockSearch
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats, PointerPath
from demo_pipeline.observation.frames.video_reader import RecordedVideo
from demo_pipeline.recording.video_probe import read_packets
from demo_pipeline_tests.simulator.video import TICKS, VideoOptions, encode

START_MS = 1_767_603_600_000.0
WIDTH = 320
HEIGHT = 192
FPS = 10
STILL = PointerPath.through([])
LAG_S = -6.0


def shortcuts(seconds: float) -> Floats:
    """Returns the times of shortcuts, one every 0.8 to 2 seconds."""
    steps = np.random.default_rng(7).uniform(0.8, 2.0, 200)
    times = 3 + np.cumsum(steps)
    return np.asarray(times[times < seconds - 1], float)


def search(folder: Path, seconds: int) -> tuple[ClockSearch, Floats]:
    """Returns a clock search and the logged times of shortcuts.

    In the video of the search, each shortcut rewrites a line. The log has the shortcuts `LAG_S`
    later than the video.
    """
    answered = shortcuts(seconds)

    def image(number: int) -> np.ndarray:
        page = np.full((HEIGHT * 3 // 2, WIDTH), 128, np.uint8)
        page[:HEIGHT] = 220
        answers = int((answered + 0.1 <= number / FPS).sum())
        line = np.random.default_rng(answers).integers(0, 2, (1, 30)).astype(np.uint8)
        page[100:116, 20:260] = 40 + 180 * np.kron(line, np.ones((16, 8), np.uint8))
        return page

    video_path = folder / "video.mp4"
    images = ((n * TICKS // FPS, image(n)) for n in range(seconds * FPS))
    encode(video_path, images, (WIDTH, HEIGHT), VideoOptions(fps=FPS, gop=50, preset="ultrafast"))
    video = RecordedVideo(video_path, read_packets(video_path))
    inputs = START_MS + (answered + LAG_S) * 1000
    return ClockSearch(video, STILL, inputs), inputs


@pytest.mark.parametrize(("seconds", "most_s"), [(120, 24), (20, 0)])
def test_at_most_another_fifth_of_the_video_is_decoded(tmp_path, seconds, most_s):
    looking, inputs = search(tmp_path, seconds)
    changes = ChangeMap()
    clock = looking.answered_clock(changes, documented_clock(START_MS), inputs, [1.0])
    assert len(changes.times) <= most_s * FPS + 2
    assert (clock is not None) == (seconds == 120)
    if clock is not None:
        assert abs(clock.documented_offset_ms - LAG_S * 1000) <= clock.uncertainty_ms
