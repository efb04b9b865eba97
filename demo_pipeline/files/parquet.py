"""Writes and reads Parquet files, and checks them against a declared schema.

The module that writes a table declares its columns. Each column has a description and may have a
domain, which is the set of its allowed values: a list, a range or a pattern.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

DOMAIN = b"domain"  # the key for a column's domain in the metadata of the declared schema


@dataclass(frozen=True, slots=True)
class Domain:
    """The allowed values of a column, or of the items of a column of lists.

    Attributes:
        values: the allowed texts; if empty, any text is allowed.
        low, high: the smallest and the largest allowed number; None if there is no limit.
        pattern: a regular expression that must match each text from start to end.
        given: name of another column that selects rows; empty if there is no such rule. In each
            selected row, the column with this domain must have a value. In all other rows, it must
            be null or an empty list.
        when: the values of `given` that select a row; if empty, any value except null.
        only: whether the value in selected rows may also be null or an empty list.
    """

    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    pattern: str = ""
    given: str = ""
    when: tuple[str, ...] = ()
    only: bool = False

    def where(self, column: str, *when: str) -> Self:
        """Returns a copy that requires a value in selected rows, and forbids it in all other rows.

        Args:
            column: the column that selects rows; see `given`.
            when: the values of `column` that select a row; by default any value except null.
        """
        return replace(self, given=column, when=when)

    def only_where(self, column: str, *when: str) -> Self:
        """Returns a copy that allows a value only in selected rows.

        Args:
            column, when: see `where`.
        """
        return replace(self, given=column, when=when, only=True)

    def metadata(self) -> dict[str, str]:
        """Returns the metadata that a column with this domain has in a schema; empty for `ANY`."""
        if self == ANY:
            return {}
        return {DOMAIN.decode(): json.dumps(asdict(self))}

    @property
    def words(self) -> str:
        """The rules as a phrase for people, such as `0 to 1; only with kind click`."""
        rules = []
        if self.values:
            rules.append(", ".join(self.values))
        if self.pattern:
            rules.append(f"fits `{self.pattern}`")
        if self.low is not None and self.high is None:
            rules.append(f"≥ {self.low:g}")
        elif self.low is not None:
            rules.append(f"{self.low:g} to {self.high:g}")
        if self.given:
            rows = f"with {self.given}"
            if self.when:
                rows += f" {', '.join(self.when)}"
            rules.append(f"only {rows}" if self.only else rows)
        return "; ".join(rules)

    def fault(self, column: str, table: pa.Table) -> str:
        """Returns a message about the first invalid row of a column; empty if all rows are valid.

        The message does not quote the invalid value.
        """
        values = table[column]
        if self.given:
            row = self._wrong_presence(values, table[self.given])
            if row is not None:
                return f"row {row + 1}: {column} has a value in the wrong rows ({self.words})"
        if not (self.values or self.pattern or self.low is not None):
            return ""
        scalars = values.drop_null()
        if pa.types.is_list(values.type):
            scalars = scalars.combine_chunks().flatten()
        if all(map(self._allows, scalars.unique().to_pylist())):
            return ""
        for number, value in enumerate(values.to_pylist(), start=1):
            if value is None:
                continue
            members = value if isinstance(value, list) else [value]
            if not all(map(self._allows, members)):
                return f"row {number}: {column} is out of its domain ({self.words})"
        return ""

    def _allows(self, value: Any) -> bool:
        if self.values:
            return value in self.values
        if self.pattern:
            return re.fullmatch(self.pattern, value, re.DOTALL) is not None
        if self.low is None:
            return True
        high = float("inf") if self.high is None else self.high
        return value is not None and self.low <= value <= high

    def _wrong_presence(self, values: Any, others: Any) -> int | None:
        """Returns the index of the first row that breaks the rule about `given`, or None.

        Args:
            others: the values of the column `given`.
        """
        import pyarrow.compute as pc  # noqa: PLC0415 - slow to import, and few columns need it

        has_value = values.is_valid()
        if pa.types.is_list(values.type):
            has_value = pc.greater(pc.list_value_length(values), 0)
        must_have_value = others.is_valid()
        if self.when:
            must_have_value = pc.is_in(others, value_set=pa.array(self.when, others.type))
        if self.only:
            is_wrong = pc.and_not(has_value, must_have_value)
        else:
            is_wrong = pc.xor(has_value, must_have_value)
        row = pc.index(is_wrong, value=True).as_py()
        return None if row < 0 else row


ANY = Domain()
COUNT = Domain(low=0)
TEXT = Domain(pattern=".+")
NO_DOMAINS: Mapping[str, Domain] = {}


def one_of(*values: str) -> Domain:
    """Returns the domain that allows these texts only."""
    return Domain(tuple(map(str, values)))


def between(low: float, high: float | None = None) -> Domain:
    """Returns the domain of the numbers from `low` to `high`; None means no upper limit."""
    return Domain(low=low, high=high)


def fitting(pattern: str) -> Domain:
    """Returns the domain of the texts that a regular expression matches from start to end."""
    return Domain(pattern=pattern)


def column_domains(schema: pa.Schema) -> Iterator[tuple[str, Domain]]:
    """Yields the name and the domain of each column with a domain in a declared schema."""
    for column in schema:
        text = (column.metadata or {}).get(DOMAIN)
        if text is not None:
            members = json.loads(text)
            members |= {name: tuple(members[name]) for name in ("values", "when")}
            yield column.name, Domain(**members)


def without_domains(schema: pa.Schema) -> pa.Schema:
    """Returns the schema without domains, which are not written to files."""
    columns = []
    for column in schema:
        metadata = dict(column.metadata or {})
        metadata.pop(DOMAIN, None)
        columns.append(column.with_metadata(metadata))
    return pa.schema(columns, metadata=schema.metadata)


# Arrow's default allocators keep freed memory. Measured: 25 MB in a process that built the tables
# of a recording.
pa.set_memory_pool(pa.system_memory_pool())

Column = tuple[str, pa.DataType, bool, str]
"""A declared column: name, type, whether values may be null, and a description with the unit."""

_COMPRESSION = {"compression": "zstd", "compression_level": 3}
# Number of characters after which a row group ends. A single row can have millions of characters.
_BATCH_CHARACTERS = 8 * 2**20


def described_schema(
    columns: Iterable[Column], domains: Mapping[str, Domain] = NO_DOMAINS
) -> pa.Schema:
    """Returns the schema of a table with descriptions and domains in the metadata of the columns.

    Args:
        domains: maps column names to domains. A key may list several names, separated by spaces.
    """
    domain_by_name: dict[str, Domain] = {}
    for names, domain in domains.items():
        domain_by_name |= dict.fromkeys(names.split(), domain)
    fields = []
    for name, kind, nullable, description in columns:
        metadata = {"description": description} | domain_by_name.get(name, ANY).metadata()
        fields.append(pa.field(name, kind, nullable=nullable, metadata=metadata))
    return pa.schema(fields)


def column_descriptions(schema: pa.Schema) -> Mapping[str, str]:
    """Returns a mapping from the columns of a declared schema to their descriptions."""
    return {field.name: field.metadata[b"description"].decode() for field in schema}


def write_table(path: Path, table: pa.Table) -> None:
    """Writes a table to a file. After an error, no file is left."""
    with TableWriter(path, table.schema) as writer:
        writer.write(table)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Writes rows to a file. After an error, no file is left.

    Args:
        rows: a mapping from column names to values for each row; missing columns become null.
    """
    write_table(path, pa.Table.from_pylist(rows, schema=schema))


def whole_table(path: Path, schema: pa.Schema) -> "TableWriter":
    """Returns a writer with large row groups (2**20 rows), for a table that fits into memory."""
    return TableWriter(path, schema, 2**20, None)


class RowBatches:
    """Collects rows into tables of a limited size, and calls a function with each table.

    Args:
        batch_rows: the number of rows after which a table is complete.
        batch_characters: the number of characters after which a table is complete, even with fewer
            rows. If it is None, characters are not limited.

    Attributes:
        rows: the number of rows added so far.
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
        """Adds a row, given as a mapping from column names to values; missing columns are null."""
        self.append(tuple(map(row.get, self._names)))

    def append(self, values: Sequence[Any]) -> None:
        """Adds a row, given as its values in the order of the schema."""
        self._held.append(tuple(values))
        self.rows += 1
        self._characters += sum([len(value) for value in values if isinstance(value, str)])
        if len(self._held) >= self._batch_rows or self._characters >= self._batch_characters:
            self.flush()

    def flush(self) -> None:
        """Calls `take` with the rows collected so far; does nothing if there are none."""
        if self._held:
            rows = pa.array(self._held, type=pa.struct(self._schema))
            self._take(pa.Table.from_arrays(rows.flatten(), schema=self._schema))
            self._held = []
            self._characters = 0


class TableWriter(RowBatches):
    """A context manager that writes rows to a Parquet file. An error deletes the file.

    Args:
        path: the file, in a folder that exists.
        batch_rows: the number of rows after which a row group is written.
        batch_characters: the number of characters after which a row group is written, even with
            fewer rows. If it is None, characters are not limited.

    Attributes:
        rows: the number of rows added so far.
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
        is_complete = False
        try:
            with self._writer:
                if kind is None:
                    self.flush()
            is_complete = kind is None
        finally:
            # The Parquet writer writes a valid footer even to an incomplete file.
            if not is_complete:
                self._path.unlink(missing_ok=True)

    def write(self, table: pa.Table) -> None:
        """Writes the collected rows, then the rows of `table` in row groups of their own."""
        self.flush()
        self._writer.write_table(table)
        self.rows += table.num_rows


def rows_table(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Returns a table from the values of each column, in the order of the schema."""
    return pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def read_table(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Reads a Parquet file.

    Args:
        schema: the schema of the result, by default that of the file. Columns missing from the file
            become null, columns missing from the schema are ignored, and types are cast.
        columns: the names of the columns to read, by default all. Their order is ignored.

    Raises:
        pa.ArrowInvalid: the file is not a Parquet file, a value cannot be cast to the type of the
            schema, or one of `columns` is missing and no `schema` is given.
        OSError: the file is missing or cannot be read.
    """
    # `pq.read_table` would import modules for several files and for threads, which takes 0.3 s.
    with pq.ParquetFile(path) as file:
        file_schema = file.schema_arrow
        wanted_schema = file_schema if schema is None else schema
        fields = [field for field in wanted_schema if columns is None or field.name in columns]
        names = [field.name for field in fields if field.name in file_schema.names]
        if schema is None and columns is not None:
            missing_names = sorted(set(columns) - set(names))
            if missing_names:
                raise pa.ArrowInvalid(f"{path.name} has no column {', '.join(missing_names)}")
        table = file.read(columns=names, use_threads=False)
    arrays = []
    for field in fields:
        if field.name in names:
            arrays.append(table[field.name].cast(field.type))
        else:
            arrays.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def read_schema(path: Path) -> pa.Schema:
    """Returns the schema in the footer of a Parquet file."""
    return pq.read_schema(path)


def row_count(path: Path) -> int:
    """Returns the number of rows according to the footer of a Parquet file."""
    return int(pq.read_metadata(path).num_rows)


def read_rows(
    path: Path, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Reads a Parquet file as a list of rows; each row is a dict from column names to values.

    The arguments and errors are those of `read_table`.
    """
    rows: list[dict[str, Any]] = read_table(path, schema, columns).to_pylist()
    return rows


def schema_problems(path: Path, schema: pa.Schema) -> list[Problem]:
    """Returns a problem for each difference between a Parquet file and its declared schema.

    Names, types, nullability and domains of the columns are compared. Columns declared as not null
    are not searched for nulls, because Parquet cannot store nulls in such columns.
    """

    def problem(code: str, message: str) -> Problem:
        remedy = "this is a defect of the pipeline: report it with the demonstration"
        return Problem(code, path.name, message, remedy=remedy)

    if not path.is_file():
        return [problem("missing_table", "was not written")]
    try:
        columns = read_schema(path)
        if not columns.equals(schema, check_metadata=False):
            message = f"expected columns {schema.names}, found {columns.names} (or other types)"
            return [problem("wrong_schema", message)]
        domains = dict(column_domains(schema))
        needed = {*domains, *(domain.given for domain in domains.values() if domain.given)}
        table = read_table(path, columns=[name for name in schema.names if name in needed])
    except (OSError, pa.ArrowException) as error:
        raise_system_trouble(error)
        return [problem("unreadable_table", f"cannot be read: {type(error).__name__}")]
    faults = [domain.fault(name, table) for name, domain in domains.items()]
    return [problem("wrong_value", fault) for fault in faults if fault]


class RowGroups:
    """Reads the row groups of a Parquet file one after the other.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: the file is not a Parquet file.
    """

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path)
        self._next = 0

    def has_columns(self, schema: pa.Schema) -> bool:
        """Returns whether the file has exactly the columns and types of a schema."""
        return bool(self._file.schema_arrow.equals(without_domains(schema), check_metadata=False))

    def read_next(self) -> pa.Table | None:
        """Returns the next row group; None after the last."""
        if self._next == self._file.num_row_groups:
            return None
        self._next += 1
        return self._file.read_row_group(self._next - 1, use_threads=False)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


@contextmanager
def open_rows(path: Path, batch: int) -> Iterator[tuple[int, Iterator[Mapping[str, Any]]]]:
    """Opens a Parquet file in a `with` block; yields its number of rows and an iterator of rows.

    Args:
        batch: the number of rows that are read into memory at once.

    Raises:
        OSError: the file cannot be read.
        pyarrow.ArrowException: the file is not a Parquet file.
    """
    with pq.ParquetFile(path) as file:
        batches = map(pa.RecordBatch.to_pylist, file.iter_batches(batch))
        yield file.metadata.num_rows, chain.from_iterable(batches)
