"""Changes rows and columns of tables, for tests of validators."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def change_row(path: Path, number: int, **changes: Any) -> None:
    """Changes values in a row of a table; the types of columns then follow from the values."""
    rows = pq.read_table(path).to_pylist()
    rows[number] |= changes
    path.unlink()
    pq.write_table(pa.Table.from_pylist(rows), path)


def drop_column(path: Path, name: str) -> None:
    """Rewrites a table without a column."""
    table = pq.read_table(path)
    path.unlink()
    pq.write_table(table.drop_columns([name]), path)
