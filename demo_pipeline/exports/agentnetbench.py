"""A task of AgentNetBench as models, and validating a folder of its tasks.

Source: OpenCUA, evaluation/agentnetbench. Belongs here: the models, and the rules that they cannot
express. Keys that its script does not read may be missing.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from demo_pipeline.desktopd.models import Count, Text
from demo_pipeline.desktopd.reader import json_problem
from demo_pipeline.files.base_model import Document, check
from demo_pipeline.files.image_header import probe_image
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

BENCH_TASKS, BENCH_IMAGES = "tasks", "images"
_PLACED = ("click", "doubleclick", "rightclick", "tripleclick", "moveto", "dragto")
_NEEDED = {
    **dict.fromkeys(_PLACED, "position"),
    "press": "keys",
    "hotkey": "keys",
    "write": "text",
    "scroll": "amount",
    "hscroll": "amount",
    "terminate": "status",
    "middleclick": "",
    "wait": "",
}
"""Type, in lower case as the script compares it → the parameter that it reads; empty: none."""
_Share = Annotated[float, Field(ge=0, lt=1)]


class BenchPosition(Document):
    """A point in shares of the screen."""

    x: _Share
    y: _Share


class BenchParameters(Document):
    """The parameters of an action; which one it has depends on its type."""

    position: BenchPosition | None = None
    text: str | None = None
    keys: list[Text] | None = Field(default=None, min_length=1)
    amount: float | None = None
    status: Literal["success", "failure"] | None = None


class BenchBox(Document):
    """A target: left, top, width and height in shares of the screen."""

    rel_bbox: list[float] = Field(min_length=4, max_length=4)
    category_id: int | None = None

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if min(self.rel_bbox[2:]) < 0:
            raise ValueError("rel_bbox is not [x, y, width, height]")
        return self


class BenchTargets(Document):
    """What is known of the target of an action."""

    bboxes: list[BenchBox] = Field(default_factory=list)


class TrueAction(Document):
    """An action that counts as right."""

    type: str
    params: BenchParameters
    metadata: BenchTargets = Field(default_factory=BenchTargets)

    @model_validator(mode="after")
    def _has_its_parameter(self) -> Self:
        needed = _NEEDED.get(self.type.lower())
        if needed is None:
            raise ValueError("type is none that the script knows")
        if needed and getattr(self.params, needed) is None:
            raise ValueError(f"params has no {needed}, which this type needs")
        return self


class BenchStep(Document):
    """A step; `image` is the name of a file in the folder of images."""

    image: str = Field(pattern=r"^[^/\\\x00]+\.(png|jpg|jpeg)$")
    ground_truth_actions: list[TrueAction] = Field(min_length=1)
    step_num: Count | None = None
    action: str = ""
    milestone: bool = False
    inner_monologue: dict[str, Any] = Field(default_factory=dict)
    alternative_options: list[list[TrueAction]] = Field(default_factory=list)


class BenchTask(Document):
    """A file of `tasks/`."""

    task_id: Text
    high_level_task_description: str
    steps: list[BenchStep] = Field(min_length=1)
    user_task_description: str = ""
    meta_info: dict[str, Any] = Field(default_factory=dict)


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
