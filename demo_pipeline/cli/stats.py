"""The command `demo-pipeline stats`: tables about the datasets, and people's own queries.

Belongs here: what the command prints and its exit codes. What is counted lies in datasets/.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
from rich.markup import escape
from rich.table import Table

from demo_pipeline.cli.console import out, print_error, print_line
from demo_pipeline.cli.environment import INVALID, OK, USAGE
from demo_pipeline.datasets.views import views_sql, views_with_files
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_statistics import live, require_local, run_query
from demo_pipeline.settings import Settings

Rows = Sequence[Mapping[str, Any]]


def print_views(settings: Settings) -> int:
    """Print the script that makes the views over this store, for any DuckDB."""
    root = require_local(settings.store)
    print_line(views_sql(str(root), views_with_files(root)).rstrip("\n"))
    return OK


def show(settings: Settings, query: str | None, *, as_json: bool) -> int:
    """Print the statistics, or the answer of `query`.

    Returns:
        0; 1 when there is nothing to count yet; 2 when DuckDB refuses the query.
    """
    pipeline = Workspace.open(settings)
    if query is None:
        tables = live(pipeline)
    else:
        try:
            tables = {"answer": run_query(pipeline, query)}
        except duckdb.Error as error:
            print_error(f"demo-pipeline: {error}")
            return USAGE
    if not tables:
        print_error(
            f"no dataset is in {pipeline.store.url} yet; make them with `demo-pipeline run`"
        )
        return INVALID
    if as_json:
        sys.stdout.write(json.dumps(tables, indent=2, ensure_ascii=False, default=str) + "\n")
        return OK
    for name, rows in tables.items():
        out.print(_table(name, rows))
    return OK


def _table(name: str, rows: Rows) -> Table:
    table = Table(title=name.replace("_", " "), title_justify="left")
    for column, value in (rows[0] if rows else {"nothing": ""}).items():
        number = isinstance(value, int | float)
        table.add_column(escape(column), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else escape(str(cell)) for cell in row.values()))
    return table
