"""Defines the columns of frames.parquet, which has a row for each action, and reads the file."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.files.parquet import (
    ANY,
    COUNT,
    described_schema,
    fitting,
    one_of,
    read_rows,
)
from demo_pipeline.observation.frames.frame_choice import Reason

FRAMES_FILE = "frames.parquet"

_UNPROVEN_TEXT = "the clock may be off by so much that the frame shows another state; else null"
_FILE_TEXT = "NNN.png; null: no frame, a pause that was not a wait, or the recorder's own"
_DISTANCE_TEXT = "from the pointer in the frame to the press, event space"
_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "row of actions.parquet"),
    ("file", pa.string(), True, _FILE_TEXT),
    ("pts", pa.float64(), True, "presentation time of the frame, seconds"),
    ("frame", pa.int64(), True, "0-based number of the frame in presentation order"),
    ("lead_ms", pa.float64(), True, "frame to press, milliseconds"),
    ("settle_ms", pa.float64(), True, "ms that the screen had been still in the compared frames"),
    ("reason_code", pa.string(), False, ", ".join(Reason)),
    ("leak", pa.bool_(), False, "the pointer is already at the target, or the frame too late"),
    ("unavoidable", pa.bool_(), False, "a leak; at the target since the previous action ended"),
    ("pointer_distance_px", pa.float64(), True, _DISTANCE_TEXT),
    ("unproven_clock", pa.bool_(), True, _UNPROVEN_TEXT),
)

FRAMES_SCHEMA = described_schema(
    _COLUMNS,
    {
        "action_index": COUNT,
        "file": fitting(r"[0-9]{3,}\.png").only_where("pts"),
        "frame": COUNT.where("pts"),
        "lead_ms": ANY.where("pts"),
        "settle_ms pointer_distance_px": COUNT.only_where("pts"),
        "unproven_clock": ANY.only_where("pts"),
        "reason_code": one_of(*Reason),
    },
)


def read_frames(folder: Path) -> list[dict[str, Any]]:
    """Reads frames.parquet from a folder of screenshots. Returns a row for each action."""
    return read_rows(folder / FRAMES_FILE, FRAMES_SCHEMA)
