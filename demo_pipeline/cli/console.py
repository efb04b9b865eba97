"""Prints lines, JSON and CSV.

Control characters are removed from all output, so that a text from a recording cannot control the
terminal. `tables.py` has tables and progress bars, which need the slow import of `rich`.
"""

import csv
import json
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TextIO

import typer

from demo_pipeline.files.shown_text import plain_characters, plain_line

AsJson = Annotated[bool, typer.Option("--json", help="Print a report as JSON.")]


def print_line(text: str) -> None:
    """Writes a line to standard output, wrapped if standard output is a terminal."""
    _write(sys.stdout, text)


def print_error(text: str) -> None:
    """Writes a line to standard error, wrapped if standard error is a terminal."""
    _write(sys.stderr, text)


def _write(stream: TextIO, text: str) -> None:
    line = plain_line(text)
    if stream.isatty():
        width = shutil.get_terminal_size().columns
        if len(line) > width:  # wrap only between words, so that paths and commands can be copied
            lines = textwrap.wrap(
                line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )
            line = "\n".join(lines)
    stream.write(f"{line}\n")
    stream.flush()


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Writes a value as JSON. Objects that JSON cannot represent are converted with `str`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    sys.stdout.write(plain_characters(text) + "\n")


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes rows as CSV with a header. Lists and dicts become JSON, and None becomes empty."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    if rows:
        table.writerow(rows[0])
    for row in rows:
        table.writerow(plain_characters(plain_value(value)) for value in row.values())


def plain_value(value: object) -> str:
    """Returns a table value as text. Lists and dicts become JSON, and None becomes empty."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def byte_text(size: int) -> str:
    """Formats a number of bytes with at most three digits: `812 B`, `4.51 kB`, `1.2 GB`."""
    if size < 1000:
        return f"{size} B"
    number = float(size)
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number /= 1000
        unit = larger
    return f"{number:.3g} {unit}"
