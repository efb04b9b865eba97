"""Arrow in a process of its own: without pandas, until somebody converts to it."""

import subprocess
import sys
from pathlib import Path

_TABLES = """
import sys
from pathlib import Path
import pyarrow as pa
from demo_pipeline.files.parquet import read_rows, write_rows
path = Path(sys.argv[1]) / "table.parquet"
write_rows(path, [{"a": 1}, {"a": None}], pa.schema([("a", pa.int64())]))
print(read_rows(path), "pandas" in sys.modules)
"""
_FRAMES = """
print(pa.table({"a": [1, 2]}).to_pandas()["a"].sum(), "pandas" in sys.modules)
import pandas as pd
print(pa.array(pd.Series([1.0, None])).null_count)
"""


def _answer(code: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_tables_are_written_and_read_without_pandas(tmp_path: Path) -> None:
    assert _answer(_TABLES, str(tmp_path)) == ["[{'a': 1}, {'a': None}] False"]


def test_what_converts_to_pandas_still_finds_it(tmp_path: Path) -> None:
    assert _answer(_TABLES + _FRAMES, str(tmp_path))[1:] == ["3 True", "1"]
