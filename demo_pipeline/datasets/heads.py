"""The head of a trajectory: the little that decides whether it takes part, and in which split.

Belongs here: reading heads, or taking them from kept parts. What follows from a head is decided in
`selection`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from demo_pipeline.common.id_parts import cut_into_parts
from demo_pipeline.datasets.export_parts import (
    KeptParts,
    Part,
    kept_parts,
    table_bytes,
    table_of,
)
from demo_pipeline.datasets.hidden_actions import HiddenAction, HiddenActions
from demo_pipeline.datasets.provenance import PROVENANCE_SCHEMA
from demo_pipeline.datasets.trajectory_files import (
    DatasetTrajectory,
    load_hidden_actions,
    load_provenance,
    of_demonstration,
)
from demo_pipeline.formats.desktopd.models import Result, Task
from demo_pipeline.formats.desktopd.reader import read_document
from demo_pipeline.formats.desktopd.vocabulary import ActionType
from demo_pipeline.problems import DemonstrationError, errors

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
