"""Imports OSWorld-Desktopd trajectories that other programs wrote, and that have no recording.

The files are copied unchanged, except for the id in result.json. In the provenance table, columns
for facts that only a recording can show are empty.

This module also writes the provenance of trajectories that trajectory_folder.py builds from
recordings of other tools.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from demo_pipeline.desktopd.target_box import TARGET_BOX
from demo_pipeline.desktopd.trajectory_reader import Trajectory, read_trajectory, step_folders
from demo_pipeline.desktopd.validator import decode_tree
from demo_pipeline.files.json_files import JsonFileError, dump_json, load_json
from demo_pipeline.importers.source_facts import SourceFiles
from demo_pipeline.importers.source_recording import Importer
from demo_pipeline.importers.trajectory_folder import WrittenSteps
from demo_pipeline.osworld.task_matching import TaskMatch
from demo_pipeline.trajectories.provenance import (
    IMPORTED,
    PROVENANCE_SCHEMA,
    HiddenAction,
    action_columns,
    write_hidden_actions,
    write_provenance,
)
from demo_pipeline.trajectories.trajectories import PROVENANCE_FILE

_DOCUMENTS = ("task.json", "result.json", "final_screenshot.png")
_STEP_FILES = ("screenshot.png", "ui_tree.json", "action.json")
_UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)


def _find(folder: Path, names: Sequence[str]) -> list[SourceFiles]:
    """Returns the folder as one trajectory if it has steps, and a task or a result."""
    if not ({"task.json", "result.json"} & set(names) and (folder / "steps").is_dir()):
        return []
    logs = tuple(folder / name for name in _DOCUMENTS[:2] if name in names)
    name = folder.resolve().name
    return [SourceFiles(folder=folder, name=name, logs=logs, id=name)]


def files_of(folder: Path) -> Iterator[str]:
    """Yields the files of a trajectory that exist, as paths relative to its folder.

    Symbolic links and files unknown to the format are left out.
    """
    steps = product(step_folders(folder), _STEP_FILES)
    names = (f"steps/{step.name}/{name}" for (_, step), name in steps)
    for name in (*_DOCUMENTS, *names):
        if (folder / name).is_file() and not (folder / name).is_symlink():
            yield name


def copy_trajectory(folder: Path, demonstration: str, out: Path) -> None:
    """Copies the files of a trajectory, and writes the demonstration's id into result.json."""
    for name in files_of(folder):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / name, out / name)
    with suppress(JsonFileError):  # the later validation of the copy reports an unreadable file
        result = load_json(out / "result.json")
        if isinstance(result, dict):
            dump_json(out / "result.json", result | {"trajectory_id": demonstration})


def write_origin(
    out: Path, match: TaskMatch, platform: str, written: WrittenSteps | None = None
) -> dict[str, Any]:
    """Writes the provenance and hidden actions of an imported trajectory; returns the summary.

    Args:
        platform: windows, macos or linux; empty if unknown.
        written: facts about the written steps; None if the trajectory was copied.

    Raises:
        DemonstrationError: the trajectory cannot be read.
    """
    trajectory = read_trajectory(out)
    hidden: list[HiddenAction] = []
    status = "completed"
    if written is not None:
        hidden = written.hidden
        status = written.status
    complete = not hidden
    rows = []
    for number in range(len(trajectory.steps)):
        row = _row(trajectory, number, match) | {"platform": platform}
        if written is not None:
            row |= written.columns[number]
            row |= {"status": written.status, "complete": complete}
            if not written.status:
                row["reason"] = ""
        rows.append(row)
    write_provenance(out / PROVENANCE_FILE, rows)
    write_hidden_actions(out, trajectory.result.trajectory_id, hidden)
    task = trajectory.task
    result = trajectory.result
    return {
        "imported": True,
        "task_id": task.task_id,
        "osworld_task_id": match.task_id,
        "application": task.application,
        "steps": len(rows),
        "complete": complete,
        "success": result.success,
        "status": status,
        "targets": sum(row["target_x"] is not None for row in rows),
    }


def _row(trajectory: Trajectory, number: int, match: TaskMatch) -> dict[str, Any]:
    """Returns the provenance of a step; columns about video and clock are empty."""
    step = trajectory.steps[number]
    task = trajectory.task
    # `decode_tree` returns None for invalid trees, and for valid trees in an unusual form.
    tree = decode_tree(step.ui_tree.read_bytes())
    nodes = tree.nodes if tree else {}
    time = _time(tree.timestamp if tree else "")
    milliseconds = max(round(time.timestamp() * 1000), 0)
    target = nodes.get(step.action.target_element.id) if step.action.target_element else None
    box = msgspec.structs.astuple(target.bounds) if target else ()
    return dict.fromkeys(PROVENANCE_SCHEMA.names) | {
        "trajectory_id": trajectory.result.trajectory_id,
        "step_index": number,
        "action_index": number,
        "action_type": str(step.action.action_type),
        "press_ms": milliseconds,
        "end_ms": milliseconds,
        "end_filmed": True,  # the final screenshot shows the end of the last action
        "reason_code": IMPORTED,
        "leak": False,
        "unavoidable": False,
        "clock_method": "none",
        "clock_uncertainty_ms": 0.0,
        "freshness": "fresh" if len(nodes) > 1 else "none",
        "tree_agreement": "unknown",
        **dict(zip(TARGET_BOX, box, strict=False)),
        **action_columns(step.action),
        "off_screen": False,
        "hidden_before": 0,
        "complete": True,
        "scale": 1.0,
        "pad_x": 0.0,
        "pad_y": 0.0,
        "instruction_source": "task.json",
        "reasoning_source": "imported",
        "split_group": task.task_id,
        "recorded_at": time.isoformat(),
        "status": "completed",
        "reason": "done" if trajectory.result.success else "fail",
        "osworld_task_id": match.task_id,
        "osworld_match": match.match,
        "osworld_match_field": match.field,
        "osworld_task_kind": match.kind,
        "osworld_matches": match.matches,
    }


def _time(text: str) -> datetime:
    """Parses the time of a UI tree; the result is in 1970 if the text is not a time."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            return time.replace(tzinfo=UTC)
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        return _UNKNOWN_TIME


DESKTOPD = Importer(
    tool="OSWorld-Desktopd trajectories",
    files="task.json, result.json and steps/NNN in one folder",
    find=_find,
)
