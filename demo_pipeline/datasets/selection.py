"""Selects the trajectories of a training export, and reads the few facts that decide it.

The facts of a trajectory are in `TRAJECTORY_FILE` of its records. The rules here leave out whole
trajectories; the rules that leave out a single step are in the forms.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa

from demo_pipeline.annotations.annotations import parsed_notes, wordings
from demo_pipeline.desktopd.models import ActionType, Result, Task
from demo_pipeline.desktopd.trajectory_reader import Notes, json_problem, read_document
from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.parquet import rows_table
from demo_pipeline.osworld.task_files import instruction_key
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.review.decisions import NO_CORRECTIONS, Corrected, Corrections, corrected
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.stage import RECORDS
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline.trajectories.provenance import (
    NOTHING_HIDDEN,
    PROVENANCE_SCHEMA,
    HiddenAction,
    HiddenActions,
    ProvenanceRow,
    recorded_outcome,
)
from demo_pipeline.trajectories.trajectory_loading import (
    DatasetTrajectory,
    load,
    load_hidden_actions,
    load_provenance,
    of_demonstration,
    sorted_by_id,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNTED_COLUMNS = (
    *("trajectory_id", "step_index", "action_type", "leak", "unavoidable", "split_group"),
    *("platform", "scale", "pad_x", "pad_y"),
)
# Files of the records.
TRAJECTORY_FILE = "trajectory.jsonl"  # facts of the trajectory as recorded, and its provenance
CORRECTIONS_FILE = "corrections.json"  # made by people
NOTES_FILE = "notes.json"  # annotations
# Reasons to leave out a trajectory or a step.
NOT_APPROVED = "not_approved"
UNKNOWN_OUTCOME = "unknown_outcome"
BAD_STEP = "bad_step"
_LOG = logging.getLogger(__package__)
_COUNTED_SCHEMA = pa.schema([PROVENANCE_SCHEMA.field(name) for name in COUNTED_COLUMNS])
_ROW = msgspec.json.Decoder(msgspec.defstruct("_Row", [(name, Any) for name in COUNTED_COLUMNS]))


@dataclass(frozen=True, slots=True)
class Head:
    """The facts of a trajectory that datasets need besides its records and its provenance.

    Attributes:
        instruction, application, task_id, osworld_task_id, difficulty: of task.json.
        success, completion_time_ms: of result.json.
        status, recorded_at, instruction_source: of its provenance; empty without steps.
        split_groups: of its provenance, sorted.
        steps: number of steps.
        waits: indexes of the steps that are waits.
        hidden: its hidden actions.
        corrections: the corrections that are applied to these facts.
        notes: its annotations; see `Trajectory`.
    """

    instruction: str
    application: str
    task_id: str
    osworld_task_id: str | None
    difficulty: str
    success: bool
    completion_time_ms: int
    status: str
    recorded_at: str
    instruction_source: str
    split_groups: tuple[str, ...]
    steps: int
    waits: tuple[int, ...]
    hidden: HiddenActions
    corrections: Corrections = NO_CORRECTIONS
    notes: Notes = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The number of its first step."""
        return self.corrections.trim.first if self.corrections.trim else 0

    def corrected(self, corrections: Corrections) -> "Head":
        """The facts after people's corrections, from the facts as recorded."""
        instruction = self.instruction
        if corrections.instruction is not None:
            instruction = corrections.instruction
        success = self.success
        if corrections.success is not None:
            success = corrections.success
        steps = list(filter(corrections.keeps, range(self.steps)))
        hidden = self.hidden
        if corrections.trim:
            hidden = hidden.around(steps)
        return replace(
            self,
            instruction=instruction,
            success=success,
            steps=len(steps),
            waits=tuple(filter(corrections.keeps, self.waits)),
            hidden=hidden,
            corrections=corrections,
        )

    @property
    def recorded(self) -> datetime:
        """When it was recorded, in UTC; the epoch if that is unknown."""
        try:
            time = datetime.fromisoformat(self.recorded_at)
        except ValueError:
            return EPOCH
        if time.tzinfo is None:
            return time.replace(tzinfo=UTC)
        return time.astimezone(UTC)


def read_head(source: DatasetTrajectory) -> tuple[Head, list[dict[str, Any]]]:
    """The facts of a trajectory as recorded, from its files, and its provenance.

    Raises:
        DemonstrationError: a file cannot be read.
    """
    rows = load_provenance(source)
    task, problems = read_document(Task, source.path / "task.json", "task.json")
    result, more = read_document(Result, source.path / "result.json", "result.json")
    if task is None or result is None:
        raise DemonstrationError(of_demonstration(errors([*problems, *more]), source))
    first = rows[0] if rows else {}
    head = Head(
        instruction=task.instruction,
        application=task.application,
        task_id=task.task_id,
        osworld_task_id=task.osworld_task_id,
        difficulty=task.difficulty,
        success=result.success,
        completion_time_ms=result.completion_time_ms,
        status=first.get("status", ""),
        recorded_at=first.get("recorded_at", ""),
        instruction_source=first.get("instruction_source", ""),
        split_groups=tuple(sorted({row["split_group"] for row in rows})) or (task.task_id,),
        steps=len(rows),
        waits=tuple(row["step_index"] for row in rows if row["action_type"] == ActionType.WAIT),
        hidden=load_hidden_actions(source),
    )
    return head, rows


def trajectory_lines(head: Head, rows: Sequence[Mapping[str, Any]]) -> Iterator[bytes]:
    """Yield the lines of `TRAJECTORY_FILE`: the head, then a line per row of the provenance."""
    recorded = asdict(head)
    del recorded["corrections"], recorded["notes"]
    for value in (recorded, *rows):
        yield f"{json.dumps(value)}\n".encode()


def corrections_of(source: DatasetTrajectory) -> Corrections:
    """The corrections of a trajectory, from its records.

    Raises:
        ChangedOutput: the file is not the one that was committed.
    """
    lines = kept_lines(source, CORRECTIONS_FILE)
    if lines is None:
        return NO_CORRECTIONS
    return Corrections.model_validate(parse_json(lines[0], CORRECTIONS_FILE))


def judged_success(source: DatasetTrajectory) -> bool | None:
    """A reviewer's verdict on success, if it contradicts the recorded success; else None.

    Raises as `read_head` and `corrections_of`.
    """
    verdict = corrections_of(source).success
    if verdict is None:
        return None
    head, _ = facts_of(source)
    return None if verdict == head.success else verdict


def notes_of(source: DatasetTrajectory) -> Notes:
    """The annotations of a trajectory, from its records; raises as `corrections_of`."""
    lines = kept_lines(source, NOTES_FILE)
    return parsed_notes(lines[0]) if lines else {}


def load_corrected(
    source: DatasetTrajectory, rows: Sequence[ProvenanceRow] | None = None
) -> Corrected:
    """Read a trajectory as people corrected it, with its notes.

    Every form, dataset and evaluation gets a trajectory from here.

    Args:
        source: the trajectory.
        rows: its provenance; None: it is read.

    Raises:
        DemonstrationError: it cannot be read.
        ChangedOutput: a file of its records is not the one that was committed.
    """
    trajectory, provenance = load(source, rows)
    try:
        result = corrected(trajectory, corrections_of(source), provenance)
    except JsonFileError as error:
        raise DemonstrationError(of_demonstration([json_problem(error)], source)) from None
    return replace(result, trajectory=replace(result.trajectory, notes=notes_of(source)))


def corrected_documents(source: DatasetTrajectory) -> Mapping[str, Mapping[str, Any]]:
    """The documents of a trajectory that people corrected, by the names that records give them."""
    if not corrections_of(source).decisions:
        return {}
    top = f"trajectories/{source.id}"
    trajectory = load_corrected(source).trajectory
    actions = {
        f"{top}/steps/{step.folder.name}/action.json": step.action.model_dump(mode="json")
        for step in trajectory.steps
    }
    return {f"{top}/task.json": trajectory.task.model_dump(mode="json"), **actions}


def kept_lines(source: DatasetTrajectory, name: str) -> list[bytes] | None:
    """The lines of a file of a trajectory's records; None: it has no such file, or an old version.

    Raises:
        ChangedOutput: the file is not the one that was committed.
    """
    if name not in source.digests:
        return None
    try:
        with open(f"{source.records}/{name}", "rb", 0) as file:  # noqa: PTH123 - very many
            data = file.read()
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != source.digests[name]:
        raise ChangedOutput(f"{RECORDS}/{source.id}", name)
    return data.split(b"\n")[:-1]


def head_of(source: DatasetTrajectory) -> Head:
    """The facts of a trajectory as people corrected it, from its records if it has any.

    Raises as `read_head`.
    """
    if TRAJECTORY_FILE in source.read:
        cached: Head = source.read[TRAJECTORY_FILE]
        return cached
    lines = kept_lines(source, TRAJECTORY_FILE)
    if lines is None:
        head, _ = read_head(source)
    else:
        head = _parsed(lines[0])
    corrections = corrections_of(source)
    if corrections.decisions:
        head = head.corrected(corrections)
    notes = notes_of(source)
    if notes:
        head = replace(head, notes=notes)
    if lines is not None:
        source.read[TRAJECTORY_FILE] = head
    return head


def facts_of(source: DatasetTrajectory) -> tuple[Head, list[dict[str, Any]]]:
    """The facts of a trajectory as recorded, and its provenance. Raises as `read_head`."""
    lines = kept_lines(source, TRAJECTORY_FILE)
    if lines is None:
        return read_head(source)
    return _parsed(lines[0]), [msgspec.json.decode(line) for line in lines[1:]]


def _parsed(line: bytes) -> Head:
    values = json.loads(line)
    actions = values["hidden"]["actions"]
    hidden = HiddenActions(tuple(HiddenAction(**action) for action in actions))
    groups = tuple(values["split_groups"])
    waits = tuple(values["waits"])
    return Head(**{**values, "hidden": hidden, "split_groups": groups, "waits": waits})


def counted_provenance(trajectories: Sequence[DatasetTrajectory]) -> pa.Table | None:
    """The rows and columns of all provenance tables that statistics need, from the records.

    None: a trajectory has no records, so that the tables must be read.
    """
    columns: list[list[Any]] = [[] for _ in COUNTED_COLUMNS]
    for source in trajectories:
        lines = kept_lines(source, TRAJECTORY_FILE)
        if lines is None:
            return None
        for line in lines[1:]:
            row = _ROW.decode(line)
            for column, name in zip(columns, COUNTED_COLUMNS, strict=True):
                column.append(getattr(row, name))
    return rows_table(columns, _COUNTED_SCHEMA)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory that may take part in a training export, with the facts that decide its split.

    Attributes:
        source: the committed trajectory.
        instruction: of task.json.
        application: of task.json.
        split_groups: of its provenance, then its instruction and other wordings of it. Trajectories
            that share one of them are of the same task.
        recorded: when it was recorded, in UTC.
        hidden: its hidden actions.
        incomplete: steps before which too many actions are hidden for exports of steps; the number
            after the last step stands for the end.
        bad_steps: steps that a person marked, or, with `exclude_steps`, that are annotated as
            incorrect. They stay in the history, but no model should learn them.
        gives_steps: some step, or the end, is not incomplete.
        stretch: the steps that an export of whole trajectories takes; None: too few without a gap.
        wordings: other wordings of its instruction.
    """

    source: DatasetTrajectory
    instruction: str
    application: str
    split_groups: tuple[str, ...]
    recorded: datetime = EPOCH
    hidden: HiddenActions = NOTHING_HIDDEN
    incomplete: frozenset[int] = frozenset()
    bad_steps: frozenset[int] = frozenset()
    gives_steps: bool = True
    stretch: range | None = None
    wordings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """A trajectory that takes no part: the reason, and the group that would decide its split."""

    reason: str
    split_group: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The trajectories of a training export.

    Attributes:
        chosen: the trajectories that take part, in the order of their ids.
        excluded: the number of trajectories left out by reason: failed, aborted, contaminated,
            incomplete and unreadable, even if it is 0; excluded, duplicate, rejected, not_approved,
            ungraded and low_alignment only if it is not.
        problems: why unreadable trajectories could not be read.
        newest: when the newest of `chosen` was recorded, in UTC; the epoch if that is unknown.
        left_out: trajectory → why it takes no part; without the unreadable trajectories.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH
    left_out: Mapping[str, _LeftOut] = field(default_factory=dict)


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Choose trajectories for training.

    Left out are demonstrations that the settings name, or whose review they do not accept; and,
    unless the settings include them, duplicates, failed and aborted demonstrations and those of a
    benchmark task. Each counts under the first reason that holds. A trajectory that cannot be read
    is left out and reported; the others are not affected. Which of the chosen have too many hidden
    actions depends on the export: `splits.plan_export` leaves them out.
    """
    chosen: list[Candidate] = []
    problems: list[Problem] = []
    left_out: dict[str, _LeftOut] = {}
    newest = EPOCH
    reasons = ("failed", "aborted", "contaminated", "incomplete", "unreadable")
    excluded: Counter[str] = Counter(dict.fromkeys(reasons, 0))
    for source in sorted_by_id(trajectories):
        try:
            head = head_of(source)
        except DemonstrationError as error:
            problems.extend(error.problems)
            excluded["unreadable"] += 1
            _LOG.debug("%s takes no part: unreadable", source.id)
            continue
        reason = _reason_by_review(source, settings) or _reason_by_outcome(head, settings)
        if reason:
            excluded[reason] += 1
            left_out[source.id] = _LeftOut(reason, head.split_groups[0])
            _LOG.debug("%s takes no part: %s", source.id, reason)
        else:
            newest = max(newest, head.recorded)
            chosen.append(candidate_of(source, head, settings))
    return Selection(tuple(chosen), excluded, tuple(problems), newest, left_out)


def candidate_of(source: DatasetTrajectory, head: Head, settings: DatasetSettings) -> Candidate:
    """A trajectory as a candidate; which steps it gives depends on `max_hidden_share`."""
    waits = frozenset(head.waits)
    share = settings.max_hidden_share
    incomplete = head.hidden.incomplete_steps(head.steps, waits, share, head.first)
    others = tuple(_wordings(head))
    keys = dict.fromkeys(instruction_key(text) or text for text in (head.instruction, *others))
    return Candidate(
        source=source,
        instruction=head.instruction,
        application=head.application,
        split_groups=(*head.split_groups, *(f"instruction: {key}" for key in keys)),
        recorded=head.recorded,
        hidden=head.hidden,
        incomplete=incomplete,
        bad_steps=frozenset(head.corrections.bad_steps) | _incorrect(head.notes, settings),
        gives_steps=len(incomplete) <= head.steps,
        stretch=head.hidden.whole_stretch(head.steps, settings.min_steps, head.first),
        wordings=others,
    )


def _wordings(head: Head) -> Iterator[str]:
    """Yield other wordings of the instruction, and the recorded one if people corrected it."""
    yield from (text for _, text, _ in wordings(head.notes))
    if head.corrections.instruction is not None:
        yield head.instruction


def _reason_by_review(source: DatasetTrajectory, settings: DatasetSettings) -> str:
    """Why a trajectory is left out by its id, its twin or its review; empty if it is not."""
    if source.id in settings.exclude:
        return "excluded"
    if source.duplicate_of:
        return "duplicate"
    if settings.require_review != "none" and source.review == "rejected":
        return "rejected"
    missing = settings.require_review == "approved" and source.review != "approved"
    return NOT_APPROVED if missing else ""


def _incorrect(notes: Notes, settings: DatasetSettings) -> frozenset[int]:
    """The steps that are annotated as incorrect, if the settings leave them out."""
    if settings.exclude_steps == "none":
        return frozenset()
    incorrect: set[int] = set()
    for step, notes_of_step in notes.items():
        verdict = notes_of_step.get("step_correct")
        if step is not None and verdict and verdict.value is False:
            incorrect.add(step)
    return frozenset(incorrect)


def _reason_by_grade(head: Head, settings: DatasetSettings) -> str:
    """Why a trajectory is left out for its grade; empty if it is not."""
    note = head.notes.get(None, {}).get("alignment")
    if not settings.min_alignment:
        return ""
    if note is None:
        return "ungraded"
    return "low_alignment" if note.value < settings.min_alignment else ""


def _reason_by_outcome(head: Head, settings: DatasetSettings) -> str:
    """Why a trajectory is left out by its outcome, task or grade; empty if it is not.

    A demonstration whose `status` is not `completed` is aborted, whatever its `reason` is. A
    demonstration without a status is treated alike, but counts under a reason of its own.
    """
    outcome = "failed"
    if head.steps:
        outcome = recorded_outcome(head.status, success=head.success)
    included = settings.include_failed if outcome == "failed" else settings.include_aborted
    if not head.success and not included:
        return UNKNOWN_OUTCOME if outcome == "unknown" else outcome
    if head.osworld_task_id and not settings.include_contaminated:
        return "contaminated"
    return _reason_by_grade(head, settings)
