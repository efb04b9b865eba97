"""Parses OSWorld-Desktopd trajectories, even those that other programs wrote, into models.

validator.py checks whether the content is valid.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from demo_pipeline.desktopd.models import Result, StepAction, Task
from demo_pipeline.files.base_model import DocumentT, check
from demo_pipeline.files.json_files import JsonFileError, decode_text, parse_json, read_bytes
from demo_pipeline.problems import DemonstrationError, Problem, errors

_STEP_NAME = re.compile(r"[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class StepFiles:
    """A step: its number, its action, and the paths of its files."""

    index: int
    folder: Path
    screenshot: Path
    ui_tree: Path
    action: StepAction


class AnnotatedValue(NamedTuple):
    """An annotation that is in effect: its value and its author (`human`, `model` or `rule`)."""

    value: Any
    source: str


Notes = Mapping[int | None, Mapping[str, AnnotatedValue]]
"""The annotations of a trajectory, by step index and by kind of annotation.

The index None stands for the whole trajectory. An index equal to the number of steps stands for the
trajectory's end. A rewording of the instruction is stored under the rewording's name instead of a
kind.
"""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A trajectory with its steps in numeric order.

    Attributes:
        id: name of the folder.
        notes: annotations, which callers add because the folder does not contain any.
    """

    id: str
    path: Path
    task: Task
    result: Result
    steps: tuple[StepFiles, ...]
    final_screenshot: Path
    notes: Notes = field(default_factory=dict, compare=False)

    def note(self, step: int | None, kind: str) -> Any:
        """Returns the value of an annotation, or None if the annotation does not exist.

        `step` is None for annotations of the whole trajectory.
        """
        annotation = self.notes.get(step, {}).get(kind)
        if annotation is None:
            return None
        return annotation.value


def read_document(
    model: type[DocumentT], path: Path, file: str
) -> tuple[DocumentT | None, list[Problem]]:
    """Reads a JSON file into a model.

    Args:
        file: the name of the file in the returned problems.

    Returns:
        The content of the file and warnings, or None and the errors.
    """
    try:
        text = decode_text(read_bytes(path, file), file)
        value = parse_json(text, file)
    except JsonFileError as error:
        return None, [json_problem(error, exists=path.is_file())]
    return check(model, value, file, text)


def json_problem(error: JsonFileError, *, exists: bool = True) -> Problem:
    """Returns the problem that reports a missing or invalid JSON file.

    Args:
        exists: False if the file is missing.
    """
    if exists:
        return Problem(
            "invalid_json",
            error.file,
            error.message,
            error.line,
            remedy="write the file again",
            column=error.column,
        )
    return Problem("missing_file", error.file, "the file is missing", remedy="add the file")


def native_of(screenshot: Path) -> Path:
    """Returns the path of a screenshot's version in the screen's resolution.

    The file may not exist.
    """
    return screenshot.with_stem(f"{screenshot.stem}_native")


def step_folders(path: Path) -> list[tuple[int, Path]]:
    """Returns number and path of each step folder of a trajectory, in numeric order."""
    steps = path / "steps"
    names = os.listdir(steps) if steps.is_dir() else []  # noqa: PTH208 - only the names are needed
    numbers = sorted((int(name), name) for name in names if _STEP_NAME.fullmatch(name))
    return [(number, steps / name) for number, name in numbers if (steps / name).is_dir()]


def read_trajectory(path: Path) -> Trajectory:
    """Reads task.json, result.json and each action.json of a trajectory.

    Screenshots and trees may be missing.

    Args:
        path: the trajectory's folder, or a link to it.

    Raises:
        DemonstrationError: task.json, result.json or an action.json is missing or invalid. The
            problems name files relative to `path`.
    """
    task, problems = read_document(Task, path / "task.json", "task.json")
    result, more_problems = read_document(Result, path / "result.json", "result.json")
    problems += more_problems
    steps: list[StepFiles] = []
    for number, folder in step_folders(path):
        file = f"steps/{folder.name}/action.json"
        action, more_problems = read_document(StepAction, folder / "action.json", file)
        problems += more_problems
        if action is not None:
            tree = folder / "ui_tree.json"
            steps.append(StepFiles(number, folder, folder / "screenshot.png", tree, action))
    if task is None or result is None or errors(problems):
        named = [replace(problem, demonstration=path.name) for problem in errors(problems)]
        raise DemonstrationError(named)
    final = path / "final_screenshot.png"
    return Trajectory(path.name, path, task, result, tuple(steps), final)


def trajectory_folders(path: Path) -> list[Path]:
    """Returns the trajectory folders of a dataset, including links to folders, sorted by name."""
    folder = path / "trajectories"
    children = folder.iterdir() if folder.is_dir() else iter(())
    return sorted(child for child in children if child.is_dir() and child.name[0] != ".")
