"""Tests typing with pauses in a small terminal: keys of a pager, and text during output."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cv2
import pytest

from demo_pipeline.observation.frames.frame_choice import Reason
from demo_pipeline_tests.observation.made import Observed
from demo_pipeline_tests.observation.videos import Picture, painted
from demo_pipeline_tests.simulator.desktop import Box, Desktop, Widget
from demo_pipeline_tests.simulator.painter import Painter
from demo_pipeline_tests.simulator.recording import GroundTruth, RecordingOptions
from demo_pipeline_tests.simulator.script import Script, click, think, type_text
from demo_pipeline_tests.simulator.video import VideoOptions, encode

TERMINAL = Box(60, 60, 400, 220)
LINE = 20
LINES = TERMINAL.height // LINE - 1
STORY = Script(
    Desktop((Widget("Terminal", "text_field", Box(120, 120, 800, 440)),)),
    (
        *(click("Terminal"), type_text("a"), think(0.6), type_text("b"), think(0.6)),
        *(type_text("c"), think(0.6), type_text("ls")),
    ),
    seed=3,
)
VIDEO = VideoOptions(preset="ultrafast", fps=15, frame_numbers=False)


def record(root: Path, first_line: Callable[[float, list[int]], int]) -> Observed:
    """Records typing into a terminal.

    `first_line` returns the number of the terminal's first line, given the time and the times of
    the keys.
    """

    def write(path: Path, painter: Painter, truth: GroundTruth) -> None:
        keys = [action.press_ms for action in truth.actions if action.action_type == "type"]
        height = truth.screen[1]

        def images() -> Iterable[tuple[int, Picture]]:
            for frame in truth.frames:
                moment = truth.timeline.at(frame.wall_ms)
                planes = painter.planes(moment, None).copy()
                draw(planes[:height], first_line(frame.wall_ms, keys))
                yield frame.pts, planes

        encode(path, images(), truth.screen, VIDEO)

    options = RecordingOptions(width=960, height=540, video=VIDEO, scan_every_s=None)
    return painted(root, options, write, STORY)


def draw(luma: Any, first: int) -> None:
    """Draws a dark terminal with numbered lines that differ only in their numbers."""
    left = TERMINAL.x
    top = TERMINAL.y
    luma[top - 2 : top + TERMINAL.height + 2, left - 2 : left + TERMINAL.width + 2] = 200
    luma[top : top + TERMINAL.height, left : left + TERMINAL.width] = 24
    for row in range(LINES):
        number = first + row
        text = f"{number * 7919 % 99991:05d} parcel {number * 613 % 9973:04d} to rack"
        at = (left + 8, top + LINE * (row + 1) - 4)
        cv2.putText(luma, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 230, 1, cv2.LINE_AA)


def typed_parts(seen: Observed) -> list[str | None]:
    """Returns the typed texts. A text that continues the previous one is joined to it."""
    parts: list[str | None] = []
    for action, row in zip(seen.actions, seen.rows, strict=True):
        if action.action_type == "type" and row["reason_code"] == Reason.CONTINUED:
            parts[-1] = (parts[-1] or "") + (action.text or "")
        elif action.action_type == "type":
            parts.append(action.text)
    return parts


def test_keys_of_a_pager_in_a_small_window_are_steps_of_their_own(tmp_path: Path) -> None:
    seen = record(tmp_path, lambda now, keys: LINES * sum(now > key + 60 for key in keys))
    assert typed_parts(seen) == ["a", "b", "c", "ls"]


@pytest.mark.parametrize("lines_a_second", [2, 6])
def test_text_typed_while_output_scrolls_is_one(tmp_path: Path, lines_a_second: int) -> None:
    seen = record(tmp_path, lambda now, keys: int((now - keys[0] + 5000) * lines_a_second / 1000))
    assert typed_parts(seen) == ["abcls"]


def test_a_still_terminal_has_one_text(tmp_path: Path) -> None:
    assert typed_parts(record(tmp_path, lambda now, keys: int(now >= keys[-1]))) == ["abcls"]
