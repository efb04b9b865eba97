"""What the console shows: lines for tools, a progress bar and tables for people.

Belongs here: how things are shown. What is shown, the commands in cli.py decide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

out = Console()
err = Console(stderr=True)


class RunOutcomeView(Protocol):
    """What became of one demonstration; see defs/running.py, which this must not import."""

    @property
    def demonstration(self) -> str:
        """Its id."""
        ...

    @property
    def status(self) -> str:
        """`done`, `quarantined`, `superseded` or `crashed`."""
        ...

    @property
    def summary(self) -> Mapping[str, Any]:
        """Of its trajectory."""
        ...

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not done."""
        ...


def print_line(text: str) -> None:
    """Write a line that tools may read: never wrapped, brackets in it are no markup."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def print_error(text: str) -> None:
    """Write a line to standard error."""
    err.print(text, highlight=False, markup=False, soft_wrap=True)


def progress_bar() -> Progress:
    """A bar with count and time, on standard error."""
    return Progress(
        TextColumn("{task.description:>15}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
    )


def report_run(
    outcomes: Sequence[RunOutcomeView],
    unchanged: int,
    made: Mapping[str, Mapping[str, Any]],
    seconds: float,
) -> None:
    """Tables of demonstrations and datasets, why any stands still, and one closing line."""
    if outcomes:
        out.print(_demonstrations(outcomes))
    for one in outcomes:
        for reason in one.reasons:
            print_error(f"{one.demonstration} {reason}")
    if made:
        out.print(_datasets(made))
    counts = Counter(one.status for one in outcomes)
    others = ("superseded", "crashed")
    rare = "".join(f"{counts[name]} {name}, " for name in others if counts[name])
    print_line(
        f"{counts['done']} done, {counts['quarantined']} quarantined, {rare}"
        f"{unchanged} up to date, {seconds:.0f} s"
    )


def _demonstrations(outcomes: Sequence[RunOutcomeView]) -> Table:
    table = Table(title="Demonstrations", title_justify="left")
    for name in ("demonstration", "status", "application"):
        table.add_column(name, overflow="fold")
    for name in ("steps", "leaks", "seconds"):
        table.add_column(name, justify="right")
    for one in sorted(outcomes, key=lambda outcome: outcome.demonstration):
        colour = {"done": "green", "quarantined": "yellow"}.get(one.status, "red")
        shown = ("application", "steps", "leaks")
        cells = [escape(str(one.summary.get(key, ""))) for key in shown]
        length = one.summary.get("seconds")
        status = f"[{colour}]{one.status}[/{colour}]"
        table.add_row(one.demonstration, status, *cells, "" if length is None else f"{length:.1f}")
    return table


def _datasets(made: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title="Datasets", title_justify="left")
    table.add_column("asset")
    table.add_column("holds")
    table.add_column("path", overflow="fold")
    for name, found in made.items():
        table.add_row(name, _holds(found), escape(str(found["path"])))
    return table


def _holds(found: Mapping[str, Any]) -> str:
    records = found.get("records")
    if isinstance(records, dict):
        return ", ".join(f"{split} {count}" for split, count in records.items() if count)
    parts = [
        f"{found[key]} {key}"
        for key in ("trajectories", "samples", "steps", "tasks")
        if key in found
    ]
    return ", ".join(parts)
