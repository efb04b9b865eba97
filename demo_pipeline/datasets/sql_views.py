"""DuckDB views over the Parquet files of a store, for people's own queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing it takes 0.1 s and 12 MB, which only queries are worth
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class View:
    """A view.

    Attributes:
        name: the view's name.
        holds: the meaning of a row.
        files: pattern of its files below the store's root.
        select: the query; `{files}` stands for the files.
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
        """The statement that creates the view over the files that match `pattern`."""
        return (
            f"CREATE OR REPLACE VIEW {self.name} AS {self.select.format(files=quoted([pattern]))}"
        )


# `filename` is added by DuckDB; a file's folder is named after the demonstration.
_OF_DEMONSTRATION = (
    "SELECT parse_path(filename)[-2] AS trajectory_id, * EXCLUDE (filename)"
    " FROM read_parquet({files}, union_by_name = true, filename = true)"
)
OF_SPLIT = (
    "SELECT parse_filename(filename, true) AS split, * EXCLUDE (filename)"
    " FROM read_parquet({files}, union_by_name = true, filename = true)"
)
# In tables written before a column was added it is NULL.
OF_MESSAGES = f"{OF_SPLIT} UNION ALL BY NAME SELECT NULL::INTEGER AS tokens WHERE false"
OF_STEPS = (
    "SELECT * FROM read_parquet({files}, union_by_name = true)"
    " UNION ALL BY NAME SELECT NULL::BOOLEAN AS unavoidable, NULL::INTEGER AS hidden_before,"
    " NULL::BOOLEAN AS complete WHERE false"
)
OF_TRAJECTORIES = (
    "SELECT * FROM read_parquet({files}, union_by_name = true)"
    " UNION ALL BY NAME SELECT NULL::BOOLEAN AS complete, NULL::INTEGER AS hidden_actions"
    " WHERE false"
)
# Over the outputs of the demonstrations' stages; the registry of dataset stages has the others.
DEMONSTRATION_VIEWS = (
    View(
        "actions",
        "an action, including pauses that became no step",
        "actions/*/actions.parquet",
        _OF_DEMONSTRATION,
    ),
    View("ledger", "what a log line was used for", "actions/*/ledger.parquet", _OF_DEMONSTRATION),
    View("frames", "a chosen frame", "screenshots/*/frames.parquet", _OF_DEMONSTRATION),
    View("trees", "a chosen tree scan", "ui_trees/*/trees.parquet", _OF_DEMONSTRATION),
    View("events", "a line of an input log", "events/*/events.parquet", _OF_DEMONSTRATION),
    View(
        "triage_steps",
        "a step: figures of doubt, each signal with its definition in the column",
        "triage/*/steps.parquet",
    ),
    View(
        "triage",
        "a demonstration: doubt, its signals, and how many steps have each",
        "triage/*/demonstration.parquet",
    ),
    View(
        "rejected", "a line that could not be read", "events/*/rejected.parquet", _OF_DEMONSTRATION
    ),
)


def views_sql(views: Sequence[View], root: str = "", present: frozenset[str] | None = None) -> str:
    """The views as a script.

    Args:
        views: in order.
        root: path of the store's root; empty when the script is run in the root.
        present: names of the views whose files exist; None: all. The others become comments,
            because DuckDB refuses a view without files.
    """
    prefix = f"{root.rstrip('/')}/" if root else ""
    lines = ["-- Views over the store's Parquet files.\n"]
    for view in views:
        statement = f"{view.create(prefix + view.files)};\n"
        if present is None or view.name in present:
            lines += [f"\n-- {view.name}: {view.holds}\n", statement]
        else:
            lines += [f"\n-- {view.name}: {view.holds}; no files yet\n", f"-- {statement}"]
    return "".join(lines)


def views_with_files(views: Sequence[View], root: Path) -> frozenset[str]:
    """The names of the views that have files below a store's root."""
    return frozenset(view.name for view in views if any(root.glob(view.files)))


def create_views(
    sql: "DuckDBPyConnection", views: Sequence[View], folders: Mapping[str, Path]
) -> frozenset[str]:
    """Create the views of some outputs; returns the names of those that have files.

    Args:
        sql: the connection to create them in.
        views: those over other outputs are skipped.
        folders: name of an output (`View.output`) → its folder.
    """
    created = set()
    for view in views:
        pattern = view.files.removeprefix(f"{view.output}/")
        if view.output in folders and any(folders[view.output].glob(pattern)):
            sql.execute(view.create(f"{folders[view.output]}/{pattern}"))
            created.add(view.name)
    return frozenset(created)


def quoted(paths: Sequence[Path | str]) -> str:
    """Paths as a SQL list of strings."""
    escaped = (str(path).replace("'", "''") for path in paths)
    return "[" + ", ".join(f"'{path}'" for path in escaped) + "]"
