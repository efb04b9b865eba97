"""The numbers of a dataset's card, charts and checks, counted with SQL over its files.

Belongs here: `DatasetStats`, and the queries that count them from the samples and the provenance of
the trajectories.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from demo_pipeline.actions.action_tables import POINTER_TYPES
from demo_pipeline.common.parquet import read_schema
from demo_pipeline.datasets.cudag_rows import counted_rows
from demo_pipeline.datasets.pointer_leaks import LeakRates
from demo_pipeline.problems import Problem

if TYPE_CHECKING:  # importing it takes 0.1 s and 12 MB, which only queries are worth
    from duckdb import DuckDBPyConnection

# The table of samples has these columns; `split` is NULL when a dataset has no splits.
_SFT = "SELECT trajectory_id, step_index, split, application, action_type AS kind FROM {files}"
_MESSAGES = (
    "SELECT trajectory_id, step_index, parse_filename(filename, true) AS split, application,"
    " task_type AS kind FROM {files}"
)
_INDEX = (
    "SELECT s.trajectory_id, s.step_index, NULL::VARCHAR AS split, t.application,"
    " s.action_type AS kind FROM {files} s JOIN {trajectories} t USING (trajectory_id)"
)
_SPLIT_NAMES = ("train", "val", "test", "held_out")


Provenance: TypeAlias = Sequence[Path] | pa.Table
"""The provenance tables of trajectories, or their rows with the columns that are counted."""


@dataclass(frozen=True, slots=True)
class SplitStats:
    """What is in a split."""

    samples: int
    trajectories: int
    tasks: int


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """What is in a dataset.

    Attributes:
        samples: number of steps, or of the records made of them.
        trajectories: number of trajectories with at least one sample.
        tasks: number of split groups of these trajectories.
        leaks: samples of pointing actions whose screenshot shows the pointer at its target.
        splits: by name, in the order train, val, test, held_out; empty without splits.
        actions: samples by kind of action, the most frequent first.
        applications: trajectories by application, the most frequent first.
        platforms: trajectories by platform.
        resolutions: trajectories by size of the recorded screen, as in `1920x1080`.
        lengths: trajectories by number of samples.
    """

    samples: int
    trajectories: int
    tasks: int
    leaks: LeakRates
    splits: dict[str, SplitStats]
    actions: dict[str, int]
    applications: dict[str, int]
    platforms: dict[str, int]
    resolutions: dict[str, int]
    lengths: dict[int, int]

    def as_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        lengths = {str(length): count for length, count in self.lengths.items()}
        return {**asdict(self), "lengths": lengths, **self.leaks.as_dict()}


@contextmanager
def engine() -> "Iterator[DuckDBPyConnection]":
    """DuckDB in memory; it reads local files and downloads no extensions."""
    import duckdb  # noqa: PLC0415 - as said above

    connection = duckdb.connect(
        config={
            "threads": 1,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
    )
    try:
        yield connection
    finally:
        connection.close()


def quoted(paths: Sequence[Path | str]) -> str:
    """Paths as a SQL list of strings."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"


def _table(paths: Sequence[Path], options: str = "") -> str:
    return f"read_parquet({quoted(paths)}{options})"


def sft_stats(out: Path, provenance: Provenance) -> tuple[DatasetStats, list[Problem]]:
    """The numbers of `samples.parquet`, and a problem for every task in two splits."""
    return _measure(_SFT.format(files=_table([out / "samples.parquet"])), provenance)


def messages_stats(out: Path, provenance: Provenance) -> tuple[DatasetStats, list[Problem]]:
    """The same for the Parquet files of a messages export."""
    files = sorted(out.glob("*.parquet"))
    return _measure(_MESSAGES.format(files=_table(files, ", filename = true")), provenance)


def cudag_stats(out: Path, provenance: Provenance) -> tuple[DatasetStats, list[Problem]]:
    """The same for the JSON files of a CUDAG dataset."""
    return _measure(counted_rows(out), provenance)


def table_stats(out: Path, provenance: Provenance, kind: str) -> tuple[DatasetStats, list[Problem]]:
    """The same for an export that is a Parquet file per split.

    Args:
        out: the folder of the tables, with `trajectory_id`, `application` and maybe `step_index`.
        provenance: of the trajectories.
        kind: the column that is counted as kind of action.
    """
    paths = (out / f"{name}.parquet" for name in _SPLIT_NAMES)
    files = [path for path in paths if path.is_file()]
    columns = set(read_schema(files[0]).names)
    step = "step_index" if "step_index" in columns else "-1 AS step_index"
    names = f"trajectory_id, {step}, application, {kind} AS kind"
    source = _table(files, ", filename = true")
    return _measure(
        f"SELECT {names}, parse_filename(filename, true) AS split FROM {source}",  # noqa: S608 - ours
        provenance,
    )


def index_stats(out: Path) -> DatasetStats:
    """The numbers of a trajectory dataset's `steps.parquet` and `trajectories.parquet`."""
    steps = out / "steps.parquet"
    trajectories = _table([out / "trajectories.parquet"])
    samples = _INDEX.format(files=_table([steps]), trajectories=trajectories)
    provenance = f"SELECT {', '.join(_PROVENANCE)} FROM {_table([steps])}"  # noqa: S608 - ours
    return _measure(samples, provenance)[0]


def hidden_action_counts(table: Path) -> dict[str, int]:
    """Number of hidden actions by reason in a `hidden_actions.parquet`, the most frequent first."""
    with engine() as sql:
        rows = sql.execute(_counted("reason", _table([table]))).fetchall()
    return dict(rows)


def _measure(
    samples: str | pa.Table, provenance: Provenance | str
) -> tuple[DatasetStats, list[Problem]]:
    """Count; `samples` and `provenance` are rows, or the SQL that reads them in every query."""
    with engine() as sql:
        if isinstance(samples, str):
            sql.execute(f"CREATE VIEW samples AS {samples}")
        else:
            sql.register("samples", samples)
        if isinstance(provenance, str):
            sql.execute(f"CREATE VIEW provenance AS {provenance}")
        else:
            _read_provenance(sql, provenance)
        sql.execute(_PER_TRAJECTORY)
        count, trajectories, tasks = sql.execute(_TOTALS).fetchall()[0]
        stats = DatasetStats(
            samples=count,
            trajectories=trajectories,
            tasks=tasks,
            leaks=LeakRates(*sql.execute(_LEAKS, [sorted(POINTER_TYPES)]).fetchall()[0]),
            splits={name: SplitStats(*rest) for name, *rest in sql.execute(_SPLITS).fetchall()},
            actions=dict(sql.execute(_counted("kind", "samples")).fetchall()),
            applications=dict(sql.execute(_counted("application", "demos")).fetchall()),
            platforms=dict(sql.execute(_counted("platform", "demos")).fetchall()),
            resolutions=dict(sql.execute(_counted("resolution", "demos")).fetchall()),
            lengths=dict(sql.execute(_LENGTHS).fetchall()),
        )
        shared = sql.execute(_TASKS_IN_TWO_SPLITS).fetchall()
    return stats, [_task_in_two_splits(str(group), str(splits)) for group, splits in shared]


def _read_provenance(sql: "DuckDBPyConnection", provenance: Provenance) -> None:
    """Make the table `provenance`; files that cannot be read are skipped."""
    if isinstance(provenance, pa.Table):
        sql.register("provenance", provenance)
        return
    sql.execute(_NO_PROVENANCE)
    import duckdb  # noqa: PLC0415 - as said above

    try:
        _insert(sql, provenance)
    except duckdb.Error:
        for path in provenance:
            with suppress(duckdb.Error):
                _insert(sql, [path])


def _insert(sql: "DuckDBPyConnection", paths: Sequence[Path]) -> None:
    if paths:
        # By name: in tables written before a column was added it is NULL.
        source = _table(paths, ", union_by_name = true")
        columns = f"COLUMNS('^({'|'.join(_PROVENANCE)})$')"
        sql.execute(f"INSERT INTO provenance BY NAME SELECT {columns} FROM {source}")  # noqa: S608 - ours


def _task_in_two_splits(group: str, splits: str) -> Problem:
    message = f"task {group!r} is in more than one split: {splits}"
    return Problem("torn_task", "README.md", message, remedy="build the dataset again")


def _counted(column: str, table: str) -> str:
    return f"SELECT {column}, count(*) FROM {table} WHERE {column} IS NOT NULL {_MOST_FIRST}"  # noqa: S608 - ours


_MOST_FIRST = "GROUP BY 1 ORDER BY 2 DESC, 1"
_PROVENANCE = {
    "trajectory_id": "VARCHAR",
    "step_index": "INTEGER",
    "action_type": "VARCHAR",
    "leak": "BOOLEAN",
    "unavoidable": "BOOLEAN",
    "split_group": "VARCHAR",
    "platform": "VARCHAR",
    "scale": "DOUBLE",
    "pad_x": "DOUBLE",
    "pad_y": "DOUBLE",
}
_NO_PROVENANCE = (
    f"CREATE TABLE provenance ({', '.join(f'{name} {kind}' for name, kind in _PROVENANCE.items())})"
)
# The canvas is 1920x1080; the screen is the canvas without its bars, divided by the scale.
_PER_TRAJECTORY = """
CREATE TABLE demos AS
SELECT s.trajectory_id, s.application, s.split, s.samples, p.split_group, p.platform,
       CASE WHEN p.scale > 0 THEN
            round((1920 - 2 * p.pad_x) / p.scale)::BIGINT || 'x'
            || round((1080 - 2 * p.pad_y) / p.scale)::BIGINT END AS resolution
FROM (SELECT trajectory_id, min(application) AS application, split, count(*) AS samples
      FROM samples GROUP BY trajectory_id, split) s
LEFT JOIN (SELECT trajectory_id, min(split_group) AS split_group, min(platform) AS platform,
                  min(scale) AS scale, min(pad_x) AS pad_x, min(pad_y) AS pad_y
           FROM provenance GROUP BY trajectory_id) p USING (trajectory_id)
"""
_TOTALS = """
SELECT (SELECT count(*) FROM samples), (SELECT count(DISTINCT trajectory_id) FROM demos),
       (SELECT count(DISTINCT split_group) FROM demos)
"""
_LEAKS = """
SELECT count(*), count(*) FILTER (leak), count(*) FILTER (leak AND unavoidable)
FROM samples JOIN provenance USING (trajectory_id, step_index)
WHERE list_contains(?, action_type)
"""
_SPLITS = """
SELECT split, sum(samples)::BIGINT, count(*), count(DISTINCT split_group)
FROM demos WHERE split IS NOT NULL GROUP BY split
ORDER BY list_position(['train', 'val', 'test', 'held_out'], split)
"""
_LENGTHS = "SELECT samples, count(*) FROM demos GROUP BY 1 ORDER BY 1"
_TASKS_IN_TWO_SPLITS = """
SELECT split_group, string_agg(DISTINCT split, ', ' ORDER BY split) FROM demos
WHERE split_group IS NOT NULL GROUP BY split_group HAVING count(DISTINCT split) > 1 ORDER BY 1
LIMIT 20
"""
