"""Tiles and their grid: sizes, captions, flags, and screenshots that cannot be read."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pytest

from demo_pipeline.desktopd.models import ActionType, StepAction, WaitParameters
from demo_pipeline.trajectories.contact_sheets import (
    TITLE_HEIGHT,
    Tile,
    contact_sheet,
    encode_jpeg,
    sheet_size,
)
from demo_pipeline.trajectories.overlay import DARK, RED

WAIT = StepAction(
    step_index=0,
    action_type=ActionType.WAIT,
    parameters=WaitParameters(seconds=1.0),
    reasoning="",
)


@pytest.fixture
def tile(tmp_path: Path) -> Tile:
    path = tmp_path / "screenshot.png"
    cv2.imwrite(str(path), np.full((1080, 1920, 3), (200, 150, 100), np.uint8))
    return Tile(path, "0 wait:", "settled, 60 ms, tree fresh", WAIT)


@pytest.mark.parametrize(("tiles", "rows"), [(0, 1), (1, 1), (4, 1), (5, 2), (60, 15)])
def test_a_sheet_has_the_size_it_says(tile: Tile, tiles: int, rows: int) -> None:
    size = sheet_size(tiles, 4, 48, titled=True)
    sheet = contact_sheet([tile] * tiles, 4, 48, "a title")
    assert (sheet.shape[1], sheet.shape[0]) == size
    assert size[0] == 4 * 48
    assert size[1] - TITLE_HEIGHT == rows * sheet_size(1, 4, 48, titled=False)[1]


def test_each_screenshot_is_read_once(tile: Tile, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = cv2.imread

    def count(path: str) -> Any:
        read.append(path)
        return real(path)

    monkeypatch.setattr(cv2, "imread", count)
    others = [replace(tile, heading=str(number)) for number in range(3)]
    contact_sheet(others, 2, 240)
    assert len(read) == 3


def test_the_frame_is_below_its_caption_in_its_own_colours(tile: Tile) -> None:
    sheet = contact_sheet([tile], 1, 480)
    height = sheet.shape[0]
    assert sheet[height // 2, 240].tolist() == [200, 150, 100]
    assert (sheet[:20] == DARK).all(axis=2).mean() > 0.8
    assert (sheet[:20] > 200).all(axis=2).any()


def test_a_leak_is_a_colour_of_its_own(tile: Tile) -> None:
    def counted(leak: Literal["", "LEAK", "UNAVOIDABLE"]) -> tuple[int, int]:
        top = contact_sheet([replace(tile, leak=leak)], 1, 480)[:40]
        return (top == RED).all(axis=2).sum(), (top == (40, 150, 235)).all(axis=2).sum()

    clean, leaky, unavoidable = counted(""), counted("LEAK"), counted("UNAVOIDABLE")
    assert clean == (0, 0)
    assert leaky[0] > 300
    assert leaky[1] == 0
    assert unavoidable[1] > 300
    assert unavoidable[0] == 0


@pytest.mark.parametrize("content", [None, b"", b"no picture"])
def test_a_screenshot_that_cannot_be_read_is_a_dark_tile(
    tile: Tile, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "other.png"
    if content is not None:
        path.write_bytes(content)
    sheet = contact_sheet([tile, replace(tile, screenshot=path)], 2, 480)
    assert sheet[200, 240].tolist() == [200, 150, 100]
    assert sheet[200, 700].tolist() == list(DARK)
    assert (sheet[60:, 480:] > 200).all(axis=2).any()  # and it says so


def test_no_tile_reaches_into_the_next(tile: Tile) -> None:
    long = replace(tile, caption="x" * 500, heading="y" * 500)
    alone = contact_sheet([tile, tile], 2, 240)
    beside = contact_sheet([long, tile], 2, 240)
    assert (alone[:, 240:] == beside[:, 240:]).all()


@pytest.mark.parametrize("length", [10, 128, 300])
def test_a_title_of_any_length_stays_in_its_row(tile: Tile, length: int) -> None:
    sheet = contact_sheet([tile], 4, 240, "x" * length)
    assert (sheet[TITLE_HEIGHT - 4 : TITLE_HEIGHT] == DARK).all()
    assert (sheet[:TITLE_HEIGHT] != DARK).any()


def test_the_same_tiles_give_the_same_bytes(tile: Tile) -> None:
    made = {encode_jpeg(contact_sheet([tile] * 3, 2, 240, "t")) for _ in range(3)}
    assert len(made) == 1
