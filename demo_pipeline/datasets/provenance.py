"""The provenance table: what is known about a step beside its OSWorld-Desktopd files.

Belongs here: the schema of `provenance.parquet` (one row per step), its reader and its writer.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.common.parquet import (
    described_schema,
    read_rows,
    read_table,
    write_rows,
)

ProvenanceRow = Mapping[str, Any]

# name, type, nullable, meaning (with unit)
_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("trajectory_id", pa.string(), False, "demonstration id"),
    ("step_index", pa.int32(), False, "0-based, as in steps/NNN"),
    ("action_index", pa.int32(), False, "row of actions.parquet that the step came from"),
    ("action_type", pa.string(), False, "OSWorld-Desktopd action type"),
    ("press_ms", pa.int64(), False, "when the action began, epoch milliseconds"),
    ("end_ms", pa.int64(), False, "when the action ended, epoch milliseconds"),
    ("end_filmed", pa.bool_(), False, "the video goes on until the action ended, or about"),
    ("pts", pa.float64(), True, "presentation time of the screenshot, seconds; null: missing"),
    ("lead_ms", pa.float64(), True, "screenshot to press, milliseconds"),
    ("reason_code", pa.string(), False, "why this frame: pre_move, settled, backoff, …"),
    ("leak", pa.bool_(), False, "the screenshot may already show the answer"),
    ("unavoidable", pa.bool_(), False, "a leak that no earlier frame would avoid"),
    ("pointer_distance_px", pa.float64(), True, "shown pointer to press, screen pixels"),
    ("settle_ms", pa.float64(), True, "how long the screen had been still, milliseconds"),
    (
        "clock_method",
        pa.string(),
        False,
        "ffmpeg_start, pixels, typing, click_onsets, meta_timestamp",
    ),
    ("clock_uncertainty_ms", pa.float64(), False, "of the video clock, milliseconds"),
    ("tree_age_ms", pa.int64(), True, "end of the scan to the press, milliseconds; null: no scan"),
    ("freshness", pa.string(), False, "fresh, stale, changed, running, sparse, unreadable or none"),
    ("tree_agreement", pa.string(), False, "agrees, differs, or unknown: tree and screenshot"),
    ("cursor_agrees", pa.bool_(), True, "the scan's own hit test finds the same; null: unchecked"),
    ("target_x", pa.int32(), True, "target box on the canvas, pixels"),
    ("target_y", pa.int32(), True, "target box on the canvas, pixels"),
    ("target_width", pa.int32(), True, "target box on the canvas, pixels"),
    ("target_height", pa.int32(), True, "target box on the canvas, pixels"),
    ("wheel_method", pa.string(), True, "scroll: evidence, override or unit_signature"),
    ("wheel_disagrees", pa.bool_(), True, "scroll: the video shows the opposite sign of the rule"),
    ("off_screen", pa.bool_(), False, "the action is outside the recorded screen"),
    ("hidden_before", pa.int32(), False, "hidden actions between the previous step and this one"),
    ("complete", pa.bool_(), False, "no action of the demonstration is hidden"),
    ("scale", pa.float64(), False, "screen pixels * scale + pad = canvas pixels"),
    ("pad_x", pa.float64(), False, "canvas pixels"),
    ("pad_y", pa.float64(), False, "canvas pixels"),
    ("instruction_source", pa.string(), False, "the meta.json field the instruction came from"),
    ("reasoning_source", pa.string(), False, "template: the program wrote the reasoning"),
    ("split_group", pa.string(), False, "task group; no group is in two splits"),
    ("platform", pa.string(), False, "windows, macos, linux"),
    ("recorded_at", pa.string(), False, "meta.timestamp in UTC, ISO 8601"),
    ("status", pa.string(), False, "meta.status"),
    ("reason", pa.string(), False, "meta.reason, empty when null"),
    ("osworld_task_id", pa.string(), True, "OSWorld task of the demonstration; null: none known"),
    ("osworld_match", pa.string(), True, "how the task was matched: id or instruction"),
    ("osworld_match_field", pa.string(), True, "the meta.json field that matched"),
    ("osworld_task_kind", pa.string(), True, "ordinary or risk"),
    ("osworld_matches", pa.int32(), True, "task files with this match; the first is used"),
)

PROVENANCE_SCHEMA = described_schema(_COLUMNS)

# Values for tables written before the column was added: a leak counts as avoidable, no action as
# hidden or cut off, and no tree as compared.
_DEFAULTS = {
    "end_filmed": True,
    "unavoidable": False,
    "hidden_before": 0,
    "complete": True,
    "tree_agreement": "unknown",
}


def write_provenance(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one row per step; the keys are the columns of `PROVENANCE_SCHEMA`."""
    write_rows(path, rows, PROVENANCE_SCHEMA)


def read_provenance(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows in step order.

    Args:
        path: the file.
        columns: names of columns, all of them when None. A column that the file does not have is
            null (`end_filmed`: true, `unavoidable`: false, `hidden_before`: 0, `complete`: true,
            `tree_agreement`: unknown).

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read as Parquet.
    """
    return read_rows(path, PROVENANCE_SCHEMA, columns, _DEFAULTS)


def provenance_batches(path: Path, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows a thousand at a time; arguments and errors as of `read_provenance`."""
    table = read_table(path, PROVENANCE_SCHEMA, columns, _DEFAULTS)
    for batch in table.to_batches(max_chunksize=1000):
        yield batch.to_pylist()
