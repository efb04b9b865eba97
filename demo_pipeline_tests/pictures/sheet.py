"""Draws the first rows of the contact sheet of a desktop recording."""

from pathlib import Path

import cv2

from demo_pipeline.trajectories.contact_sheets import (
    COLUMNS,
    FIRST_SHEET,
    TILE_WIDTH,
    encode_jpeg,
    sheet_size,
)

RECORDING = "20261121_212358"
ROWS = 2
WIDTH = 1600  # pixels; the documentation shows the picture at half this width


def draw(root: Path, images: Path) -> list[Path]:
    """Writes `contact_sheet.jpg`."""
    sheet = cv2.imread(str(root / "store/contact_sheets" / RECORDING / FIRST_SHEET))
    if sheet is None:
        raise FileNotFoundError(f"{RECORDING} has no contact sheet below {root}")
    _, height = sheet_size(ROWS * COLUMNS, COLUMNS, TILE_WIDTH, titled=True)
    rows = sheet[:height]
    size = (WIDTH, round(height * WIDTH / rows.shape[1]))
    picture = images / "contact_sheet.jpg"
    picture.write_bytes(encode_jpeg(cv2.resize(rows, size, interpolation=cv2.INTER_AREA), 60))
    return [picture]
