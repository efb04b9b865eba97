"""Tests that videos are decoded once with correct screenshots, for all trees and clocks."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demo_pipeline.observation.clock.clock_search import MAX_PARTS, STRETCH_S
from demo_pipeline.observation.frames import decode_pass
from demo_pipeline_tests.observation import videos
from demo_pipeline_tests.observation.decoded_packets import decoded_packets
from demo_pipeline_tests.observation.made import Observed, observe
from demo_pipeline_tests.observation.videos import Rule, every_frame
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Widget
from demo_pipeline_tests.simulator.form import SMALL
from demo_pipeline_tests.simulator.frame_numbers import read_frame_number, stamp
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth, write_recording
from demo_pipeline_tests.simulator.script import Script, click
from demo_pipeline_tests.simulator.video import Frame, VideoOptions, encode

NAMES = (
    *("Inbox", "Drafts", "Sent", "Archive", "Reply", "Forward"),
    *("Attach", "Delete", "Settings", "Search", "Print", "Help"),
)
OFFICE = Desktop(
    (
        Widget("Mail", "window", Box(160, 60, 1500, 900)),
        *(
            Widget(name, "button", Box(x, y, 96 + 14 * len(name), 58), "Mail")
            for name, x, y in zip(
                NAMES,
                (190, 407, 683, 941, 1240, 229, 560, 811, 1103, 371, 733, 1317),
                (140, 203, 331, 157, 260, 419, 527, 470, 611, 683, 790, 837),
                strict=True,
            )
        ),
    )
)
STORY = Script(
    OFFICE, tuple(map(click, ("Drafts", "Print", "Sent", "Help", "Inbox") * 2)), lead_in_ms=2500
)
LATE_MS = 90
REDRAWN_MS = 10  # milliseconds after an action; the pointer has not yet moved on
UNITS = 1.25  # video pixels per unit of the log, after the screen was set to 1024x576
UNUSUAL_UNITS = 0.6  # video pixels per unit of the log, for a screen of 2133x1200
# Largest number of frames that are decoded in these videos to check the clock in one part.
PART_FRAMES = 60

Change = Callable[[dict[str, Any]], None]


def walk(value: Any, change: Change) -> None:
    """Applies `change` to the box of every node in a JSON value."""
    if isinstance(value, dict):
        if "bbox" in value:
            change(value["bbox"])
        for inner in value.values():
            walk(inner, change)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, change)


def changed_boxes(log: Path, change: Change) -> None:
    """Applies `change` to the box of every node in the scans of the log."""
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    for line in lines:
        walk(line["data"], change)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def larger(box: dict[str, Any]) -> None:
    """Converts a box to the units of a display scaling of 150 %."""
    box.update({side: value / 1.5 for side, value in box.items()})


def elsewhere(box: dict[str, Any]) -> None:
    """Moves a box, so that it does not fit the screen."""
    box.update(x=box["x"] + 47, y=box["y"] + 31)


def untold(box: dict[str, Any]) -> None:
    """Moves a box away from the upper left corner, so that no node is a desktop."""
    box["x"] += box["x"] == box["y"] == 0


def resized(root: Path, units: float, *, scans=False, change: Callable[..., Any] = id) -> Observed:
    """Records a screen whose size, and thereby the units of the log, changes in the middle.

    Args:
        root: the folder for the recording.
        units: video pixels per unit of the log after the change.
        scans: whether the log has scans, which show the change.
        change: is applied to the boxes of all scans.
    """

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        since = truth.actions[len(truth.actions) // 2].end_ms + REDRAWN_MS
        height = truth.screen[1]

        def image(frame: Frame) -> np.ndarray:
            planes = painter.planes(truth.timeline.at(frame.wall_ms), frame.number).copy()
            if frame.wall_ms >= since:
                planes[:height] = 255 - planes[:height]
                stamp(planes[:height], frame.number)
            return planes

        images = ((frame.pts, image(frame)) for frame in truth.frames)
        encode(path, images, truth.screen, USUAL)
        log = path.parent / "input_log.jsonl"
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        for line in lines:
            if line["time"] >= since:
                walk(line["data"], lambda box: box.update({k: v / units for k, v in box.items()}))
                moved = {side: line["data"][side] / units for side in "xy" if side in line["data"]}
                line["data"].update(moved)
        kept = [line for line in lines if scans or "axtree" not in line["event"]]
        walk(kept, change)
        log.write_text("".join(json.dumps(line) + "\n" for line in kept), "utf-8")

    return videos.painted(root, replace(SMALL, width=1280, height=720), write, STORY)


def simulated(root: Path, video: VideoOptions) -> Observed:
    folder = root / "uploads" / "demo"
    options = replace(SMALL, video=video)
    return observe(folder, root / "store", write_recording(folder, STORY, options))


def with_trees(root: Path, change: Change | None) -> Observed:
    """Records a screen with scans, and applies `change` to their boxes.

    The screen is large enough for testing the units of boxes.
    """
    folder = root / "uploads" / "demo"
    options = replace(SMALL, width=1280, height=720)
    truth = write_recording(folder, STORY, options)
    if change is not None:
        changed_boxes(folder / "input_log.jsonl", change)
    return observe(folder, root / "store", truth)


def late(root: Path) -> Observed:
    """Records a video whose second half shows the screen `LATE_MS` late."""

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        half = (truth.frames[0].wall_ms + truth.frames[-1].wall_ms) / 2
        frames = [
            replace(frame, wall_ms=frame.wall_ms - LATE_MS * (frame.wall_ms > half))
            for frame in truth.frames
        ]
        videos.write_plain(path, painter, replace(truth, frames=tuple(frames)))

    story = replace(STORY, acts=(*STORY.acts, *STORY.acts, *STORY.acts))
    return videos.painted(root, SMALL, write, story)


USUAL = VideoOptions(preset="ultrafast", gop=30)
KINDS: dict[str, Callable[[Path], Observed]] = {
    "fitting trees": lambda root: with_trees(root, None),
    "trees in other units": lambda root: with_trees(root, larger),
    "trees of another screen": lambda root: with_trees(root, elsewhere),
    "a clock that is off later on": late,
    "one key frame": lambda root: simulated(root, replace(USUAL, gop=10_000)),
    "B-frames": lambda root: simulated(root, replace(USUAL, preset="veryfast", b_frames=2)),
    "another resolution": lambda root: resized(root, UNITS, scans=True),
    "another resolution that only the pointer shows": lambda root: resized(root, UNITS),
    "another resolution that no scan tells": lambda root: resized(
        root, UNITS, scans=True, change=untold
    ),
    "a resolution that nothing shows": lambda root: resized(root, UNUSUAL_UNITS),
    "starts late": lambda root: simulated(root, replace(USUAL, video_start_s=1.7)),
    "a variable rate": lambda root: simulated(root, replace(USUAL, variable=True)),
}
ENCODINGS = {"one key frame", "B-frames", "starts late"}  # test_exactness.py also has these
SCALES: dict[str, list[Any]] = {
    "trees in other units": [pytest.approx(1.5)],
    "trees of another screen": [None],
    "another resolution that no scan tells": [None, 1.0],  # unknown until the pointer shows it
}


@pytest.mark.parametrize(
    "kind",
    [
        *sorted(KINDS.keys() - ENCODINGS),
        *(pytest.param(kind, marks=pytest.mark.minutes) for kind in sorted(ENCODINGS)),
    ],
)
def test_a_video_is_decoded_once_and_its_screenshots_are_right(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the decode pass, only the parts that the calibration needs are decoded."""
    looked: list[int] = []
    whole = decode_pass.show_frames

    def counted(*args: Any, **options: Any) -> Any:
        looked.append(len(decoded))
        return whole(*args, **options)

    decoded = decoded_packets(monkeypatch)
    monkeypatch.setattr(decode_pass, "show_frames", counted)
    observed = KINDS[kind](tmp_path)
    (first,) = looked
    assert first <= STRETCH_S * USUAL.fps + 1 + MAX_PARTS * PART_FRAMES
    assert max(Counter(decoded[first:]).values()) == 1
    check_screenshots(observed)
    check_places(observed)
    evidence = observed.evidence
    hidden = Counter(row["reason_code"] for row in observed.rows)["unknown_scale"]
    assert hidden == (4 if kind == "a resolution that nothing shows" else 0)
    is_late = kind == "a clock that is off later on"
    assert (evidence.clock.uncertainty_ms >= LATE_MS - 5) == is_late
    assert [part.scale for part in evidence.tree_scales] == SCALES.get(kind, [])
    if "scan" in kind:
        assert {8, 9} < {target.action_index for target in evidence.targets}
    if "trees" in kind:
        compared = [target.began for target in evidence.targets]
        assert compared == [False] * (None not in SCALES.get(kind, [])) * len(STORY.acts)


def check_places(observed: Observed) -> None:
    """Checks that actions are at the intended positions in the video."""
    for action, meant, row in zip(
        observed.actions, observed.truth.actions, observed.rows, strict=True
    ):
        canvas = observed.evidence.screen().canvas_of(action)
        assert (canvas is None) == (row["reason_code"] == "unknown_scale")
        if canvas is not None:
            place = canvas.to_video(action.x or 0, action.y or 0)
            assert place == pytest.approx((meant.parameters["x"], meant.parameters["y"]))


def check_screenshots(observed: Observed) -> None:
    """Checks that each screenshot is the frame that `Rule` demands, by its frame number."""
    all_frames = every_frame(observed.folder / "recording.mp4")
    rule = Rule(all_frames, observed.truth, observed.evidence.clock)
    assert len(observed.rows) == len(observed.truth.actions)
    for position, row in enumerate(observed.rows):
        if row["file"] is None:
            continue
        frame = all_frames[row["frame"]]
        assert frame == rule.names(position), position
        assert read_frame_number(observed.screenshot(row["file"])) == frame.number
