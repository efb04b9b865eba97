"""Reading the rows of a Parquet file one after the other, without holding them all.

Belongs here: which row groups have to be read. Whole tables are read in `parquet`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo_pipeline.common.digest_table import LineNumbers
from demo_pipeline.common.parquet import open_parquet


@contextmanager
def open_rows(path: Path, batch: int) -> Iterator[tuple[int, Iterator[Mapping[str, Any]]]]:
    """The number of rows, and all rows one after the other, of which `batch` are in memory.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: it is no Parquet file.
    """
    with open_chosen_rows(path, batch) as (count, rows):
        yield count, (row for _, row in rows)


@contextmanager
def open_chosen_rows(
    path: Path, batch: int, numbers: LineNumbers | None = None
) -> Iterator[tuple[int, Iterator[tuple[int, Mapping[str, Any]]]]]:
    """The number of rows, and rows one after the other, of which `batch` are in memory.

    Args:
        path: the file.
        batch: number of rows.
        numbers: of the rows that are given, from 1; None: all. Each row comes with its number.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: it is no Parquet file.
    """
    with open_parquet(path) as file:
        yield file.metadata.num_rows, _wanted_rows(file, batch, numbers)


def _wanted_rows(
    file: Any, batch: int, numbers: LineNumbers | None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    first = 1
    for group in range(file.metadata.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if numbers is None or numbers.within(range(first, first + count)):
            start = first
            for rows in file.iter_batches(batch, row_groups=[group]):
                here = range(start, start + rows.num_rows)
                chosen = here if numbers is None else numbers.within(here)
                start += rows.num_rows
                if len(chosen) == len(here):
                    yield from zip(here, rows.to_pylist(), strict=True)
                else:
                    yield from (
                        (number, rows.slice(number - here.start, 1).to_pylist()[0])
                        for number in chosen
                    )
        first += count
