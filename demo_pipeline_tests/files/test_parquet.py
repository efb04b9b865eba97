"""Tests that Parquet files are written with the declared schema, and read in the wanted schema."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.files.parquet import (
    TableWriter,
    described_schema,
    read_rows,
    read_table,
    schema_problems,
    write_rows,
)

SCHEMA = described_schema(
    [
        ("number", pa.int64(), False, "how many"),
        ("name", pa.string(), True, "of it"),
        ("sure", pa.bool_(), False, "whether"),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"number": 1, "name": "a", "sure": True},
    {"number": 2, "name": None, "sure": False},
]


def written(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path / "some.parquet")
    return path / "some.parquet"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, pa.Table.from_pylist(ROWS, schema=SCHEMA))


def test_a_table_comes_back_as_it_was_written(file):
    for table in (read_table(file, SCHEMA), read_table(file)):
        assert table.to_pylist() == ROWS
        assert table.schema.equals(SCHEMA, check_metadata=True)
        assert table.equals(pq.read_table(file, schema=SCHEMA), check_metadata=True)


def test_only_the_columns_that_are_wanted_are_read(file):
    assert read_table(file, columns=["sure"]).to_pylist() == [{"sure": True}, {"sure": False}]
    assert read_table(file, SCHEMA, ["sure", "number"]).column_names == ["number", "sure"]


def test_a_table_of_an_older_schema_is_read_in_the_newer(tmp_path):
    """Other types are cast, newer columns are null, removed columns are left out."""
    number = pa.array([7], pa.int32())
    file = written(tmp_path, pa.table({"gone": ["x"], "sure": [True], "number": number}))
    table = read_table(file, SCHEMA)
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [{"number": 7, "name": None, "sure": True}]


def test_a_file_that_is_not_parquet_is_rejected(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.parquet", SCHEMA)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(pa.ArrowInvalid):
        read_table(tmp_path / "torn.parquet", SCHEMA)


def test_without_a_schema_a_missing_column_is_an_error(file):
    with pytest.raises(pa.ArrowInvalid, match=r"some\.parquet has no column gone, lost"):
        read_table(file, columns=["number", "lost", "gone"])


# --- writing


def row(number: int, name: str = "") -> tuple[Any, ...]:
    return (number, name, True)


def test_rows_are_written_in_batches(tmp_path):
    path = tmp_path / "t.parquet"
    with TableWriter(path, SCHEMA, batch_rows=4) as writer:
        for index in range(10):
            writer.append(row(index))
    assert writer.rows == 10
    assert pq.ParquetFile(path).num_row_groups == 3
    assert pq.read_table(path)["number"].to_pylist() == list(range(10))


@pytest.mark.parametrize(("limit", "groups"), [(8 * 2**20, 3), (None, 1)])
def test_large_texts_are_not_held_in_memory(tmp_path, limit, groups):
    path = tmp_path / "t.parquet"
    with TableWriter(path, SCHEMA, batch_characters=limit) as writer:
        for index in range(6):
            writer.append(row(index, "p" * 4 * 2**20))
    assert pq.ParquetFile(path).num_row_groups == groups


def test_rows_tables_and_mappings_keep_their_order(tmp_path):
    path = tmp_path / "t.parquet"
    with TableWriter(path, SCHEMA) as writer:
        writer.append(row(0, "zero"))
        writer.write(pa.Table.from_pylist(ROWS, schema=SCHEMA))
        writer.append_row({"sure": True, "number": 3})
    assert [(r["number"], r["name"]) for r in read_rows(path)] == [
        (0, "zero"),
        (1, "a"),
        (2, None),
        (3, None),
    ]
    assert writer.rows == 4


def test_an_error_in_the_body_leaves_no_file(tmp_path):
    path = tmp_path / "t.parquet"
    with pytest.raises(ValueError, match="Tuple size"), TableWriter(path, SCHEMA) as writer:
        writer.append((1, 2))
    assert not path.exists()


def test_a_value_that_cannot_be_written_leaves_no_file(tmp_path):
    path = tmp_path / "t.parquet"
    with pytest.raises(pa.ArrowInvalid), TableWriter(path, SCHEMA) as writer:
        writer.append(("text", None, True))
    assert not path.exists()
    with pytest.raises(pa.ArrowInvalid):
        write_rows(path, [{"number": "text"}], SCHEMA)
    assert not path.exists()


# --- the schema check


def test_a_missing_file_is_a_problem(tmp_path):
    problems = schema_problems(tmp_path / "gone.parquet", SCHEMA)
    assert [(p.code, p.file) for p in problems] == [("missing_table", "gone.parquet")]


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA.remove(0),
        SCHEMA.append(pa.field("more", pa.int8())),
        SCHEMA.set(0, pa.field("number", pa.int32(), nullable=False)),
        SCHEMA.set(0, pa.field("number", pa.int64())),
    ],
)
def test_other_columns_types_or_nulls_are_a_problem(tmp_path, schema):
    file = written(tmp_path, pa.Table.from_pylist(ROWS, schema=schema))
    assert [p.code for p in schema_problems(file, SCHEMA)] == ["wrong_schema"]
