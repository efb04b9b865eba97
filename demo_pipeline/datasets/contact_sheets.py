"""The `contact_sheets` stage: every step of a trajectory on a few pictures for people.

Belongs here: how many tiles a sheet has, its title, its file, and the stage's check. Tiles come
from preview.py, drawing from observation/.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.datasets.selection import Row, load_rows
from demo_pipeline.datasets.thumbnails import source_of, tiles_of
from demo_pipeline.observation.contact_sheet_image import contact_sheet, encode_jpeg, sheet_size
from demo_pipeline.problems import Problem

TILES, COLUMNS, TILE_WIDTH = 24, 4, 480
QUALITY = 80


def build_contact_sheets(demonstration: str, trajectory: Path, out: Path) -> dict[str, Any]:
    """Write sheet.jpg, sheet_2.jpg …: `TILES` steps a sheet. Returns a summary.

    Args:
        demonstration: its id, for the title.
        trajectory: the folder of a trajectory with its provenance.
        out: a folder to write into.

    Raises:
        DemonstrationError: `trajectory` is none.
    """
    tiles, rows = tiles_of(demonstration, trajectory)
    names = _names(len(tiles))
    for number, name in enumerate(names):
        title = _title(demonstration, rows)
        if len(names) > 1:
            title += f"   sheet {number + 1} of {len(names)}"
        shown = tiles[number * TILES : (number + 1) * TILES]
        sheet = contact_sheet(shown, COLUMNS, TILE_WIDTH, title)
        (out / name).write_bytes(encode_jpeg(sheet, QUALITY))
    return {"sheets": len(names), "tiles": len(tiles), **_marked(rows)}


def _names(tiles: int) -> list[str]:
    sheets = max(1, -(-tiles // TILES))
    return ["sheet.jpg", *(f"sheet_{number}.jpg" for number in range(2, sheets + 1))]


def _marked(rows: Sequence[Row]) -> dict[str, int]:
    """How many tiles are marked, and how many of these as unavoidable."""
    leaky = [row for row in rows if row["leak"]]
    return {"leaks": len(leaky), "unavoidable_leaks": sum(row["unavoidable"] for row in leaky)}


def _title(demonstration: str, rows: Sequence[Row]) -> str:
    marked = _marked(rows)
    clock = "clock unknown"
    if rows:
        row = rows[0]
        clock = f"clock {row['clock_method']} +/- {row['clock_uncertainty_ms']:.0f} ms"
    leaks = f"leaks {marked['leaks']} ({marked['unavoidable_leaks']} unavoidable)"
    return "   ".join((demonstration, clock, leaks, f"pictures {len(rows)}"))


def check_contact_sheets(demonstration: str, trajectory: Path, out: Path) -> list[Problem]:
    """Every sheet is there, whole, decodes, and has room for exactly the trajectory's steps."""
    count = len(load_rows(source_of(demonstration, trajectory), ("step_index",)))
    names = _names(count)
    problems = [
        _problem(path.name, "belongs to no sheet")
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
        probe_image(data)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        return f"is no whole JPEG: {error}"
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if picture is None:
        return "does not decode"
    found = (picture.shape[1], picture.shape[0])
    return "" if found == expected else f"is {found}, expected {expected}"


def _problem(name: str, message: str) -> Problem:
    return Problem("contact_sheet", name, message, remedy="materialise contact_sheets again")
