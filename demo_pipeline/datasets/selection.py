"""Selects the trajectories of a training export, by the little that decides it.

Belongs here: what is known of a trajectory (`TRAJECTORY_FILE` of its records), and the rules that
leave out a whole trajectory. The rules that leave out a single step are in the forms.
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
# Of the records: what is known of the trajectory as recorded, and what people corrected in it.
TRAJECTORY_FILE = "trajectory.jsonl"
CORRECTIONS_FILE = "corrections.json"
NOT_APPROVED = "not_approved"
UNKNOWN_OUTCOME = "unknown_outcome"
NOTES_FILE = "notes.json"  # of the records: what is annotated
BAD_STEP = "bad_step"  # why a step that somebody marked gives no record
_COUNTED_SCHEMA = pa.schema([PROVENANCE_SCHEMA.field(name) for name in COUNTED_COLUMNS])
_ROW = msgspec.json.Decoder(msgspec.defstruct("_Row", [(name, Any) for name in COUNTED_COLUMNS]))


@dataclass(frozen=True, slots=True)
class Head:
    """What datasets need of a trajectory besides its records and its provenance.

    Attributes:
        instruction, application, task_id, osworld_task_id, difficulty: of task.json.
        success, completion_time_ms: of result.json.
        status, recorded_at, instruction_source: of its provenance; empty without steps.
        split_groups: of its provenance, sorted.
        steps: how many.
        waits: indexes of the steps that are waits.
        hidden: its hidden actions.
        corrections: that it has been changed by; empty as recorded.
        notes: what is annotated; see `Trajectory`.
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
        """The same after people's corrections, from what was recorded."""
        words = corrections.instruction
        success = corrections.success
        steps = list(filter(corrections.keeps, range(self.steps)))
        return replace(
            self,
            instruction=self.instruction if words is None else words,
            success=self.success if success is None else success,
            steps=len(steps),
            waits=tuple(filter(corrections.keeps, self.waits)),
            hidden=self.hidden.around(steps) if corrections.trim else self.hidden,
            corrections=corrections,
        )

    @property
    def recorded(self) -> datetime:
        """When it was recorded, in UTC; the epoch when that is not known."""
        try:
            time = datetime.fromisoformat(self.recorded_at)
        except ValueError:
            return EPOCH
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def read_head(source: DatasetTrajectory) -> tuple[Head, list[dict[str, Any]]]:
    """What is known of a trajectory as recorded, from its files, and its provenance.

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
    known = asdict(head)
    del known["corrections"], known["notes"]
    for value in (known, *rows):
        yield f"{json.dumps(value)}\n".encode()


def corrections_of(source: DatasetTrajectory) -> Corrections:
    """What people corrected in a trajectory, as its records say.

    Raises:
        ChangedOutput: the file is not the one that was committed.
    """
    lines = kept_lines(source, CORRECTIONS_FILE)
    if lines is None:
        return NO_CORRECTIONS
    return Corrections.model_validate(parse_json(lines[0], CORRECTIONS_FILE))


def judged_success(source: DatasetTrajectory) -> bool | None:
    """A reviewer's verdict on success that is another than the recorded one; None: there is none.

    Raises as `read_head` and `corrections_of`.
    """
    said = corrections_of(source).success
    return None if said is None or said == facts_of(source)[0].success else said


def notes_of(source: DatasetTrajectory) -> Notes:
    """What is annotated in a trajectory, as its records say; raises as `corrections_of`."""
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
    trajectory, known = load(source, rows)
    try:
        found = corrected(trajectory, corrections_of(source), known)
    except JsonFileError as error:
        raise DemonstrationError(of_demonstration([json_problem(error)], source)) from None
    return replace(found, trajectory=replace(found.trajectory, notes=notes_of(source)))


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
    """The lines of a file of a trajectory's records; None: it has no such file, or an older one.

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
    """What is known of a trajectory as people corrected it, from its records if it has any.

    Raises as `read_head`.
    """
    if TRAJECTORY_FILE not in source.read:
        lines = kept_lines(source, TRAJECTORY_FILE)
        head = read_head(source)[0] if lines is None else _parsed(lines[0])
        corrections = corrections_of(source)
        notes = notes_of(source)
        head = head.corrected(corrections) if corrections.decisions else head
        head = replace(head, notes=notes) if notes else head
        if lines is None:
            return head
        source.read[TRAJECTORY_FILE] = head
    known: Head = source.read[TRAJECTORY_FILE]
    return known


def facts_of(source: DatasetTrajectory) -> tuple[Head, list[dict[str, Any]]]:
    """What is known of a trajectory as recorded, and its provenance. Raises as `read_head`."""
    lines = kept_lines(source, TRAJECTORY_FILE)
    if lines is None:
        return read_head(source)
    return _parsed(lines[0]), [msgspec.json.decode(line) for line in lines[1:]]


def _parsed(line: bytes) -> Head:
    values = json.loads(line)
    hidden = HiddenActions(tuple(HiddenAction(**one) for one in values["hidden"]["actions"]))
    groups = tuple(values["split_groups"])
    waits = tuple(values["waits"])
    return Head(**{**values, "hidden": hidden, "split_groups": groups, "waits": waits})


def counted_provenance(trajectories: Sequence[DatasetTrajectory]) -> pa.Table | None:
    """The rows and columns of all provenance tables that statistics need, from the records.

    None: a trajectory has no records; then the tables have to be read.
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


_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory that may take part in a training export, with what decides its split.

    Attributes:
        source: where it is.
        instruction: of task.json.
        application: of task.json.
        split_groups: of its provenance, then its instruction and other wordings of it: those who
            share one are one task.
        recorded: when, in UTC.
        hidden: its hidden actions.
        incomplete: steps before which too many actions are hidden for exports of steps; the number
            that follows the last stands for the end.
        bad_steps: that somebody marked, or, with `exclude_steps`, that are annotated as incorrect:
            they stay in the history, and nobody should learn them.
        gives_steps: some step, or the end, is not incomplete.
        stretch: the steps that an export of whole trajectories takes; None: too few without a gap.
        wordings: other ones of its instruction.
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
    """A trajectory that takes no part: why, and the group that its split would be decided by."""

    reason: str
    split_group: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The trajectories of a training export.

    Attributes:
        chosen: the trajectories that take part, in the order of their ids.
        excluded: how many were left out, by reason: failed, aborted, contaminated, incomplete,
            unreadable; when there are any also excluded, duplicate, rejected, not_approved,
            ungraded and low_alignment.
        problems: why unreadable trajectories could not be read.
        newest: when the newest of `chosen` was recorded, in UTC; the epoch when that is unknown.
        left_out: trajectory → why it takes no part; the unreadable ones are not in it.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH
    left_out: Mapping[str, _LeftOut] = field(default_factory=dict)


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Choose trajectories for training.

    Demonstrations that the settings name, or whose review they do not accept, are left out, and
    unless the settings include them duplicates, failed and aborted ones and those of a benchmark
    task; each is
    counted under the first reason that holds. A trajectory that cannot be read is left out and
    reported; the others are not affected. Which of the chosen have too many hidden actions depends
    on the export; `splits.plan_export` leaves them out.
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
        if reason := _reason(source, settings) or _left_out(head, settings):
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
    said = dict.fromkeys(instruction_key(text) or text for text in (head.instruction, *others))
    return Candidate(
        source=source,
        instruction=head.instruction,
        application=head.application,
        split_groups=(*head.split_groups, *(f"instruction: {text}" for text in said)),
        recorded=head.recorded,
        hidden=head.hidden,
        incomplete=incomplete,
        bad_steps=frozenset(head.corrections.bad_steps) | _incorrect(head.notes, settings),
        gives_steps=len(incomplete) <= head.steps,
        stretch=head.hidden.whole_stretch(head.steps, settings.min_steps, head.first),
        wordings=others,
    )


def _wordings(head: Head) -> Iterator[str]:
    """Yield what else the task was called, and what people corrected its instruction to."""
    yield from (text for _, text, _ in wordings(head.notes))
    if head.corrections.instruction is not None:
        yield head.instruction


def _reason(source: DatasetTrajectory, settings: DatasetSettings) -> str:
    """Why it is not wanted in a dataset, by its review and its twin; empty when it is."""
    if source.id in settings.exclude:
        return "excluded"
    if source.duplicate_of and not settings.include_duplicates:
        return "duplicate"
    if settings.require_review != "none" and source.review == "rejected":
        return "rejected"
    missing = settings.require_review == "approved" and source.review != "approved"
    return NOT_APPROVED if missing else ""


def _incorrect(notes: Notes, settings: DatasetSettings) -> frozenset[int]:
    """The steps that count as incorrect, if the settings leave them out."""
    if settings.exclude_steps == "none":
        return frozenset()
    said = {step: of.get("step_correct") for step, of in notes.items() if step is not None}
    return frozenset(step for step, note in said.items() if note and note.value is False)


def _graded(head: Head, settings: DatasetSettings) -> str:
    """Why a trajectory is left out for its grade; empty when it is not."""
    note = head.notes.get(None, {}).get("alignment")
    if not settings.min_alignment:
        return ""
    if note is None:
        return "ungraded"
    return "low_alignment" if note.value < settings.min_alignment else ""


def _left_out(head: Head, settings: DatasetSettings) -> str:
    """Why a trajectory takes no part; empty when it does.

    A demonstration whose `status` is not `completed` is aborted, whatever its `reason` is; one
    without a status counts like those, by its own name.
    """
    outcome = recorded_outcome(head.status, success=head.success) if head.steps else "failed"
    included = settings.include_failed if outcome == "failed" else settings.include_aborted
    if not head.success and not included:
        return UNKNOWN_OUTCOME if outcome == "unknown" else outcome
    if head.osworld_task_id and not settings.include_contaminated:
        return "contaminated"
    return _graded(head, settings)
