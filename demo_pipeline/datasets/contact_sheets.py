"""The `contact_sheets` stage: every step of a trajectory on a few images, and small previews.

Belongs here: which steps a sheet shows, captions, titles, files, and the stage's check. Drawing is
in `observation.contact_sheet_image`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.datasets.provenance import ProvenanceRow
from demo_pipeline.datasets.selection import DatasetTrajectory, load, load_provenance
from demo_pipeline.formats.desktopd.reader import StepFiles
from demo_pipeline.observation.contact_sheet_image import (
    Tile,
    contact_sheet,
    encode_jpeg,
    sheet_size,
)
from demo_pipeline.observation.frames.thumbnails import read_thumbnails
from demo_pipeline.observation.overlay import Picture
from demo_pipeline.problems import Problem

TILES, COLUMNS, TILE_WIDTH = 24, 4, 480
QUALITY = 80
FIRST_SHEET = "sheet.jpg"
PREVIEW_TILES, PREVIEW_COLUMNS, PREVIEW_TILE_WIDTH = 6, 3, 240


def build_contact_sheets(
    demonstration: str, trajectory: Path, screenshots: Path, out: Path
) -> dict[str, Any]:
    """Write sheet.jpg, sheet_2.jpg …, each with up to `TILES` steps. Returns a summary.

    Args:
        demonstration: the id, for the title.
        trajectory: the folder of a trajectory with its provenance.
        screenshots: the folder of the demonstration's screenshots with their thumbnails.
        out: a folder to write into.

    Raises:
        DemonstrationError: `trajectory` cannot be read as a trajectory.
    """
    tiles, rows = step_tiles(demonstration, trajectory, read_thumbnails(screenshots))
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


def check_contact_sheets(demonstration: str, trajectory: Path, out: Path) -> list[Problem]:
    """Every sheet exists, decodes completely and has room for exactly the trajectory's steps."""
    count = len(load_provenance(dataset_trajectory(demonstration, trajectory), ("step_index",)))
    names = _sheet_names(count)
    problems = [
        _problem(path.name, "is not one of the sheets")
        for path in sorted(out.iterdir())
        if path.name not in names
    ]
    for number, name in enumerate(names):
        tiles = min(TILES, count - number * TILES)
        expected = sheet_size(tiles, COLUMNS, TILE_WIDTH, titled=True)
        if fault := _fault(out / name, expected):
            problems.append(_problem(name, fault))
    return problems


def _fault(path: Path, expected: tuple[int, int]) -> str:
    """What is wrong with a sheet; empty when nothing is."""
    try:
        data = path.read_bytes()
        image = probe_image(data)
    except OSError as error:
        raise_system_trouble(error)
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        return f"is not a complete JPEG: {error}"
    # A small grey picture needs all of the data, too.
    if cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_REDUCED_GRAYSCALE_8) is None:
        return "cannot be decoded"
    size = (image.width, image.height)
    return "" if size == expected else f"is {size}, expected {expected}"


def _problem(name: str, message: str) -> Problem:
    return Problem("contact_sheet", name, message, remedy="build the contact sheets again")


def overview_sheet(demonstration: str, folder: Path) -> Picture:
    """A preview of at most six steps, spread over the trajectory in `folder`; (h, w, 3) BGR."""
    tiles, _ = step_tiles(demonstration, folder)
    last = len(tiles) - 1
    numbers = sorted({round(i * last / (PREVIEW_TILES - 1)) for i in range(PREVIEW_TILES)})
    return _preview([tiles[number] for number in numbers] if tiles else [])


def first_steps_sheet(demonstration: str, folder: Path) -> Picture:
    """A preview of the first six steps; (h, w, 3) BGR."""
    return _preview(step_tiles(demonstration, folder)[0][:PREVIEW_TILES])


def _preview(tiles: Sequence[Tile]) -> Picture:
    return contact_sheet(tiles, PREVIEW_COLUMNS, PREVIEW_TILE_WIDTH)


def dataset_trajectory(demonstration: str, folder: Path) -> DatasetTrajectory:
    """The trajectory in `folder` with its provenance, under the id `demonstration`."""
    return DatasetTrajectory(demonstration, str(folder))


def step_tiles(
    demonstration: str, folder: Path, thumbnails: Mapping[int, bytes] | None = None
) -> tuple[list[Tile], list[ProvenanceRow]]:
    """The tile and the provenance of every step. No screenshot is opened.

    `thumbnails`: action index → JPEG; None: the tiles show the screenshots themselves.

    Raises:
        DemonstrationError: the folder cannot be read as a trajectory.
    """
    trajectory, rows = load(dataset_trajectory(demonstration, folder))
    tiles = [_tile(step, rows[step.index], thumbnails or {}) for step in trajectory.steps]
    return tiles, [rows[step.index] for step in trajectory.steps]


def _tile(step: StepFiles, row: ProvenanceRow, thumbnails: Mapping[int, bytes]) -> Tile:
    target = [row[f"target_{name}"] for name in ("x", "y", "width", "height")]
    lead = "no lead" if row["lead_ms"] is None else f"{row['lead_ms']:.0f} ms"
    return Tile(
        step.screenshot,
        f"{step.index} {row['action_type']}",
        f"{row['reason_code']}, {lead}, tree {row['freshness']}",
        step.action,
        None if None in target else (target[0], target[1], target[2], target[3]),
        ("UNAVOIDABLE" if row["unavoidable"] else "LEAK") if row["leak"] else "",
        thumbnails.get(row["action_index"]),
    )
