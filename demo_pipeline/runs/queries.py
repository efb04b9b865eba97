"""Runs SQL over the Parquet files of a store, for statistics and for queries by users.

The stages define the SQL views.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import duckdb

from demo_pipeline.datasets.sql_views import View, create_views, views_sql, views_with_files
from demo_pipeline.exports.dataset_statistics import (
    STATISTICS_STAGE,
    Tables,
    allow_only_reading,
    count_doubt,
    engine,
    read_statistics,
    rows,
    statistics,
)
from demo_pipeline.runs.stages import store_views
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_bucket, local_path
from demo_pipeline.store.store import Store

# Time limit of a query, in seconds. The queries in the documentation take a few seconds.
QUERY_SECONDS = 300.0


def committed_statistics(workspace: Workspace) -> Tables:
    """Returns the committed statistics. Raises `MissingOutput` if there are none."""
    folder = workspace.store.open(STATISTICS_STAGE.folder)[0]
    return read_statistics(folder)


def current_statistics(workspace: Workspace) -> Tables:
    """Computes the statistics of the current outputs without committing them.

    For a bucket, returns the committed statistics, because counting would download every dataset.

    Raises:
        MissingOutput: the bucket has no committed statistics.
    """
    if is_bucket(workspace.store.url):
        return committed_statistics(workspace)
    with opened_views(local_path(workspace.store.url)) as (sql, names):
        tables = statistics(sql, names)
    return {**tables, "doubt": count_doubt(workspace.store).value} if tables else tables


def run_query(workspace: Workspace, query: str) -> list[dict[str, Any]]:
    """Runs a query over the views and returns its rows.

    Raises:
        QueryTimeoutError: the query takes longer than `QUERY_SECONDS`.
        duckdb.Error: see `answering`.
    """
    with answering(workspace.store, query) as sql, _time_limit(sql):
        return rows(sql, query)


class QueryTimeoutError(duckdb.Error):  # type: ignore[misc]
    """Raised if a query took too long; the message says what to do."""


@contextmanager
def _time_limit(sql: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Interrupts DuckDB if the block takes longer than `QUERY_SECONDS`."""
    timer = Timer(QUERY_SECONDS, sql.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException:
        raise QueryTimeoutError(
            f"the query was stopped after {QUERY_SECONDS:.0f} s; let it read fewer rows, or run it "
            "in your own DuckDB over the views of `demo-pipeline stats --views`"
        ) from None
    finally:
        timer.cancel()


@contextmanager
def answering(store: Store, query: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Opens DuckDB for a SELECT over the views of a store.

    DuckDB can read only the store. If the store is a bucket, the files of the views in the query
    are downloaded first.

    Raises:
        duckdb.Error: DuckDB rejects the query, or a view has no files yet.
    """
    views = store_views()
    with ExitStack() as stack:
        if is_bucket(store.url):
            words = {word.lower() for word in re.findall(r"\w+", query)}
            views = tuple(view for view in views if view.name in words)
            root = Path(stack.enter_context(TemporaryDirectory(prefix="demo_pipeline-")))
            for view in views:
                _place_files(store, view, root)
            folders = [root, *(path.resolve() for path in root.rglob("*") if path.is_symlink())]
        else:
            root = local_path(store.url)
            folders = [root]
        sql, _ = stack.enter_context(opened_views(root, views))
        allow_only_reading(sql, query, folders)
        yield sql


def _place_files(store: Store, view: View, root: Path) -> None:
    """Downloads a view's files from a bucket, and links them below `root` in the store's layout."""

    def place(output: str) -> None:
        rest = view.files.split("/")[len(output.split("/")) :]
        folder = store.open(output, "/".join(rest))[0]
        link = root / output
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(folder)

    in_parallel(place, store.outputs(view.output))


@contextmanager
def opened_views(
    root: Path, views: Sequence[View] | None = None
) -> Iterator[tuple[duckdb.DuckDBPyConnection, frozenset[str]]]:
    """Yields a DuckDB connection with views over a folder, and the names of views that have files.

    Args:
        root: a folder with the layout of a store.
        views: the views to create; all views if None.
    """
    chosen = store_views() if views is None else views
    with engine() as sql:
        yield sql, create_views(sql, chosen, {view.output: root / view.output for view in chosen})


def views_script(url: str) -> str:
    """Returns an SQL script that creates the views over a local store.

    Raises:
        StorageError: the store is a bucket.
    """
    if is_bucket(url):
        raise StorageError(
            f"{url}: the views are over the files of a local store; copy the datasets with "
            "`demo-pipeline export DEST` and query them there"
        )
    root = local_path(url)
    views = store_views()
    return views_sql(views, str(root), views_with_files(views, root))
