"""The Parquet schemas of the `events` stage, written down once, with units.

Belongs here: the columns of events.parquet, rejected.parquet and trees.parquet. Not here: how a
line is parsed (input_log.py).
"""

import pyarrow as pa

from demo_pipeline.common.parquet import described_schema

LOG_FILE = "input_log.jsonl"

EVENTS_SCHEMA = described_schema(
    [
        ("event_index", pa.int64(), False, "1-based line number in input_log.jsonl"),
        ("byte_offset", pa.int64(), False, "of the line's first byte in the file"),
        ("byte_length", pa.int64(), False, "of the line without its line end"),
        ("event", pa.string(), False, "the event's name as logged"),
        ("time_ms", pa.int64(), False, "epoch milliseconds, wall clock of the recorder"),
        ("x", pa.float64(), True, "screen pixels (points on macOS), origin of the main display"),
        ("y", pa.float64(), True, "screen pixels (points on macOS), origin of the main display"),
        ("button", pa.string(), True, "button name as logged"),
        ("delta", pa.float64(), True, "wheel, in the recorder's own unit and sign"),
        ("key", pa.string(), True, "key name as logged"),
        ("actual_char", pa.string(), True, "the character produced, where a recorder gives it"),
        ("payload", pa.string(), True, "raw JSON of `data` for events seed 000 does not list"),
    ]
)

REJECTED_SCHEMA = described_schema(
    [
        ("line", pa.int64(), False, "1-based line number in input_log.jsonl"),
        ("byte_offset", pa.int64(), False, "of the line's first byte in the file"),
        ("byte_length", pa.int64(), False, "of the line without its line end"),
        ("code", pa.string(), False, "stable name of the reason"),
        ("message", pa.string(), False, "what was wrong; never carries the line's text"),
    ]
)

SCANS_SCHEMA = described_schema(
    [
        ("event_index", pa.int64(), False, "1-based line number in input_log.jsonl"),
        ("byte_offset", pa.int64(), False, "of the line's first byte in the file"),
        ("byte_length", pa.int64(), False, "of the line without its line end"),
        ("time_ms", pa.int64(), False, "when the scan began, epoch milliseconds"),
        ("duration_ms", pa.int64(), True, "how long the scan took, milliseconds"),
    ]
)
