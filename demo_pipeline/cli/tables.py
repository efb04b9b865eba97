"""A progress bar and tables for people, drawn by `rich`; imported by what draws one.

Belongs here: how they look. Texts pass through `cell`, so that none is markup.
"""

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from demo_pipeline.cli.console import byte_text, plain_value, print_error, print_line
from demo_pipeline.files.logs import shown_level
from demo_pipeline.files.shown_text import plain_line
from demo_pipeline.runs.results import (
    IN_TABLES,
    DatasetOutcome,
    DemonstrationResult,
    Status,
    contents,
)

out = Console()
_NUMBER = "0.000"
_SHORT = {"predictions": "predic- tions"}
_UNLIMITED = out.options.update_width(sys.maxsize)


def cell(value: object, style: str = "") -> Text:
    """A cell of a table, without markup; empty for None."""
    return Text("" if value is None else plain_line(str(value)), style)


_LISTED = 12  # rows of a table in the overview: two lines of 80 columns


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
            print_line(f"  {plain_line(name):<{width}}  {plain_value(value)}".rstrip())


def print_statistics(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], *, everything: bool
) -> None:
    """Print every table, or what fits a screen of 24 lines, without what counts nothing."""
    for title, rows in tables.items() if everything else ():
        print_records(title.replace("_", " "), rows)
    if everything:
        return
    for row in tables.get("overview", ()):
        said = [f"{plain_value(value)} {name.replace('_', ' ')}" for name, value in row.items()]
        print_line(", ".join(said))
    lists = {
        "applications": ("application", "trajectories"),
        "actions": ("action_type", "steps"),
        "leak_rates": ("action_type", "leak_rate"),
        "exports": ("export", "records"),
        "doubt": ("signal", "steps"),
    }
    for table, (name, number) in lists.items():
        rows = [row for row in tables.get(table, ()) if row.get(number)]
        rows = sorted(rows, key=lambda row: -row[number])[:_LISTED]
        said = [f"{plain_line(str(row[name]))} {plain_value(row[number])}" for row in rows]
        if said:
            print_line(f"{table.replace('_', ' ')} ({number.replace('_', ' ')}): {', '.join(said)}")
    print_line("`demo-pipeline stats --all` prints every table, `--help` how to ask in SQL")


def progress_bar() -> Progress:
    """A bar with count, elapsed and remaining time, on standard error, unless the log is there."""
    return Progress(
        TextColumn("{task.description:>15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
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
            if sentence := _unrecorded_success(outcome):
                print_line(f"{outcome.demonstration}: {sentence}")
    for outcome in outcomes:
        for problem in outcome.problems:
            said = replace(problem, demonstration="")
            words = said.message if outcome.status is Status.FAILED else said
            print_error(f"{outcome.demonstration} {outcome.stage}: {words}")
    if datasets:
        out.print(_dataset_table(datasets))
        for line in _left_out(datasets):
            print_line(line)
    counts = Counter(IN_TABLES[outcome.status] for outcome in outcomes)
    failed = f"{counts['failed']} failed, " if counts["failed"] else ""
    print_line(
        f"{counts['done']} done, {counts['quarantined']} quarantined, {failed}"
        f"{up_to_date} up to date, {seconds:.0f} s"
    )


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
        colour = {"done": "green", "quarantined": "yellow"}.get(shown, "red")
        keys = ("outcome", "application", "steps", "leaks")
        seconds = summary.get("seconds")
        length = "" if seconds is None else f"{seconds:.1f}"
        cells = [cell(summary.get(key)) for key in keys]
        table.add_row(outcome.demonstration, cell(shown, colour), *cells, length)
    return table


def _unrecorded_success(outcome: DemonstrationResult) -> str:
    """Says why a demonstration is not done whose meta.json does not tell; else empty."""
    ended = outcome.summary.get("outcome")
    result = outcome.summary.get("error_message") or ""
    keys = {"status": "status unknown" in result, "reason": "reason none" in result}
    missing = [f"`{key}`" for key, is_missing in keys.items() if is_missing]
    if ended in {None, "done"} or not missing:
        return ""
    return (
        f"the outcome is {ended}, because meta.json has no {' and no '.join(missing)}; training "
        'datasets leave it out. If the task was done, write `"status": "completed"` and '
        '`"reason": "done"` into meta.json'
    )


def _dataset_table(datasets: Sequence[DatasetOutcome]) -> Table:
    table = _table("Datasets")
    table.add_column("asset")
    table.add_column("contents")
    table.add_column("written", justify="right")
    table.add_column("path", overflow="fold")
    for dataset in datasets:
        size = byte_text(dataset.bytes_written)
        path = dataset.path.removeprefix(f"{Path.cwd()}/")  # whole in a narrow terminal, too
        table.add_row(dataset.name, contents(dataset.counts), size, cell(path))
    return table


def _left_out(datasets: Sequence[DatasetOutcome]) -> list[str]:
    """What is not in the datasets, and why: a line for those that leave out the same."""
    names, lines = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for dataset in datasets:
        for words in dataset.left_out:
            names[words].append(dataset.name)
    for words, leaving in names.items():
        lines[", ".join(leaving)].append(words)
    told = dict.fromkeys(sentence for dataset in datasets for sentence in dataset.told)
    left = [f"left out of {leaving}: {', '.join(words)}" for leaving, words in lines.items()]
    return [*left, *told]


def print_scores(preset: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the scores by a rule: over all steps, and of groups of steps."""
    out.print(_summary_table(preset, [row for row in rows if row["dimension"] == "all"]))
    out.print(_group_table(preset, rows))


def _summary_table(preset: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row per answerer, over all steps."""
    table = _narrow_table(f"{preset}: all steps", "answers")
    for name in ("score", "95 %", "per trajectory", "full", "in target", "prefix"):
        _add_numbers(table, name)
    for row in rows:
        interval = "" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
        names = ("trajectory_score", "success", "grounding", "prefix_share")
        shares = [_share(row.get(name)) for name in names]
        table.add_row(cell(row["answers"]), _share(row["score"]), interval, *shares)
    return table


def _group_table(preset: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row per group of steps, a column per answerer."""
    names = list(dict.fromkeys(row["answers"] for row in rows))
    table = _narrow_table(f"{preset}: scores of groups of steps", "steps of")
    for name in ("steps", *names):
        _add_numbers(table, name)
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dimension"], row["value"]), {})[row["answers"]] = row
    last = ""
    for (dimension, value), group in groups.items():
        if dimension not in (last, value):
            table.add_row(dimension.replace("_", " "))
        last = dimension
        steps = str(max(row["steps"] for row in group.values()))
        scores = [_share(group[name]["score"]) for name in names]
        table.add_row(cell(value if dimension == value else f"  {value}"), steps, *scores)
    return table


def _narrow_table(title: str, first: str) -> Table:
    """A table of numbers that fits 80 columns, and its first column, whose words may be folded."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column(first, overflow="fold")
    return table


def _add_numbers(table: Table, name: str) -> None:
    """A column whose numbers stay whole; its heading has a line for each word."""
    heading = name if name == "95 %" else _SHORT.get(name, name).replace(" ", "\n")
    width = max(len(_NUMBER), *map(len, heading.split("\n")))
    table.add_column(heading, justify="right", min_width=width)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
