"""SFT samples of OSWorld-Desktopd: for each step what was seen and what was done; their rules.

Screenshots are named by their path in the dataset, so that samples are small; trees too, unless
`datasets.sft_trees` asks for the trees themselves. The files of the trajectory are read when they
are there; otherwise the samples of a trajectory must agree with each other.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.annotations.annotations import VARIANTS, wordings
from demo_pipeline.datasets.export_loop import build_form
from demo_pipeline.datasets.record_forms import Excluded, Form, Record, Table, json_text
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.models import (
    AGREEMENTS,
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    FRESHNESS,
    GAP,
    ActionType,
    HistoryGap,
    SftSample,
    StepAction,
)
from demo_pipeline.desktopd.reader import StepFiles, Trajectory, json_problem
from demo_pipeline.desktopd.tree_validator import Nodes, check_action, check_tree, check_tree_bytes
from demo_pipeline.exports.cudag.actions import is_off_screen
from demo_pipeline.exports.prompts import hidden_words
from demo_pipeline.exports.record_checks import (
    Fault,
    NamedFiles,
    RecordFormat,
    by_format,
    checked_records,
    record_problems,
)
from demo_pipeline.exports.record_files import line_value, missing, table_problems
from demo_pipeline.files.base_model import check, limited
from demo_pipeline.files.column_values import COUNT, TEXT, one_of
from demo_pipeline.files.image_header import probe_image
from demo_pipeline.files.json_files import JsonFileError, load_json, parse_json, read_bytes
from demo_pipeline.files.parquet import described_schema
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.pointer_leaks import LEAK_EXCLUSIONS, leak_exclusion
from demo_pipeline.trajectories.provenance import INCOMPLETE, ProvenanceRow

_STEP_FILE = re.compile(r"(?:.*/)?trajectories/([^/]+)/steps/([0-9]+)/[^/]+", re.ASCII)
_MOST_NAMED = 8  # step numbers in a message
_DATA_URI = "data:image/png;base64,"
_PNG_IN_BASE64 = "iVBORw0KGgo"
_REFERENCE = "correct the reference"


@dataclass(slots=True)
class _Trajectory:
    """What is known of the trajectory of the last sample: samples lie together.

    Attributes:
        name: its id.
        instruction: of task.json, else of the first sample; None: not known.
        actions: step index → action, as written text.
    """

    name: str = ""
    instruction: str | None = None
    actions: dict[int, str] = field(default_factory=dict)

    def begin(self, name: str, files: NamedFiles) -> None:
        """Forget the last trajectory, if this is another one."""
        if name != self.name:
            told = files.document(f"trajectories/{name}/task.json").get("instruction")
            self.name, self.actions = name, {}
            self.instruction = replace_surrogates(told) if isinstance(told, str) else None

    def action(self, step: int, sampled: str, files: NamedFiles) -> str:
        """The action of a step: of its file, else of the first sample that has it."""
        if step not in self.actions:
            written = files.document(f"trajectories/{self.name}/steps/{step:03d}/action.json")
            self.actions[step] = _written(written) if written else sampled
        return self.actions[step]


def sft_format(*, follows: bool = True) -> RecordFormat[SftSample]:
    """The form of a sample; a new one for each validation, as it remembers the trajectory.

    Args:
        follows: the paths in samples are followed; without a dataset that cannot be.
    """
    faults = partial(_sample_faults, _Trajectory(), follows)
    return RecordFormat(
        SftSample, _pictures if follows else lambda _: (), faults, picture_code="screenshot"
    )


def _pictures(sample: SftSample) -> Iterator[tuple[str, str]]:
    if not _is_inline(sample.input.screenshot):
        yield "input.screenshot", sample.input.screenshot


def _is_inline(screenshot: str) -> bool:
    return screenshot.startswith((_DATA_URI, _PNG_IN_BASE64))


def _sample_faults(
    known: _Trajectory, follows: bool, sample: SftSample, files: NamedFiles
) -> Iterator[Fault]:
    action = sample.output.action
    if fault := _size_fault(sample.input.screenshot, files if follows else None):
        yield Fault("screenshot", f"input.screenshot: {fault}", _REFERENCE)
    differs = sample.input.ui_tree is None and sample.tree_agreement == "differs"
    nodes, faults = (None, []) if differs else _tree(sample.input.ui_tree, files, follows)
    yield from faults
    yield from (Fault.of(one, "output.action") for one in check_action(action, nodes, ""))
    steps = range(sample.first_step or 0, action.step_index)
    yield from _history_faults(sample.input.history, steps)
    yield from _step_faults(sample, known, files)
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
    if (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT):
        return ""
    return f"{info.width}x{info.height} pixels, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"


def _tree(value: Any, files: NamedFiles, follows: bool) -> tuple[Nodes | None, list[Fault]]:
    """The nodes of the sample's tree (None: unknown), and the faults of the tree."""
    if not isinstance(value, str):
        nodes, problems = check_tree(value, "")
        return nodes, [Fault.of(problem, "input.ui_tree") for problem in problems]
    if not follows:
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
    """Yield the faults of earlier actions: each is valid, in order, and none is left out."""
    last, index = -1, expected.stop
    for number, value in enumerate(history):
        model = HistoryGap if value.get("action_type") == GAP else StepAction
        earlier, problems = check(model, value, "")
        place = f"input.history[{number}]"
        yield from (Fault.of(problem, place) for problem in problems)
        if not isinstance(earlier, StepAction):
            continue
        if not last < earlier.step_index < index:
            message = f"{place}.step_index: is not between the previous one and this step"
            yield Fault("history_order", message, "list the earlier steps in order")
        last = earlier.step_index
    steps = [action.get("step_index") for action in history]
    if absent := [step for step in expected if step not in steps]:
        named = ", ".join(map(str, absent[:_MOST_NAMED]))
        more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
        message = f"input.history: lacks the steps {named}{more} before step {index}"
        yield Fault("history_gap", message, "list every step before this one")


def _step_faults(sample: SftSample, known: _Trajectory, files: NamedFiles) -> Iterator[Fault]:
    """Yield how a sample differs from its trajectory."""
    action, names = sample.output.action, set()
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
    known.begin(names.pop(), files)
    instruction = replace_surrogates(sample.input.instruction)
    worded = sample.instruction_source is not None
    if not worded and known.instruction not in {None, instruction}:
        message = "input.instruction: differs from that of the trajectory"
        yield Fault("instruction_differs", message, "copy the instruction of task.json")
    known.instruction = known.instruction or (None if worded else instruction)
    taken = {"output.action": action.model_dump(mode="json")}
    taken |= {f"input.history[{n}]": earlier for n, earlier in enumerate(sample.input.history)}
    for place, value in taken.items():
        step, written = value.get("step_index"), _written(value)
        if isinstance(step, int) and known.action(step, written, files) != written:
            message = f"{place}: differs from the action of step {step} of the trajectory"
            yield Fault("action_differs", message, "copy action.json of the step")


def _written(action: Mapping[str, Any]) -> str:
    """An action as text, the same for 500 and 500.0, and for null and an absent key."""
    return replace_surrogates(json.dumps(_plain(action), ensure_ascii=False, sort_keys=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def step_of(path: str) -> tuple[str, int] | None:
    """Trajectory and step of a file in a step folder; None for any other path."""
    found = _STEP_FILE.fullmatch(path)
    return (found[1], int(found[2])) if found else None


_SAMPLES = "samples"
_SPLITS = ("train", "val", "test")
_PLAIN = ("instruction", "screenshot", "ui_tree", "reasoning")
_OF_STEP = ("freshness", "tree_agreement")  # of the provenance


class _SampleFiles:
    """Reads files of samples; one that was read before is not read again.

    Args:
        path: the first file.
        root: the dataset that paths in samples are relative to; default: the file's folder, its
            parent, or `dataset` in the parent, the first of them that contains `trajectories`.
    """

    def __init__(self, path: Path, root: Path | None) -> None:
        above = path.parent.parent
        near = (path.parent, above, above / "dataset")
        found = root or next((one for one in near if (one / "trajectories").is_dir()), None)
        self._files = NamedFiles.below(found or path.parent)
        self._form = sft_format(follows=found is not None)
        self.samples: dict[bytes, str] = {}  # digest of a line → its place; of the whole
        self.splits: dict[bytes, str] = {}
        self.warnings: list[Problem] = []
        if found is None:
            message = "no dataset found near the file: the paths in it are not checked"
            warning = Problem("no_dataset", path.name, message, severity=Severity.WARNING)
            self.warnings.append(warning)

    def read(self, path: Path, *, is_split: bool, is_union: bool = False) -> Iterator[Problem]:
        """Yield the problems of a file.

        Args:
            path: the file.
            is_split: its samples are those of no other split.
            is_union: each of them should be among `samples` too.
        """
        places = self.splits if is_split else self.samples
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                key = hashlib.blake2b(line.strip(), digest_size=16).digest()
                place = f"{path.name}:{number}"
                first = places.setdefault(key, place)
                if is_split and first != place:
                    message = f"the same sample is at {first}"
                    remedy = "write each sample to one split"
                    yield Problem("split_overlap", path.name, message, number, remedy=remedy)
                if is_union and key not in self.samples:
                    yield _unlike(path.name, number, "not in the file of all samples")
                if first == place and not (is_split and key in self.samples):
                    yield from self._sample(line, path.name, number)

    def _sample(self, line: bytes, file: str, number: int) -> list[Problem]:
        value = line_value(line, file, number)
        if isinstance(value, Problem):
            return [value]
        return record_problems(self._form, value, file, number, self._files)

    def in_no_split(self) -> Iterator[Problem]:
        """Yield a problem for each sample of the whole that no split has."""
        for key, place in self.samples.items():
            if key not in self.splits:
                file, _, line = place.rpartition(":")
                yield _unlike(file, int(line), "in no split")


def _unlike(file: str, line: int, where: str) -> Problem:
    remedy = "build the export again"
    return Problem("split_union", file, f"the sample is {where}", line, remedy=remedy)


def validate_sft(path: Path, root: Path | None = None) -> list[Problem]:
    """The problems of an SFT file, with line numbers.

    Paths in samples are relative to `root`, a dataset; see `_SampleFiles`. Without one they are not
    checked, which is a warning.
    """
    if not path.is_file():
        return [Problem("missing_file", path.name, "the file is missing", remedy="check the path")]
    reader = _SampleFiles(path, root)
    return [*reader.warnings, *reader.read(path, is_split=False)]


def validate_sft_folder(root: Path, dataset: Path | None = None) -> list[Problem]:
    """The problems of a folder of samples.

    `samples.jsonl` is the union of the splits, if there are any, and a Parquet file has the samples
    of the JSON Lines of the same name. `dataset` is the `root` of `validate_sft`.
    """
    stems = (_SAMPLES, *_SPLITS, "held_out")
    present = [stem for stem in stems if (root / f"{stem}.jsonl").is_file()]
    if not present:
        return validate_sft(root / f"{_SAMPLES}.jsonl", dataset)
    reader = _SampleFiles(root / f"{present[0]}.jsonl", dataset)
    problems, has_all = reader.warnings, _SAMPLES in present
    for stem in present:
        is_split = stem != _SAMPLES
        file = root / f"{stem}.jsonl"
        problems += reader.read(file, is_split=is_split, is_union=is_split and has_all)
    if present != [_SAMPLES]:
        problems += [missing(f"{stem}.jsonl") for stem in _SPLITS if stem not in present]
        problems += limited(list(reader.in_no_split()))
    if any((root / f"{stem}.parquet").is_file() for stem in stems):
        tables = {stem: root / f"{stem}.parquet" for stem in present}
        problems += [missing(path.name) for path in tables.values() if not path.is_file()]
        for stem, table in tables.items():
            if table.is_file():
                problems += table_problems(root / f"{stem}.jsonl", table, _differing)
    return problems


def _differing(line: Any, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a row that differ from its line; a line of another form has none."""
    parts = [line.get(key) if isinstance(line, dict) else None for key in ("input", "output")]
    values = {k: v for part in parts if isinstance(part, dict) for k, v in part.items()}
    for name in _PLAIN:
        if isinstance(values.get(name), str) and row.get(name) != values[name]:
            yield name
    action = values.get("action")
    known = action if isinstance(action, dict) else {}
    told = {name: known.get(name) for name in ("step_index", "action_type") if known}
    told |= {
        name: line[name]
        for name in (*_OF_STEP, "reasoning_source", "instruction_source")
        if isinstance(line, dict) and name in line
    }
    yield from (name for name, value in told.items() if name in row and row[name] != value)
    for name in ("history", "action"):
        text = row.get(name)
        try:
            same = isinstance(text, str) and parse_json(text, name) == values.get(name)
        except JsonFileError:
            same = False
        if not same:
            yield name


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
    ("tree_agreement", pa.string(), "agrees or differs: tree and screenshot; unknown: unchecked"),
)
SFT_SCHEMA = described_schema(
    [(name, kind, name == "ui_tree", text) for name, kind, text in _COLUMNS],
    {
        "trajectory_id task_id application instruction screenshot ui_tree": TEXT,
        "step_index": COUNT,
        "split": one_of(*Split),
        "action_type": one_of(*ActionType),
        "reasoning_source": one_of("template", "human", "model", "rule"),
        "freshness": one_of(*FRESHNESS),
        "tree_agreement": one_of(*AGREEMENTS),
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


def _records(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
) -> Iterator[Record | Excluded]:
    """Yield a sample per step, and one for each other wording of the instruction."""
    yield from _samples(candidate, trajectory, rows, settings)
    for name, words, source in wordings(trajectory.notes):
        task = trajectory.task.model_copy(update={"instruction": words})
        worded = replace(candidate, instruction=words), replace(trajectory, task=task)
        for record in _samples(*worded, rows, settings):
            if isinstance(record, Record):
                worded_by = {"instruction_source": source}
                parts = {part: {**value, **worded_by} for part, value in record.parts.items()}
                yield replace(record, id=f"{record.id}/{name}", parts=parts)


def _samples(
    candidate: Candidate,
    trajectory: Trajectory,
    rows: Mapping[int, ProvenanceRow],
    settings: DatasetSettings,
) -> Iterator[Record | Excluded]:
    """Yield a sample per step; its history holds all steps and gaps before it."""
    history: list[dict[str, Any]] = []
    for step in trajectory.steps:
        gaps = map(hidden_words, candidate.hidden.before(step.index))
        gone = [HistoryGap(reasoning=f"Not shown: {words}.") for words in gaps]
        history = [*history, *(gap.model_dump(mode="json") for gap in gone)]
        action, known = step.action.model_dump(mode="json"), rows[step.index]
        reason = _exclusion(step, known, settings, incomplete=step.index in candidate.incomplete)
        folder = f"trajectories/{trajectory.id}/steps/{step.folder.name}"
        screenshot, name = f"{folder}/{step.screenshot.name}", f"{folder}/{step.ui_tree.name}"
        files, tree = {screenshot: step.screenshot}, None
        if not reason and (settings.include_stale_trees or known["tree_agreement"] != "differs"):
            if settings.sft_trees != "object":
                files[name], tree = step.ui_tree, name
            elif (tree := _inline_tree(step.ui_tree)) is None:
                reason = "missing_frame"
        if reason:
            yield Excluded(reason)
        else:
            given = (trajectory.task.instruction, screenshot, tree, history)
            sample = {
                "input": dict(zip(_INPUT, given, strict=True)),
                "output": {"action": action, "reasoning": step.action.reasoning},
                **{name: known[name] for name in _OF_STEP},
            }
            if first := trajectory.steps[0].index:
                sample["first_step"] = first
            source = known["reasoning_source"]
            if thought := trajectory.notes.get(step.index, {}).get("thought"):
                sample["output"]["reasoning"] = thought.value
                sample["reasoning_source"] = source = thought.source
            row = {"reasoning_source": source, **_row(sample, trajectory)}
            prompt = f"{candidate.instruction}\n{json.dumps(history)}"
            name = f"{trajectory.id}/{step.index:03d}"
            yield Record(name, prompt, step.screenshot, {"line": sample, "row": row}, files)
        history = [*history, action]


_INPUT = ("instruction", "screenshot", "ui_tree", "history")


def _inline_tree(path: Path) -> Any:
    """A tree; None when it cannot be read."""
    try:
        return load_json(path)
    except JsonFileError:
        return None


# `samples` holds all; `train`, `val`, `test` and, when it has a sample, `held_out` hold the splits.
# Paths are relative to the dataset's root; only files that a sample names are there. Steps off the
# screen, without a frame or with one that leaks avoidably give no sample and stay in the history,
# whose actions are those of action.json; hidden actions are gaps in it. A tree that differs from
# its screenshot is left out unless `include_stale_trees`.
SFT_FORM = Form(
    name="sft",
    code_version="14",
    settings=(
        *("max_hidden_share", "include_avoidable_leaks", "include_unavoidable_leaks"),
        *("include_stale_trees", "sft_trees"),
    ),
    unit="samples",
    exclusions=("off_screen", "missing_frame", INCOMPLETE, *LEAK_EXCLUSIONS),
    records=_records,
    files=lambda split, _: {
        "line": ("samples.jsonl", f"{split.value}.jsonl"),
        "row": ("samples.parquet", f"{split.value}.parquet"),
    },
    tables=lambda _: {"row": _TABLE},
    row=lambda row, split, _settings, _folder: {**row, "split": split.value},
    problems=checked_records("line", lambda: by_format(sft_format())),
)
build_sft = partial(build_form, SFT_FORM)


def _exclusion(
    step: StepFiles, row: ProvenanceRow, settings: DatasetSettings, *, incomplete: bool
) -> str:
    """Why a step gives no sample, the first reason that holds; empty when it gives one."""
    if is_off_screen(step.action, row, (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    if row["pts"] is None or not step.screenshot.is_file() or not step.ui_tree.is_file():
        return "missing_frame"
    return INCOMPLETE if incomplete else leak_exclusion(row, settings)


def _row(sample: Mapping[str, Any], trajectory: Trajectory) -> dict[str, Any]:
    """The sample as a row of `SFT_SCHEMA`, without its split and the copied columns."""
    given, action = sample["input"], sample["output"]["action"]
    tree = given["ui_tree"]
    texts = {
        "trajectory_id": trajectory.id,
        "task_id": trajectory.task.task_id,
        "application": trajectory.task.application,
        "action_type": action["action_type"],
        "instruction": given["instruction"],
        "screenshot": given["screenshot"],
        "history": json.dumps(given["history"], ensure_ascii=False),
        "action": json.dumps(action, ensure_ascii=False),
        "reasoning": sample["output"]["reasoning"],
        **{name: sample[name] for name in _OF_STEP},
    }
    shown = tree if tree is None or isinstance(tree, str) else json_text(tree)
    return {
        "step_index": action["step_index"],
        "ui_tree": None if shown is None else replace_surrogates(shown),
        **{k: replace_surrogates(v) for k, v in texts.items()},
    }
