"""The export `agentnetbench`: the test split as files that AgentNetBench's script can score.

The files are `tasks/<trajectory>.json` and `images/`. OpenCUA's
evaluation/agentnetbench/README.md describes their format.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from demo_pipeline.datasets.card_files import CARD
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.splits import Split, plan_export
from demo_pipeline.desktopd.models import Count, Text
from demo_pipeline.desktopd.trajectory_reader import read_document
from demo_pipeline.evaluation.answer_forms import answer_code
from demo_pipeline.evaluation.rules import as_ground_truth, bench_truth
from demo_pipeline.evaluation.true_steps import StepRecord, each_true_step
from demo_pipeline.exports.cards import yaml_text
from demo_pipeline.exports.export_summary import BY_TRAJECTORY, ExportSummary
from demo_pipeline.exports.form import json_text
from demo_pipeline.exports.record_checks import (
    REBUILD,
    Fault,
    NamedFiles,
    RecordFormat,
    record_faults,
)
from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.comparison import differing_files, silence
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.parquet import read_table, write_table
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.stage import (
    Check,
    Stage,
    Summary,
    TrainingExport,
    ValidatedFormat,
)
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}
_README = """---
{head}---

# AgentNetBench files of the test split

OpenCUA's script `evaluation/agentnetbench/run.py` reads `tasks/` (option `--data`) and `images/`
(option `--image_dir`). A step is an action of a person, with the box of its target if the target is
known. There are no alternative actions, because a demonstration shows only one way to do a task.
Drags and scrolls begin with a move. The texts in `inner_monologue` come from a template.

Some steps score 0 for every answer. The script has no rule for waits and for clicks with the middle
button. It reads an answered triple click as `triple_click`, but has a rule only for `tripleClick`.
The script does not read `hscroll` in answers. Therefore, a sideways scroll scores at most half,
for its move.

`test.parquet` has the same tasks for the library `datasets`, as the split `test`. `steps` is JSON
text.
"""
_CONFIG = """configs:
- config_name: default
  data_files:
  - split: test
    path: test.parquet
"""
_TABLE_FILE = "test.parquet"
_TABLE = pa.schema({"task_id": pa.string(), "instruction": pa.string(), "steps": pa.string()})


_TASKS = "tasks"
_IMAGES = "images"
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
"""Maps each lower-case action type to the parameter that the script reads, or to "" for none."""
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
    # left, top, width and height, as shares of the screen
    rel_bbox: list[float] = Field(min_length=4, max_length=4)
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
            raise ValueError("type is unknown to AgentNetBench's script")
        if needed and getattr(self.params, needed) is None:
            raise ValueError(f"params has no {needed}, which this type needs")
        return self


class _BenchStep(Document):
    image: str = Field(pattern=r"^[^/\\\x00]+\.(png|jpg|jpeg)$")
    ground_truth_actions: list[_TrueAction] = Field(min_length=1)
    step_num: Count | None = None
    action: str = ""
    milestone: bool = False
    inner_monologue: dict[str, Any] = Field(default_factory=dict)
    alternative_options: list[list[_TrueAction]] = Field(default_factory=list)


class _BenchTask(Document):
    """The content of a file in `tasks/`."""

    task_id: Text
    high_level_task_description: str
    steps: list[_BenchStep] = Field(min_length=1)
    user_task_description: str = ""
    meta_info: dict[str, Any] = Field(default_factory=dict)


def validate_agentnetbench(root: Path) -> list[Problem]:
    """Validates the folders `tasks/` and `images/` of an export; `tasks/` may be empty.

    Args:
        root: the folder that contains both folders.
    """
    absent = [name for name in (_TASKS, _IMAGES) if not (root / name).is_dir()]
    if absent:
        message = "the folder is missing"
        return [Problem("missing_file", name, message, remedy=REBUILD) for name in absent]
    problems = list[Problem]()
    files = NamedFiles.below(root / _IMAGES)
    for path in sorted((root / _TASKS).glob("*.json")):
        file = f"{_TASKS}/{path.name}"
        task, task_problems = read_document(_BenchTask, path, file)
        problems += task_problems
        if task is not None:
            problems += (fault.at(file, None) for fault in record_faults(_FORMAT, task, files))
    return problems


def _bench_faults(task: _BenchTask, _files: NamedFiles) -> Iterator[Fault]:
    numbers = [step.step_num for step in task.steps if step.step_num is not None]
    if any(after <= before for before, after in pairwise(numbers)):
        yield Fault("step_num", "steps: step_num does not increase from step to step")


_FORMAT = RecordFormat(
    _BenchTask,
    lambda task: ((f"steps[{n}].image", step.image) for n, step in enumerate(task.steps)),
    _bench_faults,
    id_field="task_id",
)


Put = Callable[[str, bytes | Path], object]
"""Function that writes a file.

The first argument is the name. The second is the content, or the path of a file to copy.
"""


def build_agentnetbench(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> ExportSummary:
    """Writes the steps of the test split, one file per trajectory.

    Args:
        trajectories: all trajectories, committed and valid, in any order.
        out: the folder to write into.
        settings: determine the splits and the excluded steps.
    """
    for folder in (_TASKS, _IMAGES):
        (out / folder).mkdir(parents=True, exist_ok=True)

    def write(name: str, content: bytes | Path) -> None:
        if isinstance(content, Path):
            link_or_copy(content, out / name)
        else:
            (out / name).write_bytes(content)

    summary, tasks = put_tasks(trajectories, settings, write)
    if tasks:  # the library `datasets` cannot read a split without rows
        write_table(out / _TABLE_FILE, _table(tasks))
    return summary


def put_tasks(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings, put: Put
) -> tuple[ExportSummary, list[dict[str, str]]]:
    """Writes the tasks, the images and the card with `put`, but not the table.

    Returns:
        The summary of the export, and the rows of the table.
    """
    task: dict[str, Any] = {}  # the file of the trajectory whose steps are being added
    rows: list[dict[str, str]] = []

    def end_task() -> None:
        if task:
            put(f"{_TASKS}/{task['task_id']}.json", json_bytes(task))
            row = {"task_id": task["task_id"], "instruction": task["user_task_description"]}
            rows.append({**row, "steps": json_text(task["steps"])})
            task.clear()

    def add(record: StepRecord) -> None:
        if task.get("task_id") != record.step.trajectory_id:
            end_task()
            task.update(_head(record))
        image = f"{record.step.trajectory_id}_{record.step.step_index}.png"
        put(f"{_IMAGES}/{image}", record.step.screenshot)
        task["steps"].append(_step(record, image))

    summary = each_true_step(plan_export(trajectories, settings), settings, [Split.TEST], add)
    end_task()
    head = f"license: {yaml_text(settings.license)}\n{_CONFIG if rows else ''}"
    put(CARD, _README.format(head=head).encode())
    return summary, rows


def _table(rows: Sequence[Mapping[str, str]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=_TABLE)


def check_agentnetbench(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """Compares the files with the steps of the test split, and validates them."""
    expected: dict[str, bytes | Path] = {}
    trajectories = inputs.committed.trajectories
    with silence():
        _, rows = put_tasks(trajectories, inputs.settings.datasets, expected.__setitem__)
    table = {_TABLE_FILE} if rows else set[str]()
    problems = differing_files(out, expected, table)
    if problems:
        return problems
    if rows and not _is_same_table(out / _TABLE_FILE, _table(rows)):
        message = "differs from the tasks"
        return [Problem("differs", _TABLE_FILE, message, remedy=REBUILD)]
    return validate_agentnetbench(out)


def _is_same_table(path: Path, expected: pa.Table) -> bool:
    try:
        return bool(read_table(path).equals(expected))
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        return False


def _step(record: StepRecord, image: str) -> dict[str, Any]:
    step = record.step
    return {
        "step_num": step.step_index,
        "image": image,
        "action": answer_code(record),
        "milestone": False,
        "inner_monologue": {
            "observation": "",
            "thought": "",
            "low_level_instruction": record.draft.metadata.reasoning,
        },
        "ground_truth_actions": [as_ground_truth(part) for part in bench_truth(step)],
        "alternative_options": [],
    }


def _head(record: StepRecord) -> dict[str, Any]:
    step = record.step
    instruction = record.trajectory.task.instruction
    return {
        "task_id": step.trajectory_id,
        "user_task_description": instruction,
        "high_level_task_description": instruction,
        "meta_info": {
            "applications": [step.application],
            "system": _SYSTEMS.get(step.platform, step.platform),
            "screen_resolution": {"width": step.size[0], "height": step.size[1]},
        },
        "steps": [],
    }


def _run(inputs: DatasetInputs, out: Path) -> Summary:
    trajectories = inputs.committed.trajectories
    settings = inputs.settings.datasets
    summary = build_agentnetbench(trajectories, out, settings)
    return {**summary.as_dict(), BY_TRAJECTORY: summary.by_trajectory}


_STAGE: Stage[DatasetInputs] = Stage(
    name="agentnetbench",
    export="agentnetbench",
    folder="agentnetbench",
    description="The test split in AgentNetBench's format, so that AgentNetBench's script can "
    "score a model on it. Each trajectory is a file with the true actions and "
    "the boxes of their targets.",
    kinds=frozenset({"json"}),
    code_version="24",
    section=lambda settings: settings.datasets,
    build=_run,
    checks=(
        Check(
            "agentnetbench_files",
            "Every task has all required keys, images, true actions and boxes.",
            check_agentnetbench,
            compared=("records",),
        ),
    ),
)
AGENTNETBENCH_EXPORT = TrainingExport(
    stage=_STAGE,
    name="agentnetbench",
    validated_as=ValidatedFormat(
        name="agentnetbench",
        files=(_TASKS,),
        validate=lambda path, _: validate_agentnetbench(path),
    ),
)
