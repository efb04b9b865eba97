"""Answers to SQL queries over a store as DataFrames, for local stores and for buckets.

Belongs here: which files of a bucket a query needs. The views are in the registry of stages.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pandas as pd

from demo_pipeline.datasets.views import View, create_views
from demo_pipeline.exports.dataset_stats import engine
from demo_pipeline.pipeline.stages import store_views
from demo_pipeline.pipeline.store_queries import opened_views
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.store.bucket_layout import in_parallel
from demo_pipeline.storage.store.store import Store


def query_frame(store: Store, query: str) -> pd.DataFrame:
    """The answer to one SQL statement over the views of a store.

    Raises:
        duckdb.Error: DuckDB refuses the query, or a view has no files yet.
        MissingOutput: a file in the bucket is missing.
    """
    if not is_bucket(store.url):
        with opened_views(local_path(store.url)) as (sql, _):
            return sql.execute(query).df()
    with _bucket_views(store, query) as sql:
        return sql.execute(query).df()


@contextmanager
def _bucket_views(store: Store, query: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the views that a query mentions, over downloads of their files alone."""
    with ExitStack() as stack:
        sql = stack.enter_context(engine())
        root = Path(stack.enter_context(TemporaryDirectory(prefix="demo_pipeline-")))
        views = _mentioned_views(query)
        for view in views:
            _place_files(store, view, root, stack)
        create_views(sql, views, {view.output: root / view.output for view in views})
        yield sql


def _mentioned_views(query: str) -> list[View]:
    """The views whose names are words of the query; DuckDB itself names only tables that exist."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    return [view for view in store_views() if view.name in words]


def _place_files(store: Store, view: View, root: Path, stack: ExitStack) -> None:
    """Link `root/<output>` to a folder with the view's files, for every output that has some."""

    def place(output: str) -> None:
        rest = view.files.split("/")[len(output.split("/")) :]
        folder, _ = stack.enter_context(store.open_files(output, "/".join(rest)))
        link = root / output
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(folder)

    in_parallel(place, store.outputs(view.output))
