"""Validating SFT samples: the files that a trainer loads, each sample, and its trajectory.

Belongs here: `samples.jsonl`, the splits and the same as Parquet; the step that a sample shows, its
instruction and its history. The files of the trajectory are read when they are there; otherwise the
samples of a trajectory must agree with each other.
"""

import base64
import binascii
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from demo_pipeline.desktopd.models import (
    CANVAS_HEIGHT,
    CANVAS_WIDTH,
    GAP,
    HistoryGap,
    SftSample,
    StepAction,
)
from demo_pipeline.desktopd.reader import json_problem, screenshot_fault
from demo_pipeline.desktopd.tree_validator import Nodes, check_action, check_tree, check_tree_bytes
from demo_pipeline.files.base_model import check, limited
from demo_pipeline.files.image_header import probe_image, probe_image_file
from demo_pipeline.files.json_files import JsonFileError, load_json, parse_json, read_bytes
from demo_pipeline.files.line_digests import (
    DigestColumn,
    KnownLines,
    LineIndex,
    LineNumbers,
    index_lines,
    line_digest,
)
from demo_pipeline.files.table_rows import table_problems
from demo_pipeline.problems import Problem, Severity

_STEP_FILE = re.compile(r"(?:.*/)?trajectories/([^/]+)/steps/([0-9]+)/[^/]+", re.ASCII)
_MOST_NAMED = 8  # step numbers in a message

SampleFault = tuple[str, str, str]
"""Code, message and remedy."""


@dataclass(slots=True)
class SourceTrajectory:
    """What is known of a trajectory: from its files, else from the samples read so far.

    Attributes:
        instruction: of task.json; None: not known.
        actions: step index → action, as written text.
    """

    instruction: str | None = None
    actions: dict[int, str] = field(default_factory=dict)


class SampleSources:
    """The trajectories below a dataset. Only the last one is kept: samples lie together.

    Args:
        root: the dataset that paths are relative to; None: no file is read.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._last: tuple[str, SourceTrajectory] = ("", SourceTrajectory())

    def trajectory(self, name: str) -> SourceTrajectory:
        """What is known of the trajectory of this id."""
        if self._last[0] != name:
            self._last = (name, self._read(name))
        return self._last[1]

    def _read(self, name: str) -> SourceTrajectory:
        source = SourceTrajectory()
        if self._root is None:
            return source
        folder = self._root / "trajectories" / name
        task = _document(folder / "task.json")
        if isinstance(task, dict) and isinstance(task.get("instruction"), str):
            source.instruction = encodable(task["instruction"])
        for path in sorted(folder.glob("steps/[0-9]*/action.json")):
            action = _document(path)
            if isinstance(action, dict) and path.parent.name.isdecimal():
                source.actions[int(path.parent.name)] = _written(action)
        return source


def _document(path: Path) -> Any:
    try:
        return load_json(path)
    except JsonFileError:  # absent, or reported by the validation of trajectories
        return None


def encodable(text: str) -> str:
    """The text as exports write it: lone surrogates become `?`."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _written(action: Any) -> str:
    """An action as text, the same for 500 and 500.0, and for null and an absent key."""
    return encodable(json.dumps(_plain(action), ensure_ascii=False, sort_keys=True))


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


def sample_faults(sample: SftSample, sources: SampleSources) -> Iterator[SampleFault]:
    """Yield how a sample differs from its trajectory, and a gap in its history."""
    index = sample.output.action.step_index
    yield from _history_faults(sample.input.history, index)
    references = {"screenshot": sample.input.screenshot, "ui_tree": sample.input.ui_tree}
    known = {key: step_of(path) for key, path in references.items() if isinstance(path, str)}
    for key, where in known.items():
        if where is not None and where[1] != index:
            message = f"input.{key}: is of step {where[1]}, but the action is of step {index}"
            yield "wrong_step", message, f"name the {key} of the action's step"
    names = {where[0] for where in known.values() if where is not None}
    if len(names) > 1:
        message = "input: screenshot and ui_tree are of two trajectories"
        yield "wrong_step", message, "name the files of one step"
    elif names:
        yield from _trajectory_faults(sample, sources.trajectory(names.pop()))


def _history_faults(history: Sequence[dict[str, Any]], index: int) -> Iterator[SampleFault]:
    steps = [action.get("step_index") for action in history]
    absent = [step for step in range(index) if step not in steps]
    if absent:
        named = ", ".join(map(str, absent[:_MOST_NAMED]))
        more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
        message = f"input.history: lacks the steps {named}{more} before step {index}"
        yield "history_gap", message, "list every step before this one"


def _trajectory_faults(sample: SftSample, source: SourceTrajectory) -> Iterator[SampleFault]:
    instruction = encodable(sample.input.instruction)
    if source.instruction is None:
        source.instruction = instruction
    elif source.instruction != instruction:
        message = "input.instruction: differs from that of the trajectory"
        yield "instruction_differs", message, "copy the instruction of task.json"
    action = sample.output.action
    taken = [(action.step_index, "output.action", action.model_dump(mode="json"))]
    for number, earlier in enumerate(sample.input.history):
        if isinstance(step := earlier.get("step_index"), int):
            taken.append((step, f"input.history[{number}]", earlier))
    for step, where, value in taken:
        written = _written(value)
        if source.actions.setdefault(step, written) != written:
            message = f"{where}: differs from the action of step {step} of the trajectory"
            yield "action_differs", message, "copy action.json of the step"


_DATA_URI = "data:image/png;base64,"
_PNG_IN_BASE64 = "iVBORw0KGgo"


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of a sample, and the dataset that its paths are relative to (None: unknown)."""

    file: str
    line: int
    root: Path | None
    sources: SampleSources

    def problem(self, code: str, message: str, remedy: str) -> Problem:
        return Problem(code, self.file, message, self.line, remedy=remedy)


def validate_sft(path: Path, root: Path | None = None) -> list[Problem]:
    """The problems of an SFT file, with line numbers.

    Args:
        path: a JSON Lines file of samples.
        root: the dataset that `screenshot` and `ui_tree` paths are relative to. Default: the file's
            folder, its parent, or `dataset` in the parent, the first of them that contains
            `trajectories`. If none does, paths are not checked, which is a warning.
    """
    if not path.is_file():
        return [Problem("missing_file", path.name, "the file is missing", remedy="check the path")]
    return SftReader(path, root).read(path)


class SftReader:
    """Validates SFT files of one dataset; a sample that was read before is not read again.

    Args:
        path: the first file.
        root: as for `validate_sft`.
        known: lines that are not read again.

    Attributes:
        fresh: file → numbers of the lines that were not known before.
        lines: file → where its lines begin.
    """

    def __init__(
        self, path: Path, root: Path | None = None, known: KnownLines | None = None
    ) -> None:
        self._known = known or KnownLines()
        self.fresh: dict[str, LineNumbers] = {}
        self.lines: dict[str, LineIndex] = {}
        self._root = root or _dataset_near(path)
        self._unsaid = self._root is None
        self._lines = DigestColumn()  # of the samples of the first file
        self._splits = DigestColumn()  # of the samples of the splits
        self._names: list[str] = []  # of the splits
        self._starts: list[int] = []  # the first sample of each

    def read(self, path: Path, *, new: bool = True) -> list[Problem]:
        """The problems of a file.

        Args:
            path: a file of samples.
            new: its samples are in no split; otherwise the file is a split, whose samples should
                be those of the files before.
        """
        problems: list[Problem] = []
        if self._unsaid:
            message = "no dataset found near the file: the paths in it are not checked"
            problems.append(Problem("no_dataset", path.name, message, severity=Severity.WARNING))
            self._unsaid = False
        fresh = self.fresh.setdefault(path.name, LineNumbers())
        sources = SampleSources(self._root)
        lines, digests = index_lines(path)
        self.lines[path.name] = lines
        earlier = self._lines.find(digests) >= 0  # their lines were read before
        if new:
            earlier |= digests.first_places() < np.arange(len(digests))
            self._lines.extend(digests.data)
        split_problems = {} if new else self._split_problems(path.name, digests)
        unknown = frozenset(self._known.sort_out(digests)[1])
        notable = sorted({*unknown, *(number - 1 for number in split_problems)})
        for place, line in lines.lines_at(notable):
            problems += split_problems.get(place + 1, ())
            if place in unknown:
                fresh.add(place + 1)
            if place not in unknown or earlier[place]:
                continue
            position = _Position(path.name, place + 1, self._root, sources)
            found = _line_problems(line, position)
            problems += found
            if not found:
                self._known.add_found(line_digest(line))
        return problems

    def _split_problems(self, file: str, digests: DigestColumn) -> dict[int, list[Problem]]:
        """The problems of lines that are in two splits, or not in the file of all samples."""
        start, problems = len(self._splits), dict[int, list[Problem]]()
        self._names.append(file)
        self._starts.append(start)
        self._splits.extend(digests.data)
        if self._splits.has_equals():
            for line, first in enumerate(self._splits.first_places()[start:].tolist(), start=1):
                if first < start + line - 1:
                    number = bisect_right(self._starts, first) - 1
                    where = f"{self._names[number]}:{first - self._starts[number] + 1}"
                    message, remedy = (
                        f"the same sample is at {where}",
                        "write each sample to one split",
                    )
                    found = Problem("split_overlap", file, message, line, remedy=remedy)
                    problems.setdefault(line, []).append(found)
        if self._lines:
            for place in np.flatnonzero(self._lines.find(digests) < 0).tolist():
                message = "the sample is not in the file of all samples"
                remedy = "build the export again"
                found = Problem("split_union", file, message, place + 1, remedy=remedy)
                problems.setdefault(place + 1, []).append(found)
        return problems

    def in_no_split(self, file: str) -> list[Problem]:
        """A problem for each sample of the first file, of this name, that no split has."""
        firsts = self._lines.first_places() == np.arange(len(self._lines))
        absent = np.flatnonzero((self._splits.find(self._lines) < 0) & firsts).tolist()
        message, remedy = "the sample is in no split", "build it again"
        return limited(
            [Problem("split_union", file, message, line + 1, remedy=remedy) for line in absent]
        )


def _dataset_near(path: Path) -> Path | None:
    above = path.parent.parent
    candidates = (path.parent, above, above / "dataset")
    return next((folder for folder in candidates if (folder / "trajectories").is_dir()), None)


def _line_problems(line: bytes, position: _Position) -> list[Problem]:
    if not line.strip():
        return [position.problem("blank_line", "the line is blank", "remove it")]
    try:
        value = parse_json(line, position.file)
    except JsonFileError as error:
        return [replace(json_problem(error), line=position.line)]
    sample, problems = check(SftSample, value, position.file, line=position.line)
    if sample is None:
        return problems
    problems += _screenshot(sample.input.screenshot, position)
    differs = sample.input.ui_tree is None and sample.tree_agreement == "differs"
    nodes, found = (None, []) if differs else _tree(sample.input.ui_tree, position)
    action = sample.output.action
    problems += found
    problems += [
        _at(problem, position, "output.action") for problem in check_action(action, nodes, "")
    ]
    problems += _history(sample.input.history, action, position)
    problems += (position.problem(*fault) for fault in sample_faults(sample, position.sources))
    if sample.output.reasoning != action.reasoning:
        message = "output.reasoning: differs from output.action.reasoning"
        problems.append(
            position.problem("reasoning_differs", message, "copy the reasoning of the action")
        )
    return problems


def _at(problem: Problem, position: _Position, field: str) -> Problem:
    message = f"{field}: {problem.message}"
    return replace(problem, file=position.file, line=position.line, column=None, message=message)


def _screenshot(text: str, position: _Position) -> Iterator[Problem]:
    if text.startswith((_DATA_URI, _PNG_IN_BASE64)):
        message = _inline_screenshot_fault(text.removeprefix(_DATA_URI))
    elif path := _resolve(text, position):
        message = screenshot_fault(path) or _image_fault(path)
    else:
        message = _reference_fault(text)
    if message:
        yield position.problem(
            "screenshot", f"input.screenshot: {message}", "correct the reference"
        )


def _image_fault(path: Path) -> str:
    """Why a file is not a complete image; empty if it is one."""
    try:
        probe_image_file(path)
    except ValueError as error:
        return f"the screenshot cannot be used: {error}"
    return ""


def _inline_screenshot_fault(text: str) -> str:
    """Why a base64 text is not an image of 1920x1080 pixels; empty if it is one."""
    try:
        info = probe_image(base64.b64decode(text, validate=True))
    except binascii.Error:
        return "is not base64"
    except ValueError as error:
        return str(error)
    if (info.width, info.height) == (CANVAS_WIDTH, CANVAS_HEIGHT):
        return ""
    return f"{info.width}x{info.height} pixels, expected {CANVAS_WIDTH}x{CANVAS_HEIGHT}"


def _reference_fault(text: str) -> str:
    """Why a path is not accepted; empty if it is."""
    parts = PurePosixPath(text)
    if parts.is_absolute() or ".." in parts.parts or "\\" in text or "\0" in text:
        return "is not a path inside the dataset"
    return ""


def _resolve(text: str, position: _Position) -> Path | None:
    return None if position.root is None or _reference_fault(text) else position.root / text


def _tree(value: Any, position: _Position) -> tuple[Nodes | None, list[Problem]]:
    """The nodes of the sample's tree (None: unknown), and the problems of the tree."""
    if isinstance(value, str):
        path = _resolve(value, position)
        if path is None:
            fault = _reference_fault(value)
            remedy = "correct the reference"
            found = (
                [position.problem("ui_tree", f"input.ui_tree: {fault}", remedy)] if fault else []
            )
            return None, found
        try:
            data = read_bytes(path, position.file)
            nodes, problems = check_tree_bytes(data, position.file)
        except JsonFileError as error:
            problem = json_problem(error, exists=path.is_file())
            return None, [_at(problem, position, "input.ui_tree")]
    else:
        nodes, problems = check_tree(value, position.file)
    return nodes, [_at(problem, position, "input.ui_tree") for problem in problems]


def _history(
    history: list[dict[str, Any]], action: StepAction, position: _Position
) -> Iterator[Problem]:
    """Yield the problems of earlier actions: each is valid, in order, and before this action."""
    last = -1
    for number, value in enumerate(history):
        model = HistoryGap if value.get("action_type") == GAP else StepAction
        earlier, problems = check(model, value, position.file, line=position.line)
        field = f"input.history[{number}]"
        yield from (_at(problem, position, field) for problem in problems)
        if not isinstance(earlier, StepAction):
            continue
        if not last < earlier.step_index < action.step_index:
            message = f"{field}.step_index: is not between the previous one and this step"
            yield position.problem("history_order", message, "list the earlier steps in order")
        last = earlier.step_index


SAMPLES_STEM = "samples"
SPLIT_STEMS = ("train", "val", "test")
HELD_OUT_STEM = "held_out"
_REMEDY = "build the export again"
_PLAIN = ("instruction", "screenshot", "ui_tree", "reasoning")
_JSON = ("history", "action")
_OF_ACTION, _OF_STEP = ("step_index", "action_type"), ("freshness", "tree_agreement")


def validate_sft_folder(
    root: Path, dataset: Path | None = None, known: KnownLines | None = None
) -> list[Problem]:
    """The problems of a folder of samples.

    `samples.jsonl` is the union of the splits, if there are any, and a Parquet file has the samples
    of the JSON Lines of the same name. Files are relative to `root`.

    Args:
        root: the folder.
        dataset: the dataset that paths in samples are relative to, as for `validate_sft`.
        known: lines that were found valid before, with their rows and the files that they name.
    """
    stems = (SAMPLES_STEM, *SPLIT_STEMS, HELD_OUT_STEM)
    present = [stem for stem in stems if (root / f"{stem}.jsonl").is_file()]
    if not present:
        return validate_sft(root / f"{SAMPLES_STEM}.jsonl", dataset)
    problems: list[Problem] = []
    reader = SftReader(root / f"{present[0]}.jsonl", dataset, known)
    for stem in present:
        problems += reader.read(root / f"{stem}.jsonl", new=stem == SAMPLES_STEM)
    splits = [stem for stem in present if stem != SAMPLES_STEM]
    if splits:
        problems += _missing(root, SPLIT_STEMS, ".jsonl")
        if SAMPLES_STEM in present:
            problems += reader.in_no_split(f"{SAMPLES_STEM}.jsonl")
    if any((root / f"{stem}.parquet").is_file() for stem in stems):
        problems += _missing(root, present, ".parquet")
        for stem in present:
            name, table = f"{stem}.jsonl", root / f"{stem}.parquet"
            problems += table_problems(reader.lines[name], table, _differing, reader.fresh[name])
    return problems


def _missing(root: Path, stems: Sequence[str], suffix: str) -> list[Problem]:
    return [
        Problem("missing_file", f"{stem}{suffix}", "the file is missing", remedy=_REMEDY)
        for stem in stems
        if not (root / f"{stem}{suffix}").is_file()
    ]


def _differing(line: Any, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns of a row that differ from its line; a line of another form has none."""
    given, answer = _part(line, "input"), _part(line, "output")
    values = {**given, **answer}
    for name in _PLAIN:
        if isinstance(values.get(name), str) and row.get(name) != values[name]:
            yield name
    action = answer.get("action")
    told = {name: action.get(name) for name in _OF_ACTION} if isinstance(action, dict) else {}
    told |= {name: line[name] for name in _OF_STEP if name in line}
    yield from (name for name, value in told.items() if name in row and row[name] != value)
    for name in _JSON:
        text = row.get(name)
        try:
            same = isinstance(text, str) and parse_json(text, name) == values.get(name)
        except JsonFileError:
            same = False
        if not same:
            yield name


def _part(line: Any, key: str) -> Mapping[str, Any]:
    value = line.get(key) if isinstance(line, dict) else None
    return value if isinstance(value, dict) else {}
