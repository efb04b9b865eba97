"""SQL over the Parquet files of a store: current statistics and people's own queries.

Belongs here: opening the views over a store. Their definitions are in the list of stages.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from demo_pipeline.datasets.views import create_views
from demo_pipeline.exports.dataset_statistics import (
    STATISTICS_STAGE,
    Tables,
    allow_only_reading,
    engine,
    read_statistics,
    rows,
    statistics,
)
from demo_pipeline.runs.stages import store_views
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_bucket, local_path


def committed_statistics(workspace: Workspace) -> Tables:
    """The tables as they were committed. Raises `MissingOutput` when they never were."""
    with workspace.store.open(STATISTICS_STAGE.folder) as (folder, _):
        return read_statistics(folder)


def current_statistics(workspace: Workspace) -> Tables:
    """The statistics of what is committed now, without committing them.

    For a bucket they are the committed ones: counting again would download every dataset.

    Raises:
        MissingOutput: the bucket has none.
    """
    if is_bucket(workspace.store.url):
        return committed_statistics(workspace)
    with opened_views(local_path(workspace.store.url)) as (sql, names):
        return statistics(sql, names)


def run_query(workspace: Workspace, query: str) -> list[dict[str, Any]]:
    """The answer to a query over the views.

    Raises:
        duckdb.Error: DuckDB refuses the query.
        StorageError: the store is a bucket.
    """
    root = require_local(workspace.store.url)
    with opened_views(root) as (sql, _):
        allow_only_reading(sql, query, [root])
        return rows(sql, query)


def require_local(url: str) -> Path:
    """The folder of a local store, which DuckDB can read. Raises `StorageError` for a bucket."""
    if is_bucket(url):
        raise StorageError(
            f"{url}: queries read the files of a local store; copy the datasets with "
            "`demo-pipeline export DEST` and query them there"
        )
    return local_path(url)


@contextmanager
def opened_views(root: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, frozenset[str]]]:
    """DuckDB with every view of a local store that has files, and the names of these views."""
    views = store_views()
    with engine() as sql:
        yield sql, create_views(sql, views, {view.output: root / view.output for view in views})
