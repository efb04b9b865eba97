"""Which training exports hold what of every trajectory: `exports.json` and `exports.parquet`.

Belongs here: the two files beside `index.json`. How the exports are found in the store is decided
in pipeline/.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from demo_pipeline.common.dataset_settings import DatasetSettings
from demo_pipeline.common.json_files import dump_json
from demo_pipeline.common.parquet import described_schema, whole_table
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
        "trajectories": {
            row["trajectory_id"]: {
                **{key: row[key] for key in ("split", "split_group", "left_out")},
                "records": {
                    state.name: state.records.get(row["trajectory_id"], 0)
                    for state in exports
                    if state.version
                },
            }
            for row in rows
        },
    }
    dump_json(out / EXPORTS_FILE, document)
    with whole_table(out / EXPORTS_TABLE, EXPORTS_SCHEMA) as table:
        for row in rows:
            for state in exports:
                table.append_row({**row, **_export_row(state, row["trajectory_id"])})


def _trajectory_rows(
    trajectories: Sequence[DatasetTrajectory], settings: DatasetSettings
) -> Iterator[dict[str, Any]]:
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
        yield {
            "trajectory_id": key,
            "split": split,
            "split_group": replace_surrogates(group),
            "left_out": reason,
        }


def _export_row(state: ExportState, trajectory: str) -> dict[str, Any]:
    return {
        "export": state.name,
        "status": state.status,
        "output": state.output or None,
        "version": state.version or None,
        "bytes": state.size if state.version else None,
        "records": state.records.get(trajectory, 0),
    }
