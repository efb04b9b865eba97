"""Validating a folder of AgentNetBench's form: its tasks, their steps, their images.

Belongs here: the rules that the models cannot express.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from demo_pipeline.common.image_header import probe_image
from demo_pipeline.common.json_files import JsonFileError, load_json
from demo_pipeline.common.system_errors import raise_system_trouble
from demo_pipeline.formats.agentnetbench.models import BENCH_IMAGES, BENCH_TASKS, BenchTask
from demo_pipeline.formats.base_model import check
from demo_pipeline.formats.desktopd.reader import json_problem
from demo_pipeline.problems import Problem

_REMEDY = "build the export again"


def validate_agentnetbench(root: Path) -> list[Problem]:
    """The problems of a folder with `tasks/` and `images/`; no task is right: a split can be empty.

    Args:
        root: what `--data` and `--image_dir` of AgentNetBench's script lie in.
    """
    absent = [name for name in (BENCH_TASKS, BENCH_IMAGES) if not (root / name).is_dir()]
    if absent:
        return [_problem("missing_file", name, "the folder is missing") for name in absent]
    problems: list[Problem] = []
    first: dict[str, str] = {}
    images: dict[str, str] = {}
    unread = False
    for path in sorted((root / BENCH_TASKS).glob("*.json")):
        file = f"{BENCH_TASKS}/{path.name}"
        task, found = _read(path, file)
        problems += found
        if task is None:
            unread = True
        else:
            problems += _task_problems(task, file, first, images, root)
    shipped = {path.name for path in (root / BENCH_IMAGES).iterdir()}
    if (unused := shipped - set(images)) and not unread:
        message = f"no step names {len(unused)} of the images"
        problems.append(_problem("unused_image", BENCH_IMAGES, message))
    return problems


def _read(path: Path, file: str) -> tuple[BenchTask | None, list[Problem]]:
    try:
        value = load_json(path, file)
        text = path.read_text(encoding="utf-8")
    except JsonFileError as error:
        return None, [json_problem(error, exists=path.is_file())]
    return check(BenchTask, value, file, text)


def _task_problems(
    task: BenchTask, file: str, first: dict[str, str], images: dict[str, str], root: Path
) -> Iterator[Problem]:
    """Yield the problems of a task.

    Args:
        task: the task.
        file: its name in the problems.
        first: task id → the file that has it; the task is added.
        images: image → why it cannot be used, empty if it opens; those of the task are added.
        root: the folder.
    """
    if (other := first.setdefault(task.task_id, file)) != file:
        yield _problem("duplicate_id", file, f"task_id: is not unique, first in {other}")
    numbers = [step.step_num for step in task.steps if step.step_num is not None]
    if any(after <= before for before, after in pairwise(numbers)):
        yield _problem("step_num", file, "steps: their step_num do not rise")
    for number, step in enumerate(task.steps):
        if step.image not in images:
            images[step.image] = _image_fault(root / BENCH_IMAGES / step.image)
        if fault := images[step.image]:
            yield _problem("image", file, f"steps[{number}].image: {fault}")


def _image_fault(path: Path) -> str:
    try:
        probe_image(path.read_bytes())
    except OSError as error:
        raise_system_trouble(error)
        return "is missing"
    except ValueError as error:
        return f"does not open: {error}"
    return ""


def _problem(code: str, file: str, message: str) -> Problem:
    return Problem(code, file, message, remedy=_REMEDY)
