"""Parquet files: how they are written, read and checked against a declared schema.

Belongs here: the compression settings, everything that opens a Parquet file, and which row groups
have to be read. Arrow starts without pandas, which it would import at its first array (0.2-0.4 CPU
s and 40 MB a process): no table of this package is made from pandas objects. The columns of a table
are declared by the module that writes it, each with its domain (a choice, a range, a pattern), its
words for people, and a search for values outside of it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

DOMAIN = b"domain"  # key in the metadata of a column


@dataclass(frozen=True, slots=True)
class Domain:
    """What the values of a column are; of a column of lists, the values in them.

    Attributes:
        values: all that there are; empty: any.
        low, high: the least and the largest number.
        pattern: a regular expression that each text as a whole fits.
        given, when: another column. There is a value exactly in the rows where that one has one of
            `when`, or without `when` any value; an empty list is not a value.
        only: in these rows there may be no value, too.
    """

    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    pattern: str = ""
    given: str = ""
    when: tuple[str, ...] = ()
    only: bool = False

    def where(self, column: str, *when: str) -> Self:
        """The same, with a value exactly in the rows that `given` and `when` say."""
        return replace(self, given=column, when=when)

    def only_where(self, column: str, *when: str) -> Self:
        """The same, with a value in no other rows than these."""
        return replace(self, given=column, when=when, only=True)

    def metadata(self) -> dict[str, str]:
        """As a column of a declared schema carries it."""
        return {} if self == ANY else {DOMAIN.decode(): json.dumps(asdict(self))}

    @property
    def words(self) -> str:
        """Its rules, for people."""
        told = [", ".join(self.values), self.pattern and f"fits `{self.pattern}`"]
        if self.low is not None:
            told.append(
                f"≥ {self.low:g}" if self.high is None else f"{self.low:g} to {self.high:g}"
            )
        if self.given:
            rows = f"with {self.given}" + (f" {', '.join(self.when)}" if self.when else "")
            told.append(f"only {rows}" if self.only else rows)
        return "; ".join(filter(None, told))

    def fault(self, column: str, table: pa.Table) -> str:
        """What is wrong with a column, with the number of the first such row; never a value."""
        values = table[column]
        if self.given:
            wrong = self._wrong_presence(values, table[self.given])
            if wrong is not None:
                return f"row {wrong + 1}: {column} has a value in the wrong rows ({self.words})"
        if not (self.values or self.pattern or self.low is not None):
            return ""
        known = values.drop_null()
        plain = known.combine_chunks().flatten() if pa.types.is_list(values.type) else known
        if all(map(self._allows, plain.unique().to_pylist())):
            return ""
        for number, value in enumerate(values.to_pylist(), start=1):
            some = value if isinstance(value, list) else [] if value is None else [value]
            if not all(map(self._allows, some)):
                return f"row {number}: {column} is out of its domain ({self.words})"
        return ""

    def _allows(self, value: Any) -> bool:
        if self.values:
            return value in self.values
        if self.pattern:
            return re.fullmatch(self.pattern, value, re.DOTALL) is not None
        high = float("inf") if self.high is None else self.high
        return self.low is None or (value is not None and self.low <= value <= high)

    def _wrong_presence(self, values: Any, others: Any) -> int | None:
        """The first row that has a value and should not, or the other way round."""
        import pyarrow.compute as pc  # noqa: PLC0415 - only for columns of some rows

        there = values.is_valid()
        if pa.types.is_list(values.type):
            there = pc.greater(pc.list_value_length(values), 0)
        wanted = others.is_valid()
        if self.when:
            wanted = pc.is_in(others, value_set=pa.array(self.when, others.type))
        wrong = pc.and_not(there, wanted) if self.only else pc.xor(there, wanted)
        row = pc.index(wrong, value=True).as_py()
        return None if row < 0 else row


ANY = Domain()
COUNT = Domain(low=0)
TEXT = Domain(pattern=".+")
NO_DOMAINS: Mapping[str, Domain] = {}


def one_of(*values: str) -> Domain:
    """One of these texts."""
    return Domain(tuple(map(str, values)))


def between(low: float, high: float | None = None) -> Domain:
    """A number from `low`, to `high`."""
    return Domain(low=low, high=high)


def fitting(pattern: str) -> Domain:
    """A text that a regular expression describes as a whole."""
    return Domain(pattern=pattern)


def column_domains(schema: pa.Schema) -> Iterator[tuple[str, Domain]]:
    """Yield the columns of a declared schema that have a domain."""
    for column in schema:
        text = (column.metadata or {}).get(DOMAIN)
        if text is not None:
            members = json.loads(text)
            members |= {name: tuple(members[name]) for name in ("values", "when")}
            yield column.name, Domain(**members)


def without_domains(schema: pa.Schema) -> pa.Schema:
    """The schema as files have it."""
    plain = [
        column.with_metadata({k: v for k, v in (column.metadata or {}).items() if k != DOMAIN})
        for column in schema
    ]
    return pa.schema(plain, metadata=schema.metadata)


# Arrow's own allocators keep freed memory: 25 MB in a process that has built a recording's tables.
pa.set_memory_pool(pa.system_memory_pool())

Column = tuple[str, pa.DataType, bool, str]
"""Name, type, whether it may be null, and the description with its unit."""

_COMPRESSION = {"compression": "zstd", "compression_level": 3}
_BATCH_CHARACTERS = 8 * 2**20  # raw payloads can be megabytes each


def described_schema(
    columns: Iterable[Column], domains: Mapping[str, Domain] = NO_DOMAINS
) -> pa.Schema:
    """A schema that carries each column's description and, where it has one, its domain.

    In `domains` one key may be the names of several columns, separated by spaces.
    """
    of = {name: domain for names, domain in domains.items() for name in names.split()}
    fields = [
        pa.field(
            name,
            kind,
            nullable=nullable,
            metadata={"description": text} | of.pop(name, ANY).metadata(),
        )
        for name, kind, nullable, text in columns
    ]
    return pa.schema(fields)


def column_descriptions(schema: pa.Schema) -> Mapping[str, str]:
    """Column name → description, for a schema made by `described_schema`."""
    return {field.name: field.metadata[b"description"].decode() for field in schema}


def write_table(path: Path, table: pa.Table) -> None:
    """Write a whole table; an error leaves no file."""
    with TableWriter(path, table.schema) as writer:
        writer.write(table)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write rows (column name → value; a missing one is null); an error leaves no file."""
    write_table(path, pa.Table.from_pylist(rows, schema=schema))


def whole_table(path: Path, schema: pa.Schema) -> "TableWriter":
    """A writer of a single row group, up to a million rows: for tables that are not large."""
    return TableWriter(path, schema, 2**20, None)


class RowBatches:
    """Collects rows into tables of a limited size.

    Args:
        schema: the columns.
        batch_rows: number of rows that are held in memory and become a table.
        batch_characters: number of characters of text that end a table earlier; None: no limit.
        take: gets each table.

    Attributes:
        rows: number of rows added until now.
    """

    def __init__(
        self,
        schema: pa.Schema,
        batch_rows: int,
        batch_characters: int | None,
        take: Callable[[pa.Table], object],
    ) -> None:
        self._schema = without_domains(schema)
        self._batch_characters = batch_characters or float("inf")
        self._batch_rows = batch_rows
        self._take = take
        self._names = tuple(schema.names)
        self._held: list[tuple[Any, ...]] = []
        self._characters = 0
        self.rows = 0

    def append_row(self, row: Mapping[str, Any]) -> None:
        """Add one row: column name → value; a missing one is null."""
        self.append(tuple(map(row.get, self._names)))

    def append(self, values: Sequence[Any]) -> None:
        """Add one row: its values in the schema's order."""
        self._held.append(tuple(values))
        self.rows += 1
        self._characters += sum([len(value) for value in values if isinstance(value, str)])
        if len(self._held) >= self._batch_rows or self._characters >= self._batch_characters:
            self.flush()

    def flush(self) -> None:
        """Hand over the rows that are held."""
        if self._held:
            rows = pa.array(self._held, type=pa.struct(self._schema))
            self._take(pa.Table.from_arrays(rows.flatten(), schema=self._schema))
            self._held = []
            self._characters = 0


class TableWriter(RowBatches):
    """Streams rows into one Parquet file in row groups; an error deletes the file.

    Args:
        path: the file; its folder exists.
        schema: the columns.
        batch_rows: number of rows that are held in memory and become a row group.
        batch_characters: number of characters of text that end a batch earlier; None: no limit.

    Attributes:
        rows: number of rows written or held until now.
    """

    def __init__(
        self,
        path: Path,
        schema: pa.Schema,
        batch_rows: int = 32_768,
        batch_characters: int | None = _BATCH_CHARACTERS,
    ) -> None:
        self._path = path
        self._writer = pq.ParquetWriter(path, without_domains(schema), **_COMPRESSION)
        super().__init__(schema, batch_rows, batch_characters, self._writer.write_table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        complete = False
        try:
            with self._writer:
                if kind is None:
                    self.flush()
            complete = kind is None
        finally:
            # The Parquet writer ends even a partial file with a valid footer.
            if not complete:
                self._path.unlink(missing_ok=True)

    def write(self, table: pa.Table) -> None:
        """Write a table of this schema as row groups of its own."""
        self.flush()
        self._writer.write_table(table)
        self.rows += table.num_rows


def rows_table(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """A table of the values of its columns, in the schema's order."""
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read one Parquet file.

    Args:
        path: the file.
        schema: the wanted schema: a column that the file lacks is null, a column that the schema
            lacks is left out, other types are cast. None: the columns as written.
        columns: names of the wanted columns, which come in the order of the schema (the file's
            without one); None: all.

    Raises:
        pa.ArrowInvalid: the file is not a Parquet file, a value does not fit the schema's type, or
            without `schema` a wanted column is missing.
        OSError: the file is missing or cannot be read.
    """
    # `pq.read_table` plans for many files and threads: its imports alone take 0.3 s of a process.
    with pq.ParquetFile(path) as file:
        written = file.schema_arrow
        wanted = written if schema is None else schema
        fields = [field for field in wanted if columns is None or field.name in columns]
        names = [field.name for field in fields if field.name in written.names]
        if schema is None and columns is not None and (gone := set(columns) - set(names)):
            raise pa.ArrowInvalid(f"{path.name} has no column {', '.join(sorted(gone))}")
        table = file.read(columns=names, use_threads=False)
    arrays = [
        table[field.name].cast(field.type)
        if field.name in names
        else pa.nulls(table.num_rows, field.type)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def read_schema(path: Path) -> pa.Schema:
    """The schema of a Parquet file, from its footer."""
    return pq.read_schema(path)


def row_count(path: Path) -> int:
    """Number of rows of a Parquet file, from its footer."""
    return int(pq.read_metadata(path).num_rows)


def read_rows(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """The rows of one Parquet file as column name → value; arguments as of `read_table`."""
    rows: list[dict[str, Any]] = read_table(path, schema, columns).to_pylist()
    return rows


def schema_problems(path: Path, schema: pa.Schema) -> list[Problem]:
    """How a Parquet file differs from its declared columns, types, nullability and domains.

    A column that may not be null needs no search for nulls: Parquet has no place for one.
    """

    def problem(code: str, message: str) -> list[Problem]:
        remedy = "this is a defect of the pipeline: report it with the demonstration"
        return [Problem(code, path.name, message, remedy=remedy)]

    if not path.is_file():
        return problem("missing_table", "was not written")
    try:
        columns = read_schema(path)
        if not columns.equals(schema, check_metadata=False):
            message = f"expected columns {schema.names}, found {columns.names} (or other types)"
            return problem("wrong_schema", message)
        domains = dict(column_domains(schema))
        needed = {*domains, *(domain.given for domain in domains.values() if domain.given)}
        table = read_table(path, columns=[name for name in schema.names if name in needed])
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        return problem("unreadable_table", f"cannot be read: {type(error).__name__}")
    faults = [domain.fault(name, table) for name, domain in domains.items()]
    return [found for fault in faults if fault for found in problem("wrong_value", fault)]


class RowGroups:
    """The row groups of a Parquet file, one after the other.

    Raises `OSError` when it cannot be read, `pyarrow.ArrowException` when it is not a Parquet file.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._next = 0

    def has_columns(self, schema: pa.Schema) -> bool:
        """Whether the file has these columns, with these types."""
        return bool(self._file.schema_arrow.equals(without_domains(schema), check_metadata=False))

    def read_next(self) -> pa.Table | None:
        """The next row group; None: there is no further one."""
        if self._next == self._file.num_row_groups:
            return None
        self._next += 1
        return self._file.read_row_group(self._next - 1, use_threads=False)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def open_rows(path: Path, batch: int) -> Iterator[tuple[int, Iterator[Mapping[str, Any]]]]:
    """The number of rows, and all rows, `batch` of them in memory.

    Raises `OSError` when it cannot be read, `pyarrow.ArrowException` when it is not a Parquet file.
    """
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(batch)
        yield file.metadata.num_rows, (row for rows in batches for row in rows.to_pylist())
