"""A trajectory as tiles of a contact sheet: its steps, what is written above each, the small views.

Belongs here: choosing the steps and their captions. Drawing is observation/preview.py's.
"""

from pathlib import Path

from demo_pipeline.datasets.selection import DatasetTrajectory, Row, load
from demo_pipeline.datasets.trajectories import PROVENANCE_FILE
from demo_pipeline.formats.desktopd.reader import StepFiles
from demo_pipeline.observation.contact_sheet_image import Tile, contact_sheet
from demo_pipeline.observation.overlay import Picture

THUMBNAIL_TILES = 6
_COLUMNS, _WIDTH = 3, 240


def overview(demonstration: str, folder: Path) -> Picture:
    """At most six steps, spread over the trajectory in `folder`, small; (h, w, 3) BGR."""
    tiles = tiles_of(demonstration, folder)[0]
    count = len(tiles)
    chosen = sorted(
        {
            round(i * (count - 1) / (THUMBNAIL_TILES - 1))
            for i in range(THUMBNAIL_TILES if count else 0)
        }
    )
    return contact_sheet([tiles[number] for number in chosen], _COLUMNS, _WIDTH)


def beginning(demonstration: str, folder: Path) -> Picture:
    """The first six steps, small; (h, w, 3) BGR."""
    return contact_sheet(tiles_of(demonstration, folder)[0][:THUMBNAIL_TILES], _COLUMNS, _WIDTH)


def source_of(demonstration: str, folder: Path) -> DatasetTrajectory:
    """The trajectory in `folder`, under its own id, wherever the folder lies."""
    return DatasetTrajectory(demonstration, folder, folder / PROVENANCE_FILE)


def tiles_of(demonstration: str, folder: Path) -> tuple[list[Tile], list[Row]]:
    """A tile a step, and the provenance of each. No picture is opened.

    Raises:
        DemonstrationError: the folder is no trajectory.
    """
    trajectory, rows = load(source_of(demonstration, folder))
    tiles = [_tile(step, rows[step.index]) for step in trajectory.steps]
    return tiles, [rows[step.index] for step in trajectory.steps]


def _tile(step: StepFiles, row: Row) -> Tile:
    sides = [row[f"target_{name}"] for name in ("x", "y", "width", "height")]
    lead = "no lead" if row["lead_ms"] is None else f"{row['lead_ms']:.0f} ms"
    return Tile(
        step.screenshot,
        f"{step.index} {row['action_type']}:",
        f"{row['reason_code']}, {lead}, tree {row['freshness']}",
        step.action,
        None if None in sides else (sides[0], sides[1], sides[2], sides[3]),
        ("UNAVOIDABLE" if row["unavoidable"] else "LEAK") if row["leak"] else "",
    )
