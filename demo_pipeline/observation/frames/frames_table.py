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

_REASONS = ", ".join(Reason)
_COLUMNS: tuple[tuple[str, pa.DataType, bool, str], ...] = (
    ("action_index", pa.int32(), False, "index of the action in actions.parquet"),
    (
        "file",
        pa.string(),
        True,
        "file name of the screenshot; null without a screenshot, with the reason in reason_code",
    ),
    (
        "pts",
        pa.float64(),
        True,
        "presentation time of the frame in the video, seconds; null without a screenshot",
    ),
    (
        "frame",
        pa.int64(),
        True,
        "0-based number of the frame in presentation order; null without a screenshot",
    ),
    (
        "lead_ms",
        pa.float64(),
        True,
        "time from the frame to the press, milliseconds; null without a screenshot",
    ),
    (
        "settle_ms",
        pa.float64(),
        True,
        (
            "how long the screen was unchanged up to the frame, as far back as "
            "frames were compared, milliseconds; null without a screenshot"
        ),
    ),
    ("reason_code", pa.string(), False, f"why the frame was chosen or is missing: {_REASONS}"),
    (
        "leak",
        pa.bool_(),
        False,
        (
            "whether the pointer is already at the target, or the frame is so late "
            "that it may show the action's effect"
        ),
    ),
    (
        "unavoidable",
        pa.bool_(),
        False,
        (
            "whether a leak could not be avoided, because the pointer was at the "
            "target since the previous action"
        ),
    ),
    (
        "pointer_distance_px",
        pa.float64(),
        True,
        (
            "distance from the pointer in the frame to the press, screen pixels as "
            "logged; null if unknown"
        ),
    ),
    (
        "unproven_clock",
        pa.bool_(),
        True,
        (
            "true if the clock may be off by so much that the frame shows another "
            "state; otherwise null"
        ),
    ),
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
