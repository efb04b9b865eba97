"""Tests that contact sheets have a tile for each step."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from demo_pipeline.desktopd.models import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.observation.frames.screenshot_files import open_screenshot_files
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.trajectories import contact_sheets
from demo_pipeline.trajectories.contact_sheets import (
    COLUMNS,
    TILE_WIDTH,
    build_contact_sheets,
    sheet_size,
)
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory

PINK = (255, 0, 128)
ROWS = {
    0: {"leak": True, "reason_code": "backoff"},
    1: {"action_index": 1},
    5: {"leak": True, "unavoidable": True, "lead_ms": None},
    10: {"target_x": 10, "target_y": 20, "target_width": 300, "target_height": 40},
}


def trajectory(root: Path, actions=TABLE, rows=None) -> Path:
    trajectory = make_trajectory(root, "demo", actions, rows=rows)
    shutil.copy(trajectory.provenance, trajectory.path / "provenance.parquet")
    return trajectory.path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return trajectory(tmp_path_factory.mktemp("sheets"), rows=ROWS)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Writes an image for one step. The tiles of other steps are made from screenshots."""
    folder = tmp_path_factory.mktemp("pictures")
    with open_screenshot_files(folder) as files:
        files.write("001.png", np.full((CANVAS_HEIGHT, CANVAS_WIDTH, 3), PINK, np.uint8))
    return folder


@pytest.fixture
def out(folder, pictures, tmp_path) -> Path:
    build_contact_sheets("demo", folder, pictures, tmp_path)
    return tmp_path


def test_every_kind_of_step_has_a_tile(folder, pictures, tmp_path):
    summary = build_contact_sheets("demo", folder, pictures, tmp_path)
    assert summary == {"sheets": 1, "tiles": 13, "leaks": 2, "unavoidable_leaks": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.jpg"]
    sheet = cv2.imread(str(tmp_path / "sheet.jpg"))
    assert sheet is not None
    height, width = sheet.shape[:2]
    assert (width, height) == sheet_size(13, COLUMNS, TILE_WIDTH, titled=True)


def test_a_tile_shows_the_thumbnail_of_its_action(out):
    sheet = cv2.imread(str(out / "sheet.jpg"))
    assert sheet is not None
    first = sheet[180, 300]
    second = sheet[180, TILE_WIDTH + 300]
    assert np.allclose(second, PINK[::-1], atol=8)
    assert not np.allclose(first, PINK[::-1], atol=8)


def test_further_steps_are_on_the_next_sheet(tmp_path, pictures, monkeypatch):
    monkeypatch.setattr(contact_sheets, "TILES", 4)
    folder = trajectory(tmp_path, [("wait", {"seconds": 1.0})] * 5)
    out = tmp_path / "out"
    out.mkdir()
    assert build_contact_sheets("demo", folder, pictures, out)["sheets"] == 2
    assert sorted(path.name for path in out.iterdir()) == ["sheet.jpg", "sheet_2.jpg"]
    sheet = cv2.imread(str(out / "sheet_2.jpg"))
    assert sheet is not None
    assert sheet.shape[0] < 400


def test_a_folder_without_a_trajectory_is_an_error(tmp_path, pictures):
    with pytest.raises(DemonstrationError, match=r"task\.json") as caught:
        build_contact_sheets("demo", tmp_path, pictures, tmp_path)
    assert caught.value.problems[0].demonstration == "demo"


def test_captions_of_a_step(folder):
    tiles, _ = contact_sheets.step_tiles("demo", folder)
    assert (tiles[0].heading, tiles[0].caption) == ("0 click", "backoff, 120 ms, tree fresh")
    assert (tiles[0].leak, tiles[5].leak, tiles[1].leak) == ("LEAK", "UNAVOIDABLE", "")
    assert tiles[5].caption == "pre_move, no lead, tree fresh"
    assert tiles[10].box == (10, 20, 300, 40)
    assert tiles[0].box is None
