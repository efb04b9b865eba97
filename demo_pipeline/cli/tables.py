"""Prints tables and progress bars, mostly with the library `rich`, which is slow to import.

All texts must pass through `cell` or `plain_line`. Otherwise, `rich` would interpret them as
markup.
"""

import logging
import shutil
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from demo_pipeline.cli.console import byte_text, plain_value, print_error, print_line
from demo_pipeline.datasets.splits import Split
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
_SPLIT_HEADINGS = {"predictions": "predic- tions"}
_UNLIMITED = out.options.update_width(sys.maxsize)
# Maximum number of values that the overview shows of each table. Twelve values fill two lines of 80
# columns.
_OVERVIEW_ROWS = 12
_OVERVIEW_WIDTH = 100  # maximum width of the overview in characters, on a terminal or in a file
_STATUS_COLOURS = {"done": "green", "quarantined": "yellow"}
_NO_TRAIN_SPLIT = (
    "has no train split: all recordings of a task go to the same split, and with few tasks none "
    "may go to train; record more tasks, or set train_ratio = 1 and val_ratio = 0 "
    "under [datasets] in demo_pipeline.toml"
)


def cell(value: object, style: str = "") -> Text:
    """Returns a value as the text of a table cell, without markup. None becomes empty."""
    return Text("" if value is None else plain_line(str(value)), style)


def print_records(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a table. If it is wider than the terminal, rows become lists of names and values."""
    if not rows:
        print_line(f"{title}: no rows")
        return
    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items():
        justify: Any = "right" if isinstance(value, int | float) else "left"
        table.add_column(cell(column), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row.values()))
    if len(table.columns) == 1 or out.measure(table, options=_UNLIMITED).maximum <= out.width:
        out.print(table)
        return
    width = max(len(plain_line(name)) for name in rows[0])
    for number, row in enumerate(rows, start=1):
        print_line(f"{title} {number} of {len(rows)}")
        for name, value in row.items():
            print_line(f"  {plain_line(name):<{width}}  {plain_value(value)}".rstrip())


def print_statistics(
    tables: Mapping[str, Sequence[Mapping[str, Any]]], *, everything: bool
) -> None:
    """Prints an overview of at most 24 lines or, with `everything`, all statistics."""
    if everything:
        for title, rows in tables.items():
            print_records(title.replace("_", " "), rows)
        return
    for row in tables.get("overview", ()):
        numbers = [f"{plain_value(value)} {name.replace('_', ' ')}" for name, value in row.items()]
        _print_wrapped(", ".join(numbers))
    columns = {
        "applications": ("application", "trajectories"),
        "actions": ("action_type", "steps"),
        "leak_rates": ("action_type", "leak_rate"),
        "exports": ("export", "records"),
        "doubt": ("signal", "steps"),
    }
    for table, (name, number) in columns.items():
        rows = [row for row in tables.get(table, ()) if row.get(number)]
        rows = sorted(rows, key=lambda row: -row[number])[:_OVERVIEW_ROWS]
        values = [f"{plain_line(str(row[name]))} {plain_value(row[number])}" for row in rows]
        if values:
            title = f"{table.replace('_', ' ')} ({number.replace('_', ' ')})"
            _print_wrapped(f"{title}: {', '.join(values)}")
    print_line("`demo-pipeline stats --all` prints every table, `--help` how to ask in SQL")


def _print_wrapped(text: str) -> None:
    width = min(shutil.get_terminal_size().columns, _OVERVIEW_WIDTH)
    for line in textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False):
        print_line(line)


class _InProgress(ProgressColumn):
    """A progress bar column that names the first item in progress and counts the others."""

    max_refresh = 1.0

    def __init__(self, items: Callable[[], Sequence[str]]) -> None:
        super().__init__()
        self._items = items

    def render(self, task: Task) -> Text:
        names = [] if task.finished else self._items()
        if not names:
            return Text()
        more = f" +{len(names) - 1}" if len(names) > 1 else ""
        return Text(f"{names[0]}{more}", overflow="ellipsis", no_wrap=True)


def progress_bar(in_progress: Callable[[], Sequence[str]] = tuple) -> Progress:
    """Returns a progress bar on standard error, hidden if the log goes to standard error, too.

    Args:
        in_progress: function that returns the names of the items in progress.
    """
    return Progress(
        TextColumn("{task.description:>14}"),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        _InProgress(in_progress),
        console=Console(stderr=True),
        disable=shown_level() < logging.WARNING,
    )


def report_run(
    results: Sequence[DemonstrationResult],
    up_to_date: int,
    datasets: Sequence[DatasetOutcome],
    seconds: float,
) -> None:
    """Prints the tables of demonstrations and datasets, the problems, and a line with counts.

    `up_to_date` counts the demonstrations that needed no build; `seconds` is the duration.
    """
    if results:
        out.print(_demonstration_table(results))
        for result in results:
            sentence = _unrecorded_success(result)
            if sentence:
                print_line(f"{result.demonstration}: {sentence}")
    for result in results:
        for problem in result.problems:
            text = str(replace(problem, demonstration=""))
            if result.status is Status.FAILED:
                text = problem.message
            print_error(f"{result.demonstration} {result.stage}: {text}")
    if datasets:
        _print_datasets(datasets)
        for line in [*_left_out(datasets), *_without_train_split(datasets)]:
            print_line(line)
        for sentence in dict.fromkeys(text for dataset in datasets for text in dataset.told):
            print_line(sentence)
        for sentence in dict.fromkeys(text for dataset in datasets for text in dataset.damaged):
            print_error(f"left out: {sentence}")
    counts = Counter(IN_TABLES[result.status] for result in results)
    failed = f"{counts['failed']} failed, " if counts["failed"] else ""
    print_line(
        f"{counts['done']} done, {counts['quarantined']} quarantined, {failed}"
        f"{up_to_date} up to date, {seconds:.0f} s"
    )


def _demonstration_table(results: Sequence[DemonstrationResult]) -> Table:
    """Returns the table of demonstrations. It has no borders, so that ids fit into 80 columns."""
    table = Table(
        title="Demonstrations",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )
    for name in ("demonstration", "status", "outcome", "application"):
        table.add_column(name, overflow="fold")
    for name in ("steps", "leaks", "video s"):
        table.add_column(name, justify="right")
    for result in sorted(results, key=lambda result: result.demonstration):
        status = IN_TABLES[result.status]
        summary = result.summary
        video_seconds = summary.get("seconds")
        table.add_row(
            result.demonstration,
            cell(status, _STATUS_COLOURS.get(status, "red")),
            *(cell(summary.get(key)) for key in ("outcome", "application", "steps", "leaks")),
            "" if video_seconds is None else f"{video_seconds:.1f}",
        )
    return table


def _unrecorded_success(result: DemonstrationResult) -> str:
    """Returns a sentence if a missing `status` or `reason` prevents the outcome `done`, else ""."""
    outcome = result.summary.get("outcome")
    message = result.summary.get("error_message") or ""
    missing = []
    if "status unknown" in message:
        missing.append("`status`")
    if "reason none" in message:
        missing.append("`reason`")
    if outcome in {None, "done"} or not missing:
        return ""
    return (
        f"the outcome is {outcome}, because meta.json has no {' and no '.join(missing)}; training "
        'datasets leave it out. If the task was completed, write `"status": "completed"` and '
        '`"reason": "done"` into meta.json'
    )


def _print_datasets(datasets: Sequence[DatasetOutcome]) -> None:
    """Prints the table of datasets. Paths are not wrapped, so that they can be copied."""
    rows = [("asset", "contents", "written", "path")]
    for dataset in datasets:
        path = dataset.path.removeprefix(f"{Path.cwd()}/")
        size = byte_text(dataset.bytes_written)
        rows.append((dataset.name, contents(dataset.counts), size, plain_line(path)))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{name:<{widths[0]}}  {content:<{widths[1]}}  {size:>{widths[2]}}  {path}"
        for name, content, size, path in rows
    ]
    terminal = shutil.get_terminal_size().columns
    rule = "─" * min(max(map(len, lines)), terminal)
    for line in ("Datasets", lines[0], rule, *lines[1:]):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _left_out(datasets: Sequence[DatasetOutcome]) -> list[str]:
    """Returns sentences about the demonstrations that datasets leave out, with the reasons."""
    datasets_by_reason = defaultdict[str, list[str]](list)
    for dataset in datasets:
        for reason in dataset.left_out:
            datasets_by_reason[reason].append(dataset.name)
    reasons_by_datasets = defaultdict[str, list[str]](list)
    for reason, names in datasets_by_reason.items():
        reasons_by_datasets[", ".join(names)].append(reason)
    return [
        f"left out of {names}: {', '.join(reasons)}"
        for names, reasons in reasons_by_datasets.items()
    ]


def _without_train_split(datasets: Sequence[DatasetOutcome]) -> list[str]:
    """Returns a list with one sentence if datasets have rows but no train split, else []."""
    names = []
    for dataset in datasets:
        counts = [count for count in dataset.counts.values() if isinstance(count, Mapping)]
        has_rows = any(any(count.values()) for count in counts)
        if has_rows and not any(count.get(Split.TRAIN) for count in counts):
            names.append(dataset.name)
    return [f"{', '.join(names)} {_NO_TRAIN_SPLIT}"] if names else []


def print_scores(preset: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the scores under a scoring rule, for all steps and for groups of steps."""
    out.print(_summary_table(preset, [row for row in rows if row["dimension"] == "all"]))
    out.print(_group_table(preset, rows))


def _summary_table(preset: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the table of scores over all steps, with a row for the model and each baseline."""
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
    """Returns a table of scores with a row for each group of steps.

    The model and each baseline have a column.
    """
    names = list(dict.fromkeys(row["answers"] for row in rows))
    table = _narrow_table(f"{preset}: scores of groups of steps", "steps of")
    for name in ("steps", *names):
        _add_numbers(table, name)
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dimension"], row["value"]), {})[row["answers"]] = row
    previous = ""
    for (dimension, value), group in groups.items():
        if dimension not in (previous, value):
            table.add_row(dimension.replace("_", " "))
        previous = dimension
        label = value if dimension == value else f"  {value}"
        steps = max(row["steps"] for row in group.values())
        scores = [_share(group[name]["score"]) for name in names]
        table.add_row(cell(label), str(steps), *scores)
    return table


def _narrow_table(title: str, first: str) -> Table:
    """Returns an empty table of numbers that fits 80 columns. Only the first column is wrapped."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column(first, overflow="fold")
    return table


def _add_numbers(table: Table, name: str) -> None:
    """Adds a column whose numbers are not wrapped. Each word of its heading is on its own line."""
    heading = name
    if name != "95 %":
        heading = _SPLIT_HEADINGS.get(name, name).replace(" ", "\n")
    width = max(len(_NUMBER), *map(len, heading.split("\n")))
    table.add_column(heading, justify="right", min_width=width)


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
