"""Tests the clock that is found from typing, without a pointer or while the pointer rests."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo_pipeline.observation.clock.clock import Clock, documented_clock
from demo_pipeline.observation.clock.clock_evidence import clock_from_keys
from demo_pipeline.observation.frames.changes import ChangeMap
from demo_pipeline.observation.frames.pointer_path import Floats
from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.observation.made import Observed, observe
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth, write_recording
from demo_pipeline_tests.simulator.script import click, think, type_text

START_MS = 1_767_603_600_000.0
ECHO_S = 0.03
TEXT = "The heating does not work since Monday, could you send somebody?"
HAND = (click("Agree"), click("Rows/d"), click("Name"), click("Form/title bar"))


@dataclass(frozen=True)
class _ImageOfFrame:
    time: float
    luma: Any


def keys_of(seed: int) -> Floats:
    """Returns the times of five bursts of a dozen keys each, seconds."""
    random = np.random.default_rng(seed)
    bursts = [
        begin + np.cumsum(random.uniform(0.07, 0.24, 12))
        for begin in 4 + np.cumsum(random.uniform(2.6, 5.0, 5))
    ]
    return np.concatenate(bursts)


def typed_video(keys: Floats, fps: int, *, leaves_out: bool = False) -> tuple[ChangeMap, Floats]:
    """Returns the changes in a video in which every key lengthens a line.

    A text cursor blinks, and a bar moves all the time. With `leaves_out`, there is no bar, and the
    recorder drops frames without a change.
    """
    changes = ChangeMap()
    before = None
    for number in range(30 * fps):
        time = number / fps
        luma = np.zeros((90, 160), np.uint8)
        for place in range(int((keys + ECHO_S <= time).sum())):
            row = 10 + 12 * (place // 30)
            column = 2 + 5 * (place % 30)
            luma[row : row + 5, column : column + 4] = 200
        luma[80:86, 4:6] = 200 * (int(time / 0.53) % 2)
        if not leaves_out:
            bar = number * 7 % 150
            luma[60:64, bar : bar + 8] = 90
        if not leaves_out or before is None or (luma != before).any():
            image: Any = _ImageOfFrame(time, luma)
            changes.add(image)
        before = luma
    return changes, np.array(changes.times)


@pytest.mark.parametrize(
    ("late_s", "fps", "leaves_out"),
    [(1.7, 15, False), (-2.5, 30, False), (0.3, 8, False), (1.7, 20, True)],
)
def test_typing_tells_the_clock_within_two_frames(
    late_s: float, fps: int, leaves_out: bool
) -> None:
    keys = keys_of(1)
    changes, frames = typed_video(keys, fps, leaves_out=leaves_out)
    logged = START_MS + (keys + late_s) * 1000
    clock = clock_from_keys(changes, frames, logged, documented_clock(START_MS), 3.5)
    assert clock is not None
    assert clock.method == "typing"
    assert clock.documented_offset_ms == pytest.approx(late_s * 1000, abs=2000 / fps)
    assert clock.uncertainty_ms < 150


def test_other_keys_than_those_of_the_video_are_no_evidence() -> None:
    changes, frames = typed_video(keys_of(1), 15)
    for seed in range(2, 12):
        logged = START_MS + keys_of(seed) * 1000
        assert clock_from_keys(changes, frames, logged, documented_clock(START_MS), 3.5) is None


def test_few_keys_are_no_evidence() -> None:
    keys = keys_of(1)[:10]
    changes, frames = typed_video(keys, 15)
    logged = START_MS + keys * 1000
    assert clock_from_keys(changes, frames, logged, documented_clock(START_MS), 3.5) is None
    assert clock_from_keys(ChangeMap(), frames, logged, documented_clock(START_MS), 3.5) is None


def error_ms(clock: Clock, truth: GroundTruth) -> float:
    """Returns the error of the clock at the first frame, milliseconds."""
    first = truth.frames[0]
    return abs(clock.event_time(first.pts / 90_000) - first.wall_ms)


def test_a_recording_of_typing_only_whose_clock_is_late_is_aligned(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    acts = (click("Name"), think(2.5), type_text(TEXT), think(2.5), type_text(" Thank you!"))
    truth = write_recording(folder, script(*acts), replace(SMALL, scan_every_s=None))
    log = folder / "input_log.jsonl"
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    late = [
        {**event, "time": event["time"] + 1700}
        for event in events
        if not event["event"].startswith("mouse")
    ]
    log.write_text("\n".join(map(json.dumps, late)), encoding="utf-8")
    clock = observe(folder, tmp_path / "store", truth).evidence.clock
    assert clock.method == "typing"
    error = error_ms(replace(clock, origin_ms=clock.origin_ms - 1700), truth)
    assert error <= min(2000 / 15, clock.uncertainty_ms)


def keyboard_work(root: Path, late_ms: float) -> Observed:
    """Records clicks, and then typing that appears in the video `late_ms` too late."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        typing = next(act for act in truth.actions if act.action_type == "type").press_ms - 1000
        frames = [
            replace(frame, wall_ms=frame.wall_ms - late_ms * (frame.wall_ms > typing))
            for frame in truth.frames
        ]
        videos.write_plain(path, painter, replace(truth, frames=tuple(frames)))

    typing = [type_text(TEXT[:24]), think(2.4), type_text(TEXT[24:44] + "\b" * 9), think(2.1)]
    story = script(*HAND * 2, click("Name"), think(3.0), *typing, *typing)
    return videos.painted(root, replace(SMALL, scan_every_s=None), write, story)


@pytest.mark.parametrize("late_ms", [0, 85, -85])
def test_the_uncertainty_covers_a_part_with_keyboard_work_only(
    late_ms: int, tmp_path: Path
) -> None:
    clock = keyboard_work(tmp_path, late_ms).evidence.clock
    assert clock.method == "pixels"
    assert clock.uncertainty_ms >= abs(late_ms) - 5
    assert clock.uncertainty_ms < (200 if late_ms else 50)
