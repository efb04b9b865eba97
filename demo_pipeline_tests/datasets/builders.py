"""Makes tiny OSWorld-Desktopd trajectories with provenance, as the pipeline commits them."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from demo_pipeline.trajectories.provenance import (
    HiddenAction,
    write_hidden_actions,
    write_provenance,
)
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

ROW: dict[str, Any] = {
    "action_index": 0,
    "press_ms": 1_764_765_296_000,
    "end_ms": 1_764_765_296_080,
    "end_filmed": True,
    "pts": 1.5,
    "lead_ms": 120.0,
    "reason_code": "pre_move",
    "leak": False,
    "unavoidable": False,
    "pointer_distance_px": 150.0,
    "settle_ms": None,
    "clock_method": "ffmpeg_start",
    "clock_uncertainty_ms": 5.0,
    "tree_age_ms": 300,
    "freshness": "fresh",
    "tree_agreement": "agrees",
    "target_x": None,
    "target_y": None,
    "target_width": None,
    "target_height": None,
    "off_screen": False,
    "hidden_before": 0,
    "complete": True,
    "scale": 1.0,
    "pad_x": 0.0,
    "pad_y": 0.0,
    "instruction_source": "quest.content",
    "reasoning_source": "template",
    "platform": "windows",
    "recorded_at": "2025-12-03T12:34:56Z",
    "status": "completed",
    "reason": "done",
}
# Instructions of two tasks that become the same text in prompts.
SAME_PROMPT = ("Look at <image> now", "Look at [image] now")
CLICK: tuple[str, dict[str, Any]] = ("click", {"x": 960, "y": 540, "button": "left"})
TABLE: Sequence[tuple[str, dict[str, Any]]] = (
    ("click", {"x": 500, "y": 300, "button": "left"}),
    ("click", {"x": 500, "y": 300, "button": "middle"}),
    ("click", {"x": 500, "y": 300, "button": "left", "clicks": 3}),
    ("right_click", {"x": 1919, "y": 1079}),
    ("double_click", {"x": 0, "y": 0}),
    ("drag", {"start_x": 100, "start_y": 200, "end_x": 960, "end_y": 540}),
    ("scroll", {"x": 960, "y": 540, "direction": "up", "amount": 3}),
    ("scroll", {"x": 960, "y": 540, "direction": "down", "amount": 2}),
    ("scroll", {"x": 960, "y": 540, "direction": "left", "amount": 1}),
    ("scroll", {"x": 960, "y": 540, "direction": "right", "amount": 4}),
    ("type", {"text": "google.com"}),
    ("hotkey", {"keys": ["ctrl", "c"]}),
    ("wait", {"seconds": 2.5}),
)


@cache
def picture(shade: int, width: int = 1920, height: int = 1080) -> bytes:
    """Returns a grey PNG; each shade is a different image."""
    pixels = np.full((height, width, 3), shade % 251, np.uint8)
    pixels[: 1 + shade // 251, :5] = (1, 2, 3)
    return cv2.imencode(".png", pixels, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def make_trajectory(
    root: Path,
    name: str = "demo",
    actions: Sequence[tuple[str, dict[str, Any]]] = (CLICK,),
    *,
    success: bool = True,
    instruction: str | None = None,
    application: str = "chrome",
    group: str | None = None,
    osworld: str | None = None,
    shade: int = 0,
    rows: Mapping[int, Any] | None = None,
    recorded_at: str = ROW["recorded_at"],
    size: tuple[int, int] = (1920, 1080),
    targets: Mapping[int, Mapping[str, str]] | None = None,
    hidden: Sequence[tuple[int, str, str]] | None = None,
) -> DatasetTrajectory:
    """Makes a trajectory below `root`.

    Args:
        root: the folder in which the folder `trajectories` is made.
        name: id of the demonstration.
        actions: type and parameters of each step's action.
        success: whether the task was done.
        instruction: if it is None, the instruction contains the name of the trajectory.
        application: the application of the task.
        group: the task group; None means a task group of its own.
        osworld: id of the OSWorld task.
        shade: shade of the first screenshot; the next ones have the next shades.
        rows: step index → values that override the step's provenance.
        recorded_at: time of the recording, ISO 8601.
        size: width and height of the screenshots, pixels.
        targets: step index → the target of the step's action.
        hidden: index of the next step, type and reason of each hidden action. If it is None, the
            trajectory has no table of hidden actions.
    """
    path = root / "trajectories" / name
    task = {
        "task_id": group or f"task_{name}",
        "instruction": instruction or f"Open Chrome{'' if name == 'demo' else f' for {name}'}",
        "osworld_task_id": osworld,
        "application": application,
        "difficulty": "easy",
        "expected_steps": len(actions),
    }
    write_json(path / "task.json", task)
    result = {
        "trajectory_id": name,
        "success": success,
        "total_steps": len(actions),
        "completion_time_ms": 12500,
        "error_message": None if success else "aborted",
        "model_info": {"name": "human", "version": "1.0"},
    }
    write_json(path / "result.json", result)
    for index, (kind, parameters) in enumerate(actions):
        folder = path / "steps" / f"{index:03d}"
        _make_step(folder, index, kind, parameters, (targets or {}).get(index))
        (folder / "screenshot.png").write_bytes(picture(shade + index, *size))
    (path / "steps").mkdir(exist_ok=True)
    (path / "final_screenshot.png").write_bytes(picture(shade + len(actions), *size))
    provenance = root / "provenance" / f"{name}.parquet"
    provenance.parent.mkdir(parents=True, exist_ok=True)
    columns = {"trajectory_id": name, "split_group": task["task_id"], "recorded_at": recorded_at}
    if hidden is not None:
        columns |= {"complete": not hidden}
        write_hidden_actions(path, name, [hide(*values) for values in hidden])
    table = [
        {**ROW, **columns, "step_index": index, "action_type": kind, **(rows or {}).get(index, {})}
        for index, (kind, _) in enumerate(actions)
    ]
    write_provenance(provenance, table)
    return DatasetTrajectory(name, str(path), table=str(provenance))


def hide(before_step: int, kind: str = "click", reason: str = "off_screen") -> HiddenAction:
    return HiddenAction(before_step, 7, kind, ROW["press_ms"], reason)


def _make_step(
    folder: Path,
    index: int,
    kind: str,
    parameters: Mapping[str, Any],
    target: Mapping[str, str] | None,
) -> None:
    action = {
        "step_index": index,
        "action_type": kind,
        "parameters": parameters,
        "target_element": target,
        "reasoning": f"Step {index} of the work",
    }
    write_json(folder / "action.json", action)
    root = {
        "id": "node_0",
        "role": "desktop",
        "name": "",
        "bounds": {"x": 0, "y": 0, "width": 1920, "height": 1080},
    }
    screen = {"width": 1920, "height": 1080}
    tree = {"timestamp": "2025-12-03T12:34:56Z", "screen": screen, "root": root}
    write_json(folder / "ui_tree.json", tree)


def read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def snapshot(root: Path) -> dict[str, bytes]:
    """Returns the content of all files below a directory, by relative path."""
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }
