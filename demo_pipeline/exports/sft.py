"""SFT samples of OSWorld-Desktopd: for each step what was seen and what was done; their rules.

Screenshots are named by their path in the dataset, so that samples are small; trees too, unless
`datasets.sft_trees` asks for the trees themselves. The files of the trajectory are read when they
are there.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field

from demo_pipeline.annotations.annotations import VARIANTS, wordings
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.sql_views import View
from demo_pipeline.desktopd.models import (
    AGREEMENTS,
    FRESHNESS,
    GAP,
    ActionType,
    Count,
    StepAction,
    Text,
    is_documented,
)
from demo_pipeline.desktopd.trajectory_reader import StepFiles, json_problem
from demo_pipeline.desktopd.validator import Nodes, check_action, check_tree, check_tree_bytes
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source, Table, json_text, of_row
from demo_pipeline.exports.hub_layout import HubTable
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.exports.record_checks import (
    REQUIRED_SPLITS,
    Fault,
    NamedFiles,
    RecordFormat,
    line_value,
    missing,
    record_problems,
    table_problems,
)
from demo_pipeline.exports.step_facts import (
    CANVAS,
    STEP_EXCLUSIONS,
    STEP_SETTINGS,
    step_exclusion,
)
from demo_pipeline.files.base_model import Document, check, limited
from demo_pipeline.files.image_files import probe_image
from demo_pipeline.files.json_files import JsonFileError, load_json, read_bytes
from demo_pipeline.files.parquet import COUNT, TEXT, described_schema, one_of
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.trajectories.provenance import INCOMPLETE

_STEP_FILE = re.compile(r"(?:.*/)?trajectories/([^/]+)/steps/([0-9]+)/[^/]+", re.ASCII)
UNDOCUMENTED = "undocumented_parameters"  # why an action gives no sample in the documented form
_MOST_NAMED = 8  # step numbers in a message
_DATA_URI = "data:image/png;base64,"
_PNG_IN_BASE64 = "iVBORw0KGgo"
_REFERENCE = "correct the reference"


class _HistoryGap(Document):
    """An action that no screenshot shows, in the history of a sample: no step of action.json.

    It has the keys of one. `reasoning` says in words what was done, never where or what text.
    """

    step_index: None = None
    action_type: Literal["gap"] = GAP
    parameters: dict[str, Any] = Field(default_factory=dict, max_length=0)
    target_element: None = None
    reasoning: str


class _SftInput(Document):
    """The input of a model in an SFT sample.

    Attributes:
        screenshot: a path relative to the dataset, or the PNG inline as base64 or a data URI.
        ui_tree: a path relative to the dataset, or the tree inline; null when `tree_agreement` of
            the sample is `differs`.
        history: the earlier actions, in the form of action.json or of `_HistoryGap`.
    """

    instruction: Text
    screenshot: Text
    ui_tree: Any
    history: list[dict[str, Any]]


class _SftOutput(Document):
    """The expected output of a model; `reasoning` is that of the action, or an annotation."""

    action: StepAction
    reasoning: str


class SftSample(Document):
    """One line of an SFT file.

    `freshness` and `tree_agreement` tell how far the tree can be trusted; others leave them out.
    `first_step` is there when earlier steps were trimmed off. With `reasoning_source` the reasoning
    is an annotation, with `instruction_source` the instruction: that of the action and of task.json
    are others. `screen_changed` and `taken_back_by` tell what became of the step, where known.
    """

    left_out_when_none: ClassVar[frozenset[str]] = frozenset(
        {
            *("freshness", "tree_agreement", "first_step", "reasoning_source"),
            *("instruction_source", "screen_changed", "taken_back_by"),
        }
    )

    input: _SftInput
    output: _SftOutput
    freshness: str | None = None
    tree_agreement: str | None = None
    first_step: Count | None = None
    reasoning_source: Literal["human", "model", "rule"] | None = None
    instruction_source: Literal["human", "model", "rule"] | None = None
    screen_changed: bool | None = None
    taken_back_by: Count | None = None


def _pictures(sample: SftSample) -> Iterator[tuple[str, str]]:
    if not _is_inline(sample.input.screenshot):
        yield "input.screenshot", sample.input.screenshot


def _is_inline(screenshot: str) -> bool:
    return screenshot.startswith((_DATA_URI, _PNG_IN_BASE64))


def _faults(follows: bool, sample: SftSample, files: NamedFiles) -> Iterator[Fault]:
    """Yield the faults of a sample; `follows`: the paths in it are followed."""
    action = sample.output.action
    if fault := _size_fault(sample.input.screenshot, files if follows else None):
        yield Fault("screenshot", f"input.screenshot: {fault}", _REFERENCE)
    differs = sample.input.ui_tree is None and sample.tree_agreement == "differs"
    nodes, faults = (None, []) if differs else _tree(sample.input.ui_tree, files, follows)
    yield from faults
    if differs and action.target_element is not None:
        message = "output.action.target_element: is of a tree that the sample does not have"
        yield Fault("target_without_tree", message, "leave it out")
    yield from (Fault.of(one, "output.action") for one in check_action(action, nodes, ""))
    steps = range(sample.first_step or 0, action.step_index)
    yield from _history_faults(sample.input.history, steps)
    yield from _absent_faults(sample, steps, files)
    yield from _step_faults(sample, files)
    if sample.reasoning_source is None and sample.output.reasoning != action.reasoning:
        message = "output.reasoning: differs from output.action.reasoning"
        yield Fault("reasoning_differs", message, "copy the reasoning of the action")


def _size_fault(text: str, files: NamedFiles | None) -> str:
    """Why a screenshot is none, unless that is a matter of the file that it names; else empty.

    Args:
        text: the picture inline, or its name.
        files: None: names are not followed.
    """
    if _is_inline(text):
        try:
            info = probe_image(base64.b64decode(text.removeprefix(_DATA_URI), validate=True))
        except binascii.Error:
            return "is not base64"
        except ValueError as error:
            return str(error)
    else:
        found = files.picture(text) if files else ""
        if isinstance(found, str):
            return ""
        info = found
    if info.kind != "png":
        return "the screenshot is not a PNG"
    if (info.width, info.height) == CANVAS:
        return ""
    return f"{info.width}x{info.height} pixels, expected {CANVAS[0]}x{CANVAS[1]}"


def _tree(value: Any, files: NamedFiles, follows: bool) -> tuple[Nodes | None, list[Fault]]:
    """The nodes of the sample's tree (None: unknown), and the faults of the tree."""
    if not isinstance(value, str):
        nodes, problems = check_tree(value, "")
        return nodes, [Fault.of(problem, "input.ui_tree") for problem in problems]
    path = files.path(value) if follows else None
    if path is None:
        message = "input.ui_tree: is not a path inside the folder"
        return None, [Fault("ui_tree", message, _REFERENCE)] * follows
    try:
        nodes, problems = check_tree_bytes(read_bytes(path, ""), "")
    except JsonFileError as error:
        return None, [Fault.of(json_problem(error, exists=path.is_file()), "input.ui_tree")]
    return nodes, [Fault.of(problem, "input.ui_tree") for problem in problems]


def _history_faults(history: Sequence[Mapping[str, Any]], expected: range) -> Iterator[Fault]:
    """Yield the faults of earlier actions: each is valid, and they are in order."""
    last = -1
    index = expected.stop
    for number, value in enumerate(history):
        model = _HistoryGap if value.get("action_type") == GAP else StepAction
        earlier, problems = check(model, value, "")
        place = f"input.history[{number}]"
        yield from (Fault.of(problem, place) for problem in problems)
        if not isinstance(earlier, StepAction):
            continue
        if not last < earlier.step_index < index:
            message = f"{place}.step_index: is not between the previous one and this step"
            yield Fault("history_order", message, "list the earlier steps in order")
        last = earlier.step_index


def _absent_faults(sample: SftSample, expected: range, files: NamedFiles) -> Iterator[Fault]:
    """Yield a fault if the history lacks earlier steps.

    A sample in the documented form may lack those whose action the form cannot say. Which they are
    tells the action.json of the trajectory; without it there is no fault.
    """
    numbers = (action.get("step_index") for action in sample.input.history)
    steps = {number for number in numbers if isinstance(number, int | float)}
    absent = [step for step in expected if step not in steps]
    if sample.freshness is None and sample.tree_agreement is None:
        where = step_of(sample.input.screenshot)
        name = where[0] if where else ""
        absent = [step for step in absent if _is_documented_step(name, step, files)]
    if not absent:
        return
    named = ", ".join(map(str, absent[:_MOST_NAMED]))
    more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
    message = f"input.history: lacks the steps {named}{more} before step {expected.stop}"
    yield Fault("history_gap", message, "list every step before this one")


def _is_documented_step(trajectory: str, step: int, files: NamedFiles) -> bool:
    """Whether the action of a step is known, and has no parameter of ours."""
    action = files.document(f"trajectories/{trajectory}/steps/{step:03d}/action.json")
    known, _ = check(StepAction, action, "") if action else (None, [])
    return known is not None and is_documented(known)


def _step_faults(sample: SftSample, files: NamedFiles) -> Iterator[Fault]:
    """Yield how a sample differs from the files of its trajectory, as far as they are there."""
    action = sample.output.action
    names = set()
    for key, path in (("screenshot", sample.input.screenshot), ("ui_tree", sample.input.ui_tree)):
        where = step_of(path) if isinstance(path, str) else None
        names |= {where[0]} if where else set()
        if where and where[1] != action.step_index:
            is_of = f"is of step {where[1]}, but the action is of step {action.step_index}"
            yield Fault(
                "wrong_step", f"input.{key}: {is_of}", f"name the {key} of the action's step"
            )
    if len(names) > 1:
        message = "input: screenshot and ui_tree are of two trajectories"
        yield Fault("wrong_step", message, "name the files of one step")
    if len(names) != 1:
        return
    folder = f"trajectories/{names.pop()}"
    told = files.document(f"{folder}/task.json").get("instruction")
    if told and sample.instruction_source is None and _plain(told) != sample.input.instruction:
        message = "input.instruction: differs from that of the trajectory"
        yield Fault("instruction_differs", message, "copy the instruction of task.json")
    taken = {"output.action": action.model_dump(mode="json")}
    taken |= {f"input.history[{n}]": earlier for n, earlier in enumerate(sample.input.history)}
    for place, value in taken.items():
        step = value.get("step_index")
        known = isinstance(step, int) and files.document(f"{folder}/steps/{step:03d}/action.json")
        if known and place == "output.action" and sample.input.ui_tree is None:
            known = {**known, "target_element": None}
        if known and known != value and _plain(known) != _plain(value):
            message = f"{place}: differs from the action of step {step} of the trajectory"
            yield Fault("action_differs", message, "copy action.json of the step")


def _plain(value: Any) -> Any:
    """The same for null and an absent key, and for text whose lone surrogates were replaced."""
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def step_of(path: str) -> tuple[str, int] | None:
    """Trajectory and step of a file in a step folder; None for any other path."""
    found = _STEP_FILE.fullmatch(path)
    return (found[1], int(found[2])) if found else None


SFT_FORMAT = RecordFormat(SftSample, _pictures, partial(_faults, True), picture_code="screenshot")
_ALONE = RecordFormat(SftSample, faults=partial(_faults, False))  # without a dataset
_ALL = "samples"
_LineCheck = Callable[[bytes, str, int], list[Problem]]


def _line_check(path: Path, root: Path | None) -> tuple[_LineCheck, list[Problem]]:
    """The check of a line, gets the file and number that problems name; and a warning, if any.

    Args:
        path: a file of samples.
        root: the dataset that paths in samples are relative to; default: the file's folder, its
            parent, or `dataset` in the parent, the first of them that contains `trajectories`.
    """
    above = path.parent.parent
    near = (path.parent, above, above / "dataset")
    found = root or next((one for one in near if (one / "trajectories").is_dir()), None)
    files = NamedFiles.below(found or path.parent)
    form = SFT_FORMAT if found else _ALONE
    message = "no dataset found near the file: the paths in it are not checked"
    warning = Problem("no_dataset", path.name, message, severity=Severity.WARNING)

    def problems(line: bytes, file: str, number: int) -> list[Problem]:
        value = line_value(line, file, number)
        if isinstance(value, Problem):
            return [value]
        return record_problems(form, value, file, number, files)

    return problems, [] if found else [warning]


def validate_sft(path: Path, root: Path | None = None) -> list[Problem]:
    """The problems of an SFT file, with line numbers.

    Paths in samples are relative to `root`, a dataset; see `_line_check`. Without one they are not
    checked, which is a warning.
    """
    if not path.is_file():
        return [Problem("missing_file", path.name, "the file is missing", remedy="check the path")]
    check_line, problems = _line_check(path, root)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            problems += check_line(line, path.name, number)
    return problems


def validate_sft_folder(root: Path, dataset: Path | None = None) -> list[Problem]:
    """The problems of a folder of samples.

    `samples.jsonl` is the union of the splits, if there are any, and a Parquet file has the samples
    of the JSON Lines of the same name. `dataset` is the `root` of `validate_sft`.
    """
    stems = (_ALL, *REQUIRED_SPLITS, "held_out")
    present = [stem for stem in stems if (root / f"{stem}.jsonl").is_file()]
    if not present:
        return validate_sft(root / f"{_ALL}.jsonl", dataset)
    check_line, problems = _line_check(root / f"{present[0]}.jsonl", dataset)
    problems += _lines_of(root, present, check_line)
    if present != [_ALL]:
        problems += [missing(f"{stem}.jsonl") for stem in REQUIRED_SPLITS if stem not in present]
    tables = [stem for stem in present if (root / f"{stem}.parquet").is_file()]
    if any((root / f"{stem}.parquet").is_file() for stem in stems):
        problems += [missing(f"{stem}.parquet") for stem in present if stem not in tables]
    for stem in tables:
        problems += table_problems(root / f"{stem}.jsonl", root / f"{stem}.parquet", _columns)
    return problems


def _lines_of(root: Path, stems: Sequence[str], check_line: _LineCheck) -> Iterator[Problem]:
    """Yield the problems of the lines of all files; the same line is checked once."""
    whole = dict[bytes, tuple[str, int]]()
    placed = dict[bytes, tuple[str, int]]()
    for stem in stems:
        file = f"{stem}.jsonl"
        places = whole if stem == _ALL else placed
        with (root / file).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                key = hashlib.blake2b(line.strip(), digest_size=16).digest()
                is_new = key not in whole and key not in placed
                first = places.setdefault(key, (file, number))
                if places is placed and first != (file, number):
                    message = f"the same sample is at {first[0]}:{first[1]}"
                    remedy = "write each sample to one split"
                    yield Problem("split_overlap", file, message, number, remedy=remedy)
                if places is placed and _ALL in stems and key not in whole:
                    yield _unlike(file, number, "not in the file of all samples")
                if is_new:
                    yield from check_line(line, file, number)
    if placed or len(stems) > 1:
        yield from limited(
            [_unlike(*place, "in no split") for key, place in whole.items() if key not in placed]
        )


def _unlike(file: str, line: int, where: str) -> Problem:
    remedy = "build the export again"
    return Problem("split_union", file, f"the sample is {where}", line, remedy=remedy)


_BATCH_CHARACTERS = 64 * 2**20  # of trees in memory; a tree can have millions

# name, type, meaning. Parameters differ by action type, so `action` and `history` are JSON text.
_COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("trajectory_id", pa.string(), "demonstration id"),
    ("step_index", pa.int32(), "0-based, as in steps/NNN"),
    ("split", pa.string(), "train, val, test or held_out"),
    ("task_id", pa.string(), "of task.json"),
    ("application", pa.string(), "of task.json"),
    ("action_type", pa.string(), "OSWorld-Desktopd action type"),
    ("instruction", pa.string(), "input.instruction"),
    ("screenshot", pa.string(), "input.screenshot: path in the dataset"),
    ("ui_tree", pa.string(), "input.ui_tree: path, or JSON text; null: tree_agreement is differs"),
    ("history", pa.string(), "input.history as JSON text: a list of actions and gaps"),
    ("action", pa.string(), "output.action as JSON text"),
    ("reasoning", pa.string(), "output.reasoning"),
    ("reasoning_source", pa.string(), "template: the program wrote the reasoning"),
    ("freshness", pa.string(), "of the tree: fresh, stale, changed, running, …"),
    ("tree_agreement", pa.string(), "agrees, partial, differs or unknown: tree and screenshot"),
    ("screen_changed", pa.bool_(), "until the next screenshot; null: not known"),
    ("taken_back_by", pa.int32(), "the later step that undoes it by keys; null: none known"),
)
_NULLABLE = ("ui_tree", "screen_changed", "taken_back_by")
SFT_SCHEMA = described_schema(
    [(name, kind, name in _NULLABLE, text) for name, kind, text in _COLUMNS],
    {
        "trajectory_id task_id application instruction screenshot ui_tree": TEXT,
        "step_index": COUNT,
        "split": one_of(*Split),
        "action_type": one_of(*ActionType),
        "reasoning_source": one_of("template", "imported", "human", "model", "rule"),
        "freshness": one_of(*FRESHNESS),
        "tree_agreement": one_of(*AGREEMENTS),
        "taken_back_by": COUNT,
    },
)
_WORDED = described_schema(
    [("instruction_source", pa.string(), True, "who worded the task otherwise; null: nobody did")],
    {"instruction_source": one_of("human", "model", "rule")},
)
_TABLE = Table(
    SFT_SCHEMA,
    characters=_BATCH_CHARACTERS,
    annotated=pa.schema([*SFT_SCHEMA, *_WORDED]),
    notes=frozenset(VARIANTS),
)


def _rows(made_of: Source) -> Iterator[Row | Excluded]:
    """Yield a sample per step, and one for each other wording of the instruction.

    In the documented form there is only the instruction of task.json.
    """
    yield from _samples(made_of)
    trajectory = made_of.trajectory
    if _is_documented_form(made_of.settings):
        return
    for name, words, source in wordings(trajectory.notes):
        task = trajectory.task.model_copy(update={"instruction": words})
        candidate = replace(made_of.candidate, instruction=words)
        worded = replace(made_of, candidate=candidate, trajectory=replace(trajectory, task=task))
        for record in _samples(worded):
            if isinstance(record, Row):
                worded_by = {"instruction_source": source}
                parts = {part: {**value, **worded_by} for part, value in record.parts.items()}
                yield replace(record, id=f"{record.id}/{name}", parts=parts)


def _is_documented_form(settings: DatasetSettings) -> bool:
    """Whether samples have only the keys of the format document."""
    return settings.sft_keys == "documented"


def _samples(made_of: Source) -> Iterator[Row | Excluded]:
    """Yield a sample per step; its history holds all steps and gaps before it.

    In the documented form neither gaps nor actions with parameters of ours are in the history; the
    step numbers of the others tell that something is left out.
    """
    trajectory = made_of.trajectory
    only_documented = _is_documented_form(made_of.settings)
    candidate = made_of.candidate
    history: list[dict[str, Any]] = []
    for step in trajectory.steps:
        if not only_documented:
            for action in candidate.hidden.before(step.index):
                gap = _HistoryGap(reasoning=f"Not shown: {hidden_words(action)}.")
                history = [*history, gap.model_dump(mode="json")]
        made = _sample(made_of, step, history)
        if isinstance(made, str):
            yield Excluded(made)
        else:
            sample, files = made
            columns = _columns(sample)
            row = {
                "reasoning_source": made_of.rows[step.index]["reasoning_source"],
                **{name: columns[name] for name in ("step_index", "ui_tree")},
                "trajectory_id": made_of.id,
                "task_id": replace_surrogates(trajectory.task.task_id),
                "application": made_of.application,
                **columns,
            }
            prompt = f"{candidate.instruction}\n{json.dumps(history)}"
            name = f"{trajectory.id}/{step.index:03d}"
            line = {name: sample[name] for name in _DOCUMENTED} if only_documented else sample
            yield Row(name, prompt, step.screenshot, {"line": line, "row": row}, files)
        if not only_documented or is_documented(step.action):
            history = [*history, step.action.model_dump(mode="json")]


def _sample(
    made_of: Source, step: StepFiles, history: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Path]] | str:
    """The sample of a step with the files that it names, or why there is none."""
    known = made_of.rows[step.index]
    settings = made_of.settings
    size = CANVAS if step.screenshot.is_file() and step.ui_tree.is_file() else None
    reason = step_exclusion(step, known, settings, size)
    if step.index in made_of.candidate.incomplete and reason in {"", *LEAK_EXCLUSIONS}:
        reason = INCOMPLETE
    if not reason and _is_documented_form(settings) and not is_documented(step.action):
        reason = UNDOCUMENTED
    if reason:
        return reason
    screenshot = made_of.name(step.screenshot)
    name = made_of.name(step.ui_tree)
    files = {screenshot: step.screenshot}
    tree = None
    if settings.include_stale_trees or known["tree_agreement"] != "differs":
        if settings.sft_trees != "object":
            tree = name
            files[name] = step.ui_tree
        else:
            try:
                tree = load_json(step.ui_tree)
            except JsonFileError:
                return "missing_frame"
    given = (made_of.trajectory.task.instruction, screenshot, tree, history)
    sample: dict[str, Any] = {
        "input": dict(zip(_INPUT, given, strict=True)),
        "output": {
            "action": step.action.model_dump(mode="json") | (_UNAIMED if tree is None else {}),
            "reasoning": step.action.reasoning,
        },
        **{name: known[name] for name in _OF_STEP},
        **{name: known[name] for name in _BECAME if known.get(name) is not None},
    }
    if first := made_of.trajectory.steps[0].index:
        sample["first_step"] = first
    thought = made_of.trajectory.notes.get(step.index, {}).get("thought")
    if thought and not _is_documented_form(settings):
        sample["output"]["reasoning"] = thought.value
        sample["reasoning_source"] = thought.source
    return sample, files


_DOCUMENTED = ("input", "output")  # the keys of a sample in the format document
_INPUT = ("instruction", "screenshot", "ui_tree", "history")
_OF_STEP = ("freshness", "tree_agreement")  # of the provenance


_BECAME = ("screen_changed", "taken_back_by")  # likewise, where it is known
_UNAIMED = {"target_element": None}  # without its tree an id points at nothing


_OPTIONAL = (*_OF_STEP, "reasoning_source", "instruction_source")


def _columns(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of `SFT_SCHEMA` that a sample gives."""
    given = sample["input"]
    said = sample["output"]
    tree = given["ui_tree"]
    action = said["action"]
    texts = {
        "action_type": action["action_type"],
        **{name: given[name] for name in ("instruction", "screenshot")},
        "history": json.dumps(given["history"], ensure_ascii=False),
        "action": json.dumps(action, ensure_ascii=False),
        "reasoning": said["reasoning"],
        **{name: sample[name] for name in _OPTIONAL if name in sample},
        "ui_tree": tree if tree is None or isinstance(tree, str) else json_text(tree),
    }
    shown = {name: text and replace_surrogates(text) for name, text in texts.items()}
    became = {name: sample.get(name) for name in _BECAME}
    return {"step_index": action["step_index"], **became, **shown}


# `samples` holds all; `train`, `val`, `test` and, when it has a sample, `held_out` hold the splits.
# Paths are relative to the dataset's root; only files that a sample names are there. Steps off the
# screen, without a frame or with one that leaks avoidably give no sample and stay in the history,
# whose actions are those of action.json; hidden actions are gaps in it. A tree that differs from
# its screenshot is left out unless `include_stale_trees`.
FORM = Form(
    name="sft",
    asset="sft_samples",
    folder="sft",
    description="OSWorld-Desktopd SFT samples: one per step with instruction, screenshot, tree, "
    "history, action and reasoning, together and by split. Failed demonstrations are left out and "
    "counted.",
    code_version="21",
    kinds=frozenset({"json", "parquet"}),
    settings=("max_hidden_share", *STEP_SETTINGS, "include_stale_trees", "sft_trees", "sft_keys"),
    exclusions=(*STEP_EXCLUSIONS[:2], INCOMPLETE, *LEAK_EXCLUSIONS, UNDOCUMENTED),
    rows=_rows,
    files=(
        File("line", f"{_ALL}.jsonl", checked=SFT_FORMAT),
        File("line", "{split}.jsonl", checked=SFT_FORMAT),
        File("row", f"{_ALL}.parquet", lambda _: _TABLE),
        File("row", "{split}.parquet", lambda _: _TABLE, config="default"),
    ),
    check="sft_schema",
    kind_of=of_row("row", "action_type"),
    place=lambda row, split, _settings, _folder: {**row, "split": split.value},
    marks=(f"{_ALL}.jsonl",),
    line_key="input",
    validate=validate_sft_folder,
    validate_file=validate_sft,
    hub=(
        HubTable(
            "sft",
            "a step: instruction, screenshot, tree and earlier actions, with the action that "
            "the person took (OSWorld-Desktopd's SFT samples; nested values are JSON text)",
            pictures=("screenshot",),
            trees=("ui_tree",),
        ),
    ),
    views=(View("sft", "an SFT sample with its split", "sft/samples.parquet"),),
)
