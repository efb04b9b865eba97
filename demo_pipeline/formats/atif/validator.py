"""Validating a folder of ATIF trajectories: every file, its images, its calls, and the list.

Belongs here: the rules that the models cannot express.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from demo_pipeline.common.image_header import ImageInfo, probe_image
from demo_pipeline.common.json_files import JsonFileError, load_json, parse_json
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.formats.answers import AnswerFormatError
from demo_pipeline.formats.atif.decoder import decode_call
from demo_pipeline.formats.atif.models import (
    ATIF_FILE,
    ATIF_LIST,
    AtifEntry,
    AtifPart,
    AtifResult,
    AtifStep,
    AtifTrajectory,
)
from demo_pipeline.formats.base_model import check
from demo_pipeline.formats.desktopd.reader import json_problem
from demo_pipeline.problems import Problem, errors

_REMEDY = "build the export again"
Size = tuple[int, int]


def validate_atif(root: Path) -> list[Problem]:
    """The problems of a folder with `atif_trajectories.jsonl` and the files that it names."""
    path = root / ATIF_LIST
    if not path.is_file():
        return [_problem("missing_file", ATIF_LIST, "the file is missing")]
    entries, problems = _entries(path)
    seen: dict[str, int] = {}
    for line, entry in entries:
        first = seen.setdefault(entry.trajectory_id, line)
        if first != line:
            message = f"trajectory_id: is not unique, first at line {first}"
            problems.append(_problem("duplicate_id", ATIF_LIST, message, line))
        if entry.file != f"{entry.split}/{entry.trajectory_id}/{ATIF_FILE}":
            message = f"file: is not <split>/<trajectory_id>/{ATIF_FILE}"
            problems.append(_problem("layout", ATIF_LIST, message, line))
        else:
            problems += validate_atif_file(root / entry.file, entry.file, entry.trajectory_id)
    written = {file.relative_to(root).as_posix() for file in root.rglob(ATIF_FILE)}
    if written - {entry.file for _, entry in entries} and not errors(problems):
        message = "does not name every trajectory of the folder"
        problems.append(_problem("unlisted", ATIF_LIST, message))
    return problems


def validate_atif_file(path: Path, file: str | None = None, trajectory: str = "") -> list[Problem]:
    """The problems of one trajectory; its images are relative to its folder.

    Args:
        path: trajectory.json.
        file: its name in the problems.
        trajectory: the id that it must have; empty: any.
    """
    name = file or path.name
    try:
        value = load_json(path, name)
    except JsonFileError as error:
        return [json_problem(error, exists=path.is_file())]
    document, problems = check(AtifTrajectory, value, name)
    if document is None:
        return problems
    if trajectory and document.trajectory_id != trajectory:
        problems.append(_problem("trajectory_id", name, "trajectory_id: is not the folder's name"))
    problems += (_problem(code, name, said) for code, said in _faults(document, path.parent))
    return problems


def _entries(path: Path) -> tuple[list[tuple[int, AtifEntry]], list[Problem]]:
    entries: list[tuple[int, AtifEntry]] = []
    problems: list[Problem] = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                value = parse_json(line, ATIF_LIST)
            except JsonFileError as error:
                problems.append(replace(json_problem(error), line=number))
                continue
            entry, found = check(AtifEntry, value, ATIF_LIST, line=number)
            problems += found
            entries += [(number, entry)] if entry else []
    return entries, problems


def _problem(code: str, file: str, message: str, line: int | None = None) -> Problem:
    return Problem(code, file, message, line, remedy=_REMEDY)


def _faults(document: AtifTrajectory, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield code and message of what is wrong between the parts of a trajectory."""
    if document.steps[0].source != "user":
        yield "first_step", "steps[0]: must be the user's"
    calls = [call.tool_call_id for step in document.steps for call in step.tool_calls or ()]
    if len(set(calls)) < len(calls):
        yield "call_id", "steps: two calls have the same id"
    size: Size | None = None
    named: set[str] = set()
    for number, step in enumerate(document.steps):
        place = f"steps[{number}]"
        yield from _call_faults(step, size, place)
        for path in _paths(step):
            info = _image(path, folder)
            named.add(path)
            if isinstance(info, str):
                yield "image", f"{place}: an image {info}"
            else:
                size = (info.width, info.height)
    shipped = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    if unused := shipped - named - {ATIF_FILE}:
        yield "unused_file", f"no step names {len(unused)} of the files in its folder"


def _call_faults(step: AtifStep, size: Size | None, place: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the calls of a step; `size`: of the screen that was last shown."""
    for call in step.tool_calls or ():
        if size is None:
            yield "no_screen", f"{place}: a call before any screen was shown"
            return
        try:
            decode_call(call.members(), size)
        except AnswerFormatError as error:
            yield "tool_call", f"{place}.tool_calls: {error.reason}"


def _paths(step: AtifStep) -> Iterator[str]:
    """Yield the paths of a step's images, the last one being the screen after it."""
    contents = [step.message, *(result.content for result in _results(step))]
    parts: list[AtifPart] = [
        part for content in contents if isinstance(content, list) for part in content
    ]
    yield from (part.source.path for part in parts if part.source)


def _results(step: AtifStep) -> Sequence[AtifResult]:
    return step.observation.results if step.observation else ()


def _image(path: str, folder: Path) -> ImageInfo | str:
    """What an image is, or why it cannot be used."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path:
        return "is not a path below the trajectory's folder"
    try:
        return probe_image((folder / path).read_bytes())
    except OSError as error:
        raise_system_trouble(error)
        return "is missing"
    except ValueError as error:
        return f"does not open: {error}"
