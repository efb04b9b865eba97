"""Which training exports hold what of every trajectory: `exports.json` and `exports.parquet`.

Belongs here: the two files beside `index.json`. How the exports are found in the store is decided
in pipeline/.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.json_files import dump_long_json
from demo_pipeline.common.parquet import described_schema, rows_table, whole_table
from demo_pipeline.datasets.export_loop import plan_splits
from demo_pipeline.datasets.selection import DatasetTrajectory
from demo_pipeline.datasets.split_files import replace_surrogates

EXPORTS_FILE, EXPORTS_TABLE = "exports.json", "exports.parquet"
EXPORTS_SCHEMA = described_schema(
    (
        ("trajectory_id", pa.string(), False, "demonstration id"),
        ("split", pa.string(), True, "train, val, test or held_out; null: it takes no part"),
        ("split_group", pa.string(), False, "group that is in one split as a whole"),
        ("left_out", pa.string(), True, "why exports of steps leave it out; null: they do not"),
        ("export", pa.string(), False, "name in datasets.exports"),
        ("status", pa.string(), False, "of the export: built, outdated, failed, missing, disabled"),
        ("output", pa.string(), True, "the export's output in the store; null: no version"),
        ("version", pa.string(), True, "the version that was counted; null: no version"),
        ("bytes", pa.int64(), True, "of all files of that version; null: no version"),
        ("records", pa.int32(), False, "number of its records that are of this trajectory"),
    )
)
_ROWS = 256  # trajectories whose rows are in memory
ExportStatus = Literal["built", "outdated", "failed", "missing", "disabled"]


@dataclass(frozen=True, slots=True)
class ExportState:
    """A training export as it is committed.

    Attributes:
        name: in `datasets.exports`.
        asset: of Dagster.
        status: `built`: from the present trajectories and settings; `outdated`: from others, and
            not tried again yet; `failed`: its last build failed, and a version before it is kept
            if there is one; `missing`: never built; `disabled`: not in `datasets.exports`.
        output: its name in the store; empty without a version.
        version: id of the committed version; empty without one.
        size: bytes of all its files.
        records: trajectory → number of its records.
        reason: why the last build failed: the check that rejected it, or the kind of error.
    """

    name: str
    asset: str
    status: ExportStatus
    output: str = ""
    version: str = ""
    size: int = 0
    records: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the state does."""
        return " ".join(filter(None, (self.status, self.output, self.version, self.reason)))

    def as_dict(self) -> dict[str, Any]:
        """The state as `exports.json` shows it."""
        return {
            "asset": self.asset,
            "status": self.status,
            "reason": self.reason or None,
            "output": self.output or None,
            "version": self.version or None,
            "bytes": self.size,
            "trajectories": len(self.records),
            "records": sum(self.records.values()),
        }


def write_exports(
    out: Path,
    exports: Sequence[ExportState],
    trajectories: Sequence[DatasetTrajectory],
    settings: DatasetSettings,
) -> None:
    """Write `exports.json` and `exports.parquet`.

    Args:
        out: the folder of the index.
        exports: every training export.
        trajectories: those of the index.
        settings: what takes part, and the splits.
    """
    rows = list(_trajectory_rows(trajectories, settings))
    document = {
        "exports": {state.name: state.as_dict() for state in exports},
        "trajectories": {},
    }
    members = ((row.trajectory, _member(row, exports)) for row in rows)
    dump_long_json(out / EXPORTS_FILE, document, "trajectories", members)
    with whole_table(out / EXPORTS_TABLE, EXPORTS_SCHEMA) as table:
        for start in range(0, len(rows) if exports else 0, _ROWS):
            some = rows[start : start + _ROWS]
            table.append_table(rows_table(_columns(some, exports), EXPORTS_SCHEMA))


class _Row(NamedTuple):
    """A trajectory in the two files."""

    trajectory: str
    split: str | None
    split_group: str
    left_out: str | None


def _member(row: _Row, exports: Sequence[ExportState]) -> dict[str, Any]:
    _, split, group, left_out = row
    records = {
        state.name: state.records.get(row.trajectory, 0) for state in exports if state.version
    }
    return {"split": split, "split_group": group, "left_out": left_out, "records": records}


def _columns(rows: Sequence[_Row], exports: Sequence[ExportState]) -> list[list[Any]]:
    """The columns of some trajectories, each with every export."""
    of_rows = [[value for value in column for _ in exports] for column in zip(*rows, strict=True)]
    of_exports = [list(column) * len(rows) for column in zip(*map(_facts, exports), strict=True)]
    records = [state.records.get(row.trajectory, 0) for row in rows for state in exports]
    return [*of_rows, *of_exports, records]


def _facts(state: ExportState) -> tuple[Any, ...]:
    size = state.size if state.version else None
    return (state.name, state.status, state.output or None, state.version or None, size)


def _trajectory_rows(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> Iterator[_Row]:
    """Yield id, split, group and reason of every trajectory that can be read, by id."""
    selection, plan = plan_splits(trajectories, settings)
    found = {
        candidate.source.id: (
            plan.splits[candidate.source.id].value,
            plan.members[candidate.source.id],
            None if candidate.gives_steps else "incomplete",
        )
        for candidate in selection.chosen
    }
    left_out = {
        key: (None, value.split_group, value.reason) for key, value in selection.left_out.items()
    }
    for key, (split, group, reason) in sorted({**found, **left_out}.items()):
        yield _Row(key, split, replace_surrogates(group), reason)
