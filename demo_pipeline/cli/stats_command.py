"""The command `demo-pipeline stats`: tables about the datasets, and people's own queries.

Belongs here: its output and exit codes. The queries and views are in datasets/.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from demo_pipeline.cli.console import cell, out, print_error, print_json, print_line
from demo_pipeline.cli.environment import INVALID, OK, USAGE, usable_settings
from demo_pipeline.settings import Settings

Rows = Sequence[Mapping[str, Any]]


def stats(
    query: Annotated[
        str | None, typer.Argument(help="SQL over the views (default: print the statistics).")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the tables as JSON.")] = False,
    views: Annotated[
        bool, typer.Option("--views", help="Print an SQL script that creates the views.")
    ] = False,
) -> None:
    """Print statistics of the datasets, or the answer to an SQL query (DuckDB)."""
    settings = usable_settings()
    code = print_views(settings) if views else print_tables(settings, query, as_json=as_json)
    raise typer.Exit(code)


def print_views(settings: Settings) -> int:
    """Print the script that creates the views over this store, for any DuckDB."""
    from demo_pipeline.datasets.views import views_sql, views_with_files
    from demo_pipeline.pipeline.stages import store_views
    from demo_pipeline.pipeline.store_queries import require_local

    root, known = require_local(settings.store), store_views()
    for line in views_sql(known, str(root), views_with_files(known, root)).splitlines():
        print_line(line)
    return OK


def print_tables(settings: Settings, query: str | None, *, as_json: bool) -> int:
    """Print the statistics, or the answer to `query`.

    Returns:
        0; 1 when the store has no dataset yet; 2 when DuckDB refuses the query.
    """
    import duckdb

    from demo_pipeline.pipeline.context import Workspace
    from demo_pipeline.pipeline.store_queries import current_statistics, run_query

    workspace = Workspace.open(settings)
    if query is None:
        tables = current_statistics(workspace)
    else:
        try:
            tables = {"answer": run_query(workspace, query)}
        except duckdb.Error as error:
            for line in str(error).splitlines():
                print_error(f"demo-pipeline: {line}")
            return USAGE
    if not tables:
        url = workspace.store.url
        print_error(f"{url} has no dataset yet; build the datasets with `demo-pipeline run`")
        return INVALID
    if as_json:
        print_json(tables)
        return OK
    for name, rows in tables.items():
        out.print(_table(name, rows))
    return OK


def _table(name: str, rows: Rows) -> Table:
    table = Table(title=name.replace("_", " "), title_justify="left")
    for column, value in (rows[0] if rows else {"nothing": ""}).items():
        number = isinstance(value, int | float)
        table.add_column(cell(column), justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(cell, row.values()))
    return table
