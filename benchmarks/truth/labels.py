"""The labels of one demonstration in a store, as the scorer compares them with the truth."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.truth.truth_list import Box

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the trajectory.

    Attributes:
        scale, pad_x, pad_y: pixels of the screen times `scale` plus the pad are canvas pixels.
        left_out: whether its text is in doubt, so that no training record holds it.
        target: its target on the canvas; None if it has none.
        differs: whether the tree was found to differ from the screenshot.
        changed: what the trajectory says about the screen after it; None if it says nothing.
    """

    index: int
    kind: str
    parameters: Row
    press_ms: int
    end_ms: int
    pts: float | None
    leak: bool
    scale: float
    pad_x: float
    pad_y: float
    left_out: bool
    target: "Target | None"
    differs: bool
    changed: bool | None

    @property
    def presses(self) -> int:
        """How many presses of a key it stands for."""
        return int(self.parameters.get("presses") or 1)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a step; `box` in canvas pixels."""

    role: str
    name: str
    box: Box


@dataclass(frozen=True, slots=True)
class Labels:
    """Everything that a store says about one demonstration.

    Attributes:
        hidden_ms: presses of actions that no screenshot shows.
        origin_ms: the epoch milliseconds of the first frame, by the pipeline's clock.
        pixel_ratio: video pixels for a pixel of the log.
    """

    steps: list[Step]
    hidden_ms: list[int]
    origin_ms: float
    pixel_ratio: float


def read_labels(store: Path, demonstration: str) -> Labels:
    """Reads the labels of a store that is a folder."""
    trajectory = store / "trajectories" / demonstration
    rows = pq.read_table(trajectory / "provenance.parquet").to_pylist()
    trees = pq.read_table(store / "ui_trees" / demonstration / "trees.parquet").to_pylist()
    tree_by_action = {tree["action_index"]: tree for tree in trees}
    steps = []
    for row in rows:
        if row["step_index"] is None:
            continue
        folder = trajectory / "steps" / f"{row['step_index']:03d}"
        action = json.loads((folder / "action.json").read_text("utf-8"))
        steps.append(_step(row, action, tree_by_action.get(row["action_index"], {})))
    hidden = trajectory / "hidden_actions.parquet"
    hidden_rows = pq.read_table(hidden).to_pylist() if hidden.exists() else []
    evidence = json.loads(
        (store / "screenshots" / demonstration / "evidence.json").read_text("utf-8")
    )
    return Labels(
        steps=steps,
        hidden_ms=[row["press_ms"] for row in hidden_rows],
        origin_ms=evidence["clock"]["origin_ms"],
        pixel_ratio=evidence["canvas"]["event_scale"],
    )


def _step(row: Row, action: Row, tree: Row) -> Step:
    target = None
    if tree.get("target_id") is not None:
        box = Box(tree["target_x"], tree["target_y"], tree["target_width"], tree["target_height"])
        target = Target(tree["target_role"] or "", (tree["target_name"] or "").strip(), box)
    return Step(
        index=row["step_index"],
        kind=action["action_type"],
        parameters=action["parameters"],
        press_ms=row["press_ms"],
        end_ms=row["end_ms"],
        pts=row["pts"],
        leak=row["leak"],
        scale=row["scale"],
        pad_x=row["pad_x"],
        pad_y=row["pad_y"],
        left_out=bool(row.get("doubtful_text")),
        target=target,
        differs=tree.get("tree_agreement") == "differs",
        changed=row.get("screen_changed"),
    )
