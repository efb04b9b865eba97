"""Comparing a Parquet file with the JSON Lines file of the same records.

Belongs here: reading both side by side. Which columns must agree is the caller's.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import tee
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.line_digests import LineIndex, LineNumbers
from demo_pipeline.files.parquet import open_chosen_rows
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

_ROWS_IN_MEMORY = 256
_MOST_PROBLEMS = 20
_REMEDY = "build the export again"

Differing = Callable[[Any, Mapping[str, Any]], Iterator[str]]
"""From a parsed line and its row to the names of the columns that differ."""


def table_problems(
    lines: LineIndex, table: Path, differing: Differing, numbers: LineNumbers | None = None
) -> list[Problem]:
    """Where a table, if there is one, has not the records of a file of lines in the same order.

    Only the lines with these numbers, from 1, are compared; at most 20 rows are named.
    """
    if not table.is_file():
        return []
    problems: list[Problem] = []
    try:
        with open_chosen_rows(table, _ROWS_IN_MEMORY, numbers) as (total, chosen):
            rows, same = tee(chosen)
            written = lines.rows_at(number for number, _ in same)
            for (number, row), line in zip(rows, written, strict=True):
                if line is None or len(problems) >= _MOST_PROBLEMS:
                    break
                problems += _row_problems(table.name, number, line, row, differing)
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        message = f"cannot be read as Parquet: {type(error).__name__}"
        return [Problem("unreadable_table", table.name, message, remedy=_REMEDY)]
    if total != lines.rows:
        message = f"has {total} rows for {lines.rows} lines of {lines.path.name}"
        problems.append(Problem("table_differs", table.name, message, remedy=_REMEDY))
    return problems


def _row_problems(
    file: str, number: int, line: bytes, row: Mapping[str, Any], differing: Differing
) -> Iterator[Problem]:
    try:
        value = parse_json(line, file)
    except JsonFileError:  # reported by the validation of the lines
        return
    if names := ", ".join(differing(value, row)):
        message = f"row {number}: {names} differ from line {number} of the JSON Lines"
        yield Problem("table_differs", file, message, remedy=_REMEDY)
