"""Makes trajectories with times of their steps, and with elements in their UI trees."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import make_trajectory, write_json

SECOND = 1000
Box = tuple[int, int, int, int]
"""x, y, width and height in canvas pixels."""


def timed(count: int, **changes: Any) -> dict[int, dict[str, Any]]:
    """Returns the provenance of one step per second.

    Args:
        count: number of steps.
        changes: values to set. For example, `lead_ms_2=5` sets `lead_ms` of step 2 to 5.
    """
    rows: dict[int, dict[str, Any]] = {
        index: {
            "press_ms": index * SECOND,
            "end_ms": index * SECOND + 80,
            "lead_ms": 120.0,
            "pts": index + 1.5,
        }
        for index in range(count)
    }
    for name, value in changes.items():
        key, _, index = name.rpartition("_")
        rows[int(index)][key] = value
    return rows


def element(
    role: str, name: str, box: Box, *children: dict[str, Any], states: Sequence[str] = ("visible",)
) -> dict[str, Any]:
    """Returns a node of a ui_tree.json; `write_tree` adds its id."""
    bounds = dict(zip(("x", "y", "width", "height"), box, strict=True))
    return {
        "role": role,
        "name": name,
        "bounds": bounds,
        "states": list(states),
        "children": list(children),
    }


def write_tree(folder: Path, *nodes: dict[str, Any]) -> None:
    """Writes the ui_tree.json of a step, with these nodes below the root."""
    root = element("desktop", "", (0, 0, 1920, 1080), *nodes, states=())
    pending = [root]
    count = 0
    while pending:
        node = pending.pop()
        node["id"], count = f"node_{count}", count + 1
        pending += reversed(node["children"])
    screen = {"width": 1920, "height": 1080}
    tree = {"timestamp": "2025-12-03T12:34:56Z", "screen": screen, "root": root}
    write_json(folder / "ui_tree.json", tree)


def make_seen(
    root: Path,
    name: str,
    actions: Sequence[tuple[str, dict[str, Any]]],
    *nodes: dict[str, Any],
    **changes: Any,
) -> DatasetTrajectory:
    """Makes a trajectory whose UI trees have the same elements at each step.

    Args:
        root, name, actions: see `make_trajectory`.
        nodes: the elements below the root of each tree.
        changes: further arguments of `make_trajectory`.
    """
    changes = {"rows": timed(len(actions)), **changes}
    trajectory = make_trajectory(root, name, actions, **changes)
    for step in sorted((trajectory.path / "steps").iterdir()):
        write_tree(step, *nodes)
    return trajectory
