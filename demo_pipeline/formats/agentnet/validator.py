"""Validating a folder of AgentNet's form: its lines, their code, their images, their computers.

Belongs here: the rules that the models cannot express. Lines are read strictly: code that is more
than the form's calls is an error.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.formats.agentnet.models import (
    AGENTNET_META,
    CODE_ONLY,
    IMAGES,
    AgentNetSystem,
    AgentNetTask,
    CodeTask,
)
from demo_pipeline.formats.agentnet.pyautogui_code import CodeCall, read_code
from demo_pipeline.formats.answers import AnswerFormatError
from demo_pipeline.formats.base_model import DocumentT, check
from demo_pipeline.formats.cudag.tool_calls import MARKER
from demo_pipeline.formats.desktopd.reader import json_problem
from demo_pipeline.problems import Problem

_SPLITS = ("train", "val", "test")
_EXTRA = ("held_out",)
_REMEDY = "build the export again"


@dataclass(slots=True)
class _Seen:
    """What was read so far: where each task is, and the images that were looked at."""

    root: Path
    tasks: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)


def validate_agentnet(root: Path) -> list[Problem]:
    """The problems of a folder in AgentNet's form, with the numbers of the lines.

    Args:
        root: the folder with `train.jsonl` and so on, `code_only/`, `images/` and
            `meta_data_merged.jsonl`.
    """
    seen = _Seen(root)
    problems: list[Problem] = []
    for name in (*_SPLITS, *_EXTRA):
        full, short = f"{name}.jsonl", f"{CODE_ONLY}/{name}.jsonl"
        absent = [file for file in (full, short) if not (root / file).is_file()]
        if len(absent) == 2 and name in _EXTRA:
            continue
        problems += [_problem("missing_file", file, "the file is missing") for file in absent]
        if not absent:
            problems += _split_problems(full, short, seen)
    problems += _system_problems(seen)
    return [*problems, *_unused_images(seen)]


def _split_problems(full: str, short: str, seen: _Seen) -> Iterator[Problem]:
    """Yield the problems of a split; of each file one line is in memory."""
    with (seen.root / full).open("rb") as tasks, (seen.root / short).open("rb") as codes:
        for number, (line, code) in enumerate(zip_longest(tasks, codes), start=1):
            task, found = _parsed(AgentNetTask, line, full, number)
            yield from found
            if task is not None:
                yield from _task_problems(task, (full, number), seen)
            written, found = _parsed(CodeTask, code, short, number)
            yield from found
            if (_as_code(task) if task else None) != (written.model_dump() if written else None):
                message = "is not the line of the full form with only the code"
                yield _problem("forms_differ", short, message, number)


def _parsed(
    model: type[DocumentT], line: bytes | None, file: str, number: int
) -> tuple[DocumentT | None, list[Problem]]:
    """The model of a line, or the problems; None: there is no such line."""
    if line is None:
        return None, []
    try:
        value = parse_json(line, file)
    except JsonFileError as error:
        return None, [replace(json_problem(error), line=number)]
    return check(model, value, file, line=number)


def _problem(code: str, file: str, message: str, line: int | None = None) -> Problem:
    return Problem(code, file, message, line, remedy=_REMEDY)


def _task_problems(task: AgentNetTask, place: tuple[str, int], seen: _Seen) -> Iterator[Problem]:
    file, line = place
    here = f"{file}:{line}"
    if (first := seen.tasks.setdefault(task.task_id, here)) != here:
        message = f"task_id: is not unique, first at {first}"
        yield _problem("duplicate_id", file, message, line)
    if MARKER.search(task.instruction):
        message = "instruction: contains a control marker of a model"
        yield _problem("marker", file, message, line)
    if [step.index for step in task.traj] != list(range(len(task.traj))):
        yield _problem("index", file, "traj: the indexes do not count from 0", line)
    yield from (_problem("code", file, text, line) for text in _code_faults(task))
    for number, step in enumerate(task.traj):
        if fault := _image_fault(step.image, seen):
            yield _problem("image", file, f"traj[{number}].image: {fault}", line)


def _code_faults(task: AgentNetTask) -> Iterator[str]:
    """Yield what is wrong with the code of the steps: none ends the task before the last."""
    last = len(task.traj) - 1
    for number, step in enumerate(task.traj):
        place = f"traj[{number}].value.code"
        try:
            calls = read_code(step.value.code)
        except AnswerFormatError as error:
            yield f"{place}: {error.reason}"
            continue
        yield from (f"{place}: {fault}" for fault in _call_faults(calls))
        ends = [call for call in calls if call.name == "terminate"]
        if ends and (number < last or len(calls) > 1):
            yield f"{place}: a task is ended by the last step, and by nothing else in it"
        elif ends and task.task_completed is not (ends[0].status == "success"):
            yield f"{place}: the status is not that of task_completed"


def _call_faults(calls: Sequence[CodeCall]) -> Iterator[str]:
    """Yield what is missing before a call: a drag and a scroll begin where the pointer is."""
    for number, call in enumerate(calls):
        moved = number > 0 and calls[number - 1].name == "moveTo"
        if call.name in ("dragTo", "scroll", "hscroll") and not moved:
            yield f"{call.name} without a moveTo before it"
        if call.name == "moveTo" and number + 1 == len(calls):
            yield "moveTo without a call after it"


def _image_fault(name: str, seen: _Seen) -> str:
    """Why an image cannot be used; empty if it opens."""
    if name not in seen.images:
        seen.images[name] = _file_fault(seen.root / IMAGES / name)
    return seen.images[name]


def _file_fault(path: Path) -> str:
    try:
        probe_image(path.read_bytes())
    except OSError as error:
        raise_system_trouble(error)
        return "is missing"
    except ValueError as error:
        return f"does not open: {error}"
    return ""


def _as_code(task: AgentNetTask) -> dict[str, object]:
    steps = [{"image": step.image, "value": {"code": step.value.code}} for step in task.traj]
    return {"task_id": task.task_id, "instruction": task.instruction, "traj": steps}


def _system_problems(seen: _Seen) -> Iterator[Problem]:
    """Yield a problem for each task whose computer is not known, and the other way round."""
    if not (seen.root / AGENTNET_META).is_file():
        yield _problem("missing_file", AGENTNET_META, "the file is missing")
        return
    named: set[str] = set()
    complete = True
    with (seen.root / AGENTNET_META).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            system, found = _parsed(AgentNetSystem, line, AGENTNET_META, number)
            yield from found
            if system is None:
                complete = False
                continue
            if system.task_id in named:
                yield _problem("duplicate_id", AGENTNET_META, "a task is named twice", number)
            named.add(system.task_id)
    if named != set(seen.tasks) and complete:
        yield _problem("systems", AGENTNET_META, "does not name exactly the tasks of the lines")


def _unused_images(seen: _Seen) -> Iterator[Problem]:
    """Yield a problem for the images that no line names: nothing else may be handed on."""
    folder = seen.root / IMAGES
    files = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if unused := files - set(seen.images):
        yield _problem("unused_image", IMAGES, f"no line names {len(unused)} of the images")
