"""Validating the trajectories of an OSWorld-Desktopd dataset, and its index.json.

Belongs here: required files, and rules between them; totals, duplicates, and agreement between the
index, folders and results. Not here: the tree and action of one step (tree_validator.py), SFT files
(exports/sft_validator.py). All problems are returned, none is raised; links are followed.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    Index,
    IndexEntry,
    Metadata,
    Result,
    StepAction,
    Task,
)
from demo_pipeline.desktopd.reader import (
    json_problem,
    read_document,
    step_folders,
    trajectory_folders,
)
from demo_pipeline.desktopd.tree_validator import Nodes, check_action, check_tree_bytes
from demo_pipeline.files.atomic_write import FileId, file_id
from demo_pipeline.files.base_model import line_of
from demo_pipeline.files.image_header import probe_image_file
from demo_pipeline.files.json_files import (
    JsonFileError,
    Location,
    column_numbers,
    decode_text,
    line_numbers,
    read_bytes,
)
from demo_pipeline.files.processes import reduced_python_gc
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem, Severity, errors

IndexFault = tuple[str, Location, str]
_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An `IndexEntry` without a fault, in a fifth of its memory."""

    id: _Text
    task_id: _Text
    success: bool
    steps: _Count
    application: _Text


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    """An `Index` without anything to report; `Index` accepts the same values."""

    version: Literal["1.0"]
    total_trajectories: _Count
    successful: _Count
    failed: _Count
    trajectories: list[_Entry]


_DECODER = msgspec.json.Decoder(_Index)


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """What an index must agree with; None for what is in a file that could not be read.

    Attributes:
        steps: number of step folders.
        task_id, application: of task.json.
        success: of result.json.
    """

    steps: int
    task_id: str | None = None
    application: str | None = None
    success: bool | None = None


def check_index(path: Path, summaries: Mapping[str, IndexCounts]) -> list[Problem]:
    """The problems of index.json, each with the line of its entry.

    Args:
        path: the file.
        summaries: folder name → content of each trajectory folder.
    """
    index, problems = _read(path)
    if index is None:
        return problems
    faults = [*_counts(index), *_against_folders(index, summaries)]
    # Only for faults: the lines of many thousand entries need much memory.
    text = decode_text(read_bytes(path, "index.json"), "index.json") if faults else "{}"
    lines, columns = line_numbers(text), column_numbers(text)
    problems += [
        Problem(
            code,
            "index.json",
            message,
            line_of(lines, where),
            remedy="build the index again",
            column=line_of(columns, where),
        )
        for code, where, message in faults
    ]
    if isinstance(index, _Index):
        return problems
    if "version" not in index.model_fields_set:
        message = 'version: is missing; "1.0" is assumed'
        problems.append(Problem("missing_field", "index.json", message, severity=Severity.WARNING))
    if index.version != "1.0":
        message = "version: only 1.0 is supported"
        problems.append(Problem("version", "index.json", message, severity=Severity.WARNING))
    return problems


def _read(path: Path) -> tuple[_Index | Index | None, list[Problem]]:
    """The index, with warnings; or None with the errors."""
    try:
        return _DECODER.decode(read_bytes(path, "index.json")), []
    except (JsonFileError, msgspec.DecodeError, UnicodeDecodeError):  # the models say what is wrong
        return read_document(Index, path, "index.json")


def _counts(index: _Index | Index) -> Iterator[IndexFault]:
    successful = sum(entry.success for entry in index.trajectories)
    entries = len(index.trajectories)
    actual = {
        "total_trajectories": entries,
        "successful": successful,
        "failed": entries - successful,
    }
    for key, count in actual.items():
        stated = getattr(index, key)
        if stated != count:
            yield "index_count", (key,), f"{key}: {stated}, but the entries give {count}"


def _against_folders(
    index: _Index | Index, summaries: Mapping[str, IndexCounts]
) -> Iterator[IndexFault]:
    entries: Sequence[_Entry | IndexEntry] = index.trajectories
    times = Counter(entry.id for entry in entries)
    for number, entry in enumerate(entries):
        where: Location = ("trajectories", number)
        if times[entry.id] > 1:
            yield (
                "index_duplicate",
                (*where, "id"),
                f"{entry.id!r} is listed {times[entry.id]} times",
            )
        if entry.id not in summaries:
            yield "index_folder", (*where, "id"), f"{entry.id!r} has no folder in trajectories/"
            continue
        for key, stated, actual in _disagreements(entry, summaries[entry.id]):
            name = f"trajectories[{number}].{key}"
            yield (
                "index_differs",
                (*where, key),
                f"{name}: {stated!r}, but the files of the trajectory have {actual!r}",
            )
    for name in sorted(summaries.keys() - times.keys()):
        yield "index_missing", ("trajectories",), f"trajectories/{name} is not listed"


def _disagreements(
    entry: _Entry | IndexEntry, summary: IndexCounts
) -> Iterator[tuple[str, object, object]]:
    for key in ("steps", "success", "task_id", "application"):
        actual = getattr(summary, key)
        if actual is not None and getattr(entry, key) != actual:
            yield key, getattr(entry, key), actual


_STEP_FILES = {"screenshot.png", "ui_tree.json", "action.json"}
_TRAJECTORY_FILES = {"task.json", "result.json", "final_screenshot.png", "steps"}
# additions of this pipeline
_OUR_FILES = {"manifest.json", "provenance.parquet", "hidden_actions.parquet"}


@dataclass(slots=True)
class KnownTrajectories:
    """Trajectories without an error, by id, so that they need not be read again.

    Attributes:
        valid: found valid before.
        found: found valid by this validation.
        warnings: of those that have some, with files relative to the trajectory.
    """

    valid: Mapping[str, IndexCounts] = field(default_factory=dict)
    found: dict[str, IndexCounts] = field(default_factory=dict)
    warnings: dict[str, list[Problem]] = field(default_factory=dict)


CheckedTrees = Mapping[FileId, Nodes]
"""Trees that were read before and are valid → their nodes that actions may refer to."""


@reduced_python_gc()
def validate_trajectory(
    path: Path, trajectory_id: str | None = None, checked: CheckedTrees | None = None
) -> list[Problem]:
    """The problems of one trajectory.

    Args:
        path: its folder, or a link to it.
        trajectory_id: the expected id in result.json; None: the folder's name.
        checked: trees that are not read again.

    Returns:
        Problems with `demonstration` set and files relative to `path`; empty if there are none.
    """
    return _trajectory(path, trajectory_id, checked)[1]


def _trajectory(
    path: Path, trajectory_id: str | None = None, checked: CheckedTrees | None = None
) -> tuple[IndexCounts, list[Problem]]:
    name = path.name if trajectory_id is None else trajectory_id
    task, problems = read_document(Task, path / "task.json", "task.json")
    result, found = read_document(Result, path / "result.json", "result.json")
    folders = step_folders(path)
    problems += found
    problems += _unknown_files(path, _TRAJECTORY_FILES | _OUR_FILES, "")
    problems += _numbering(path, folders)
    problems += _with_lines(_totals(name, task, result, len(folders)), path, "")
    for number, folder in folders:
        problems += _step(number, folder, f"steps/{folder.name}", checked or {})
    problems += check_png(path / "final_screenshot.png", "final_screenshot.png")
    summary = IndexCounts(
        len(folders),
        task.task_id if task else None,
        task.application if task else None,
        result.success if result else None,
    )
    return summary, [replace(problem, demonstration=name) for problem in problems]


def _unknown_files(folder: Path, known: set[str], name: str) -> Iterator[Problem]:
    """Yield a warning for each directory entry that is not part of the format."""
    entries = os.listdir(folder) if folder.is_dir() else []  # noqa: PTH208 - names only
    for entry in sorted(set(entries) - known):
        printable = entry.encode("utf-8", "backslashreplace").decode()
        file = f"{name}/{printable}" if name else printable
        yield _warning("unknown_file", file, "not part of the format")


def _numbering(path: Path, folders: list[tuple[int, Path]]) -> Iterator[Problem]:
    """Yield the problems of step folder names: three digits, from 000, without a gap."""
    names = {folder.name for _, folder in folders}
    yield from _unknown_files(path / "steps", names, "steps")
    if not folders:
        yield Problem("no_steps", "steps", "has no step folder", remedy="add step folders from 000")
    for expected, (number, folder) in enumerate(folders):
        if number != expected:
            message = (
                f"expected step {expected:03d}: numbers start at 000, without gap or duplicate"
            )
            yield Problem(
                "step_order", f"steps/{folder.name}", message, remedy="renumber the steps"
            )
            return
        if folder.name != f"{number:03d}":
            file = f"steps/{folder.name}"
            yield _warning("step_name", file, f"expected the folder name {number:03d}")


def _totals(name: str, task: Task | None, result: Result | None, steps: int) -> Iterator[Problem]:
    if result is not None:
        if result.trajectory_id != name:
            message = "trajectory_id: differs from the folder's name"
            yield Problem("id_differs", "result.json", message, remedy="use the folder's name")
        if result.total_steps != steps:
            message = f"total_steps: {result.total_steps}, but there are {steps} step folders"
            yield Problem(
                "total_steps", "result.json", message, remedy="set it to the number of step folders"
            )
        if result.success and result.error_message is not None:
            message = "error_message: is set although success is true"
            yield _warning("error_message", "result.json", message)
        if not result.success and not result.error_message:
            message = "error_message: says no reason although success is false"
            yield _warning("error_message", "result.json", message)
    if task is not None and task.expected_steps != steps:
        # Not an error: in the example of the format, 3 steps are expected and 4 recorded.
        message = f"expected_steps: {task.expected_steps}, but there are {steps} step folders"
        yield _warning("expected_steps", "task.json", message)


def _step(number: int, folder: Path, name: str, checked: CheckedTrees) -> Iterator[Problem]:
    yield from _unknown_files(folder, _STEP_FILES, name)
    yield from check_png(folder / "screenshot.png", f"{name}/screenshot.png")
    nodes, problems = _tree(folder / "ui_tree.json", f"{name}/ui_tree.json", checked)
    yield from problems
    file = f"{name}/action.json"
    action, problems = read_document(StepAction, folder / "action.json", file)
    yield from problems
    if action is not None:
        yield from _with_lines(
            _action(number, action, nodes, folder.name, file), folder, f"{name}/"
        )


def _action(
    number: int, action: StepAction, nodes: Nodes | None, folder: str, file: str
) -> Iterator[Problem]:
    if action.step_index != number:
        message = f"step_index: {action.step_index}, but the folder is {folder}"
        yield Problem("step_index", file, message, remedy="use the folder's number")
    yield from check_action(action, nodes, file)


def _with_lines(problems: Iterable[Problem], folder: Path, prefix: str) -> Iterator[Problem]:
    """Yield problems with the line of their field, whose dotted name is the start of the message.

    Args:
        problems: of JSON files that could be read.
        folder: the folder of these files.
        prefix: added to the file names in `problems`.
    """
    for problem in problems:
        name = problem.file.removeprefix(prefix)
        text = decode_text(read_bytes(folder / name, problem.file), problem.file)
        field = tuple(problem.message.partition(":")[0].split("."))
        line, column = (line_of(of(text), field) for of in (line_numbers, column_numbers))
        yield replace(problem, line=line, column=column)


def _tree(path: Path, file: str, checked: CheckedTrees) -> tuple[Nodes | None, list[Problem]]:
    """The nodes, or None if the file cannot be read, and the problems of the tree."""
    known = file_id(path)
    if known is not None and known in checked:
        return checked[known], []
    try:
        return check_tree_bytes(read_bytes(path, file), file)
    except JsonFileError as error:
        return None, [json_problem(error, exists=path.is_file())]


def check_png(path: Path, file: str) -> list[Problem]:
    """The problems of a screenshot, which must be a complete PNG of 1920x1080 pixels."""
    try:
        info = probe_image_file(path)
    except OSError as error:
        raise_system_trouble(error)
        unreadable = JsonFileError(file, None, f"cannot be read: {error.strerror}")
        return [json_problem(unreadable, exists=path.is_file())]
    except ValueError as error:
        return [Problem("invalid_png", file, str(error), remedy="write the screenshot again")]
    if info.kind != "png":
        return [
            Problem(
                "invalid_png",
                file,
                f"is a {info.kind.upper()}, not a PNG",
                remedy="convert it to PNG",
            )
        ]
    if (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT):
        return []
    message = f"{info.width}x{info.height} pixels, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"
    return [Problem("screenshot_size", file, message, remedy="scale the screenshot to the canvas")]


@reduced_python_gc()
def validate_dataset(path: Path, known: KnownTrajectories | None = None) -> list[Problem]:
    """The problems of a dataset: its index, its metadata, and every trajectory.

    Args:
        path: the folder that contains index.json and trajectories/.
        known: trajectories that are not read again.

    Returns:
        Problems with files relative to `path`.
    """
    if not path.is_dir():
        return [
            Problem("missing_folder", ".", "the folder does not exist", remedy="check the path")
        ]
    problems: list[Problem] = []
    summaries: dict[str, IndexCounts] = {}
    known = known or KnownTrajectories()
    for folder in trajectory_folders(path):
        if folder.name in known.valid:
            summaries[folder.name] = known.valid[folder.name]
            found = known.warnings.get(folder.name, [])
        else:
            summaries[folder.name], found = _trajectory(folder)
            if not errors(found):
                known.found[folder.name] = summaries[folder.name]
                known.warnings |= {folder.name: found} if found else {}
        prefix = f"trajectories/{folder.name}/"
        problems += [replace(problem, file=prefix + problem.file) for problem in found]
    return [*_metadata(path), *check_index(path / "index.json", summaries), *problems]


def _metadata(path: Path) -> list[Problem]:
    if not (path / "metadata.json").exists():
        return [
            _warning(
                "missing_file",
                "metadata.json",
                "the file is missing: the program that made the dataset is unknown",
            )
        ]
    return read_document(Metadata, path / "metadata.json", "metadata.json")[1]


def _warning(code: str, file: str, message: str) -> Problem:
    return Problem(code, file, message, severity=Severity.WARNING)
