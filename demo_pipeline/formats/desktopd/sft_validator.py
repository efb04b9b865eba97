"""Validating SFT files of an OSWorld-Desktopd dataset: JSONL, one sample a line.

Belongs here: seed 001, section 6. Each line is judged alone, as `file:line`; what it refers to is
looked up in the dataset when there is one.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.formats.base_model import check
from demo_pipeline.formats.desktopd.models import SftSample
from demo_pipeline.formats.desktopd.reader import json_problem, picture_oddity
from demo_pipeline.formats.desktopd.step_actions import StepAction
from demo_pipeline.formats.desktopd.tree_validator import Nodes, check_action, check_tree
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.problems import Problem, Severity

_DATA_URI = "data:image/png;base64,"
_PNG_IN_BASE64 = "iVBORw0KGgo"


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sample stands, and the dataset its paths lead into (None: not known)."""

    file: str
    line: int
    root: Path | None

    def problem(self, code: str, message: str, remedy: str) -> Problem:
        return Problem(code, self.file, message, self.line, remedy=remedy)


def validate_sft(path: Path, root: Path | None = None) -> list[Problem]:
    """What is wrong with an SFT file.

    Args:
        path: a JSONL file of samples.
        root: the dataset that `screenshot` and `ui_tree` paths are relative to. Default: the
            first of the file's folder, the one above, and `dataset` in that, which holds
            `trajectories`; with none, paths are not followed, which is a warning.

    Returns:
        Problems filed under the file's name, with line numbers.
    """
    file = path.name
    if not path.is_file():
        return [Problem("missing_file", file, "the file is missing", remedy="check the path")]
    root = root or _dataset_near(path)
    problems: list[Problem] = []
    if root is None:
        message = "no dataset found beside it: paths are not followed"
        problems.append(Problem("no_dataset", file, message, severity=Severity.WARNING))
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            problems += _line_problems(line, _Place(file, number, root))
    return problems


def _dataset_near(path: Path) -> Path | None:
    above = path.parent.parent
    candidates = (path.parent, above, above / "dataset")
    return next((folder for folder in candidates if (folder / "trajectories").is_dir()), None)


def _line_problems(line: bytes, place: _Place) -> list[Problem]:
    if not line.strip():
        return [place.problem("blank_line", "a blank line", "remove it")]
    try:
        value = parse_json(line, place.file)
    except JsonFileError as error:
        return [replace(json_problem(error), line=place.line)]
    sample, problems = check(SftSample, value, place.file, line=place.line)
    if sample is None:
        return problems
    problems += _screenshot(sample.input.screenshot, place)
    nodes, found = _tree(sample.input.ui_tree, place)
    action = sample.output.action
    problems += found
    problems += [
        _at(problem, place, "output.action") for problem in check_action(action, nodes, "")
    ]
    problems += _history(sample.input.history, action, place)
    if sample.output.reasoning != action.reasoning:
        message = "output.reasoning: differs from output.action.reasoning"
        problems.append(place.problem("reasoning_differs", message, "copy the action's"))
    return problems


def _at(problem: Problem, place: _Place, field: str) -> Problem:
    message = f"{field}: {problem.message}"
    return replace(problem, file=place.file, line=place.line, message=message)


def _screenshot(text: str, place: _Place) -> Iterator[Problem]:
    if text.startswith((_DATA_URI, _PNG_IN_BASE64)):
        message = _inline_oddity(text.removeprefix(_DATA_URI))
    elif path := _follow(text, place):
        message = picture_oddity(path)
    else:
        message = _reference_fault(text)
    if message:
        yield place.problem("screenshot", f"input.screenshot: {message}", "correct the reference")


def _inline_oddity(text: str) -> str:
    try:
        info = probe_image(base64.b64decode(text, validate=True))
    except binascii.Error:
        return "not base64"
    except ValueError as error:
        return str(error)
    if (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT):
        return ""
    return f"{info.width}x{info.height} pixels, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"


def _reference_fault(text: str) -> str:
    """Why a path may not be followed; empty when it may."""
    parts = PurePosixPath(text)
    if parts.is_absolute() or ".." in parts.parts or "\\" in text or "\0" in text:
        return "not a path inside the dataset"
    return ""


def _follow(text: str, place: _Place) -> Path | None:
    return None if place.root is None or _reference_fault(text) else place.root / text


def _tree(value: Any, place: _Place) -> tuple[Nodes | None, list[Problem]]:
    """The nodes of the sample's tree (None: not known), and what is wrong with it."""
    if isinstance(value, str):
        path = _follow(value, place)
        if path is None:
            fault = _reference_fault(value)
            remedy = "correct the reference"
            found = [place.problem("ui_tree", f"input.ui_tree: {fault}", remedy)] if fault else []
            return None, found
        try:
            value = load_json(path, place.file)
        except JsonFileError as error:
            problem = json_problem(error, exists=path.is_file())
            return None, [_at(problem, place, "input.ui_tree")]
    nodes, problems = check_tree(value, place.file)
    return nodes, [_at(problem, place, "input.ui_tree") for problem in problems]


def _history(history: list[dict[str, Any]], action: StepAction, place: _Place) -> Iterator[Problem]:
    """Yield faults of the actions before: each sound, in order, and before this one."""
    last = -1
    for number, value in enumerate(history):
        earlier, problems = check(StepAction, value, place.file, line=place.line)
        field = f"input.history[{number}]"
        yield from (_at(problem, place, field) for problem in problems)
        if earlier is None:
            continue
        if not last < earlier.step_index < action.step_index:
            message = f"{field}.step_index: not in order before this step"
            yield place.problem("history_order", message, "list the steps before, in order")
        last = earlier.step_index
