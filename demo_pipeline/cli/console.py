"""Console output: lines for tools, a progress bar and tables for people.

Belongs here: how the commands print. Everything passes through `plain_line` or `cell`, so that no
text of a recording is markup or a control sequence of the terminal.
"""

import csv
import json
import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from demo_pipeline.files.logs import shown_level
from demo_pipeline.files.shown_text import plain_characters, plain_line
from demo_pipeline.runs.results import (
    IN_TABLES,
    DatasetOutcome,
    DemonstrationResult,
    Status,
    contents,
    duration,
)

out = Console()
err = Console(stderr=True)
_UNLIMITED = out.options.update_width(sys.maxsize)
AsJson = Annotated[bool, typer.Option("--json", help="Print a report as JSON.")]


def print_line(text: str) -> None:
    """Write a line that tools may read: never wrapped, and without markup."""
    out.print(plain_line(text), highlight=False, markup=False, soft_wrap=True)


def print_error(text: str) -> None:
    """Write a line to standard error."""
    err.print(plain_line(text), highlight=False, markup=False, soft_wrap=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write a JSON document; other values than JSON's are written as text."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    sys.stdout.write(plain_characters(text) + "\n")


def cell(value: object, style: str = "") -> Text:
    """A cell of a table, without markup; empty for None."""
    return Text("" if value is None else plain_line(str(value)), style)


def print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV with a header; lists and objects are JSON, a null is empty."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerows([list(rows[0])] if rows else [])
    for row in rows:
        table.writerow(plain_characters(_plain(value)) for value in row.values())


def print_records(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table; records that are wider than the terminal stand one below the other."""
    table = Table(title=title, title_justify="left")
    for column, value in (rows[0] if rows else {"nothing": ""}).items():
        number = isinstance(value, int | float)
        table.add_column(cell(column), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row.values()))
    if len(table.columns) == 1 or out.measure(table, options=_UNLIMITED).maximum <= out.width:
        out.print(table)
        return
    width = max(len(plain_line(name)) for name in rows[0])
    for place, row in enumerate(rows, start=1):
        print_line(f"{title} {place} of {len(rows)}")
        for name, value in row.items():
            print_line(f"  {plain_line(name):<{width}}  {_plain(value)}".rstrip())


def _plain(value: object) -> str:
    """A value of a table as text; lists and objects as JSON."""
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


class _TimeColumn(ProgressColumn):
    """`42 s, 3 min left`; what is left is known from the second result on."""

    def render(self, task: Task) -> Text:
        left = None if task.finished else task.time_remaining
        return Text(duration(task.elapsed or 0) + (f", {duration(left)} left" if left else ""))


def progress_bar() -> Progress:
    """A bar with count, elapsed and remaining time, on standard error, unless the log is there."""
    return Progress(
        TextColumn("{task.description:>15}"),
        BarColumn(),
        MofNCompleteColumn(),
        _TimeColumn(),
        console=err,
        disable=shown_level() < logging.WARNING,
    )


def report_run(
    outcomes: Sequence[DemonstrationResult],
    up_to_date: int,
    datasets: Sequence[DatasetOutcome],
    seconds: float,
) -> None:
    """Print tables of demonstrations and datasets, the reasons of failures, and a closing line."""
    if outcomes:
        out.print(_demonstration_table(outcomes))
    for outcome in outcomes:
        for reason in _reasons(outcome):
            print_error(f"{outcome.demonstration} {outcome.stage}: {reason}")
    if datasets:
        out.print(_dataset_table(datasets))
        for line in _left_out(datasets):
            print_line(line)
    counts = Counter(IN_TABLES[outcome.status] for outcome in outcomes)
    rare = ("superseded", "waiting", "crashed")
    others = "".join(f"{counts[status]} {status}, " for status in rare if counts[status])
    print_line(
        f"{counts['done']} done, {counts['quarantined']} quarantined, {others}"
        f"{up_to_date} up to date, {seconds:.0f} s"
    )


def _reasons(outcome: DemonstrationResult) -> Iterator[str]:
    """Why a demonstration is not done, one line each; what it waits for is in the table."""
    for problem in outcome.problems:
        if outcome.status is Status.SUPERSEDED:
            yield "the upload changed while it was read; run it again"
        elif outcome.status is Status.FAILED:
            yield problem.message
        elif outcome.status is not Status.WAITING:
            yield str(replace(problem, demonstration=""))


def _table(title: str) -> Table:
    """A table without borders, so that a terminal of 80 columns shows ids in one line."""
    close = (0, 1, 0, 0)
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=close, show_edge=False)


def _demonstration_table(outcomes: Sequence[DemonstrationResult]) -> Table:
    table = _table("Demonstrations")
    for name in ("demonstration", "status", "outcome", "application"):
        table.add_column(name, overflow="fold")
    for name in ("steps", "leaks", "seconds"):
        table.add_column(name, justify="right")
    for outcome in sorted(outcomes, key=lambda outcome: outcome.demonstration):
        shown, summary = IN_TABLES[outcome.status], outcome.summary
        colour = {"done": "green", "quarantined": "yellow", "waiting": "yellow"}.get(shown, "red")
        if outcome.status is Status.WAITING:
            shown += f": {outcome.reason}"
        keys = ("outcome", "application", "steps", "leaks")
        seconds = summary.get("seconds")
        length = "" if seconds is None else f"{seconds:.1f}"
        cells = [cell(summary.get(key)) for key in keys]
        table.add_row(outcome.demonstration, cell(shown, colour), *cells, length)
    return table


def _dataset_table(datasets: Sequence[DatasetOutcome]) -> Table:
    table = _table("Datasets")
    table.add_column("asset")
    table.add_column("contents")
    table.add_column("written", justify="right")
    table.add_column("path", overflow="fold")
    for dataset in datasets:
        size = byte_text(dataset.bytes_written)
        table.add_row(dataset.name, contents(dataset.counts), size, cell(dataset.path))
    return table


def _left_out(datasets: Sequence[DatasetOutcome]) -> list[str]:
    """What is not in the datasets, and why: a line for those that leave out the same."""
    names, lines = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for dataset in datasets:
        for words in dataset.left_out:
            names[words].append(dataset.name)
    for words, leaving in names.items():
        lines[", ".join(leaving)].append(words)
    return [f"left out of {leaving}: {', '.join(words)}" for leaving, words in lines.items()]


def byte_text(size: int) -> str:
    """A number of bytes with three digits: `812 B`, `4.51 kB`, `1.20 GB`."""
    number, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{size} B" if unit == "B" else f"{number:.3g} {unit}"
