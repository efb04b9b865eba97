"""Defines DuckDB views over the Parquet files of a store, for the queries of users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing duckdb takes 0.1 s and 12 MB, so only queries import it
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class View:
    """A view over the Parquet files of an output.

    Attributes:
        name: name of the view in SQL.
        holds: meaning of a row, for users.
        files: glob pattern of the files, relative to the store's root.
        select: the query of the view, in which `{files}` is replaced by a list of the files.
    """

    name: str
    holds: str
    files: str
    select: str = "SELECT * FROM read_parquet({files}, union_by_name = true)"

    @property
    def output(self) -> str:
        """The name of the output in the store, which is the first folder in `files`."""
        return self.files.partition("/")[0]

    def create(self, pattern: str) -> str:
        """Returns the SQL statement that creates the view over the files that match `pattern`."""
        return (
            f"CREATE OR REPLACE VIEW {self.name} AS {self.select.format(files=quoted([pattern]))}"
        )


# DuckDB adds the column `filename`. The last folder in this path is the id of the demonstration.
_OF_DEMONSTRATION = (
    "SELECT parse_path(filename)[-2] AS trajectory_id, * EXCLUDE (filename)"
    " FROM read_parquet({files}, union_by_name = true, filename = true)"
)
OF_SPLIT = (
    "SELECT parse_filename(filename, true) AS split, * EXCLUDE (filename)"
    " FROM read_parquet({files}, union_by_name = true, filename = true)"
)
# The column `tokens` is missing in the files of earlier versions. The empty second SELECT adds it
# with NULL as its value.
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
# Views over the outputs of single demonstrations. The stages of datasets declare their own views.
DEMONSTRATION_VIEWS = (
    View(
        "actions",
        "a row for each action, including pauses that are not steps",
        "actions/*/actions.parquet",
        _OF_DEMONSTRATION,
    ),
    View(
        "ledger",
        "a row for each log line: the action that contains it, or why none does",
        "actions/*/ledger.parquet",
        _OF_DEMONSTRATION,
    ),
    View(
        "frames",
        "a row for each action: the chosen frame of the video",
        "screenshots/*/frames.parquet",
        _OF_DEMONSTRATION,
    ),
    View(
        "trees",
        "a row for each action: the chosen accessibility scan and the target",
        "ui_trees/*/trees.parquet",
        _OF_DEMONSTRATION,
    ),
    View(
        "events",
        "a row for each accepted line of an input log",
        "events/*/events.parquet",
        _OF_DEMONSTRATION,
    ),
    View(
        "triage_steps",
        "a row for each step: its signals of doubt and the measurements behind them",
        "triage/*/steps.parquet",
    ),
    View(
        "triage",
        "a row for each demonstration: its doubt, and the number of steps with each signal",
        "triage/*/demonstration.parquet",
    ),
    View(
        "rejected",
        "a row for each rejected line of an input log, with the reason",
        "events/*/rejected.parquet",
        _OF_DEMONSTRATION,
    ),
)


def views_sql(views: Sequence[View], root: str = "", present: frozenset[str] | None = None) -> str:
    """Returns the SQL script that creates the views.

    Args:
        root: path of the store's root, or empty if the script is run in the store's root.
        present: names of the views whose files exist, or None if all exist. The other views become
            comments, because DuckDB would reject views without files.
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
    """Returns the names of the views that have files below a store's root."""
    return frozenset(view.name for view in views if any(root.glob(view.files)))


def create_views(
    sql: "DuckDBPyConnection", views: Sequence[View], folders: Mapping[str, Path]
) -> frozenset[str]:
    """Creates views over the given outputs in a DuckDB connection.

    Args:
        views: all views. Views over outputs that are not in `folders` are ignored.
        folders: maps the names of outputs (`View.output`) to their folders.

    Returns:
        The names of the created views.
    """
    created = set()
    for view in views:
        pattern = view.files.removeprefix(f"{view.output}/")
        if view.output in folders and any(folders[view.output].glob(pattern)):
            sql.execute(view.create(f"{folders[view.output]}/{pattern}"))
            created.add(view.name)
    return frozenset(created)


def quoted(paths: Sequence[Path | str]) -> str:
    """Returns paths as a SQL list of strings."""
    literals = []
    for path in paths:
        escaped = str(path).replace("'", "''")
        literals.append(f"'{escaped}'")
    return f"[{', '.join(literals)}]"
