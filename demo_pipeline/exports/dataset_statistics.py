"""The statistics of the committed datasets, counted with SQL over their Parquet files.

Belongs here: the build function and the check of the stage `dataset_statistics`. The queries are in
datasets/; asking a store directly is in store_queries.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.views import create_views, views_sql
from demo_pipeline.exports.dataset_counts import (
    STATISTICS_FILE,
    Tables,
    disagreements,
    engine,
    statistics,
)
from demo_pipeline.files.comparison import differing_build
from demo_pipeline.files.json_files import dump_json, json_bytes, load_json
from demo_pipeline.problems import Problem
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.review.triage import TRIAGE_STAGE
from demo_pipeline.stage import Check, SourceInput, Stage, Summary
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store

if TYPE_CHECKING:  # importing it takes 0.1 s and 12 MB, which only queries are worth
    from duckdb import DuckDBPyConnection

VIEWS_FILE = "views.sql"
_REQUIRED = "dataset"


def run_statistics(inputs: DatasetInputs, out: Path) -> Summary:
    """Write the tables about the inputs, and the script of all views.

    Raises:
        MissingOutput: the trajectory index has not been built.
    """
    if _REQUIRED not in inputs.folders:
        raise MissingOutput(_REQUIRED)
    with _opened(inputs) as (sql, names):
        tables = {**statistics(sql, names), "doubt": inputs.source}
    dump_json(out / STATISTICS_FILE, tables)
    (out / VIEWS_FILE).write_text(views_sql(inputs.views), encoding="utf-8")
    counts = ("steps", "demonstrations")
    signals = {
        row["signal"]: {name: row[name] for name in counts if row[name] is not None}
        for row in inputs.source
        if row["demonstrations"]
    }
    return {**tables["overview"][0], **_rates(tables), "doubt": signals}


def count_doubt(store: Store) -> SourceInput:
    """The table `doubt`: how many steps and demonstrations have each signal of the stage `triage`.

    Of every demonstration that is in the store; a signal of the whole has no number of steps.
    """
    triaged = in_parallel(store.published, store.outputs(TRIAGE_STAGE.folder))
    found: list[Any] = [version.manifest.summary["signals"] for version in triaged if version]
    rows = [
        {
            "signal": signal.name,
            "steps": sum(one.get(signal.name, 0) for one in found) if of_steps else None,
            "demonstrations": sum(signal.name in one for one in found),
            "points": signal.points,
            "definition": signal.definition,
        }
        for signals, of_steps in ((STEP_SIGNALS, True), (DEMONSTRATION_SIGNALS, False))
        for signal in signals
    ]
    digest = sha256(json_bytes(rows, compact=True)).hexdigest()
    return SourceInput(rows, {TRIAGE_STAGE.folder: digest})


def verify_agreement(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """Where the datasets contradict each other, or the tables contradict them."""
    with _opened(inputs) as (sql, names):
        found = disagreements(sql, names)
    return [*found, *differing_build(out, lambda again: run_statistics(inputs, again))]


def read_statistics(folder: Path) -> Tables:
    """The tables of a built output."""
    tables: Tables = load_json(folder / STATISTICS_FILE)
    return tables


@contextmanager
def _opened(
    inputs: DatasetInputs,
) -> "Iterator[tuple[DuckDBPyConnection, frozenset[str]]]":
    """DuckDB with the views over the inputs, and the names of the views that have files."""
    with engine() as sql:
        yield sql, create_views(sql, inputs.views, inputs.folders)


def _rates(tables: Tables) -> dict[str, Any]:
    """Leak counts and rates of all pointing actions together, the table's first row."""
    together = dict(tables["leak_rates"][0])
    del together["action_type"]
    return together


STATISTICS_STAGE: Stage[DatasetInputs] = Stage(
    name="dataset_statistics",
    folder="statistics",
    description="Tables about the datasets, by SQL over their Parquet files, and the views for "
    "querying the store; the same as `demo-pipeline stats`. `doubt` counts signals of `triage`.",
    kinds=frozenset({"duckdb"}),
    code_version="13",
    inputs=("trajectory_index", "sft_samples", "messages_dataset"),
    source=lambda workspace: count_doubt(workspace.store),
    build=run_statistics,
    checks=(
        Check(
            "datasets_agree",
            "The index, the SFT samples and the messages have the same steps and splits.",
            verify_agreement,
            blocking=False,
            compared=("trajectories", "steps"),
        ),
    ),
)
