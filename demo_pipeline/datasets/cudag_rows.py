"""The records of a CUDAG dataset as rows, with the columns that statistics count.

Belongs here: reading them a few lines at a time. DuckDB would keep each JSON file as a whole in
memory.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa

from demo_pipeline.common.parquet import rows_table

_FILES = ("train.jsonl", "val.jsonl", "held_out.jsonl", "test/test.json")
_COLUMNS = ("trajectory_id", "step_index", "application", "task_type")
_TEXTS = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [
        ("trajectory_id", _TEXTS),
        ("step_index", pa.int64()),
        ("application", _TEXTS),
        ("kind", _TEXTS),
        ("split", _TEXTS),
    ]
)
_LINES_AT_ONCE = 4096


class _Metadata(msgspec.Struct):
    trajectory_id: str
    step_index: int
    application: str
    task_type: str


class _Record(msgspec.Struct):
    metadata: _Metadata


_RECORD = msgspec.json.Decoder(_Record)


def counted_rows(out: Path) -> pa.Table:
    """Trajectory, step, application, kind of action and split of every record.

    Args:
        out: a dataset that this pipeline has written: each record is on a line of its own.

    Raises:
        msgspec.DecodeError: a line is no record.
        OSError: a file cannot be read.
    """
    tables = [_SCHEMA.empty_table()]
    for name in _FILES:
        if (out / name).is_file():
            tables += _rows(out / name)
    return pa.concat_tables(tables)


def _rows(path: Path) -> Iterator[pa.Table]:
    split = path.name.partition(".")[0]
    with path.open("rb") as lines:
        found = (line.strip().removesuffix(b",") for line in lines)
        records = (_RECORD.decode(line).metadata for line in found if line.startswith(b"{"))
        while some := list(islice(records, _LINES_AT_ONCE)):
            columns = [[getattr(one, name) for one in some] for name in _COLUMNS]
            yield rows_table([*columns, [split] * len(some)], _SCHEMA)
