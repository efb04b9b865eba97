"""Selects the trajectories of training exports, and reads the facts that the selection needs.

The stage `records` writes these facts to `TRAJECTORY_FILE`, so that datasets need not read whole
trajectories. Single steps of the selected trajectories are left out by the modules in exports/.
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
COUNTED_COLUMNS = (  # columns of provenance.parquet that the statistics of a dataset need
    *("trajectory_id", "step_index", "action_type", "leak", "unavoidable", "split_group"),
    *("platform", "scale", "pad_x", "pad_y"),
)
# File in the output of the stage `records`, JSON Lines. The first line is a `Head` without
# corrections and annotations. The other lines are the rows of provenance.parquet.
TRAJECTORY_FILE = "trajectory.jsonl"
CORRECTIONS_FILE = "corrections.json"  # corrections that people made in reviews
NOTES_FILE = "notes.json"  # the effective annotations
# Reasons for leaving out a trajectory or a step.
NOT_APPROVED = "not_approved"  # the settings require a reviewer's approval, which is missing
UNKNOWN_OUTCOME = "unknown_outcome"  # not recorded as a success, and meta.json has no status
BAD_STEP = "bad_step"  # a reviewer or an annotation says that the step is wrong
_LOG = logging.getLogger(__package__)
_COUNTED_SCHEMA = pa.schema([PROVENANCE_SCHEMA.field(name) for name in COUNTED_COLUMNS])
_ROW = msgspec.json.Decoder(msgspec.defstruct("_Row", [(name, Any) for name in COUNTED_COLUMNS]))


@dataclass(frozen=True, slots=True)
class Head:
    """Facts about a trajectory that decide its split and whether datasets contain it.

    Attributes:
        instruction, application, task_id, osworld_task_id, difficulty: from task.json.
        success, completion_time_ms: from result.json.
        status, recorded_at, instruction_source: from provenance.parquet. Empty if there are no
            steps.
        split_groups: sorted split groups from provenance.parquet, or the task id if there are no
            steps.
        steps: number of steps.
        waits: indexes of the steps whose action is `wait`.
        hidden: the hidden actions, that is, the actions that no screenshot shows.
        corrections: people's corrections. The other fields contain the corrected values.
        notes: the effective annotations; see `Trajectory.notes`.
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
        """The index of the first step, which is above 0 if a reviewer trimmed the beginning."""
        return self.corrections.trim.first if self.corrections.trim else 0

    def corrected(self, corrections: Corrections) -> "Head":
        """Returns the facts after people's corrections are applied."""
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
        """The time of the recording in UTC, or `EPOCH` if it is unknown."""
        try:
            time = datetime.fromisoformat(self.recorded_at)
        except ValueError:
            return EPOCH
        if time.tzinfo is None:
            return time.replace(tzinfo=UTC)
        return time.astimezone(UTC)


def read_head(source: DatasetTrajectory) -> tuple[Head, list[dict[str, Any]]]:
    """Reads the facts about a trajectory, and its provenance, from the files of the trajectory.

    Corrections and annotations are not applied.

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
    """Yields the lines of `TRAJECTORY_FILE`: `head`, then a line for each row of the provenance."""
    recorded = asdict(head)
    del recorded["corrections"], recorded["notes"]
    for value in (recorded, *rows):
        yield f"{json.dumps(value)}\n".encode()


def corrections_of(source: DatasetTrajectory) -> Corrections:
    """Reads people's corrections of a trajectory from the output of the stage `records`.

    Raises:
        ChangedOutput: the file differs from the committed file.
    """
    lines = kept_lines(source, CORRECTIONS_FILE)
    if lines is None:
        return NO_CORRECTIONS
    return Corrections.model_validate(parse_json(lines[0], CORRECTIONS_FILE))


def judged_success(source: DatasetTrajectory) -> bool | None:
    """Returns a reviewer's verdict on success if it contradicts the recorded success, else None.

    Raises:
        DemonstrationError, ChangedOutput: see `read_head` and `corrections_of`.
    """
    verdict = corrections_of(source).success
    if verdict is None:
        return None
    head, _ = facts_of(source)
    return None if verdict == head.success else verdict


def notes_of(source: DatasetTrajectory) -> Notes:
    """Reads the annotations of a trajectory from the output of the stage `records`.

    Raises:
        ChangedOutput: the file differs from the committed file.
    """
    lines = kept_lines(source, NOTES_FILE)
    return parsed_notes(lines[0]) if lines else {}


def load_corrected(
    source: DatasetTrajectory, rows: Sequence[ProvenanceRow] | None = None
) -> Corrected:
    """Reads a trajectory with people's corrections and annotations.

    Args:
        rows: provenance of the trajectory, or None to read it from the store.

    Raises:
        DemonstrationError: the trajectory cannot be read.
        ChangedOutput: a file in the output of the stage `records` differs from the committed file.
    """
    trajectory, provenance = load(source, rows)
    try:
        result = corrected(trajectory, corrections_of(source), provenance)
    except JsonFileError as error:
        raise DemonstrationError(of_demonstration([json_problem(error)], source)) from None
    return replace(result, trajectory=replace(result.trajectory, notes=notes_of(source)))


def corrected_documents(source: DatasetTrajectory) -> Mapping[str, Mapping[str, Any]]:
    """Returns the contents of task.json and of each action.json with people's corrections.

    The keys are paths such as `trajectories/<id>/task.json`. Empty if people corrected nothing.
    """
    if not corrections_of(source).decisions:
        return {}
    folder = f"trajectories/{source.id}"
    trajectory = load_corrected(source).trajectory
    documents = {f"{folder}/task.json": trajectory.task.model_dump(mode="json")}
    for step in trajectory.steps:
        name = f"{folder}/steps/{step.folder.name}/action.json"
        documents[name] = step.action.model_dump(mode="json")
    return documents


def kept_lines(source: DatasetTrajectory, name: str) -> list[bytes] | None:
    """Reads the lines of a file that the stage `records` wrote for a trajectory.

    Returns None if the output or the file does not exist.

    Raises:
        ChangedOutput: the file differs from the committed file.
    """
    if name not in source.digests:
        return None
    try:
        with open(f"{source.records}/{name}", "rb", 0) as file:  # noqa: PTH123 - for speed
            data = file.read()
    except FileNotFoundError:
        data = b""
    if hashlib.sha256(data).hexdigest() != source.digests[name]:
        raise ChangedOutput(f"{RECORDS}/{source.id}", name)
    return data.split(b"\n")[:-1]


def head_of(source: DatasetTrajectory) -> Head:
    """Returns the facts about a trajectory with people's corrections and annotations.

    The facts are cached in `source.read` if they come from the output of the stage `records`.

    Raises:
        DemonstrationError, ChangedOutput: see `read_head` and `corrections_of`.
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
    """Returns the facts about a trajectory, without corrections or annotations, and its provenance.

    Raises:
        DemonstrationError, ChangedOutput: see `read_head` and `corrections_of`.
    """
    lines = kept_lines(source, TRAJECTORY_FILE)
    if lines is None:
        return read_head(source)
    return _parsed(lines[0]), [msgspec.json.decode(line) for line in lines[1:]]


def _parsed(line: bytes) -> Head:
    """Parses the facts in the first line of `TRAJECTORY_FILE`."""
    values = json.loads(line)
    actions = values["hidden"]["actions"]
    hidden = HiddenActions(tuple(HiddenAction(**action) for action in actions))
    groups = tuple(values["split_groups"])
    waits = tuple(values["waits"])
    return Head(**{**values, "hidden": hidden, "split_groups": groups, "waits": waits})


def counted_provenance(trajectories: Sequence[DatasetTrajectory]) -> pa.Table | None:
    """Reads the `COUNTED_COLUMNS` of all trajectories from the outputs of the stage `records`.

    Returns None if any trajectory has no such output.
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
    """A trajectory that training exports may contain, with the facts that decide this.

    Attributes:
        source: the trajectory in the store.
        instruction: instruction from task.json, with people's corrections.
        application: application from task.json.
        split_groups: names of split groups: those in the provenance, and one for each wording of
            the instruction.
        recorded: time of the recording, in UTC.
        hidden: the hidden actions, that is, the actions that no screenshot shows.
        incomplete: indexes of the steps that are left out of exports of steps, because too many of
            the actions before them are hidden. The end of the demonstration has the index after the
            last step.
        bad_steps: indexes of the steps that are not used as training targets, because a reviewer
            marked them as bad or, with the setting `exclude_steps`, an annotation calls them
            incorrect.
        gives_steps: whether exports of steps can use the trajectory. They cannot if `incomplete`
            contains every step and the end.
        stretch: the steps that exports of whole trajectories use. None if there are too few
            consecutive steps without a hidden action.
        wordings: rewordings of the instruction, and the instruction if a reviewer corrected it.
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
    """A trajectory that no export contains.

    Attributes:
        reason: why the trajectory is left out; a key of `Selection.excluded`.
        split_group: first split group of the trajectory.
    """

    reason: str
    split_group: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The trajectories that training exports contain, and the trajectories that are left out.

    Attributes:
        chosen: the selected trajectories, sorted by id.
        excluded: the number of left-out trajectories by reason. The reasons failed, aborted,
            contaminated, incomplete and unreadable are present even with the number 0.
        problems: problems of the unreadable trajectories.
        newest: latest recording time of `chosen`, in UTC, or `EPOCH` if it is unknown.
        left_out: the left-out trajectories by id, without the unreadable ones.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH
    left_out: Mapping[str, _LeftOut] = field(default_factory=dict)


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Selects trajectories for training.

    These demonstrations are left out:

    - demonstrations that the setting `exclude` lists, and duplicates,
    - demonstrations whose review or grade the settings do not accept,
    - failed demonstrations, aborted demonstrations and demonstrations of a benchmark task, unless
      the settings include them.

    Each is counted under the first reason that applies. Unreadable trajectories are left out and
    reported. `splits.plan_export` later leaves out trajectories with too many actions that no
    screenshot shows.
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
    """Creates the candidate for a trajectory, and determines the steps that exports leave out."""
    waits = frozenset(head.waits)
    share = settings.max_hidden_share
    incomplete = head.hidden.incomplete_steps(head.steps, waits, share, head.first)
    other_wordings = tuple(_wordings(head))
    split_groups = list(head.split_groups)
    for text in (head.instruction, *other_wordings):
        group = f"instruction: {instruction_key(text) or text}"
        if group not in split_groups:
            split_groups.append(group)
    return Candidate(
        source=source,
        instruction=head.instruction,
        application=head.application,
        split_groups=tuple(split_groups),
        recorded=head.recorded,
        hidden=head.hidden,
        incomplete=incomplete,
        bad_steps=frozenset(head.corrections.bad_steps) | _incorrect(head.notes, settings),
        gives_steps=len(incomplete) <= head.steps,
        stretch=head.hidden.whole_stretch(head.steps, settings.min_steps, head.first),
        wordings=other_wordings,
    )


def _wordings(head: Head) -> Iterator[str]:
    """Yields the rewordings of the instruction, then the instruction if a reviewer corrected it."""
    for _, text, _ in wordings(head.notes):
        yield text
    if head.corrections.instruction is not None:
        yield head.instruction


def _reason_by_review(source: DatasetTrajectory, settings: DatasetSettings) -> str:
    """Returns why `settings.exclude`, `duplicate_of` or a review rules out a trajectory, or ""."""
    if source.id in settings.exclude:
        return "excluded"
    if source.duplicate_of:
        return "duplicate"
    if settings.require_review != "none" and source.review == "rejected":
        return "rejected"
    missing = settings.require_review == "approved" and source.review != "approved"
    return NOT_APPROVED if missing else ""


def _incorrect(notes: Notes, settings: DatasetSettings) -> frozenset[int]:
    """Returns the steps annotated as incorrect, or none if the settings do not exclude them."""
    if settings.exclude_steps == "none":
        return frozenset()
    incorrect: set[int] = set()
    for step, notes_of_step in notes.items():
        verdict = notes_of_step.get("step_correct")
        if step is not None and verdict and verdict.value is False:
            incorrect.add(step)
    return frozenset(incorrect)


def _reason_by_grade(head: Head, settings: DatasetSettings) -> str:
    """Returns the reason to leave out a trajectory because of its grade, or ""."""
    note = head.notes.get(None, {}).get("alignment")
    if not settings.min_alignment:
        return ""
    if note is None:
        return "ungraded"
    return "low_alignment" if note.value < settings.min_alignment else ""


def _reason_by_outcome(head: Head, settings: DatasetSettings) -> str:
    """Returns the reason to leave out a trajectory because of its outcome, its task or its grade.

    Returns "" if there is no such reason. The outcome of a trajectory without success is:

    - failed, if it has no steps or if `status` in meta.json is `completed`,
    - unknown, if it has steps but no `status`. Such a trajectory is treated like an aborted one,
      but the returned reason is `unknown_outcome`.
    - aborted in all other cases, whatever `reason` in meta.json says.
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
