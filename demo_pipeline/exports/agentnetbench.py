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
from demo_pipeline.desktopd.trajectory_reader import read_document
from demo_pipeline.exports.record_checks import (
    REBUILD,
    ExportReader,
    Fault,
    NamedFiles,
    RecordFormat,
    unused_images,
)
from demo_pipeline.files.base_model import Document
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


class _Position(Document):
    x: _Share
    y: _Share


class _Parameters(Document):
    position: _Position | None = None
    text: str | None = None
    keys: list[Text] | None = Field(default=None, min_length=1)
    amount: float | None = None
    status: Literal["success", "failure"] | None = None


class _Box(Document):
    rel_bbox: list[float] = Field(min_length=4, max_length=4)  # left, top, width, height, shares
    category_id: int | None = None

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if min(self.rel_bbox[2:]) < 0:
            raise ValueError("rel_bbox is not [x, y, width, height]")
        return self


class _Targets(Document):
    bboxes: list[_Box] = Field(default_factory=list)


class _TrueAction(Document):
    type: str
    params: _Parameters
    metadata: _Targets = Field(default_factory=_Targets)

    @model_validator(mode="after")
    def _has_its_parameter(self) -> Self:
        needed = _NEEDED.get(self.type.lower())
        if needed is None:
            raise ValueError("type is none that the script knows")
        if needed and getattr(self.params, needed) is None:
            raise ValueError(f"params has no {needed}, which this type needs")
        return self


class _Step(Document):
    image: str = Field(pattern=r"^[^/\\\x00]+\.(png|jpg|jpeg)$")
    ground_truth_actions: list[_TrueAction] = Field(min_length=1)
    step_num: Count | None = None
    action: str = ""
    milestone: bool = False
    inner_monologue: dict[str, Any] = Field(default_factory=dict)
    alternative_options: list[list[_TrueAction]] = Field(default_factory=list)


class BenchTask(Document):
    """A file of `tasks/`."""

    task_id: Text
    high_level_task_description: str
    steps: list[_Step] = Field(min_length=1)
    user_task_description: str = ""
    meta_info: dict[str, Any] = Field(default_factory=dict)


def validate_agentnetbench(root: Path) -> list[Problem]:
    """The problems of a folder with `tasks/` and `images/`; no task is right: a split can be empty.

    Args:
        root: what `--data` and `--image_dir` of AgentNetBench's script lie in.
    """
    absent = [name for name in (BENCH_TASKS, BENCH_IMAGES) if not (root / name).is_dir()]
    if absent:
        message = "the folder is missing"
        return [Problem("missing_file", name, message, remedy=REBUILD) for name in absent]
    reader, problems, unread = ExportReader(root), list[Problem](), False
    for path in sorted((root / BENCH_TASKS).glob("*.json")):
        file = f"{BENCH_TASKS}/{path.name}"
        task, found = read_document(BenchTask, path, file)
        problems += found
        unread = unread or task is None
        if task is not None:
            problems += reader.document_problems(_BENCH_FORMAT, task, file)
    unused = 0 if unread else len(reader.unnamed(BENCH_IMAGES))
    return [*problems, *unused_images(unused, BENCH_IMAGES, "step")]


def _faults(task: BenchTask, _files: NamedFiles) -> Iterator[Fault]:
    numbers = [step.step_num for step in task.steps if step.step_num is not None]
    if any(after <= before for before, after in pairwise(numbers)):
        yield Fault("step_num", "steps: their step_num do not rise")


_BENCH_FORMAT = RecordFormat(
    BenchTask,
    lambda task: (
        (f"steps[{n}].image", f"{BENCH_IMAGES}/{step.image}") for n, step in enumerate(task.steps)
    ),
    _faults,
    id_field="task_id",
)
