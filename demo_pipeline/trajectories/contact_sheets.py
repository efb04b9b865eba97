"""The `contact_sheets` stage: every step of a trajectory on a few images.

Belongs here: which steps a sheet shows, tiles, captions, titles and files. What
is drawn on a screenshot is in trajectories/overlay.py. Colours are BGR, sizes are pixels of the
sheet.
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
_EDGE = 6


@dataclass(frozen=True)
class Tile:
    """The tile of a step.

    Attributes:
        screenshot: its PNG.
        heading: the number and the type of the step.
        caption: a short line about the screenshot; never what was typed.
        action: is drawn on the screenshot; None: nothing is.
        box: (x, y, width, height) of the target on the canvas.
        leak: the kind of pointer leak in the screenshot; empty without a leak.
        thumbnail: the screenshot as a small JPEG, which is read instead; None: there is none.
    """

    screenshot: Path
    heading: str
    caption: str
    action: StepAction | None
    box: tuple[int, int, int, int] | None = None
    leak: Literal["", "LEAK", "UNAVOIDABLE"] = ""
    thumbnail: bytes | None = None


def sheet_size(tiles: int, columns: int, width: int, *, titled: bool) -> tuple[int, int]:
    """(width, height) in pixels of a sheet of `tiles` tiles, each `width` wide."""
    rows = max(1, -(-tiles // columns))
    high = _caption_height(width) + _picture_height(width)
    return columns * width, rows * high + (TITLE_HEIGHT if titled else 0)


def contact_sheet(tiles: Sequence[Tile], columns: int, width: int, title: str = "") -> Picture:
    """(height, width, 3) BGR: a grid with `columns` tiles of `width` pixels below the title.

    Each screenshot is read once. A screenshot that cannot be read becomes a dark tile with a note.
    """
    across, down = sheet_size(len(tiles), columns, width, titled=bool(title))
    sheet = _dark(across, down)
    if title:
        scale = next((s for s in (0.7, 0.6, 0.5) if text_size(title, s)[0] < across - 24), 0.4)
        write(sheet, title, (12, 26), scale, WHITE)
    top = TITLE_HEIGHT if title else 0
    high = _caption_height(width) + _picture_height(width)
    for number, tile in enumerate(tiles):
        row, column = divmod(number, columns)
        y = top + row * high
        x = column * width
        _draw_tile(sheet[y : y + high, x : x + width], tile)
    return sheet


def encode_jpeg(picture: Picture, quality: int = 70) -> bytes:
    """JPEG bytes of a BGR picture."""
    _, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return data.tobytes()


def _dark(width: int, height: int) -> Picture:
    """An empty picture; filling it pixel by pixel takes fifty times as long as row by row."""
    picture: Picture = np.empty((height, width, 3), np.uint8)
    picture[:1] = DARK
    picture[1:] = picture[:1]
    return picture


def _caption_height(width: int) -> int:
    return 44 if width >= 360 else 38


def _picture_height(width: int) -> int:
    return round(CANVAS_HEIGHT * width / CANVAS_WIDTH)


def _draw_tile(place: Picture, tile: Tile) -> None:
    width = place.shape[1]
    captions = _caption_height(width)
    size = 0.5 if width >= 360 else 0.38
    write(place, tile.heading, (_EDGE, captions // 2 - 4), size, WHITE)
    write(place, tile.caption, (_EDGE, captions - 8), size * 0.9, _GREY)
    if tile.leak:
        _draw_flag(place, tile.leak, captions // 2 - 4, size)
    # A thin gap on the right and below separates tiles that look alike.
    inner = (width - 2, _picture_height(width) - 2)
    place[captions : captions + inner[1], : inner[0]] = tile_picture(tile, width)[
        : inner[1], : inner[0]
    ]


def _draw_flag(place: Picture, flag: str, line: int, size: float) -> None:
    wide, high = text_size(flag, size)
    left = place.shape[1] - wide - 2 * _EDGE
    colour = RED if flag == "LEAK" else _AMBER
    corner = (place.shape[1] - 4, line + 4)
    cv2.rectangle(place, (left - 2, line - high - 4), corner, colour, cv2.FILLED)
    write(place, flag, (left + 3, line), size, WHITE if flag == "LEAK" else DARK)


def tile_picture(tile: Tile, width: int) -> Picture:
    """The screenshot, `width` pixels wide, with action and target drawn on it."""
    height = _picture_height(width)
    raw = _picture(tile)
    if raw is None:
        dark = _dark(width, height)
        place_label(dark, "the screenshot cannot be read", [], 0.42)
        return dark
    small = raw
    if raw.shape[:2] != (height, width):
        small = cv2.resize(raw, (width, height), interpolation=cv2.INTER_AREA)
    if tile.action is not None:
        draw_action(small, tile.action, width / CANVAS_WIDTH, tile.box)
    return small


def _picture(tile: Tile) -> Picture | None:
    """The thumbnail, or the screenshot without one; None when it cannot be read."""
    if tile.thumbnail is not None:
        data = np.frombuffer(tile.thumbnail, np.uint8)
        return cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    return cv2.imread(str(tile.screenshot)) if tile.screenshot.is_file() else None


TILES = 24
COLUMNS = 4
TILE_WIDTH = 480
QUALITY = 80
FIRST_SHEET = "sheet.jpg"
_END_OF_JPEG = b"\xff\xd9"
_CONTRAST = 16  # of 255, of a title, which is white on dark


def build_contact_sheets(
    demonstration: str, trajectory: Path, screenshots: Path | None, out: Path
) -> dict[str, Any]:
    """Write sheet.jpg, sheet_2.jpg …, each with up to `TILES` steps. Returns a summary.

    Args:
        demonstration: the id, for the title.
        trajectory: the folder of a trajectory with its provenance.
        screenshots: the folder of the screenshots with their thumbnails; None: redacted ones have
            none.
        out: a folder to write into.

    Raises:
        DemonstrationError: `trajectory` cannot be read as a trajectory.
    """
    thumbnails = None if screenshots is None else read_thumbnails(screenshots)
    tiles, rows = step_tiles(demonstration, trajectory, thumbnails)
    names = _sheet_names(len(tiles))
    for number, name in enumerate(names):
        title = _title(demonstration, rows)
        if len(names) > 1:
            title += f"   sheet {number + 1} of {len(names)}"
        shown = tiles[number * TILES : (number + 1) * TILES]
        sheet = contact_sheet(shown, COLUMNS, TILE_WIDTH, title)
        (out / name).write_bytes(encode_jpeg(sheet, QUALITY))
    return {"sheets": len(names), "tiles": len(tiles), **_leak_counts(rows)}


def _sheet_names(tiles: int) -> list[str]:
    sheets = max(1, -(-tiles // TILES))
    return [FIRST_SHEET, *(f"sheet_{number}.jpg" for number in range(2, sheets + 1))]


def check_contact_sheets(trajectory: Path, out: Path) -> list[Problem]:
    """Whether the sheets have a tile for every step, by their names and their sizes."""
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
        eighth = (-(-high // 8), -(-wide // 8))  # decoding all pixels takes ten times as long
        picture = None
        if data.endswith(_END_OF_JPEG):
            buffer = np.frombuffer(data, np.uint8)
            picture = cv2.imdecode(buffer, cv2.IMREAD_REDUCED_GRAYSCALE_8)
        if picture is None:
            problems.append(_sheet_problem(name, "is not a whole JPEG"))
        elif picture.shape != eighth:
            message = f"is not {wide} by {high} pixels, for {tiles} steps"
            problems.append(_sheet_problem(name, message))
        elif np.ptp(picture[: TITLE_HEIGHT // 8]) < _CONTRAST:
            problems.append(_sheet_problem(name, "has no title"))
    return problems


def _sheet_problem(file: str, message: str) -> Problem:
    return Problem("contact_sheet", file, message, remedy="build it again")


def _leak_counts(rows: Sequence[ProvenanceRow]) -> dict[str, int]:
    """How many tiles are marked as a leak, and how many of these as unavoidable."""
    leaky = [row for row in rows if row["leak"]]
    return {"leaks": len(leaky), "unavoidable_leaks": sum(row["unavoidable"] for row in leaky)}


def _title(demonstration: str, rows: Sequence[ProvenanceRow]) -> str:
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
    """The tile and the provenance of every step. No screenshot is opened.

    `thumbnails`: name of a picture → JPEG; None: the tiles show the screenshots themselves.

    Raises:
        DemonstrationError: the folder cannot be read as a trajectory.
    """
    trajectory, rows = load(DatasetTrajectory(demonstration, str(folder)))
    tiles = [step_tile(step, rows[step.index], thumbnails or {}) for step in trajectory.steps]
    return tiles, [rows[step.index] for step in trajectory.steps]


def step_tile(
    step: StepFiles, row: ProvenanceRow, thumbnails: Mapping[str, bytes] = MappingProxyType({})
) -> Tile:
    """The tile of one step; `thumbnails` as of `step_tiles`."""
    target = [row[f"target_{name}"] for name in ("x", "y", "width", "height")]
    lead = "no lead" if row["lead_ms"] is None else f"{row['lead_ms']:.0f} ms"
    return Tile(
        step.screenshot,
        f"{step.index} {row['action_type']}",
        f"{row['reason_code']}, {lead}, tree {row['freshness']}",
        step.action,
        None if None in target else (target[0], target[1], target[2], target[3]),
        ("UNAVOIDABLE" if row["unavoidable"] else "LEAK") if row["leak"] else "",
        thumbnails.get(f"{row['action_index']:03d}.png"),
    )
