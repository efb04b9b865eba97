"""Tests the clock that is found from pointer moves, drift, and the screen's answers to clicks."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo_pipeline.observation.clock import clock_search
from demo_pipeline.observation.clock.clock import Clock, documented_clock
from demo_pipeline.observation.clock.clock_evidence import (
    clock_from_clicks,
    clock_from_pointer,
    reconcile_clocks,
)
from demo_pipeline.observation.clock.clock_search import (
    ClockPart,
    ClockSearch,
    drift_corrected,
    with_parts,
)
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.frame_requests import lead_seconds
from demo_pipeline.observation.frames.pointer_path import PointerPath
from demo_pipeline.observation.frames.video_reader import SAMPLE_STEP, RecordedVideo
from demo_pipeline.recording.video_probe import VideoPackets
from demo_pipeline_tests.observation.made import observe
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click, think
from demo_pipeline_tests.simulator.video import VideoOptions

FPS = 20
FRAME_S = 1 / FPS
ROWS = 360 // SAMPLE_STEP
COLUMNS = 640 // SAMPLE_STEP
START_MS = 1_767_603_600_000.0


class _ImageOfFrame:
    """A frame that has only a luma plane."""

    def __init__(self, time: float, luma: np.ndarray) -> None:
        self.time = time
        self.luma = luma


def path_at(seconds: Any) -> tuple[Any, Any]:
    """Returns the position of a pointer that wanders over the screen and never repeats its path."""
    x = 320 + 200 * np.sin(seconds * 1.7) + 80 * np.sin(seconds * 4.1 + 1)
    y = 180 + 100 * np.cos(seconds * 1.3) + 50 * np.sin(seconds * 3.3)
    return x, y


def track_of(seconds: np.ndarray) -> PointerPath:
    return PointerPath(START_MS + seconds * 1000, *path_at(seconds))


def video_changes(
    first_s: float, seconds: float, *, lag_s: float = 0.0, rate: float = 1.0, jump_s: float = 0.0
) -> ChangeMap:
    """Returns the changes in a video that shows the pointer as a dot.

    The frame at video second v shows the pointer of log second v / rate + lag_s. In the last three
    tenths of the video, the lag is larger by `jump_s`.
    """
    changes: Any = ChangeMap()
    for number in range(round(seconds * FPS)):
        time = first_s + number * FRAME_S
        late = jump_s if number > seconds * FPS * 0.7 else 0.0
        x, y = path_at(time / rate + lag_s + late)
        luma = np.zeros((ROWS, COLUMNS), np.uint8)
        row = int(y // SAMPLE_STEP)
        column = int(x // SAMPLE_STEP)
        luma[row : row + 4, column : column + 4] = 255
        changes.add(_ImageOfFrame(time, luma))
    return changes


def pointer_clock(changes: ChangeMap, reach_s: float = 3.5) -> Clock:
    track = track_of(np.arange(0, 700, 0.02))
    clock = clock_from_pointer(changes, track, documented_clock(START_MS), [1.0], reach_s)
    assert clock is not None
    return clock


@pytest.mark.parametrize("lag_s", [-2.9, 0.0, 1.234])
def test_the_clock_is_that_at_which_the_pointer_moves_as_in_the_log(lag_s: float) -> None:
    clock = pointer_clock(video_changes(10, 12, lag_s=lag_s))
    assert clock.documented_offset_ms == pytest.approx(lag_s * 1000, abs=FRAME_S * 1000)


def test_a_list_that_moves_by_itself_is_no_clock() -> None:
    """The items of a list appear one after the other where the pointer was, as it moved.

    The video shows ten moves. With a wrong lag, the items would match half of fifteen moves.
    """
    moved = np.arange(-0.25, 0.5, FRAME_S)
    track = PointerPath(START_MS + moved * 1000 + 1, 100 + (moved + 0.25) * 600, 100 + 0 * moved)
    changes: Any = ChangeMap()
    for number in range(6 * FPS):
        time = number * FRAME_S
        luma = np.zeros((ROWS, COLUMNS), np.uint8)
        place = max(0, int(np.searchsorted(moved, time, side="right")) - 1)
        row = 100 // SAMPLE_STEP
        column = int(track.x[place] // SAMPLE_STEP)
        luma[row : row + 4, column : column + 4] = 255
        # After 40 frames, list items appear where the pointer was.
        if 0 <= number - 40 < len(moved) and number % 3 == 0:
            near = track.x[number - 41 : number - 39].astype(int) // SAMPLE_STEP
            luma[row - 4 : row + 8, near.min() - 2 : near.max() + 6] = 255
        changes.add(_ImageOfFrame(time, luma))
    assert clock_from_pointer(changes, track, documented_clock(START_MS), [1.0], 3.5) is None


@pytest.mark.parametrize("scale", [1.0, 1.75])
def test_redraws_of_the_whole_screen_are_no_clock(scale: float) -> None:
    """The whole screen changes 0.8 s after each move, so any position of the pointer matches."""
    numbers = np.cumsum([1, 1, 3, 1, 4, 2, 1, 1, 5, 3, 2, 1, 6, 1, 2, 3, 1, 1, 4, 2]) + 60
    changes: Any = ChangeMap()
    for number in range(8 * FPS):
        late = number - round(0.8 * FPS)
        luma = np.full((ROWS, COLUMNS), 250 * (np.searchsorted(numbers, late, "right") % 2))
        changes.add(_ImageOfFrame(number * FRAME_S, luma.astype(np.uint8)))
    track = track_of(numbers * FRAME_S - 0.01)
    assert clock_from_pointer(changes, track, documented_clock(START_MS), [scale], 3.5) is None


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1.25, 1.5, 2.0])
def test_the_video_tells_the_scale_also_where_the_documents_do_not(
    scale: float, *, repeated: bool
) -> None:
    """The video has about thirty moves, four redraws of most of the screen, and repeated frames."""
    changes: Any = ChangeMap()
    displayed_s = 0.0
    end = 5.0 if repeated else 3.5
    for number in range(8 * FPS):
        time = number * FRAME_S
        displayed_s = displayed_s if repeated and number % 2 else time
        x, y = path_at(min(max(displayed_s, 2.0), end) + 1.2)
        luma = np.zeros((ROWS, COLUMNS), np.uint8)
        luma[:, 80:] = 200 * (int(displayed_s / 1.7) % 2)
        row = int(y // SAMPLE_STEP)
        column = int(x // SAMPLE_STEP)
        luma[row : row + 4, column : column + 4] = 100
        changes.add(_ImageOfFrame(time, luma))
    track = track_of(np.arange(3.2, end + 1.2, 0.02))
    logged = PointerPath(track.times, track.x / scale, track.y / scale)
    scales = [1.0, 2.0, 1.5, 1.25, 1.75]
    clock = clock_from_pointer(changes, logged, documented_clock(START_MS), scales, 3.5)
    assert clock is not None
    assert clock.event_scale == scale
    assert abs(clock.documented_offset_ms - 1200) <= clock.uncertainty_ms


def test_a_stretch_that_contradicts_the_clock_of_those_before_counts() -> None:
    """The search decoded 30 seconds. In the last nine, the clock differs by 0.2 seconds."""
    changes = video_changes(0, 30, jump_s=0.2)
    first = replace(pointer_clock(video_changes(0, 10)), uncertainty_ms=30.0)
    packets = VideoPackets(np.arange(30 * FPS), np.arange(1), Fraction(1, FPS))
    video = RecordedVideo(Path("none.mp4"), packets)
    search = ClockSearch(video, track_of(np.arange(0, 700, 0.02)), np.zeros(0))
    clock = with_parts(first, search.parts(first, changes))
    assert clock.uncertainty_ms == pytest.approx(200, abs=25)


@pytest.mark.parametrize("rate", [0.9985, 1.0, 1.0015])
def test_drift_between_two_stretches_is_followed(rate: float) -> None:
    first = pointer_clock(video_changes(10, 12, rate=rate))
    late = clock_from_pointer(
        video_changes(580, 10, rate=rate), track_of(np.arange(0, 700, 0.02)), first, [1.0], 1.5
    )
    assert late is not None
    parts = [ClockPart(first.event_time(585), late)]
    clock = drift_corrected(first, 16, parts)
    for video_s in (16.0, 300.0, 585.0):
        event_ms = START_MS + video_s / rate * 1000
        assert clock.video_time(event_ms) == pytest.approx(video_s, abs=1.5 * FRAME_S)
        assert clock.event_time(clock.video_time(event_ms)) == pytest.approx(event_ms, abs=0.01)
    assert clock.rate == pytest.approx(rate, abs=150e-6)
    assert (clock.rate == 1.0) == (rate == 1.0)


def test_a_long_recording_is_followed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's clock runs 1 % fast. The test shortens the time after which drift is measured."""
    monkeypatch.setattr(clock_search, "DRIFT_AFTER_S", 40.0)
    acts = (click("Agree"), click("Rows/d"), click("Agree"), click("Form/title bar"))
    folder = tmp_path / "demo"
    slow = replace(SMALL, video=VideoOptions(preset="ultrafast", fps=10), scan_every_s=None)
    truth = write_recording(folder, script(*acts, *acts, think(40), *acts, *acts), slow)
    log = folder / "input_log.jsonl"
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for event in events:
        ahead = event["time"] - truth.timestamp_ms
        event["time"] = truth.timestamp_ms + round(ahead * 1.01)
    log.write_text("\n".join(map(json.dumps, events)), encoding="utf-8")
    seen = observe(folder, tmp_path / "store", truth)
    clock = seen.evidence.clock
    assert clock.rate == pytest.approx(0.99, abs=0.0025)
    last_s = (truth.end_ms - truth.timestamp_ms) / 1000
    for event_s in (5.0, last_s - 3):
        event_ms = truth.timestamp_ms + event_s * 1.01 * 1000
        assert clock.video_time(event_ms) == pytest.approx(event_s, abs=0.15)


def answered(lag_s: float, *, answers: bool = True) -> tuple[ChangeMap, PointerPath]:
    """Returns the changes and the clicks of a video without a pointer.

    With `answers`, each of ten clicks lights up a button after 60 ms.
    """
    random = np.random.default_rng(5)
    times = np.cumsum(random.uniform(1.1, 2.4, 10)) + 4
    places = random.uniform(60, 300, (10, 2))
    changes: Any = ChangeMap()
    for number in range(30 * FPS):
        time = number * FRAME_S
        luma = np.zeros((ROWS, COLUMNS), np.uint8)
        for at, (x, y) in zip(times - lag_s, places, strict=True):
            if answers and at + 0.06 <= time < at + 0.46:
                row = int(y // SAMPLE_STEP)
                column = int(x // SAMPLE_STEP)
                luma[row : row + 5, column : column + 10] = 200
        changes.add(_ImageOfFrame(time, luma))
    return changes, PointerPath(START_MS + times * 1000, places[:, 0], places[:, 1])


@pytest.mark.parametrize("lag_s", [-2.5, 0.3, 3.1])
def test_without_a_pointer_in_the_video_its_answers_to_clicks_tell(lag_s: float) -> None:
    changes, presses = answered(lag_s)
    clock = clock_from_clicks(changes, presses, documented_clock(START_MS), 1.0, 3.5)
    assert clock is not None
    assert clock.method == "click_onsets"
    assert abs(clock.documented_offset_ms - lag_s * 1000) <= clock.uncertainty_ms
    assert clock.uncertainty_ms < 200


def test_clicks_that_nothing_answers_are_no_evidence() -> None:
    changes, presses = answered(0.3, answers=False)
    assert clock_from_clicks(changes, presses, documented_clock(START_MS), 1.0, 3.5) is None
    few = PointerPath(presses.times[:4], presses.x[:4], presses.y[:4])
    assert clock_from_clicks(answered(0.3)[0], few, documented_clock(START_MS), 1.0, 3.5) is None
    assert clock_from_clicks(ChangeMap(), few, documented_clock(START_MS), 1.0, 3.5) is None


@pytest.mark.parametrize("off_ms", [0.0, 15.0, -300.0])
def test_a_start_line_that_the_frames_contradict_stays_and_is_uncertain(off_ms: float) -> None:
    seen = pointer_clock(video_changes(10, 12))
    logged = Clock(seen.origin_ms - off_ms, "ffmpeg_start", 20.0)
    clock = reconcile_clocks(logged, seen, 1.001, 0.5)
    assert clock.method == "ffmpeg_start"
    assert clock.uncertainty_ms == (20.0 if abs(off_ms) < 50 else pytest.approx(300, abs=0.01))
    assert clock.video_time(logged.event_time(0.5)) == pytest.approx(0.5)
    assert clock.rate == 1.001
    assert reconcile_clocks(logged, None, 1.0, 0.0) == logged


def test_the_least_lead_is_the_uncertainty_of_the_clock() -> None:
    """The lead is at most one second, even if only meta.timestamp documents the clock."""
    assert lead_seconds(documented_clock(0.0), 0.04) == 1.0
    assert lead_seconds(Clock(0.0, "ffmpeg_start", 300.0), 0.04) == 0.3
    assert lead_seconds(Clock(0.0, "pixels", 12.0), 0.1) == 0.1
    assert lead_seconds(Clock(0.0, "pixels", 12.0), 0.01) == 0.05
