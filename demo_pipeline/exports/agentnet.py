"""Exports whole trajectories in AgentNet's form: full lines, and lines with only the code.

Belongs here: the models, the rules that the models cannot express, finding the code in an answer,
and what a line holds. Lines are read strictly: code that is more than the form's calls is an error.
The code of a step is in agentnet_code.py. The lines with only the code are what OpenCUA's thought
generator reads.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import ConfigDict, Field

from demo_pipeline.annotations.annotations import (
    AGENTNET_STEP_FIELDS,
    AGENTNET_TASK_FIELDS,
    agentnet_fields,
)
from demo_pipeline.datasets.export_loop import ExportPlan, ExportSummary, build_form
from demo_pipeline.datasets.forms import Excluded, Form, Record
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.desktopd.models import (
    ActionType,
    Button,
    DragParameters,
    HotkeyParameters,
    Pixel,
    ScrollParameters,
    Text,
    TypeParameters,
    WaitParameters,
    pixel_at,
    points,
)
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.exports.agentnet_code import CLICKS, CodeCall, read_code
from demo_pipeline.exports.answers import (
    Answer,
    AnsweredAction,
    AnswerFormatError,
    ForeignAction,
    click_action,
    merge_presses,
)
from demo_pipeline.exports.record_checks import (
    REBUILD,
    Fault,
    NamedFiles,
    RecordFormat,
    by_format,
    checked_records,
)
from demo_pipeline.exports.record_files import ExportReader, missing, split_files, unused_images
from demo_pipeline.exports.whole_trajectories import (
    AGENTNET_LOSSES,
    STRETCH_EXCLUSIONS,
    STRETCH_SETTINGS,
    UNKNOWN_SYSTEM,
    Place,
    Stretch,
    agentnet_code,
    end_sentence,
    finish_losses,
    lines_of,
    longest_stretch,
    sentence,
    share_text,
)
from demo_pipeline.files.base_model import Document
from demo_pipeline.files.shown_text import MARKER, escape_markers, replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow

_SPLIT_FILES = ("train", "val", "test", "held_out")


AGENTNET_META = "meta_data_merged.jsonl"  # which computer each task was done on
CODE_ONLY = "code_only"  # the folder of the lines that the thought generator reads
IMAGES = "images"
_FILE_NAME = r"^[^/\\\x00]+\.(png|jpg|jpeg)$"
_Score = Annotated[int, Field(ge=0, le=10)]


class AgentNetDocument(Document):
    """A part of a line; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class CodeValue(AgentNetDocument):
    """What was done, as code."""

    code: Text


class CodeStep(AgentNetDocument):
    """A step with only its code; `image` is the name of a file in the folder of images."""

    image: str = Field(pattern=_FILE_NAME)
    value: CodeValue


class CodeTask(AgentNetDocument):
    """A line that the thought generator reads."""

    task_id: Text
    instruction: Text
    traj: list[CodeStep] = Field(min_length=1)


class StepValue(AgentNetDocument):
    """What was done, with what was seen and thought where that is known."""

    left_out_when_none: ClassVar[frozenset[str]] = frozenset(
        {"observation", "thought", "reflection", "last_step_correct", "last_step_redundant"}
    )
    code: Text
    action: str
    observation: str | None = None
    thought: str | None = None
    reflection: str | None = None
    last_step_correct: bool | None = None
    last_step_redundant: bool | None = None


class TaskStep(AgentNetDocument):
    """A step; `index` counts from 0."""

    index: int
    image: str = Field(pattern=_FILE_NAME)
    value: StepValue


class AgentNetTask(AgentNetDocument):
    """A line of the full form."""

    task_id: Text
    instruction: Text
    domain: Text | None = None
    traj: list[TaskStep] = Field(min_length=1)
    task_completed: bool | None = None
    alignment_score: _Score | None = None
    efficiency_score: _Score | None = None
    task_difficulty: _Score | None = None
    reason: str | None = None
    actual_task: str | None = None
    natural_language_task: str | None = None


class AgentNetSystem(AgentNetDocument):
    """A line of `meta_data_merged.jsonl`."""

    task_id: Text
    system: Literal["Windows", "Darwin", "Ubuntu"]


def validate_agentnet(root: Path) -> list[Problem]:
    """The problems of a folder in AgentNet's form, with the numbers of the lines.

    Args:
        root: the folder with `train.jsonl` and so on, `code_only/`, `images/` and
            `meta_data_merged.jsonl`.
    """
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


def _pictures(task: AgentNetTask) -> Iterator[tuple[str, str]]:
    steps = enumerate(task.traj)
    return ((f"traj[{number}].image", f"{IMAGES}/{step.image}") for number, step in steps)


def _faults(task: AgentNetTask, _files: NamedFiles) -> Iterator[Fault]:
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


def _nothing(_record: AgentNetDocument, *_files: NamedFiles) -> Iterator[Any]:
    return iter(())


AGENTNET_FORMAT = RecordFormat(AgentNetTask, _pictures, _faults, id_field="task_id")
_CODE_FORMAT = RecordFormat(CodeTask, _nothing, _nothing, id_field="task_id")
_SYSTEM_FORMAT = RecordFormat(AgentNetSystem, _nothing, _nothing, id_field="task_id")


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


_HEADING = re.compile(r"^[ \t]*#{2,3}[ \t]*(\w+)[ \t]*:?[ \t]*$", re.MULTILINE)
_FENCED = re.compile(r"```[ \t]*\w*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_Done = AnsweredAction | ForeignAction


def decode_agentnet_answer(text: str, size: Pixel) -> Answer:
    """Read an answer; see `answers.AnswerDecoder`.

    The code is what stands below the heading `## Code`, else the last fenced block, else the whole
    text. A scroll without a place, a drag without a start and a move of the pointer are foreign.

    Args:
        text: the answer.
        size: width and height of the step's screenshot, pixels.

    Raises:
        AnswerFormatError: there is no code, or it is more than the calls of the form.
    """
    code, thought = _parts(text)
    return Answer(*_decoded(read_code(code, tolerant=True), size), thought)


def decode_code(code: str, size: Pixel) -> Answer:
    """Read the code of one step, as AgentNet's own readers would.

    Raises:
        AnswerFormatError: see `decode_agentnet_answer`.
    """
    return Answer(*_decoded(read_code(code), size))


def _parts(text: str) -> tuple[str, str]:
    """The code and the words of an answer."""
    headings = list(_HEADING.finditer(text))
    ends = [*(found.start() for found in headings[1:]), len(text)]
    sections = {
        found[1].lower(): (found.end(), end) for found, end in zip(headings, ends, strict=False)
    }
    if "code" in sections:
        begin, _ = sections["code"]
        code, before = text[begin:], text[:begin]
        fenced = list(_FENCED.finditer(code))[:1]
        code = fenced[0][1] if fenced else code
    else:
        fenced = list(_FENCED.finditer(text))[-1:]
        code, before = (fenced[0][1], text[: fenced[0].start()]) if fenced else (text, "")
    thought = text[slice(*sections["thought"])] if "thought" in sections else before
    return code.strip(), _HEADING.sub("", thought).strip()


def _decoded(
    calls: Sequence[CodeCall], size: Pixel
) -> tuple[tuple[_Done, ...], Literal["success", "failure"] | None]:
    if any(call.name == "terminate" for call in calls[:-1]):
        raise AnswerFormatError("a call after the end")
    status = calls[-1].status
    actions = tuple(merge_presses(_actions([call for call in calls if not call.status], size)))
    return actions, cast('Literal["success", "failure"]', status) if status else None


def _actions(calls: Sequence[CodeCall], size: Pixel) -> Iterator[_Done]:
    """Yield an action a call; where the pointer moves first, the two are one."""
    number = 0
    while number < len(calls):
        call, after = calls[number], calls[number + 1] if number + 1 < len(calls) else None
        number += 1
        if call.name == "moveTo" and after and after.name == "dragTo":
            number += 1
            yield _drag(call, after, size)
        elif call.name == "moveTo" and after and _is_scroll(after) and after.point is None:
            number += 1
            yield _scroll(after, call.point, size)
        elif _is_scroll(call):
            yield _scroll(call, call.point, size)
        elif call.name in ("hotkey", "press"):
            yield from _keys_of(call)
        else:
            yield _single(call, size)


def _pixel(call: CodeCall, size: Pixel) -> Pixel:
    x, y = call.point or (0.0, 0.0)
    return pixel_at(x, y, size)


def _is_scroll(call: CodeCall) -> bool:
    return call.name in ("scroll", "hscroll")


def _drag(start: CodeCall, end: CodeCall, size: Pixel) -> _Done:
    (x, y), (to_x, to_y) = _pixel(start, size), _pixel(end, size)
    button = None if end.button == "left" else cast(Button, end.button)
    parameters = DragParameters(start_x=x, start_y=y, end_x=to_x, end_y=to_y, button=button)
    return AnsweredAction(ActionType.DRAG, parameters)


def _scroll(call: CodeCall, point: tuple[float, float] | None, size: Pixel) -> _Done:
    if point is None:
        return ForeignAction(call.name)
    x, y = pixel_at(*point, size)
    names = ("up", "down") if call.name == "scroll" else ("right", "left")
    direction = cast('Literal["up", "down", "left", "right"]', names[call.amount < 0])
    parameters = ScrollParameters(x=x, y=y, direction=direction, amount=abs(call.amount))
    return AnsweredAction(ActionType.SCROLL, parameters)


def _keys_of(call: CodeCall) -> Iterator[_Done]:
    """Yield a chord, or the keys of a `press`, which follow one another."""
    chords = [call.keys] if call.name == "hotkey" else [(key,) for key in call.keys]
    for _ in range(call.presses if len(chords) > 1 else 1):
        for chord in chords:
            presses = call.presses if len(chords) == 1 and call.presses > 1 else None
            keys = HotkeyParameters(keys=list(chord), presses=presses)
            yield AnsweredAction(ActionType.HOTKEY, keys)


def _single(call: CodeCall, size: Pixel) -> _Done:
    if call.name == "write":
        return AnsweredAction(ActionType.TYPE, TypeParameters(text=call.text))
    if call.name == "wait":
        return AnsweredAction(ActionType.WAIT, WaitParameters(seconds=call.seconds))
    at = _pixel(call, size)
    if call.name in CLICKS and (
        clicked := click_action(cast(Button, call.button), call.clicks, at)
    ):
        return clicked
    return ForeignAction(call.name, at)


# The form's only word for Linux is the name of one distribution.
_SYSTEMS = {"windows": "Windows", "macos": "Darwin", "linux": "Ubuntu"}


def _records(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
) -> Iterator[Record | Excluded]:
    """Yield the line of a trajectory, and an `Excluded` for each step that it does not show."""
    stretch = longest_stretch(candidate, trajectory, rows, settings, agentnet_code)
    left_out = stretch.left_out if isinstance(stretch, Stretch) else stretch
    yield from map(Excluded, left_out.elements())
    if isinstance(stretch, Stretch):
        row = rows[stretch.steps[0].files.index]
        if row["platform"] in _SYSTEMS:
            yield _record(stretch, trajectory, row)
        else:
            yield from [Excluded(UNKNOWN_SYSTEM)] * len(stretch.steps)


def _record(stretch: Stretch, trajectory: Trajectory, row: ProvenanceRow) -> Record:
    task, success = trajectory.task, trajectory.result.success
    name = replace_surrogates(trajectory.id)
    steps, files = [], {}
    for step in stretch.steps:
        places = [share_text(x, y, step.size) for x, y in points(step.files.action)]
        words = sentence(step.files.action, [f"({place})" for place in places])
        image = f"{name}_{step.files.index}.png"
        files[image] = step.files.screenshot
        number = step.files.index
        words = trajectory.note(number, "caption") or words
        steps.append((number, image, replace_surrogates(step.said), words))
    if stretch.final is not None:
        number = stretch.steps[-1].files.index + 1
        image = f"{name}_{number}.png"
        files[image] = stretch.final
        status = "success" if success else "failure"
        code = f"computer.terminate(status={status!r})"
        words = trajectory.note(number, "caption") or end_sentence(success=success)
        steps.append((number, image, code, words))
    line: dict[str, Any] = {
        "task_id": name,
        "instruction": escape_markers(replace_surrogates(task.instruction))[0],
        "domain": replace_surrogates(task.application),
        "traj": [
            {
                "index": index,
                "image": image,
                "value": {
                    "code": code,
                    "action": words,
                    **agentnet_fields(trajectory, number, AGENTNET_STEP_FIELDS),
                },
            }
            for index, (number, image, code, words) in enumerate(steps)
        ],
    }
    if stretch.final is not None:  # what is cut does not show whether the task was done
        line["task_completed"] = success
    if stretch.whole:
        line |= agentnet_fields(trajectory, None, AGENTNET_TASK_FIELDS)
    computer = {"task_id": name, "system": _SYSTEMS[row["platform"]]}
    shot = stretch.steps[0].files.screenshot
    parts = {"line": line, "code": _code_only(line), "computer": computer}
    shown = {"steps": len(stretch.steps)}
    return Record(name, line["instruction"], shot, parts, files, shown)


def _code_only(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line with what the thought generator reads, and nothing that it is to find out."""
    steps = [
        {"image": step["image"], "value": {"code": step["value"]["code"]}} for step in line["traj"]
    ]
    return {"task_id": line["task_id"], "instruction": line["instruction"], "traj": steps}


def _finish(
    out: Path,
    plan: ExportPlan,
    summary: ExportSummary,
    counts: Mapping[str, int],
    settings: DatasetSettings,
) -> Mapping[str, Any]:
    (out / IMAGES).mkdir(exist_ok=True)
    return finish_losses(out, plan, summary, counts, settings)


# A line is the longest stretch of a trajectory. Beside the lines are `images/`,
# `meta_data_merged.jsonl` with the computer of each task, and `metadata.json` with what was left
# out.
AGENTNET_FORM = Form(
    name="agentnet",
    code_version="5",
    settings=STRETCH_SETTINGS,
    unit="steps",
    exclusions=(*STRETCH_EXCLUSIONS, *AGENTNET_LOSSES, UNKNOWN_SYSTEM),
    records=_records,
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
    problems=checked_records("line", lambda: by_format(AGENTNET_FORMAT)),
)
build_agentnet = partial(build_form, AGENTNET_FORM)


def agentnet_record_counts(folder: Path) -> Mapping[str, int]:
    """The same for an AgentNet export; the two forms of a line are one record."""
    return Counter(trajectory for trajectory, _ in agentnet_places(folder))


def agentnet_places(folder: Path) -> Iterator[Place]:
    """Yield the place of every line of the full form."""
    for split in _SPLIT_FILES:
        for line in lines_of(folder / f"{split}.jsonl"):
            yield str(line["task_id"]), split
