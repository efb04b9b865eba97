"""Views over the Parquet files of a store, for DuckDB: the names people query it by.

Belongs here: what each view is called, holds and reads. `demo-pipeline stats --views` prints them
as a script.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from demo_pipeline.datasets.dataset_stats import quoted


@dataclass(frozen=True, slots=True)
class View:
    """One view.

    Attributes:
        name: of the view.
        holds: what a row is.
        files: pattern of its files below the store's root.
        select: what is taken from them; `{files}` stands for the files.
    """

    name: str
    holds: str
    files: str
    select: str = "SELECT * FROM read_parquet({files}, union_by_name = true)"

    @property
    def output(self) -> str:
        """The first folder of `files`."""
        return self.files.partition("/")[0]

    def create(self, pattern: str) -> str:
        """The statement that makes it over the files that `pattern` names."""
        return (
            f"CREATE OR REPLACE VIEW {self.name} AS {self.select.format(files=quoted([pattern]))}"
        )


# `filename` is DuckDB's; the folder a file lies in is the demonstration.
_OF_DEMONSTRATION = (
    "SELECT parse_path(filename)[-2] AS trajectory_id, * EXCLUDE (filename)"
    " FROM read_parquet({files}, union_by_name = true, filename = true)"
)
OF_SPLIT = (
    "SELECT parse_filename(filename, true) AS split, * EXCLUDE (filename)"
    " FROM read_parquet({files}, union_by_name = true, filename = true)"
)
# A table written before the column was known has NULL there.
OF_STEPS = (
    "SELECT * FROM read_parquet({files}, union_by_name = true)"
    " UNION ALL BY NAME SELECT NULL::BOOLEAN AS unavoidable WHERE false"
)
# Over the outputs of the demonstrations' stages; those over a dataset stand in its registry entry.
DEMONSTRATION_VIEWS = (
    View(
        "actions",
        "an action, waits that were none too",
        "actions/*/actions.parquet",
        _OF_DEMONSTRATION,
    ),
    View("ledger", "what became of an input event", "actions/*/ledger.parquet", _OF_DEMONSTRATION),
    View("frames", "a chosen frame", "screenshots/*/frames.parquet", _OF_DEMONSTRATION),
    View("trees", "a chosen tree scan", "ui_trees/*/trees.parquet", _OF_DEMONSTRATION),
    View("events", "a line of an input log", "events/*/events.parquet", _OF_DEMONSTRATION),
    View(
        "rejected", "a line that could not be read", "events/*/rejected.parquet", _OF_DEMONSTRATION
    ),
)


def views_sql(views: Sequence[View], root: str = "", there: frozenset[str] | None = None) -> str:
    """The views as a script.

    Args:
        views: in order.
        root: the store's root, as the script's reader sees it; empty: the script is run in it.
        there: names of the views whose files exist; None: all. The others are comments, since
            DuckDB refuses a view over no file.
    """
    return "".join(_statements(views, f"{root.rstrip('/')}/" if root else "", there))


def _statements(views: Sequence[View], prefix: str, there: frozenset[str] | None) -> Iterator[str]:
    yield "-- Views over the store's Parquet files.\n"
    for view in views:
        missing = there is not None and view.name not in there
        yield f"\n-- {view.name}: {view.holds}{'; nothing there yet' if missing else ''}\n"
        yield f"{'-- ' if missing else ''}{view.create(prefix + view.files)};\n"


def present(views: Sequence[View], root: Path) -> frozenset[str]:
    """Names of the views that have files below a store's root."""
    return frozenset(view.name for view in views if any(root.glob(view.files)))


def create_views(
    sql: duckdb.DuckDBPyConnection, views: Sequence[View], folders: Mapping[str, Path]
) -> frozenset[str]:
    """Make the views of some outputs; the names of those that have files.

    Args:
        sql: where to make them.
        views: all there are.
        folders: first folder of a view's files → where it lies.
    """
    made = set()
    for view in views:
        inside = view.files.removeprefix(f"{view.output}/")
        if view.output in folders and any(folders[view.output].glob(inside)):
            sql.execute(view.create(f"{folders[view.output]}/{inside}"))
            made.add(view.name)
    return frozenset(made)
