"""Exports the SFT samples of OSWorld-Desktopd, one per step, and validates files of such samples.

Samples contain the paths of screenshots and UI trees. If the dataset's folder contains the
trajectories, the validator compares the samples with them.
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
from demo_pipeline.files.json_files import JsonFileError, read_bytes
from demo_pipeline.files.parquet import COUNT, TEXT, described_schema, one_of
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS
from demo_pipeline.trajectories.provenance import INCOMPLETE

_STEP_FILE = re.compile(r"(?:.*/)?trajectories/([^/]+)/steps/([0-9]+)/[^/]+", re.ASCII)
# Reason to leave out a step if the format document of OSWorld-Desktopd does not mention a parameter
# of its action. Steps are left out for this reason only if the setting `sft_keys` is `documented`.
UNDOCUMENTED = "undocumented_parameters"
_MOST_LISTED = 8  # maximum number of step numbers in a message
_DATA_URI = "data:image/png;base64,"
_PNG_IN_BASE64 = "iVBORw0KGgo"
_REFERENCE = "correct the reference"


class _HistoryGap(Document):
    """The entry in a sample's history for an action that no screenshot shows.

    `reasoning` describes the action without its place and without typed text.
    """

    step_index: None = None
    action_type: Literal["gap"] = GAP
    parameters: dict[str, Any] = Field(default_factory=dict, max_length=0)
    target_element: None = None
    reasoning: str


class _SftInput(Document):
    """The input of a model in an SFT sample.

    Attributes:
        instruction: the task.
        screenshot: a path relative to the dataset, or the PNG inline as base64 or a data URI.
        ui_tree: a path relative to the dataset, or the tree inline; null if tree and screenshot
            show different states (`tree_agreement` of the sample is `differs`).
        history: the earlier actions, oldest first, each as in action.json or as a `_HistoryGap`.
    """

    instruction: Text
    screenshot: Text
    ui_tree: Any
    history: list[dict[str, Any]]


class _SftOutput(Document):
    """The expected output of a model; `reasoning` comes from the action or from an annotation."""

    action: StepAction
    reasoning: str


class SftSample(Document):
    """A line of an SFT file. Files of other programs only have `input` and `output`.

    Attributes:
        freshness, tree_agreement: as in provenance.parquet.
        first_step: index of the trajectory's first step; None if the index is 0.
        reasoning_source: author of the annotation that replaces the action's reasoning, or None.
        instruction_source: author of the annotation that replaces the task's instruction, or None.
        screen_changed: whether the screen changed before the next screenshot; None if unknown.
        taken_back_by: index of a later step that undoes this one; None if no such step is known.
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
    """Returns whether a screenshot is the PNG itself instead of a path."""
    return screenshot.startswith((_DATA_URI, _PNG_IN_BASE64))


def _faults(follow_paths: bool, sample: SftSample, files: NamedFiles) -> Iterator[Fault]:
    """Yields the faults of a sample and, if `follow_paths` is set, of the files in its paths."""
    action = sample.output.action
    if fault := _size_fault(sample.input.screenshot, files if follow_paths else None):
        yield Fault("screenshot", f"input.screenshot: {fault}", _REFERENCE)
    nodes: Nodes | None = None
    if sample.input.ui_tree is None and sample.tree_agreement == "differs":
        if action.target_element is not None:
            message = "output.action.target_element: is of a tree that the sample does not have"
            yield Fault("target_without_tree", message, "leave it out")
    else:
        nodes, faults = _tree(sample.input.ui_tree, files, follow_paths)
        yield from faults
    for problem in check_action(action, nodes, ""):
        yield Fault.of(problem, "output.action")
    steps = range(sample.first_step or 0, action.step_index)
    yield from _history_faults(sample.input.history, steps)
    yield from _absent_faults(sample, steps, files)
    yield from _step_faults(sample, files)
    if sample.reasoning_source is None and sample.output.reasoning != action.reasoning:
        message = "output.reasoning: differs from output.action.reasoning"
        yield Fault("reasoning_differs", message, "copy the reasoning of the action")


def _size_fault(text: str, files: NamedFiles | None) -> str:
    """Returns what is wrong with a screenshot's format or size; empty if both are right.

    Missing and unreadable files have no fault here; `record_checks` reports them.

    Args:
        text: the image inline, or its path.
        files: the files of the dataset. If it is None, paths are not followed.
    """
    if _is_inline(text):
        try:
            info = probe_image(base64.b64decode(text.removeprefix(_DATA_URI), validate=True))
        except binascii.Error:
            return "is not base64"
        except ValueError as error:
            return str(error)
    else:
        image = files.picture(text) if files else ""
        if isinstance(image, str):
            return ""
        info = image
    if info.kind != "png":
        return "the screenshot is not a PNG"
    if (info.width, info.height) == CANVAS:
        return ""
    return f"{info.width}x{info.height} pixels, expected {CANVAS[0]}x{CANVAS[1]}"


def _tree(value: Any, files: NamedFiles, follow_paths: bool) -> tuple[Nodes | None, list[Fault]]:
    """Reads the UI tree of a sample.

    Returns:
        The nodes and the faults of the tree. The nodes are None if the tree is invalid, or if it is
        a path and `follow_paths` is False.
    """
    if not isinstance(value, str):
        nodes, problems = check_tree(value, "")
        return nodes, [Fault.of(problem, "input.ui_tree") for problem in problems]
    if not follow_paths:
        return None, []
    path = files.path(value)
    if path is None:
        message = "input.ui_tree: is not a path inside the folder"
        return None, [Fault("ui_tree", message, _REFERENCE)]
    try:
        nodes, problems = check_tree_bytes(read_bytes(path, ""), "")
    except JsonFileError as error:
        return None, [Fault.of(json_problem(error, exists=path.is_file()), "input.ui_tree")]
    return nodes, [Fault.of(problem, "input.ui_tree") for problem in problems]


def _history_faults(history: Sequence[Mapping[str, Any]], expected: range) -> Iterator[Fault]:
    """Yields the faults of a history: invalid actions, and actions in the wrong order.

    Args:
        expected: indexes of the steps before the sample's step.
    """
    last = -1
    index = expected.stop
    for number, value in enumerate(history):
        model = _HistoryGap if value.get("action_type") == GAP else StepAction
        earlier, problems = check(model, value, "")
        place = f"input.history[{number}]"
        for problem in problems:
            yield Fault.of(problem, place)
        if not isinstance(earlier, StepAction):
            continue
        if not last < earlier.step_index < index:
            message = f"{place}.step_index: is not between the previous one and this step"
            yield Fault("history_order", message, "list the earlier steps in order")
        last = earlier.step_index


def _absent_faults(sample: SftSample, expected: range, files: NamedFiles) -> Iterator[Fault]:
    """Yields a fault if earlier steps are missing from the history of a sample.

    If the sample has neither `freshness` nor `tree_agreement`, as with the setting
    `sft_keys = "documented"`, steps with undocumented parameters or without a readable action.json
    are not counted as missing.

    Args:
        expected: indexes of the steps before the sample's step.
    """
    steps = set[int | float]()
    for action in sample.input.history:
        step_index = action.get("step_index")
        if isinstance(step_index, int | float):
            steps.add(step_index)
    missing_steps = [step for step in expected if step not in steps]
    if sample.freshness is None and sample.tree_agreement is None:
        place = step_of(sample.input.screenshot)
        trajectory = place[0] if place else ""
        missing_steps = [
            step for step in missing_steps if _is_documented_step(trajectory, step, files)
        ]
    if not missing_steps:
        return
    listed = ", ".join(map(str, missing_steps[:_MOST_LISTED]))
    if len(missing_steps) > _MOST_LISTED:
        listed += f" and {len(missing_steps) - _MOST_LISTED} more"
    message = f"input.history: lacks the steps {listed} before step {expected.stop}"
    yield Fault("history_gap", message, "list every step before this one")


def _is_documented_step(trajectory: str, step: int, files: NamedFiles) -> bool:
    """Returns whether action.json of a step is readable and has only documented parameters."""
    document = files.document(f"trajectories/{trajectory}/steps/{step:03d}/action.json")
    if not document:
        return False
    action, _ = check(StepAction, document, "")
    return action is not None and is_documented(action)


def _step_faults(sample: SftSample, files: NamedFiles) -> Iterator[Fault]:
    """Yields the differences between a sample and the existing files of its trajectory."""
    action = sample.output.action
    names = set[str]()
    for key, path in (("screenshot", sample.input.screenshot), ("ui_tree", sample.input.ui_tree)):
        place = step_of(path) if isinstance(path, str) else None
        if place is None:
            continue
        trajectory, step = place
        names.add(trajectory)
        if step != action.step_index:
            message = f"is of step {step}, but the action is of step {action.step_index}"
            remedy = f"name the {key} of the action's step"
            yield Fault("wrong_step", f"input.{key}: {message}", remedy)
    if len(names) > 1:
        message = "input: screenshot and ui_tree are of two trajectories"
        yield Fault("wrong_step", message, "name the files of one step")
    if len(names) != 1:
        return
    folder = f"trajectories/{names.pop()}"
    instruction = files.document(f"{folder}/task.json").get("instruction")
    has_own_wording = sample.instruction_source is not None
    if instruction and not has_own_wording and _plain(instruction) != sample.input.instruction:
        message = "input.instruction: differs from that of the trajectory"
        yield Fault("instruction_differs", message, "copy the instruction of task.json")
    without_target = sample.input.ui_tree is None
    output = action.model_dump(mode="json")
    yield from _action_faults("output.action", output, folder, files, without_target)
    for number, earlier in enumerate(sample.input.history):
        yield from _action_faults(f"input.history[{number}]", earlier, folder, files)


def _action_faults(
    place: str,
    value: Mapping[str, Any],
    folder: str,
    files: NamedFiles,
    without_target: bool = False,
) -> Iterator[Fault]:
    """Yields a fault if an action of a sample differs from action.json of its step.

    Args:
        place: the field of the sample that contains the action, for the message.
        folder: name of the trajectory's folder.
        without_target: whether to ignore the target in action.json.
    """
    step = value.get("step_index")
    if not isinstance(step, int):
        return
    written = files.document(f"{folder}/steps/{step:03d}/action.json")
    if not written:
        return
    if without_target:
        written = {**written, "target_element": None}
    if written != value and _plain(written) != _plain(value):
        message = f"{place}: differs from the action of step {step} of the trajectory"
        yield Fault("action_differs", message, "copy action.json of the step")


def _plain(value: Any) -> Any:
    """Prepares a JSON value for comparison: drops null members and replaces lone surrogates."""
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    if isinstance(value, str):
        return replace_surrogates(value)
    return value


def step_of(path: str) -> tuple[str, int] | None:
    """Returns the trajectory id and the step index in the path of a step's file.

    Returns None for other paths.
    """
    match = _STEP_FILE.fullmatch(path)
    if match is None:
        return None
    return match[1], int(match[2])


SFT_FORMAT = RecordFormat(SftSample, _pictures, partial(_faults, True), picture_code="screenshot")
_FORMAT_WITHOUT_DATASET = RecordFormat(SftSample, faults=partial(_faults, False))
_ALL = "samples"  # stem of the files with the samples of all splits
_LineCheck = Callable[[bytes, str, int], list[Problem]]
"""Function that returns the problems of a line, given the line, its file and its number."""


def _line_check(path: Path, root: Path | None) -> tuple[_LineCheck, list[Problem]]:
    """Returns the function that checks lines, and a warning if no dataset was found.

    Args:
        path: a file of samples.
        root: the dataset to which paths in samples are relative. If it is None, the dataset is the
            first of these folders that contains a folder `trajectories`: the file's folder, its
            parent, and `dataset` in the parent.
    """
    dataset = root or _dataset_near(path)
    files = NamedFiles.below(dataset or path.parent)
    form = SFT_FORMAT if dataset else _FORMAT_WITHOUT_DATASET
    warnings = list[Problem]()
    if dataset is None:
        message = "no dataset found near the file: the paths in it are not checked"
        warnings = [Problem("no_dataset", path.name, message, severity=Severity.WARNING)]

    def problems(line: bytes, file: str, number: int) -> list[Problem]:
        value = line_value(line, file, number)
        if isinstance(value, Problem):
            return [value]
        return record_problems(form, value, file, number, files)

    return problems, warnings


def _dataset_near(path: Path) -> Path | None:
    above = path.parent.parent
    for folder in (path.parent, above, above / "dataset"):
        if (folder / "trajectories").is_dir():
            return folder
    return None


def validate_sft(path: Path, root: Path | None = None) -> list[Problem]:
    """Returns the problems of an SFT file, with line numbers.

    Args:
        root: the dataset to which paths in samples are relative. If it is None, the function
            looks for a dataset near the file. If it finds none, paths are not checked, and the
            result contains a warning.
    """
    if not path.is_file():
        return [Problem("missing_file", path.name, "the file is missing", remedy="check the path")]
    check_line, problems = _line_check(path, root)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            problems += check_line(line, path.name, number)
    return problems


def validate_sft_folder(root: Path, dataset: Path | None = None) -> list[Problem]:
    """Returns the problems of a folder with files of samples.

    If there are files of splits, `samples.jsonl` must be their union. Each Parquet file must have
    the same samples as the JSON Lines file with the same name.

    Args:
        dataset: see `root` of `validate_sft`.
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
    """Yields the problems of all lines in the JSON Lines files of a folder.

    A sample must be in exactly one split. Equal lines are checked only once.

    Args:
        stems: names of the files without `.jsonl`.
        check_line: returns the problems of a line.
    """
    in_all = dict[bytes, tuple[str, int]]()
    in_splits = dict[bytes, tuple[str, int]]()
    for stem in stems:
        file = f"{stem}.jsonl"
        places = in_all if stem == _ALL else in_splits
        with (root / file).open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                key = hashlib.blake2b(line.strip(), digest_size=16).digest()
                is_new = key not in in_all and key not in in_splits
                first = places.setdefault(key, (file, number))
                if places is in_splits and first != (file, number):
                    message = f"the same sample is at {first[0]}:{first[1]}"
                    remedy = "write each sample to one split"
                    yield Problem("split_overlap", file, message, number, remedy=remedy)
                if places is in_splits and _ALL in stems and key not in in_all:
                    yield _misplaced(file, number, "not in the file of all samples")
                if is_new:
                    yield from check_line(line, file, number)
    if in_splits or len(stems) > 1:
        unplaced = [place for key, place in in_all.items() if key not in in_splits]
        yield from limited([_misplaced(file, line, "in no split") for file, line in unplaced])


def _misplaced(file: str, line: int, where: str) -> Problem:
    """Returns the problem of a sample that is in no split, or not in the file of all samples.

    The message is "the sample is" followed by `where`, for example `in no split`.
    """
    remedy = "build the export again"
    return Problem("split_union", file, f"the sample is {where}", line, remedy=remedy)


# Number of characters after which a row group ends. A single UI tree can have millions.
_BATCH_CHARACTERS = 64 * 2**20

# Name, type and description of each column. `action` and `history` are JSON text, because actions
# of different types have different parameters.
_COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("trajectory_id", pa.string(), "id of the demonstration"),
    ("step_index", pa.int32(), "0-based number of the step, as in steps/NNN"),
    ("split", pa.string(), "split of the step: train, val, test or held_out"),
    ("task_id", pa.string(), "id of the task, as in task.json"),
    ("application", pa.string(), "application of the task, as in task.json"),
    ("action_type", pa.string(), "action type of OSWorld-Desktopd"),
    ("instruction", pa.string(), "instruction of the task, as in input.instruction"),
    ("screenshot", pa.string(), "path of the screenshot in the dataset, as in input.screenshot"),
    (
        "ui_tree",
        pa.string(),
        (
            "UI tree as a path or as JSON text, as in input.ui_tree; null if it "
            "contradicts the screenshot"
        ),
    ),
    ("history", pa.string(), "earlier actions and gaps as JSON text, as in input.history"),
    ("action", pa.string(), "action as JSON text, as in output.action"),
    ("reasoning", pa.string(), "text about the action, as in output.reasoning"),
    (
        "reasoning_source",
        pa.string(),
        (
            "who wrote the reasoning: template (a sentence from a template), "
            "imported, human, model or rule"
        ),
    ),
    (
        "freshness",
        pa.string(),
        "how current the UI tree is: fresh, stale, changed, running, sparse, unreadable or none",
    ),
    (
        "tree_agreement",
        pa.string(),
        "whether the UI tree agrees with the screenshot: agrees, partial, differs or unknown",
    ),
    (
        "screen_changed",
        pa.bool_(),
        "whether the screen changed until the next screenshot; null if unknown",
    ),
    (
        "taken_back_by",
        pa.int32(),
        (
            "number of a later step that undoes this one with Ctrl+Z or Escape; "
            "null if none is known"
        ),
    ),
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
    [
        (
            "instruction_source",
            pa.string(),
            True,
            "who reworded the instruction: human, model or rule; null if nobody did",
        )
    ],
    {"instruction_source": one_of("human", "model", "rule")},
)
_TABLE = Table(
    SFT_SCHEMA,
    characters=_BATCH_CHARACTERS,
    annotated=pa.schema([*SFT_SCHEMA, *_WORDED]),
    notes=frozenset(VARIANTS),
)


def _rows(source: Source) -> Iterator[Row | Excluded]:
    """Yields a sample for each step and each wording of the instruction.

    If the setting `sft_keys` is `documented`, only the wording in task.json is used.
    """
    yield from _samples(source)
    if _is_documented_form(source.settings):
        return
    trajectory = source.trajectory
    for name, instruction, instruction_source in wordings(trajectory.notes):
        task = trajectory.task.model_copy(update={"instruction": instruction})
        candidate = replace(source.candidate, instruction=instruction)
        reworded = replace(source, candidate=candidate, trajectory=replace(trajectory, task=task))
        for row in _samples(reworded):
            if not isinstance(row, Row):
                continue  # the first call of `_samples` counted this step
            parts = dict[str, Any]()
            for part, value in row.parts.items():
                parts[part] = {**value, "instruction_source": instruction_source}
            yield replace(row, id=f"{row.id}/{name}", parts=parts)


def _is_documented_form(settings: DatasetSettings) -> bool:
    """Returns whether samples have only the keys in the format document of OSWorld-Desktopd."""
    return settings.sft_keys == "documented"


def _samples(source: Source) -> Iterator[Row | Excluded]:
    """Yields a sample for each step.

    A sample's history contains all earlier steps, even those without a sample, and a gap for each
    action that no screenshot shows. If the setting `sft_keys` is `documented`, gaps and actions
    with undocumented parameters are left out of the history.
    """
    trajectory = source.trajectory
    candidate = source.candidate
    only_documented = _is_documented_form(source.settings)
    history: list[dict[str, Any]] = []
    for step in trajectory.steps:
        if not only_documented:
            for hidden_action in candidate.hidden.before(step.index):
                gap = _HistoryGap(reasoning=f"Not shown: {hidden_words(hidden_action)}.")
                history = [*history, gap.model_dump(mode="json")]
        sample = _sample(source, step, history)
        if isinstance(sample, str):
            yield Excluded(sample)
        else:
            line, files = sample
            columns = _columns(line)
            row = {
                "reasoning_source": source.rows[step.index]["reasoning_source"],
                "step_index": columns["step_index"],
                "ui_tree": columns["ui_tree"],
                "trajectory_id": source.id,
                "task_id": replace_surrogates(trajectory.task.task_id),
                "application": source.application,
                **columns,
            }
            prompt = f"{candidate.instruction}\n{json.dumps(history)}"
            name = f"{trajectory.id}/{step.index:03d}"
            if only_documented:
                line = {name: line[name] for name in _DOCUMENTED_KEYS}
            yield Row(name, prompt, step.screenshot, {"line": line, "row": row}, files)
        if not only_documented or is_documented(step.action):
            history = [*history, step.action.model_dump(mode="json")]


def _sample(
    source: Source, step: StepFiles, history: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], dict[str, Path]] | str:
    """Returns the sample of a step and the files it refers to, or why the step is left out."""
    provenance = source.rows[step.index]
    settings = source.settings
    size = None
    if step.screenshot.is_file() and step.ui_tree.is_file():
        size = CANVAS
    reason = step_exclusion(step, provenance, settings, size)
    if step.index in source.candidate.incomplete and reason in {"", *LEAK_EXCLUSIONS}:
        reason = INCOMPLETE
    if not reason and _is_documented_form(settings) and not is_documented(step.action):
        reason = UNDOCUMENTED
    if reason:
        return reason
    screenshot = source.name(step.screenshot)
    files = {screenshot: step.screenshot}
    tree: str | None = None
    if provenance["tree_agreement"] != "differs":
        tree = source.name(step.ui_tree)
        files[tree] = step.ui_tree
    action = step.action.model_dump(mode="json")
    if tree is None:  # the id of a target has no meaning without the UI tree
        action["target_element"] = None
    sample: dict[str, Any] = {
        "input": {
            "instruction": source.trajectory.task.instruction,
            "screenshot": screenshot,
            "ui_tree": tree,
            "history": history,
        },
        "output": {"action": action, "reasoning": step.action.reasoning},
    }
    for name in (*_TREE_TRUST, *_EFFECTS):
        if name in _TREE_TRUST or provenance.get(name) is not None:
            sample[name] = provenance[name]
    if first := source.trajectory.steps[0].index:
        sample["first_step"] = first
    thought = source.trajectory.notes.get(step.index, {}).get("thought")
    if thought and not _is_documented_form(settings):
        sample["output"]["reasoning"] = thought.value
        sample["reasoning_source"] = thought.source
    return sample, files


_DOCUMENTED_KEYS = ("input", "output")  # keys of a sample in the format document
# Columns of provenance.parquet that are copied to samples. Columns in `_EFFECTS` may be null.
_TREE_TRUST = ("freshness", "tree_agreement")
_EFFECTS = ("screen_changed", "taken_back_by")
_OPTIONAL_TEXTS = (*_TREE_TRUST, "reasoning_source", "instruction_source")


def _columns(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of a sample by the names of their columns in `SFT_SCHEMA`."""
    model_input = sample["input"]
    output = sample["output"]
    tree = model_input["ui_tree"]
    if tree is not None and not isinstance(tree, str):
        tree = json_text(tree)
    action = output["action"]
    texts = {
        "action_type": action["action_type"],
        "instruction": model_input["instruction"],
        "screenshot": model_input["screenshot"],
        "history": json.dumps(model_input["history"], ensure_ascii=False),
        "action": json.dumps(action, ensure_ascii=False),
        "reasoning": output["reasoning"],
        **{name: sample[name] for name in _OPTIONAL_TEXTS if name in sample},
        "ui_tree": tree,
    }
    columns: dict[str, Any] = {"step_index": action["step_index"]}
    for name in _EFFECTS:
        columns[name] = sample.get(name)
    for name, text in texts.items():
        columns[name] = text and replace_surrogates(text)
    return columns


# `held_out.jsonl` exists only if the split `held_out` has samples. The dataset contains only the
# files of trajectories that samples refer to.
FORM = Form(
    name="sft",
    asset="sft_samples",
    folder="sft",
    description="SFT samples of OSWorld-Desktopd, one for each step, with instruction, "
    "screenshot, accessibility tree, history, action and reasoning. There are "
    "files for all samples and for each split. By default, failed demonstrations "
    "are left out.",
    code_version="23",
    kinds=frozenset({"json", "parquet"}),
    settings=(*STEP_SETTINGS, "sft_keys"),
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
            "a step as an SFT sample of OSWorld-Desktopd: instruction, screenshot, tree, earlier "
            "actions, and the person's action; nested values are JSON text",
            pictures=("screenshot",),
            trees=("ui_tree",),
        ),
    ),
    views=(View("sft", "a row for each SFT sample, with its split", "sft/samples.parquet"),),
)
