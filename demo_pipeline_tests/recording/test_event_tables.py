"""Reading Parquet tables: columns, casts and errors."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.common.parquet import described_schema, read_table

SCHEMA = described_schema(
    [
        ("number", pa.int64(), False, "how many"),
        ("name", pa.string(), True, "of it"),
        ("sure", pa.bool_(), False, "whether"),
    ]
)
ROWS = [{"number": 1, "name": "a", "sure": True}, {"number": 2, "name": None, "sure": False}]


def written(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path / "some.parquet")
    return path / "some.parquet"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path, pa.Table.from_pylist(ROWS, schema=SCHEMA))


def test_a_table_comes_back_as_it_was_written(file: Path) -> None:
    for table in (read_table(file, SCHEMA), read_table(file)):
        assert table.to_pylist() == ROWS
        assert table.schema.equals(SCHEMA, check_metadata=True)
        assert table.equals(pq.read_table(file, schema=SCHEMA), check_metadata=True)


def test_only_the_columns_that_are_wanted_are_read(file: Path) -> None:
    assert read_table(file, columns=["sure"]).to_pylist() == [{"sure": True}, {"sure": False}]
    assert read_table(file, SCHEMA, ["sure", "number"]).column_names == ["number", "sure"]


def test_a_table_of_an_older_schema_is_read_with_the_newer(tmp_path: Path) -> None:
    """Other types are cast, new columns are null, removed columns are left out."""
    number = pa.array([7], pa.int32())
    file = written(tmp_path, pa.table({"gone": ["x"], "sure": [True], "number": number}))
    table = read_table(file, SCHEMA)
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == [{"number": 7, "name": None, "sure": True}]


def test_a_value_that_does_not_fit_the_schema_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path, pa.table({"number": [1.5]}))
    with pytest.raises(pa.ArrowInvalid):
        read_table(file, SCHEMA)


def test_a_missing_or_invalid_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.parquet", SCHEMA)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    with pytest.raises(pa.ArrowInvalid):
        read_table(tmp_path / "torn.parquet", SCHEMA)


def test_a_small_table_costs_no_import_of_the_dataset_reader(file: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from demo_pipeline.recording.event_tables import read_table\n"
        "assert read_table(Path(sys.argv[1])).num_rows == 2\n"
        "assert 'pyarrow.dataset' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(file)], check=True)
