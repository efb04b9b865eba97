"""Exports whole trajectories in AgentNet's format, with a JSON line for each trajectory.

A second file has only the keys that OpenCUA's thought generator reads. The validator is strict:
code may contain only the calls that agentnet_code.py knows.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    agentnet_fields,
    annotation_sources,
)
from demo_pipeline.desktopd.models import Text
from demo_pipeline.exports.agentnet_code import (
    AGENTNET_LOSSES,
    agentnet_code,
    read_code,
    share_place,
)
from demo_pipeline.exports.answers import AnswerFormatError
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source
from demo_pipeline.exports.prompts import end_sentence
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    StrictDocument,
)
from demo_pipeline.exports.whole_trajectories import (
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    UNKNOWN_SYSTEM,
    Stretch,
    counted_details,
    counted_steps,
    losses_file,
    sentence,
    stretch_rows,
)
from demo_pipeline.files.shown_text import MARKER, replace_surrogates

AGENTNET_META = "meta_data_merged.jsonl"  # the operating system of each task
CODE_ONLY = "code_only"  # folder of the version with code only
IMAGES = "images"
# The name of a file in the folder `IMAGES`.
_FileName = Annotated[str, Field(pattern=r"^[^/\\\x00]+\.(png|jpg|jpeg)$")]
_Score = Annotated[int, Field(ge=0, le=10)]


class _Code(StrictDocument):
    code: Text


class _CodeStep(StrictDocument):
    image: _FileName
    value: _Code


class _CodeTask(StrictDocument):
    task_id: Text
    instruction: Text
    traj: list[_CodeStep] = Field(min_length=1)


class _Value(StrictDocument):
    code: Text
    action: str
    observation: str | None = None
    thought: str | None = None
    reflection: str | None = None
    last_step_correct: bool | None = None
    last_step_redundant: bool | None = None


# Maps each kind of annotation to its author. The field `annotation_sources` has this type;
# AgentNet's readers ignore the field.
Sources = dict[str, Literal["human", "model", "rule"]]


class _Step(StrictDocument):
    index: int
    image: _FileName
    value: _Value
    annotation_sources: Sources | None = None


class _Part(StrictDocument):
    """The indexes of the steps in a line that does not contain the whole trajectory."""

    first_step: Annotated[int, Field(ge=0)]
    last_step: Annotated[int, Field(ge=0)]
    total_steps: Annotated[int, Field(ge=1)]


class _AgentNetTask(StrictDocument):
    """A line of the full version: a task with its steps."""

    task_id: Text
    instruction: Text
    domain: Text | None = None
    traj: list[_Step] = Field(min_length=1)
    task_completed: bool | None = None
    alignment_score: _Score | None = None
    efficiency_score: _Score | None = None
    task_difficulty: _Score | None = None
    reason: str | None = None
    actual_task: str | None = None
    natural_language_task: str | None = None
    annotation_sources: Sources | None = None
    part: _Part | None = None


class _System(StrictDocument):
    task_id: Text
    system: Literal["Windows", "Darwin", "Ubuntu"]


def _faults(task: _AgentNetTask, _files: NamedFiles) -> Iterator[Fault]:
    """Yields faults that pydantic does not find, such as invalid code or a wrong order of steps."""
    if MARKER.search(task.instruction):
        yield Fault("marker", "instruction: contains a control marker of a model")
    if [step.index for step in task.traj] != list(range(len(task.traj))):
        yield Fault("index", "traj: the indexes do not count from 0")
    for number, step in enumerate(task.traj):
        try:
            calls = read_code(step.value.code)
        except AnswerFormatError as error:
            yield Fault("code", f"traj[{number}].value.code: {error.reason}")
            continue
        if task.part is not None and any(call.status for call in calls):
            yield Fault("part", f"traj[{number}].value.code: a part of a task cannot end it")
    if task.part is not None and task.task_completed is not None:
        yield Fault("part", "task_completed: a part of a task does not say whether it was done")


def _images(task: _AgentNetTask | _CodeTask) -> Iterator[tuple[str, str]]:
    """Yields the field and the file name of each image."""
    steps: Sequence[_Step | _CodeStep] = task.traj
    for number, step in enumerate(steps):
        yield f"traj[{number}].image", step.image


AGENTNET_FORMAT = RecordFormat(_AgentNetTask, _images, _faults, id_field="task_id")
_CODE_FORMAT = RecordFormat(_CodeTask, _images, id_field="task_id")


# The only Linux distribution that AgentNet knows is Ubuntu, so `Ubuntu` stands for every Linux.
_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}


def _row(stretch: Stretch, source: Source) -> Iterator[Row | Excluded]:
    """Yields the line for a stretch of consecutive steps.

    If AgentNet does not know the platform, yields an `Excluded` for each of the steps instead.
    """
    trajectory = source.trajectory
    first = stretch.steps[0].files
    platform = source.rows[first.index]["platform"]
    if platform not in _SYSTEMS:
        yield from [Excluded(UNKNOWN_SYSTEM)] * len(stretch.steps)
        return
    traj: list[dict[str, Any]] = []
    files: dict[str, Path] = {}
    for number, shot, code, words in _steps(stretch, source):
        image = f"{source.id}_{number}.png"
        files[image] = shot
        value = {
            "code": code,
            "action": trajectory.note(number, "caption") or words,
            **agentnet_fields(trajectory, number, AGENTNET_STEP_FIELDS),
        }
        sources = annotation_sources(trajectory, number)
        traj.append({"index": len(traj), "image": image, "value": value, **sources})
    line: dict[str, Any] = {
        "task_id": source.id,
        "instruction": stretch.prompt(source.instruction),
        "domain": source.application,
        "traj": traj,
    }
    if stretch.part is not None:
        line["part"] = stretch.part
    if stretch.whole:  # otherwise the line does not show whether the task was done
        line["task_completed"] = trajectory.result.success
        line |= agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS)
        line |= annotation_sources(trajectory, None)
    computer = {"task_id": source.id, "system": _SYSTEMS[platform]}
    parts = {"line": line, "code": _code_only(line), "computer": computer}
    counts = counted_steps(stretch.steps, source)
    yield Row(source.id, line["instruction"], first.screenshot, parts, files, counts)


def _steps(stretch: Stretch, source: Source) -> Iterator[tuple[int, Path, str, str]]:
    """Yields index, screenshot, code and sentence of each step.

    For a whole trajectory, an additional last item ends the task on the final screenshot.
    """
    for step in stretch.steps:
        words = sentence(step.files.action, partial(share_place, size=step.size))
        yield step.files.index, step.files.screenshot, replace_surrogates(step.encoded), words
    if stretch.whole and stretch.final is not None:
        success = source.trajectory.result.success
        code = f"computer.terminate(status={'success' if success else 'failure'!r})"
        number = stretch.steps[-1].files.index + 1
        yield number, stretch.final, code, end_sentence(success=success)


def _code_only(line: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a line with only the keys that the thought generator reads."""
    steps = [
        {"image": step["image"], "value": {"code": step["value"]["code"]}} for step in line["traj"]
    ]
    return {"task_id": line["task_id"], "instruction": line["instruction"], "traj": steps}


# A line contains the longest stretch of consecutive steps that can be exported; see
# whole_trajectories.py. The dataset also has `images/`, `meta_data_merged.jsonl` with the operating
# system of each task, and `metadata.json`, which counts the left-out steps by reason.
FORM = Form(
    name="agentnet",
    asset="agentnet_dataset",
    folder="agentnet",
    description="Whole trajectories as JSON Lines of AgentNet, with each action as pyautogui "
    "code. There is a file in AgentNet's full format, and another in the format "
    "of OpenCUA's thought generator.",
    code_version="17",
    settings=STRETCH_SETTINGS,
    exclusions=(*STRETCH_EXCLUSIONS, *AGENTNET_LOSSES, UNKNOWN_SYSTEM),
    unit="steps",
    whole=True,
    rows=stretch_rows(agentnet_code, _row),
    files=(
        File("line", "{split}.jsonl", checked=AGENTNET_FORMAT, base=IMAGES, config="default"),
        File("code", f"{CODE_ONLY}/{{split}}.jsonl", checked=_CODE_FORMAT, base=IMAGES),
        File("computer", AGENTNET_META, checked=RecordFormat(_System, id_field="task_id")),
    ),
    check="agentnet_lines",
    marks=(AGENTNET_META,),
    pictures=lambda candidate, _split, row, _settings: {
        f"{IMAGES}/{name}": f"{candidate.source.folder}/{path}" for name, path in row.files.items()
    },
    details=counted_details,
    side_files=losses_file,
    folders=(IMAGES,),
)
