"""Reading the rows of a Parquet file one after the other, without holding them all.

Belongs here: which row groups have to be read. Whole tables are read in `parquet`.
"""

from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


@contextmanager
def open_rows(
    path: Path, batch: int, numbers: Container[int] | None = None
) -> Iterator[tuple[int, Iterator[Mapping[str, Any] | None]]]:
    """The number of rows, and all rows one after the other, of which `batch` are in memory.

    Args:
        path: the file.
        batch: number of rows.
        numbers: of the rows that are wanted, from 1; in place of the others None is given. None:
            all are wanted.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: it is no Parquet file.
    """
    with pq.ParquetFile(path) as file:
        yield file.metadata.num_rows, _wanted_rows(file, batch, numbers)


def _wanted_rows(
    file: pq.ParquetFile, batch: int, numbers: Container[int] | None
) -> Iterator[Mapping[str, Any] | None]:
    first = 1
    for group in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        wanted = [numbers is None or number in numbers for number in range(first, first + count)]
        first += count
        if not any(wanted):
            yield from (None for _ in wanted)
            continue
        start = 0
        for rows in file.iter_batches(batch, row_groups=[group]):
            chosen = wanted[start : start + rows.num_rows]
            start += rows.num_rows
            if all(chosen):
                yield from rows.to_pylist()
            else:
                yield from (
                    rows.slice(place, 1).to_pylist()[0] if is_wanted else None
                    for place, is_wanted in enumerate(chosen)
                )
