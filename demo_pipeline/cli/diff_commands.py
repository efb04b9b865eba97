"""The command `demo-pipeline diff`.

Belongs here: what people read about two versions of a dataset. They are compared in
runs/dataset_diff.py.
"""

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from demo_pipeline.cli.console import AsJson, print_json, print_line
from demo_pipeline.cli.environment import usable_settings

if TYPE_CHECKING:
    from demo_pipeline.runs.dataset_diff import DatasetDiff

_CHANGES = ("added", "removed", "changed")
_SHOWN = 20  # lines of a cause
_Named = Annotated[
    str,
    typer.Argument(
        metavar="VERSION|EXPORT_DIR",
        help="`sft` (the current version), `sft@ID`, an id, or a folder that `export` wrote.",
    ),
]


def diff(before: _Named, after: _Named, *, as_json: AsJson = False) -> None:
    """Show which rows of datasets were added, removed and changed, each with its cause.

    Causes are recordings, settings, code versions and decisions. No row's text is shown.
    """
    from demo_pipeline.runs.dataset_diff import compare_datasets
    from demo_pipeline.runs.workspace import Workspace

    found = compare_datasets(Workspace.open(usable_settings()), before, after)
    if as_json:
        print_json([asdict(one) for one in found])
        return
    for one in found:
        _print(one)


def _print(one: "DatasetDiff") -> None:
    counts = Counter(row.change for row in one.differences)
    changes = ", ".join(f"{counts[change]} {change}" for change in _CHANGES)
    print_line(f"{one.stage}: {one.before} → {one.after}")
    print_line(f"{one.rows[0]} → {one.rows[1]} rows: {changes}")
    groups = Counter(
        (row.causes, row.change, row.demonstration, row.split, ", ".join(row.parts))
        for row in one.differences
    )
    for causes in dict.fromkeys(group[0] for group in groups):
        print_line(f"because of {'; '.join(causes)}")
        lines = [(*words, count) for (cause, *words), count in groups.items() if cause == causes]
        for change, demonstration, split, parts, count in lines[:_SHOWN]:
            what = f": {parts}" if parts else ""
            print_line(f"{count:>6} {change} of {demonstration} ({split or 'no split'}){what}")
        if len(lines) > _SHOWN:
            print_line(f"       and {len(lines) - _SHOWN} lines more; --json has every row")
