"""Exports whole trajectories in AgentNet's form: full lines, and lines with only the code.

Belongs here: the models, the rules that the models cannot express, and what a line holds. Lines are
read strictly: code that is more than the form's calls is an error. The lines
with only the code are what OpenCUA's thought generator reads. The tasks of AgentNetBench (source:
OpenCUA, evaluation/agentnetbench) may lack keys that its script does not read.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    agentnet_fields,
    annotation_sources,
)
from demo_pipeline.datasets.record_forms import Excluded, Form, Record, RecordSource
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import Count, Text, points
from demo_pipeline.desktopd.trajectory_reader import read_document
from demo_pipeline.exports.agentnet_code import (
    AGENTNET_LOSSES,
    agentnet_code,
    read_code,
    share_text,
)
from demo_pipeline.exports.answers import AnswerFormatError
from demo_pipeline.exports.prompts import end_sentence
from demo_pipeline.exports.record_checks import (
    REBUILD,
    ExportReader,
    Fault,
    NamedFiles,
    RecordFormat,
    StrictDocument,
    checked_records,
    missing,
    split_files,
    unused_images,
)
from demo_pipeline.exports.whole_trajectories import (
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    UNKNOWN_SYSTEM,
    Stretch,
    finish_losses,
    lines_of,
    sentence,
    stretch_records,
)
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import MARKER, escape_markers, replace_surrogates
from demo_pipeline.problems import Problem

AGENTNET_META = "meta_data_merged.jsonl"  # which computer each task was done on
CODE_ONLY = "code_only"  # the folder of the lines that the thought generator reads
IMAGES = "images"
_FileName = Annotated[
    str, Field(pattern=r"^[^/\\\x00]+\.(png|jpg|jpeg)$")
]  # in the folder of images
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


Sources = dict[str, Literal["human", "model", "rule"]]  # by kind; AgentNet's readers pass over it


class _Step(StrictDocument):
    index: int
    image: _FileName
    value: _Value
    annotation_sources: Sources | None = None


class _AgentNetTask(StrictDocument):
    """A line of the full form."""

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


class _System(StrictDocument):
    task_id: Text
    system: Literal["Windows", "Darwin", "Ubuntu"]


def validate_agentnet(root: Path) -> list[Problem]:
    """The problems of a folder in AgentNet's form, with the numbers of the lines."""
    tasks, problems = ExportReader(root), list[Problem]()
    files, codes = (dict(split_files(root, f"{name}*.jsonl")) for name in ("", f"{CODE_ONLY}/"))
    for split in files | codes:
        full = files.get(split, missing(f"{split}.jsonl"))
        short = codes.get(split, missing(f"{CODE_ONLY}/{split}.jsonl"))
        if isinstance(full, str) and isinstance(short, str):
            problems += _split_problems(tasks, full, short)
        else:
            problems += [file for file in (full, short) if isinstance(file, Problem)]
    problems += _system_problems(root, tasks.places.keys())
    return [*problems, *unused_images(len(tasks.unnamed(IMAGES)), IMAGES, "line")]


def _split_problems(tasks: ExportReader, full: str, short: str) -> Iterator[Problem]:
    """Yield the problems of a split; of each file one line is in memory."""
    codes = ExportReader(tasks.root).records(_CODE_FORMAT, short)
    pairs: Iterator[Any] = zip_longest(
        tasks.records(AGENTNET_FORMAT, full), codes, fillvalue=(None, [])
    )
    for number, ((task, found), (code, found_in_code)) in enumerate(pairs, start=1):
        yield from (*found, *found_in_code)
        told = _code_only(task.model_dump()) if task else None
        if told != (code.model_dump() if code else None):
            message = "is not the line of the full form with only the code"
            yield Problem("forms_differ", short, message, number, remedy=REBUILD)


def _faults(task: _AgentNetTask, _files: NamedFiles) -> Iterator[Fault]:
    if MARKER.search(task.instruction):
        yield Fault("marker", "instruction: contains a control marker of a model")
    if [step.index for step in task.traj] != list(range(len(task.traj))):
        yield Fault("index", "traj: the indexes do not count from 0")
    for number, step in enumerate(task.traj):
        is_last = number == len(task.traj) - 1
        for fault in _code_faults(step.value.code, task.task_completed, is_last=is_last):
            yield Fault("code", f"traj[{number}].value.code: {fault}")


def _code_faults(code: str, completed: bool | None, *, is_last: bool) -> Iterator[str]:
    """Yield what is wrong with the code of a step.

    A drag and a scroll begin where the pointer was moved to; nothing but the last step ends a task.
    """
    try:
        calls = read_code(code)
    except AnswerFormatError as error:
        yield error.reason
        return
    for before, call in pairwise([None, *calls]):
        moved = before is not None and before.name == "moveTo"
        if call and call.name in ("dragTo", "scroll", "hscroll") and not moved:
            yield f"{call.name} without a moveTo before it"
    if calls[-1].name == "moveTo":
        yield "moveTo without a call after it"
    ends = [call for call in calls if call.name == "terminate"]
    if ends and (not is_last or len(calls) > 1):
        yield "a task is ended by the last step, and by nothing else in it"
    elif ends and completed is not (ends[0].status == "success"):
        yield "the status is not that of task_completed"


AGENTNET_FORMAT = RecordFormat(
    _AgentNetTask,
    lambda task: ((f"traj[{n}].image", f"{IMAGES}/{s.image}") for n, s in enumerate(task.traj)),
    _faults,
    id_field="task_id",
)
_CODE_FORMAT = RecordFormat(_CodeTask, id_field="task_id")
_SYSTEM_FORMAT = RecordFormat(_System, id_field="task_id")


def _system_problems(root: Path, tasks: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each task whose computer is not known, and the other way round."""
    if not (root / AGENTNET_META).is_file():
        yield missing(AGENTNET_META)
        return
    reader = ExportReader(root)
    systems = list(reader.records(_SYSTEM_FORMAT, AGENTNET_META))
    yield from (problem for _, found in systems for problem in found)
    if reader.places.keys() != tasks and all(system for system, _ in systems):
        message = "does not name exactly the tasks of the lines"
        yield Problem("systems", AGENTNET_META, message, remedy=REBUILD)


# The form's only word for Linux is the name of one distribution.
_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}


def _record(stretch: Stretch, made_of: RecordSource) -> Iterator[Record | Excluded]:
    """Yield the line of a stretch, or an `Excluded` for each of its steps."""
    trajectory, first = made_of.trajectory, stretch.steps[0].files
    platform = made_of.rows[first.index]["platform"]
    if platform not in _SYSTEMS:
        yield from [Excluded(UNKNOWN_SYSTEM)] * len(stretch.steps)
        return
    traj: list[dict[str, Any]] = []
    files: dict[str, Path] = {}
    for number, shot, code, words in _steps(stretch, made_of):
        image = f"{made_of.id}_{number}.png"
        files[image] = shot
        value = {
            "code": code,
            "action": trajectory.note(number, "caption") or words,
            **agentnet_fields(trajectory, number, AGENTNET_STEP_FIELDS),
        }
        sources = annotation_sources(trajectory, number)
        traj.append({"index": len(traj), "image": image, "value": value, **sources})
    line: dict[str, Any] = {
        "task_id": made_of.id,
        "instruction": escape_markers(made_of.instruction)[0],
        "domain": made_of.application,
        "traj": traj,
    }
    if stretch.final is not None:  # what is cut does not show whether the task was done
        line["task_completed"] = trajectory.result.success
    if stretch.whole:
        line |= agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS)
        line |= annotation_sources(trajectory, None)
    computer = {"task_id": made_of.id, "system": _SYSTEMS[platform]}
    parts = {"line": line, "code": _code_only(line), "computer": computer}
    shown = {"steps": len(stretch.steps)}
    yield Record(made_of.id, line["instruction"], first.screenshot, parts, files, shown)


def _steps(stretch: Stretch, made_of: RecordSource) -> Iterator[tuple[int, Path, str, str]]:
    """Yield number, picture, code and words of every step, and of the end if it is shown."""
    for step in stretch.steps:
        places = [f"({share_text(x, y, step.size)})" for x, y in points(step.files.action)]
        words = sentence(step.files.action, places)
        yield step.files.index, step.files.screenshot, replace_surrogates(step.said), words
    if stretch.final is not None:
        success = made_of.trajectory.result.success
        code = f"computer.terminate(status={'success' if success else 'failure'!r})"
        number = stretch.steps[-1].files.index + 1
        yield number, stretch.final, code, end_sentence(success=success)


def _code_only(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line with what the thought generator reads, and nothing that it is to find out."""
    steps = [
        {"image": step["image"], "value": {"code": step["value"]["code"]}} for step in line["traj"]
    ]
    return {"task_id": line["task_id"], "instruction": line["instruction"], "traj": steps}


def _finish(out: Path, *known: Any) -> Mapping[str, Any]:
    (out / IMAGES).mkdir(exist_ok=True)
    return finish_losses(out, *known)


# A line is the longest stretch of a trajectory. Beside the lines are `images/`,
# `meta_data_merged.jsonl` with the computer of each task, and `metadata.json` with what was left
# out.
AGENTNET_FORM = Form(
    name="agentnet",
    code_version="7",
    settings=STRETCH_SETTINGS,
    unit="steps",
    exclusions=(*STRETCH_EXCLUSIONS, *AGENTNET_LOSSES, UNKNOWN_SYSTEM),
    records=stretch_records(agentnet_code, _record),
    files=lambda split, _: {
        "line": (f"{split.value}.jsonl",),
        "code": (f"{CODE_ONLY}/{split.value}.jsonl",),
        "computer": (AGENTNET_META,),
    },
    pictures=lambda candidate, _split, record, _settings: {
        f"{IMAGES}/{name}": f"{candidate.source.folder}/{path}"
        for name, path in record.files.items()
    },
    whole_trajectories=True,
    finish=_finish,
    problems=checked_records(line=AGENTNET_FORMAT, code=_CODE_FORMAT),
)


def agentnet_record_counts(folder: Path) -> Mapping[str, int]:
    """Records by trajectory of an AgentNet export; the two forms of a line are one record."""
    files = (folder / f"{split.value}.jsonl" for split in Split)
    return Counter(str(line["task_id"]) for file in files for line in lines_of(file))


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


class _BenchStep(Document):
    image: str = Field(pattern=r"^[^/\\\x00]+\.(png|jpg|jpeg)$")
    ground_truth_actions: list[_TrueAction] = Field(min_length=1)
    step_num: Count | None = None
    action: str = ""
    milestone: bool = False
    inner_monologue: dict[str, Any] = Field(default_factory=dict)
    alternative_options: list[list[_TrueAction]] = Field(default_factory=list)


class _BenchTask(Document):
    """A file of `tasks/`."""

    task_id: Text
    high_level_task_description: str
    steps: list[_BenchStep] = Field(min_length=1)
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
        task, found = read_document(_BenchTask, path, file)
        problems += found
        unread = unread or task is None
        if task is not None:
            problems += reader.document_problems(_BENCH_FORMAT, task, file)
    unused = 0 if unread else len(reader.unnamed(BENCH_IMAGES))
    return [*problems, *unused_images(unused, BENCH_IMAGES, "step")]


def _bench_faults(task: _BenchTask, _files: NamedFiles) -> Iterator[Fault]:
    numbers = [step.step_num for step in task.steps if step.step_num is not None]
    if any(after <= before for before, after in pairwise(numbers)):
        yield Fault("step_num", "steps: their step_num do not rise")


_BENCH_FORMAT = RecordFormat(
    _BenchTask,
    lambda task: (
        (f"steps[{n}].image", f"{BENCH_IMAGES}/{step.image}") for n, step in enumerate(task.steps)
    ),
    _bench_faults,
    id_field="task_id",
)
