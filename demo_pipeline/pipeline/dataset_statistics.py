"""The statistics of the committed datasets: between store and SQL.

Belongs here: which outputs are counted, and the files made of them. The queries are in datasets/.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb

from demo_pipeline.common.json_files import dump_json, load_json
from demo_pipeline.datasets.dataset_stats import engine
from demo_pipeline.datasets.statistics_tables import (
    STATISTICS_FILE,
    Tables,
    disagreements,
    rows,
    statistics,
)
from demo_pipeline.datasets.views import VIEWS, create_views, views_sql
from demo_pipeline.pipeline.build_if_stale import BuildResult, build_if_stale
from demo_pipeline.pipeline.context import Summary, Workspace
from demo_pipeline.problems import errors
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe

DATASET_STATISTICS = "dataset_statistics"
STATISTICS_OUTPUT = "statistics"
CHECK = "datasets_agree"
CODE_VERSION = "2"
COUNTED = ("dataset", "sft", "messages")


def run_statistics(pipeline: Workspace, *, force: bool = False) -> BuildResult:
    """Count the committed datasets, unless none of them changed.

    Raises:
        MissingOutput: no trajectory dataset is committed.
    """
    with ExitStack() as stack:
        folders: dict[str, Path] = {}
        inputs: dict[str, str] = {}
        for output in COUNTED:
            if output == COUNTED[0] or pipeline.store.current(output):
                folders[output], version = stack.enter_context(pipeline.store.open(output))
                inputs[output] = version.content
        sql = stack.enter_context(engine())
        there = create_views(sql, folders)
        recipe = Recipe(DATASET_STATISTICS, CODE_VERSION, "", inputs)

        def build(staging: Staging) -> Summary:
            tables = statistics(sql, there)
            dump_json(staging.path / STATISTICS_FILE, tables)
            (staging.path / "views.sql").write_text(views_sql(), encoding="utf-8")
            return {**tables["overview"][0], **_rates(tables)}

        def check(_out: Path) -> list[CheckOutcome]:
            problems = tuple(disagreements(sql, there))
            return [CheckOutcome(CHECK, not errors(problems), problems, blocking=False)]

        return build_if_stale(pipeline.store, STATISTICS_OUTPUT, recipe, build, check, force=force)


def _rates(tables: Tables) -> dict[str, Any]:
    """Leak counts and rates of all pointing actions together: the table's first row."""
    together = dict(tables["leak_rates"][0])
    del together["action_type"]
    return together


def committed(pipeline: Workspace) -> Tables:
    """The tables as they were committed.

    Raises:
        MissingOutput: there are none.
    """
    with pipeline.store.open(STATISTICS_OUTPUT) as (folder, _):
        tables: Tables = load_json(folder / STATISTICS_FILE)
        return tables


def require_local(url: str) -> Path:
    """The store's folder, whose files DuckDB can read.

    Raises:
        StorageError: the store is a bucket.
    """
    if is_bucket(url):
        raise StorageError(
            f"{url}: queries read the files of a local store; copy the datasets with "
            "`demo-pipeline export DEST` and query them there"
        )
    return local_path(url)


@contextmanager
def opened_views(root: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, frozenset[str]]]:
    """DuckDB with every view of a local store that has files, and the names of these."""
    with engine() as sql:
        yield sql, create_views(sql, {view.output: root / view.output for view in VIEWS})


def live(pipeline: Workspace) -> Tables:
    """The statistics of what is committed now, without committing them.

    Those of a bucket are the ones that were committed: counting anew would fetch every dataset.

    Raises:
        MissingOutput: there are none in the bucket.
    """
    if is_bucket(pipeline.store.url):
        return committed(pipeline)
    with opened_views(local_path(pipeline.store.url)) as (sql, there):
        return statistics(sql, there)


def run_query(pipeline: Workspace, query: str) -> list[dict[str, Any]]:
    """A person's own query over the views.

    Raises:
        duckdb.Error: what DuckDB has against it.
        StorageError: the store is a bucket.
    """
    require_local(pipeline.store.url)
    with opened_views(local_path(pipeline.store.url)) as (sql, _):
        return rows(sql, query)
