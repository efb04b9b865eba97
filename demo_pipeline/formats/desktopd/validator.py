"""Validating an OSWorld-Desktopd dataset: its trajectories, folder by folder.

Belongs here: which files there must be, and what holds between them (seed 001). One step's tree and
action are `desktopd_tree`'s, the index `desktopd_index`'s, SFT files `desktopd_sft`'s.
Everything is reported, nothing raised; links are followed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from demo_pipeline.common.deep_json import line_numbers
from demo_pipeline.common.hardlinks import FileId, file_id
from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.json_files import JsonFileError, decode_text, read_bytes
from demo_pipeline.common.python_gc import reduced_python_gc
from demo_pipeline.formats.base_model import line_of
from demo_pipeline.formats.desktopd.index_check import IndexCounts, check_index
from demo_pipeline.formats.desktopd.models import Metadata, Result, Task
from demo_pipeline.formats.desktopd.reader import (
    json_problem,
    read_document,
    step_folders,
    trajectory_folders,
)
from demo_pipeline.formats.desktopd.step_actions import StepAction
from demo_pipeline.formats.desktopd.tree_validator import Nodes, check_action, check_tree_bytes
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.problems import Problem, Severity

_STEP_FILES = {"screenshot.png", "ui_tree.json", "action.json"}
_TRAJECTORY_FILES = {"task.json", "result.json", "final_screenshot.png", "steps"}
_OUR_FILES = {"manifest.json", "provenance.parquet"}  # beside the format, from this pipeline

Checked = Mapping[FileId, Nodes]
"""Trees that were read before and are sound → the nodes in them that actions may name."""


@reduced_python_gc()
def validate_trajectory(
    path: Path, trajectory_id: str | None = None, checked: Checked | None = None
) -> list[Problem]:
    """What is wrong with one trajectory.

    Args:
        path: its folder, or a link to it.
        trajectory_id: what result.json must say; None: the folder's name.
        checked: trees that are not read again.

    Returns:
        Problems by file, relative to `path`, each with `demonstration` set; empty when all is well.
    """
    return _trajectory(path, trajectory_id, checked)[1]


def _trajectory(
    path: Path, trajectory_id: str | None = None, checked: Checked | None = None
) -> tuple[IndexCounts, list[Problem]]:
    name = path.name if trajectory_id is None else trajectory_id
    task, problems = read_document(Task, path / "task.json", "task.json")
    result, found = read_document(Result, path / "result.json", "result.json")
    folders = step_folders(path)
    problems += found
    problems += _strangers(path, _TRAJECTORY_FILES | _OUR_FILES, "")
    problems += _numbering(path, folders)
    problems += _lined(_totals(name, task, result, len(folders)), path, "")
    for number, folder in folders:
        problems += _step(number, folder, f"steps/{folder.name}", checked or {})
    problems += check_png(path / "final_screenshot.png", "final_screenshot.png")
    summary = IndexCounts(len(folders), task, result)
    return summary, [replace(problem, demonstration=name) for problem in problems]


def _strangers(folder: Path, known: set[str], name: str) -> Iterator[Problem]:
    """Yield a warning for each entry that the format does not know."""
    entries = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names only
    for entry in sorted(set(entries) - known):
        printable = entry.encode("utf-8", "backslashreplace").decode()
        file = f"{name}/{printable}" if name else printable
        yield _warning("unknown_file", file, "not part of the format")


def _numbering(path: Path, folders: list[tuple[int, Path]]) -> Iterator[Problem]:
    """Yield problems of the step folders' names: three digits, from 000, without a gap."""
    names = {folder.name for _, folder in folders}
    yield from _strangers(path / "steps", names, "steps")
    if not folders:
        yield Problem("no_steps", "steps", "there is no step", remedy="add step folders from 000")
    for expected, (number, folder) in enumerate(folders):
        if number != expected:
            message = f"expected step {expected:03d} here: numbers go from 000 without gap or twin"
            yield Problem(
                "step_order", f"steps/{folder.name}", message, remedy="number the steps again"
            )
            return
        if folder.name != f"{number:03d}":
            file = f"steps/{folder.name}"
            yield _warning("step_name", file, f"expected the name {number:03d}")


def _totals(name: str, task: Task | None, result: Result | None, steps: int) -> Iterator[Problem]:
    if result is not None:
        if result.trajectory_id != name:
            message = "trajectory_id: differs from the folder's name"
            yield Problem("id_differs", "result.json", message, remedy="use the folder's name")
        if result.total_steps != steps:
            message = f"total_steps: {result.total_steps}, but there are {steps} step folders"
            yield Problem("total_steps", "result.json", message, remedy="count again")
        if result.success and result.error_message is not None:
            message = "error_message: given although success is true"
            yield _warning("error_message", "result.json", message)
    if task is not None and task.expected_steps != steps:
        # Not an error: in the seed's own example 3 are expected and 4 recorded.
        message = f"expected_steps: {task.expected_steps}, but there are {steps} step folders"
        yield _warning("expected_steps", "task.json", message)


def _step(number: int, folder: Path, name: str, checked: Checked) -> Iterator[Problem]:
    yield from _strangers(folder, _STEP_FILES, name)
    yield from check_png(folder / "screenshot.png", f"{name}/screenshot.png")
    nodes, problems = _tree(folder / "ui_tree.json", f"{name}/ui_tree.json", checked)
    yield from problems
    file = f"{name}/action.json"
    action, problems = read_document(StepAction, folder / "action.json", file)
    yield from problems
    if action is not None:
        yield from _lined(_action(number, action, nodes, folder.name, file), folder, f"{name}/")


def _action(
    number: int, action: StepAction, nodes: Nodes | None, folder: str, file: str
) -> Iterator[Problem]:
    if action.step_index != number:
        message = f"step_index: {action.step_index}, but the folder is {folder}"
        yield Problem("step_index", file, message, remedy="use the folder's number")
    yield from check_action(action, nodes, file)


def _lined(problems: Iterable[Problem], folder: Path, prefix: str) -> Iterator[Problem]:
    """Yield findings with the line of their field, whose dotted name begins the message.

    Args:
        problems: about JSON files that could be read.
        folder: where these lie.
        prefix: what their names begin with in `problems`.
    """
    for problem in problems:
        name = problem.file.removeprefix(prefix)
        text = decode_text(read_bytes(folder / name, problem.file), problem.file)
        field = tuple(problem.message.partition(":")[0].split("."))
        yield replace(problem, line=line_of(line_numbers(text), field))


def _tree(path: Path, file: str, checked: Checked) -> tuple[Nodes | None, list[Problem]]:
    """The nodes, or None when the file cannot be read, and what is wrong with it."""
    known = file_id(path)
    if known is not None and known in checked:
        return checked[known], []
    try:
        return check_tree_bytes(read_bytes(path, file), file)
    except JsonFileError as error:
        return None, [json_problem(error, exists=path.is_file())]


def check_png(path: Path, file: str) -> list[Problem]:
    """What is wrong with a screenshot: a whole PNG of 1920x1080 pixels is expected."""
    try:
        info = probe_image(read_bytes(path, file))
    except JsonFileError as error:
        return [json_problem(error, exists=path.is_file())]
    except ValueError as error:
        return [Problem("invalid_png", file, str(error), remedy="write the picture again")]
    if info.kind != "png":
        return [Problem("invalid_png", file, f"a {info.kind}, not a PNG", remedy="convert it")]
    if (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT):
        return []
    message = f"{info.width}x{info.height} pixels, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
    return [Problem("screenshot_size", file, message, remedy="fit the picture to the canvas")]


@reduced_python_gc()
def validate_dataset(path: Path) -> list[Problem]:
    """What is wrong with a dataset: its index, its metadata, and every trajectory.

    Args:
        path: the folder that holds index.json and trajectories/.

    Returns:
        Problems by file, relative to `path`.
    """
    if not path.is_dir():
        return [Problem("missing_folder", ".", "there is no dataset", remedy="check the path")]
    problems: list[Problem] = []
    summaries: dict[str, IndexCounts] = {}
    for folder in trajectory_folders(path):
        summaries[folder.name], found = _trajectory(folder)
        prefix = f"trajectories/{folder.name}/"
        problems += [replace(problem, file=prefix + problem.file) for problem in found]
    return [*_metadata(path), *check_index(path / "index.json", summaries), *problems]


def _metadata(path: Path) -> list[Problem]:
    if not (path / "metadata.json").exists():
        return [_warning("missing_file", "metadata.json", "the dataset does not say what made it")]
    return read_document(Metadata, path / "metadata.json", "metadata.json")[1]


def _warning(code: str, file: str, message: str) -> Problem:
    return Problem(code, file, message, severity=Severity.WARNING)
