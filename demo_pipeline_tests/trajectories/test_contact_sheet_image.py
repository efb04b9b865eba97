"""Tests of tiles and their grid: sizes, captions, flags and unreadable screenshots."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

from demo_pipeline.desktopd.models import ActionType, StepAction, WaitParameters
from demo_pipeline.trajectories.contact_sheets import TITLE_HEIGHT, Tile, contact_sheet, sheet_size
from demo_pipeline.trajectories.overlay import DARK

WAIT = StepAction(
    step_index=0, action_type=ActionType.WAIT, parameters=WaitParameters(seconds=1.0), reasoning=""
)


@pytest.fixture
def tile(tmp_path: Path) -> Tile:
    path = tmp_path / "screenshot.png"
    cv2.imwrite(str(path), np.full((1080, 1920, 3), (200, 150, 100), np.uint8))
    return Tile(path, "0 wait:", "settled, 60 ms, tree fresh", WAIT)


@pytest.mark.parametrize(("tiles", "rows"), [(0, 1), (1, 1), (4, 1), (5, 2), (60, 15)])
def test_a_sheet_has_the_computed_size(tile, tiles, rows):
    size = sheet_size(tiles, 4, 48, titled=True)
    sheet = contact_sheet([tile] * tiles, 4, 48, "a title")
    assert (sheet.shape[1], sheet.shape[0]) == size
    assert size[0] == 4 * 48
    assert size[1] - TITLE_HEIGHT == rows * sheet_size(1, 4, 48, titled=False)[1]


@pytest.mark.parametrize("content", [None, b"", b"no picture"])
def test_a_screenshot_that_cannot_be_read_is_a_dark_tile(tile, tmp_path, content):
    path = tmp_path / "other.png"
    if content is not None:
        path.write_bytes(content)
    sheet = contact_sheet([tile, replace(tile, screenshot=path)], 2, 480)
    assert sheet[200, 240].tolist() == [200, 150, 100]
    assert sheet[200, 700].tolist() == list(DARK)
    assert (sheet[60:, 480:] > 200).all(axis=2).any()  # the tile shows the note


@pytest.mark.parametrize("length", [10, 128, 300])
def test_a_title_of_any_length_stays_in_its_row(tile, length):
    sheet = contact_sheet([tile], 4, 240, "x" * length)
    assert (sheet[TITLE_HEIGHT - 4 : TITLE_HEIGHT] == DARK).all()
    assert (sheet[:TITLE_HEIGHT] != DARK).any()
