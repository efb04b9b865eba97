"""The `contact_sheets` stage: shows every step of a trajectory as a tile on a few JPEG sheets.

A tile is a screenshot below two lines of text. Colours are BGR; sizes are pixels of the sheet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import cv2
import numpy as np

from demo_pipeline.desktopd.models import CANVAS_HEIGHT, CANVAS_WIDTH, StepAction
from demo_pipeline.desktopd.trajectory_reader import StepFiles
from demo_pipeline.observation.frames.screenshot_files import read_thumbnails
from demo_pipeline.problems import Problem
from demo_pipeline.trajectories.overlay import (
    DARK,
    RED,
    WHITE,
    Colour,
    Picture,
    draw_action,
    place_label,
    text_size,
    write,
)
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory, load

TITLE_HEIGHT = 40
_AMBER: Colour = (40, 150, 235)
_GREY: Colour = (200, 200, 200)
_EDGE = 6  # space between a text and the edge of its tile


@dataclass(frozen=True)
class Tile:
    """The content of a step's tile.

    Attributes:
        screenshot: the PNG file.
        heading: the number and the type of the step.
        caption: a short line about the screenshot, without typed text.
        action: the action to draw, or None.
        box: (x, y, width, height) of the target on the canvas. None if no target is known.
        leak: the kind of leak, if the screenshot already shows the pointer at the target; otherwise
            empty.
        thumbnail: a small JPEG to draw instead of the screenshot, or None.
    """

    screenshot: Path
    heading: str
    caption: str
    action: StepAction | None
    box: tuple[int, int, int, int] | None = None
    leak: Literal["", "LEAK", "UNAVOIDABLE"] = ""
    thumbnail: bytes | None = None


def sheet_size(tiles: int, columns: int, width: int, *, titled: bool) -> tuple[int, int]:
    """Returns (width, height) in pixels of a sheet of `tiles` tiles, each `width` wide."""
    rows = max(1, -(-tiles // columns))
    tile_height = _caption_height(width) + _picture_height(width)
    title_height = TITLE_HEIGHT if titled else 0
    return columns * width, rows * tile_height + title_height


def contact_sheet(tiles: Sequence[Tile], columns: int, width: int, title: str = "") -> Picture:
    """Draws a title, and below it a grid of tiles that are each `width` pixels wide.

    An unreadable screenshot becomes a dark tile with a note.

    Returns:
        (height, width, 3) BGR.
    """
    sheet = _dark(*sheet_size(len(tiles), columns, width, titled=bool(title)))
    if title:
        largest = columns * width - 24
        scales = (scale for scale in (0.7, 0.6, 0.5) if text_size(title, scale)[0] < largest)
        write(sheet, title, (12, 26), next(scales, 0.4), WHITE)
    top = TITLE_HEIGHT if title else 0
    tile_height = _caption_height(width) + _picture_height(width)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        y = top + row * tile_height
        x = column * width
        _draw_tile(sheet[y : y + tile_height, x : x + width], tile)
    return sheet


def encode_jpeg(picture: Picture, quality: int = 70) -> bytes:
    """Encodes a BGR picture as JPEG."""
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return data.tobytes()


def _dark(width: int, height: int) -> Picture:
    """Returns a picture in the background colour."""
    picture: Picture = np.empty((height, width, 3), np.uint8)
    picture[:1] = DARK
    picture[1:] = picture[:1]  # fifty times as fast as setting all pixels to a colour
    return picture


def _caption_height(width: int) -> int:
    return 44 if width >= 360 else 38


def _picture_height(width: int) -> int:
    return round(CANVAS_HEIGHT * width / CANVAS_WIDTH)


def _draw_tile(area: Picture, tile: Tile) -> None:
    """Draws a tile into `area`, which is its part of the sheet."""
    width = area.shape[1]
    captions = _caption_height(width)
    font_scale = 0.5 if width >= 360 else 0.38
    write(area, tile.heading, (_EDGE, captions // 2 - 4), font_scale, WHITE)
    write(area, tile.caption, (_EDGE, captions - 8), font_scale * 0.9, _GREY)
    if tile.leak:
        _draw_flag(area, tile.leak, captions // 2 - 4, font_scale)
    # A gap of two pixels on the right and below separates tiles.
    inner_width = width - 2
    inner_height = _picture_height(width) - 2
    picture = tile_picture(tile, width)[:inner_height, :inner_width]
    area[captions : captions + inner_height, :inner_width] = picture


def _draw_flag(area: Picture, flag: str, baseline: int, font_scale: float) -> None:
    """Writes the kind of leak on a coloured background, at the right end of a line of text."""
    background = _AMBER
    ink = DARK
    if flag == "LEAK":
        background = RED
        ink = WHITE
    wide, high = text_size(flag, font_scale)
    left = area.shape[1] - wide - 2 * _EDGE
    corner = (area.shape[1] - 4, baseline + 4)
    cv2.rectangle(area, (left - 2, baseline - high - 4), corner, background, cv2.FILLED)
    write(area, flag, (left + 3, baseline), font_scale, ink)


def tile_picture(tile: Tile, width: int) -> Picture:
    """Returns the screenshot of a tile, `width` pixels wide, with action and target."""
    height = _picture_height(width)
    picture = _picture(tile)
    if picture is None:
        dark = _dark(width, height)
        place_label(dark, "the screenshot cannot be read", [], 0.42)
        return dark
    if picture.shape[:2] != (height, width):
        picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    if tile.action is not None:
        draw_action(picture, tile.action, width / CANVAS_WIDTH, tile.box)
    return picture


def _picture(tile: Tile) -> Picture | None:
    """Reads the thumbnail, or the screenshot if the tile has no thumbnail.

    Returns None if the image cannot be read.
    """
    if tile.thumbnail is not None:
        data = np.frombuffer(tile.thumbnail, np.uint8)
        return cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    return cv2.imread(str(tile.screenshot)) if tile.screenshot.is_file() else None


TILES = 24  # maximum number of tiles on a sheet
COLUMNS = 4  # tiles in a row
TILE_WIDTH = 480
QUALITY = 80  # JPEG quality of the sheets, 0 to 100
FIRST_SHEET = "sheet.jpg"
_END_OF_JPEG = b"\xff\xd9"  # last bytes of a complete file
# Minimum range of brightness (0 to 255) in the title area of a sheet. A smaller range means that
# the title is missing.
_CONTRAST = 16


def build_contact_sheets(
    demonstration: str, trajectory: Path, screenshots: Path | None, out: Path
) -> dict[str, Any]:
    """Writes sheet.jpg, sheet_2.jpg, …, with at most `TILES` steps each, and returns a summary.

    Args:
        screenshots: the folder with the thumbnails; None if the trajectory is redacted.

    Raises:
        DemonstrationError: `trajectory` cannot be read.
    """
    thumbnails = None if screenshots is None else read_thumbnails(screenshots)
    tiles, rows = step_tiles(demonstration, trajectory, thumbnails)
    names = _sheet_names(len(tiles))
    for number, name in enumerate(names):
        title = _title(demonstration, rows)
        if len(names) > 1:
            title += f"   sheet {number + 1} of {len(names)}"
        sheet_tiles = tiles[number * TILES : (number + 1) * TILES]
        sheet = contact_sheet(sheet_tiles, COLUMNS, TILE_WIDTH, title)
        (out / name).write_bytes(encode_jpeg(sheet, QUALITY))
    return {"sheets": len(names), "tiles": len(tiles), **_leak_counts(rows)}


def _sheet_names(tiles: int) -> list[str]:
    sheets = max(1, -(-tiles // TILES))
    return [FIRST_SHEET, *(f"sheet_{number}.jpg" for number in range(2, sheets + 1))]


def check_contact_sheets(trajectory: Path, out: Path) -> list[Problem]:
    """Checks that all sheets exist, are complete JPEGs with a title, and have the right size."""
    steps = sorted((trajectory / "steps").iterdir())
    names = _sheet_names(len(steps))
    problems = []
    for name in sorted({path.name for path in out.iterdir()}.symmetric_difference(names)):
        message = "is missing" if name in names else "does not belong here"
        problems.append(_sheet_problem(name, message))
    for number, name in enumerate(names):
        data = (out / name).read_bytes() if (out / name).is_file() else b""
        tiles = min(TILES, len(steps) - number * TILES)
        wide, high = sheet_size(tiles, COLUMNS, TILE_WIDTH, titled=True)
        # Decoding at an eighth of the size is ten times as fast.
        eighth = (-(-high // 8), -(-wide // 8))
        picture = None
        if data.endswith(_END_OF_JPEG):
            buffer = np.frombuffer(data, np.uint8)
            picture = cv2.imdecode(buffer, cv2.IMREAD_REDUCED_GRAYSCALE_8)
        if picture is None:
            problems.append(_sheet_problem(name, "is not a complete JPEG"))
        elif picture.shape != eighth:
            message = f"is not {wide} by {high} pixels, for {tiles} steps"
            problems.append(_sheet_problem(name, message))
        elif np.ptp(picture[: TITLE_HEIGHT // 8]) < _CONTRAST:
            problems.append(_sheet_problem(name, "has no title"))
    return problems


def _sheet_problem(file: str, message: str) -> Problem:
    return Problem("contact_sheet", file, message, remedy="build it again")


def _leak_counts(rows: Sequence[ProvenanceRow]) -> dict[str, int]:
    """Counts all leaks, and the leaks that no earlier frame could avoid."""
    leaky = [row for row in rows if row["leak"]]
    return {"leaks": len(leaky), "unavoidable_leaks": sum(row["unavoidable"] for row in leaky)}


def _title(demonstration: str, rows: Sequence[ProvenanceRow]) -> str:
    """Returns the title of the sheets: id, clock, leaks and number of steps."""
    leaks = _leak_counts(rows)
    clock = "clock unknown"
    if rows:
        row = rows[0]
        clock = f"clock {row['clock_method']} +/- {row['clock_uncertainty_ms']:.0f} ms"
    leak_text = f"leaks {leaks['leaks']} ({leaks['unavoidable_leaks']} unavoidable)"
    return "   ".join((demonstration, clock, leak_text, f"pictures {len(rows)}"))


def step_tiles(
    demonstration: str, folder: Path, thumbnails: Mapping[str, bytes] | None = None
) -> tuple[list[Tile], list[ProvenanceRow]]:
    """Returns the tile and the provenance of every step; no screenshot is opened.

    Args:
        thumbnails: maps screenshot names to JPEGs. If None, the screenshots are used instead.

    Raises:
        DemonstrationError: the folder cannot be read as a trajectory.
    """
    trajectory, rows = load(DatasetTrajectory(demonstration, str(folder)))
    tiles = [step_tile(step, rows[step.index], thumbnails or {}) for step in trajectory.steps]
    return tiles, [rows[step.index] for step in trajectory.steps]


def step_tile(
    step: StepFiles, row: ProvenanceRow, thumbnails: Mapping[str, bytes] = MappingProxyType({})
) -> Tile:
    """Returns the tile of a step. `thumbnails` maps screenshot names to JPEGs."""
    box = None
    if row["target_x"] is not None:
        box = (row["target_x"], row["target_y"], row["target_width"], row["target_height"])
    lead = "no lead" if row["lead_ms"] is None else f"{row['lead_ms']:.0f} ms"
    leak: Literal["", "LEAK", "UNAVOIDABLE"] = ""
    if row["leak"]:
        leak = "UNAVOIDABLE" if row["unavoidable"] else "LEAK"
    return Tile(
        screenshot=step.screenshot,
        heading=f"{step.index} {row['action_type']}",
        caption=f"{row['reason_code']}, {lead}, tree {row['freshness']}",
        action=step.action,
        box=box,
        leak=leak,
        thumbnail=thumbnails.get(f"{row['action_index']:03d}.png"),
    )
