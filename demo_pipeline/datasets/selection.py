"""Selects the trajectories of a training export, by the little that decides it.

Belongs here: reading heads, or taking them from kept parts, and the rules that leave out a whole
trajectory. The rules that leave out a single step are in the exporters.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.export_parts import KeptParts, Part, kept_parts, table_bytes, table_of
from demo_pipeline.desktopd.models import ActionType, Result, Task
from demo_pipeline.desktopd.reader import read_document
from demo_pipeline.files.atomic_write import cut_into_parts
from demo_pipeline.problems import DemonstrationError, Problem, errors
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import (
    NOTHING_HIDDEN,
    PROVENANCE_SCHEMA,
    HiddenAction,
    HiddenActions,
)
from demo_pipeline.trajectories.trajectory_files import (
    DatasetTrajectory,
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
_PARTS_IN_MEMORY = 64
_HEAD_COLUMNS = tuple(dict.fromkeys((*COUNTED_COLUMNS, "status", "recorded_at")))
_COUNTED_SCHEMA = pa.schema([PROVENANCE_SCHEMA.field(name) for name in COUNTED_COLUMNS])


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of a trajectory before its steps are read.

    Attributes:
        instruction, application, task_id, osworld_task_id: of task.json.
        success: of result.json.
        status: of its provenance; None without steps.
        recorded_at: of its provenance; empty without steps.
        split_groups: of its provenance, sorted.
        steps: how many.
        waits: indexes of the steps that are waits.
        hidden: its hidden actions.
    """

    instruction: str
    application: str
    task_id: str
    osworld_task_id: str | None
    success: bool
    status: str | None
    recorded_at: str
    split_groups: tuple[str, ...]
    steps: int
    waits: frozenset[int]
    hidden: HiddenActions

    @property
    def recorded(self) -> datetime:
        """When it was recorded, in UTC; the epoch when that is not known."""
        return utc(self.recorded_at)


def utc(text: str) -> datetime:
    """A time of ISO 8601 in UTC; the epoch when it is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return EPOCH
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def read_heads(
    trajectories: Sequence[DatasetTrajectory],
) -> Iterator[tuple[DatasetTrajectory, Head | DemonstrationError]]:
    """Yield every trajectory with its head, or why it cannot be read.

    Args:
        trajectories: in the order of their ids.
    """
    parts = kept_parts()
    for sources in cut_into_parts(trajectories, [source.id for source in trajectories]):
        part = _kept(sources, parts) if parts else None
        if part is None:
            for source in sources:
                yield source, _head_or_error(source)[0]
        else:
            for source, values in zip(sources, part.header["heads"], strict=True):
                yield source, _head_of(values)


def counted_provenance(trajectories: Sequence[DatasetTrajectory]) -> pa.Table | None:
    """The rows and columns of all provenance tables that statistics need, from kept parts.

    None when they are not kept; then the tables have to be read.
    """
    parts = kept_parts()
    if parts is None:
        return None
    tables = [_COUNTED_SCHEMA.empty_table()]
    for sources in cut_into_parts(trajectories, [source.id for source in trajectories]):
        part = _kept(sources, parts)
        if part is None:
            return None
        tables.append(table_of(part.blobs["rows"]))
        if len(tables) == _PARTS_IN_MEMORY:  # a table of few rows takes as much again as they do
            tables = [pa.concat_tables(tables).combine_chunks()]
    return pa.concat_tables(tables)


def _kept(sources: Sequence[DatasetTrajectory], parts: KeptParts) -> Part | None:
    """The part of these trajectories; None when one of them cannot be read or identified."""
    if not all(source.content for source in sources):
        return None
    key = parts.shared_key("heads 2", [(source.id, source.content) for source in sources])
    part = parts.get(key)
    if part is None:
        part = _made(sources)
        if part is not None:
            parts.put(key, part)
    return part


def _made(sources: Sequence[DatasetTrajectory]) -> Part | None:
    heads, tables = [], [_COUNTED_SCHEMA.empty_table()]
    for source in sources:
        head, rows = _head_or_error(source)
        if isinstance(head, DemonstrationError):
            return None
        heads.append({**asdict(head), "waits": sorted(head.waits)})
        counted = [{name: row[name] for name in COUNTED_COLUMNS} for row in rows]
        tables.append(pa.Table.from_pylist(counted, schema=_COUNTED_SCHEMA))
    return Part({"heads": heads}, {"rows": table_bytes(pa.concat_tables(tables))})


def _head_of(values: dict[str, Any]) -> Head:
    hidden = HiddenActions(tuple(HiddenAction(**one) for one in values["hidden"]["actions"]))
    groups = tuple(values["split_groups"])
    waits = frozenset(values["waits"])
    return Head(**{**values, "hidden": hidden, "split_groups": groups, "waits": waits})


def _head_or_error(
    source: DatasetTrajectory,
) -> tuple[Head | DemonstrationError, list[dict[str, Any]]]:
    try:
        rows = load_provenance(source, _HEAD_COLUMNS)
        task, result = _read_documents(source)
        hidden = load_hidden_actions(source)
    except DemonstrationError as error:
        return error, []
    head = Head(
        instruction=task.instruction,
        application=task.application,
        task_id=task.task_id,
        osworld_task_id=task.osworld_task_id,
        success=result.success,
        status=rows[0]["status"] if rows else None,
        recorded_at=rows[0]["recorded_at"] if rows else "",
        split_groups=tuple(sorted({row["split_group"] for row in rows})) or (task.task_id,),
        steps=len(rows),
        waits=frozenset(row["step_index"] for row in rows if row["action_type"] == ActionType.WAIT),
        hidden=hidden,
    )
    return head, rows


def _read_documents(source: DatasetTrajectory) -> tuple[Task, Result]:
    task, problems = read_document(Task, source.path / "task.json", "task.json")
    result, more = read_document(Result, source.path / "result.json", "result.json")
    if task is None or result is None:
        raise DemonstrationError(of_demonstration(errors([*problems, *more]), source))
    return task, result


_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trajectory that may take part in a training export, with what decides its split.

    Attributes:
        source: where it is.
        instruction: of task.json.
        application: of task.json.
        split_groups: of its provenance.
        task_id: of task.json.
        hidden: its hidden actions.
        incomplete: steps before which too many actions are hidden for exports of steps; the number
            of steps stands for the end.
        gives_steps: some step, or the end, is not incomplete.
        stretch: the steps that an export of whole trajectories takes; None: too few without a gap.
    """

    source: DatasetTrajectory
    instruction: str
    application: str
    split_groups: tuple[str, ...]
    task_id: str = ""
    hidden: HiddenActions = NOTHING_HIDDEN
    incomplete: frozenset[int] = frozenset()
    gives_steps: bool = True
    stretch: range | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A trajectory that takes no part: why, and the group that its split would be decided by."""

    reason: str
    split_group: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The trajectories of a training export.

    Attributes:
        chosen: the trajectories that take part, in the order of their ids.
        excluded: how many were left out, by reason: failed, aborted, contaminated, incomplete,
            unreadable.
        problems: why unreadable trajectories could not be read.
        newest: see `newest_recording`.
        left_out: trajectory → why it takes no part; the unreadable ones are not in it.
    """

    chosen: tuple[Candidate, ...]
    excluded: Counter[str]
    problems: tuple[Problem, ...]
    newest: datetime = EPOCH
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)


def select(trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings) -> Selection:
    """Choose trajectories for training.

    Failed and aborted demonstrations and those of a benchmark task are left out unless the settings
    include them; each is counted under the first reason that holds. A trajectory that cannot be
    read is left out and reported; the others are not affected. Which of the chosen have too many
    hidden actions depends on the export; `export_loop.plan_export` leaves them out.
    """
    chosen: list[Candidate] = []
    problems: list[Problem] = []
    left_out: dict[str, LeftOut] = {}
    newest = EPOCH
    reasons = ("failed", "aborted", "contaminated", "incomplete", "unreadable")
    excluded: Counter[str] = Counter(dict.fromkeys(reasons, 0))
    for source, head in read_heads(sorted_by_id(trajectories)):
        if isinstance(head, DemonstrationError):
            problems.extend(head.problems)
            excluded["unreadable"] += 1
            _LOG.debug("%s takes no part: unreadable", source.id)
            continue
        newest = max(newest, head.recorded)
        if reason := _left_out(head, settings):
            excluded[reason] += 1
            left_out[source.id] = LeftOut(reason, head.split_groups[0])
            _LOG.debug("%s takes no part: %s", source.id, reason)
        else:
            chosen.append(_candidate(source, head, settings))
    return Selection(tuple(chosen), excluded, tuple(problems), newest, left_out)


def _candidate(source: DatasetTrajectory, head: Head, settings: DatasetSettings) -> Candidate:
    incomplete = head.hidden.incomplete_steps(head.steps, head.waits, settings.max_hidden_share)
    return Candidate(
        source=source,
        instruction=head.instruction,
        application=head.application,
        split_groups=head.split_groups,
        task_id=head.task_id,
        hidden=head.hidden,
        incomplete=incomplete,
        gives_steps=len(incomplete) <= head.steps,
        stretch=head.hidden.whole_stretch(head.steps, settings.min_steps),
    )


def _left_out(head: Head, settings: DatasetSettings) -> str:
    """Why a trajectory takes no part; empty when it does.

    A demonstration whose `status` is not `completed` is aborted, whatever its `reason` is.
    """
    aborted = head.status is not None and head.status != "completed"
    included = settings.include_aborted if aborted else settings.include_failed
    if not head.success and not included:
        return "aborted" if aborted else "failed"
    if head.osworld_task_id and not settings.include_contaminated:
        return "contaminated"
    return ""


def newest_recording(trajectories: Sequence[DatasetTrajectory]) -> datetime:
    """When the newest readable recording was made, in UTC; the epoch when none has a time."""
    heads = (head for _, head in read_heads(sorted_by_id(trajectories)))
    known = (head.recorded for head in heads if isinstance(head, Head))
    return max(known, default=EPOCH)
