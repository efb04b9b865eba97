"""A trajectory as a contact sheet: its steps with what was done drawn on them.

Belongs here: choosing the steps and their captions. Drawing is observation/preview.py's.
"""

from pathlib import Path

from demo_pipeline.datasets.provenance import read_provenance
from demo_pipeline.datasets.trajectories import PROVENANCE_FILE
from demo_pipeline.formats.desktopd import points
from demo_pipeline.formats.desktopd_reader import read_trajectory
from demo_pipeline.observation.preview import Picture, Tile, contact_sheet


def trajectory_sheet(folder: Path, most: int, columns: int, width: int) -> Picture:
    """At most `most` steps, spread over the trajectory, in a grid; BGR pixels."""
    trajectory = read_trajectory(folder)
    rows = read_provenance(folder / PROVENANCE_FILE)
    count = len(trajectory.steps)
    places = range(most if count else 0)
    chosen = sorted({round(i * (count - 1) / max(1, most - 1)) for i in places})
    tiles = []
    for number in chosen:
        step, row = trajectory.steps[number], rows[number]
        sides = [row[f"target_{name}"] for name in ("x", "y", "width", "height")]
        lead = "" if row["lead_ms"] is None else f" {row['lead_ms']:.0f} ms before"
        leak = " LEAK" if row["leak"] else ""
        caption = f"{number} {row['action_type']}: {row['reason_code']}{lead}{leak}"
        box = None if None in sides else (sides[0], sides[1], sides[2], sides[3])
        tiles.append(Tile(step.screenshot, caption, points(step.action), box))
    return contact_sheet(tiles, columns, width)
