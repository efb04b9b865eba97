"""Counts the contents of datasets with SQL, for cards, charts, checks and the statistics stage.

The queries are in SQL files next to this module. runs/queries.py answers the queries of users.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from demo_pipeline.actions.action_tables import POINTER_TYPES
from demo_pipeline.datasets.dataset_inputs import DatasetInputs
from demo_pipeline.datasets.splits import Split
from demo_pipeline.datasets.sql_views import create_views, quoted, views_sql
from demo_pipeline.files.comparison import differing_files
from demo_pipeline.files.json_files import dump_json, json_bytes, load_json
from demo_pipeline.files.parquet import read_schema, rows_table
from demo_pipeline.files.shown_text import replace_surrogates
from demo_pipeline.problems import Problem
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.review.triage import TRIAGE_STAGE
from demo_pipeline.stage import Check, Need, SourceInput, Stage, Summary
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline.trajectories.pointer_leaks import LeakRates
from demo_pipeline.trajectories.provenance import Provenance

if TYPE_CHECKING:  # importing duckdb takes 0.1 s and 12 MB, so only queries import it
    from duckdb import DuckDBPyConnection

Tables = Mapping[str, list[dict[str, Any]]]
"""Maps the name of each statistics table to its rows."""
STATISTICS_FILE = "statistics.json"


class _Query(NamedTuple):
    """A query in an SQL file next to this module.

    Attributes:
        name: the title above the query; for statistics, the name of the resulting table.
        needs: names of the views that the query reads.
        sql: the query.
    """

    name: str
    needs: frozenset[str]
    sql: str


def _queries(file: str) -> tuple[_Query, ...]:
    """Reads the queries of a file. Each query follows a line `-- name: views`."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    queries = list[_Query]()
    for block in text.split("\n\n-- ")[1:]:
        title, _, sql = block.partition("\n")
        name, _, views = title.rpartition(": ")
        queries.append(_Query(name, frozenset(views.split()), sql))
    return tuple(queries)


QUERIES = _queries("statistics.sql")
_AGREEMENTS = _queries("agreements.sql")
_NUMBERS = {query.name: query.sql for query in _queries("numbers.sql")}
_TEXT = pa.dictionary(pa.int32(), pa.string())
_ROW_SCHEMA = pa.schema(
    [
        ("trajectory_id", _TEXT),
        ("step_index", pa.int64()),
        *((name, _TEXT) for name in ("application", "kind", "split")),
    ]
)
# Selects the samples of a trajectory dataset: its steps, without splits.
_INDEX = (
    "SELECT s.trajectory_id, s.step_index, NULL::VARCHAR AS split, t.application,"
    " s.action_type AS kind FROM {files} s JOIN {trajectories} t USING (trajectory_id)"
)


@dataclass(frozen=True, slots=True)
class SplitStats:
    """The numbers of samples, trajectories and task groups in a split."""

    samples: int
    trajectories: int
    tasks: int


@dataclass(frozen=True, slots=True)
class DatasetStats:
    """The numbers that describe a dataset in its card.

    Attributes:
        samples: number of steps, or of the records made from them.
        trajectories: number of trajectories with at least one sample.
        tasks: number of task groups of these trajectories.
        leaks: counts and rates of screenshots that already show the pointer at the action's target.
        splits: numbers of each split, in the order train, val, test, held_out; empty for a
            dataset without splits.
        actions: number of samples by kind of action, most frequent first.
        applications: number of trajectories by application, most frequent first.
        platforms: number of trajectories by platform.
        resolutions: number of trajectories by size of the recorded screen, such as `1920x1080`.
        lengths: number of trajectories by their number of samples.
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
        """Returns the numbers as plain JSON values."""
        lengths = {str(length): count for length, count in self.lengths.items()}
        return {**asdict(self), "lengths": lengths, **self.leaks.as_dict()}


@contextmanager
def engine() -> "Iterator[DuckDBPyConnection]":
    """Opens an in-memory DuckDB connection, which does not download extensions."""
    import duckdb  # noqa: PLC0415 - see TYPE_CHECKING above

    off = ("autoinstall_known_extensions", "autoload_known_extensions")
    with duckdb.connect(config={"threads": 1, **dict.fromkeys(off, False)}) as connection:
        yield connection


def _table(paths: Sequence[Path], options: str = "") -> str:
    """Returns the SQL expression that reads Parquet files as a table."""
    return f"read_parquet({quoted(paths)}{options})"


def row_stats(
    written: Sequence[tuple[str, int, str, str, str]], provenance: Provenance
) -> DatasetStats:
    """Returns the statistics of a dataset, computed from facts about its rows.

    Args:
        written: see `CardFacts.rows`.
    """
    columns: list[list[Any]] = [[] for _ in _ROW_SCHEMA]
    for key, *rest in written:
        for column, value in zip(columns, (replace_surrogates(key), *rest), strict=True):
            column.append(value)
    return _measure(rows_table(columns, _ROW_SCHEMA), provenance)


def table_stats(out: Path, provenance: Provenance, kind: str) -> DatasetStats:
    """Returns the statistics of an export that consists of a Parquet file per split.

    Args:
        out: the folder of the tables. Their columns include `trajectory_id`, `application` and
            optionally `step_index`.
        kind: name of the column with the kind of action.
    """
    files = [path for split in Split if (path := out / f"{split.value}.parquet").is_file()]
    has_step = "step_index" in read_schema(files[0]).names
    step = "step_index" if has_step else "-1 AS step_index"
    names = f"trajectory_id, {step}, application, {kind} AS kind"
    split = "parse_filename(filename, true) AS split"
    source = _table(files, ", filename = true")
    return _measure(f"SELECT {names}, {split} FROM {source}", provenance)  # noqa: S608 - no user input


def index_stats(out: Path) -> DatasetStats:
    """Returns the statistics of a trajectory dataset, from `steps` and `trajectories.parquet`."""
    steps = _table([out / "steps.parquet"])
    trajectories = _table([out / "trajectories.parquet"])
    provenance = f"SELECT {', '.join(_PROVENANCE)} FROM {steps}"  # noqa: S608 - no user input
    return _measure(_INDEX.format(files=steps, trajectories=trajectories), provenance)


def hidden_action_counts(table: Path) -> dict[str, int]:
    """Counts the hidden actions of a `hidden_actions.parquet` by reason, most frequent first."""
    with engine() as sql:
        rows = sql.execute(_counted("reason", _table([table]))).fetchall()
    return dict(rows)


def _measure(samples: str | pa.Table, provenance: Provenance | str) -> DatasetStats:
    """Runs all counting queries.

    Args:
        samples: a table, or an SQL query that selects the samples.
        provenance: a table, Parquet files, or an SQL query.
    """
    with engine() as sql:
        for name, source in (("samples", samples), ("provenance", provenance)):
            if isinstance(source, str):
                sql.execute(f"CREATE VIEW {name} AS {source}")
            elif isinstance(source, pa.Table):
                sql.register(name, source)
            else:
                _read_provenance(sql, source)

        def counted(query: str, *given: object) -> list[Any]:
            return list(sql.execute(query, list(given)).fetchall())

        counted(_NUMBERS["demos"])
        ((count, trajectories, tasks),) = counted(_NUMBERS["totals"])
        (leaks,) = counted(_NUMBERS["leaks"], sorted(POINTER_TYPES))
        return DatasetStats(
            samples=count,
            trajectories=trajectories,
            tasks=tasks,
            leaks=LeakRates(*leaks),
            splits={name: SplitStats(*rest) for name, *rest in counted(_NUMBERS["splits"])},
            actions=dict(counted(_counted("kind", "samples"))),
            applications=dict(counted(_counted("application", "demos"))),
            platforms=dict(counted(_counted("platform", "demos"))),
            resolutions=dict(counted(_counted("resolution", "demos"))),
            lengths=dict(counted(_NUMBERS["lengths"])),
        )


def _read_provenance(sql: "DuckDBPyConnection", files: Sequence[Path]) -> None:
    """Creates the table `provenance` from Parquet files; unreadable files are ignored."""
    import duckdb  # noqa: PLC0415 - see TYPE_CHECKING above

    sql.execute(_NO_PROVENANCE)
    try:
        _insert(sql, files)
    except duckdb.Error:
        for path in files:
            with suppress(duckdb.Error):
                _insert(sql, [path])


def _insert(sql: "DuckDBPyConnection", paths: Sequence[Path]) -> None:
    if paths:
        columns = ", ".join(_PROVENANCE)
        sql.execute(f"INSERT INTO provenance SELECT {columns} FROM {_table(paths)}")  # noqa: S608 - no user input


def _counted(column: str, table: str) -> str:
    """Returns the SQL query that counts the rows by the values of a column."""
    return f"SELECT {column}, count(*) FROM {table} WHERE {column} IS NOT NULL {_MOST_FIRST}"  # noqa: S608 - no user input


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


def statistics(sql: "DuckDBPyConnection", present: frozenset[str]) -> Tables:
    """Computes the statistics for which all required views exist.

    Args:
        sql: a connection with the views.
        present: names of the existing views.
    """
    return {query.name: rows(sql, query.sql) for query in QUERIES if query.needs <= present}


def allow_only_reading(sql: "DuckDBPyConnection", query: str, folders: Iterable[Path]) -> None:
    """Restricts a connection to reading files of the store, before it runs a user's query.

    Args:
        sql: the connection. Its views must exist already.
        folders: the folders whose files may be read.

    Raises:
        duckdb.Error: the query is not a single SELECT or PIVOT statement.
    """
    import duckdb  # noqa: PLC0415 - see TYPE_CHECKING above

    kinds = duckdb.StatementType
    query_kinds = [statement.type for statement in sql.extract_statements(query)]
    is_pivot = query_kinds == [kinds.MULTI] and query.split(maxsplit=1)[0].upper() == "PIVOT"
    if query_kinds != [kinds.SELECT] and not is_pivot:
        raise duckdb.InvalidInputException("only one SELECT is run: a query changes nothing")
    allowed = list[str]()
    for folder in folders:
        allowed += [f"{folder}/", f"{folder.resolve()}/"]
    sql.execute("SET allowed_directories = ?", [allowed])
    sql.execute("SET enable_external_access = false")
    sql.execute("SET lock_configuration = true")


def rows(sql: "DuckDBPyConnection", query: str) -> list[dict[str, Any]]:
    """Returns each row of a query's result as a dictionary from column names to values."""
    result = sql.execute(query)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def disagreements(sql: "DuckDBPyConnection", present: frozenset[str]) -> list[Problem]:
    """Returns a problem for each contradiction between datasets about a trajectory."""
    remedy = "build the datasets again, all from the same trajectories"
    problems = list[Problem]()
    for message, views, query in _AGREEMENTS:
        if not views <= present:
            continue
        for (key,) in sql.execute(query).fetchall():
            problem = Problem("datasets_differ", STATISTICS_FILE, message, remedy=remedy)
            problems.append(replace(problem, demonstration=str(key)))
    return problems


VIEWS_FILE = "views.sql"
_REQUIRED = "dataset"  # the output of the trajectory index


def run_statistics(inputs: DatasetInputs, out: Path) -> Summary:
    """Writes the statistics of the datasets, and the SQL script of all views.

    Raises:
        MissingOutput: the trajectory index has not been built.
    """
    if _REQUIRED not in inputs.folders:
        raise MissingOutput(_REQUIRED)
    with _opened(inputs) as (sql, names):
        tables = {**statistics(sql, names), "doubt": inputs.source}
    dump_json(out / STATISTICS_FILE, tables)
    (out / VIEWS_FILE).write_text(views_sql(inputs.views), encoding="utf-8")
    signals = {}
    for row in inputs.source:
        if not row["demonstrations"]:
            continue
        counts = {"demonstrations": row["demonstrations"]}
        if row["steps"] is not None:
            counts = {"steps": row["steps"], **counts}
        signals[row["signal"]] = counts
    return {**tables["overview"][0], **_rates(tables), "doubt": signals}


def count_doubt(store: Store) -> SourceInput:
    """Counts, for each signal (reason for doubt) of `triage`, its steps and demonstrations.

    Returns:
        The rows of the statistics table `doubt`. The number of steps is null for signals of whole
        demonstrations.
    """
    versions = in_parallel(store.published, store.outputs(TRIAGE_STAGE.folder))
    signals_of_demonstrations: list[Any] = [
        version.manifest.summary["signals"] for version in versions if version
    ]
    rows = list[dict[str, Any]]()
    for signal in (*STEP_SIGNALS, *DEMONSTRATION_SIGNALS):
        counts = [signals.get(signal.name) for signals in signals_of_demonstrations]
        counts = [count for count in counts if count is not None]
        rows.append(
            {
                "signal": signal.name,
                "steps": sum(counts) if signal in STEP_SIGNALS else None,
                "demonstrations": len(counts),
                "points": signal.points,
                "definition": signal.definition,
            }
        )
    digest = sha256(json_bytes(rows, compact=True)).hexdigest()
    return SourceInput(rows, {TRIAGE_STAGE.folder: digest})


def verify_agreement(inputs: DatasetInputs, out: Path) -> list[Problem]:
    """Checks that the datasets agree with each other and with the written statistics."""
    with _opened(inputs) as (sql, names):
        problems = disagreements(sql, names)
        tables = {**statistics(sql, names), "doubt": inputs.source}
    expected = {
        STATISTICS_FILE: json_bytes(tables),
        VIEWS_FILE: views_sql(inputs.views).encode(),
    }
    return [*differing_files(out, expected), *problems]


def read_statistics(folder: Path) -> Tables:
    """Reads the statistics in a built output."""
    tables: Tables = load_json(folder / STATISTICS_FILE)
    return tables


@contextmanager
def _opened(
    inputs: DatasetInputs,
) -> "Iterator[tuple[DuckDBPyConnection, frozenset[str]]]":
    """Opens a connection with views over the inputs; yields it with the names of the views."""
    with engine() as sql:
        yield sql, create_views(sql, inputs.views, inputs.folders)


def _rates(tables: Tables) -> dict[str, Any]:
    """Returns counts and rates of leaks among all pointing actions; see `DatasetStats.leaks`."""
    rates = dict(tables["leak_rates"][0])
    del rates["action_type"]
    return rates


STATISTICS_STAGE: Stage[DatasetInputs] = Stage(
    name="dataset_statistics",
    folder="statistics",
    description="Statistics of the datasets, computed by SQL over their Parquet files, as "
    "`demo-pipeline stats` prints them. The table `doubt` counts the signals of "
    "`triage`. The output also contains SQL views for querying the store.",
    kinds=frozenset({"duckdb"}),
    code_version="23",
    inputs=("trajectory_index", "sft_samples", "messages_dataset"),
    source=lambda workspace: count_doubt(workspace.store),
    build=run_statistics,
    checks=(
        Check(
            "datasets_agree",
            "The index, the SFT samples and the messages have the same steps and splits, "
            "and the statistics have the right counts.",
            verify_agreement,
            blocking=False,
            compared=("trajectories", "steps"),
        ),
    ),
    needs=frozenset({Need.VIEWS}),
)
