"""Counts the records of every trajectory in a built export, with SQL over its files.

Belongs here: one function per format, each from the export's folder to trajectory → records.
"""

from collections.abc import Mapping
from pathlib import Path

from demo_pipeline.datasets.dataset_stats import engine, quoted
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.step_labels.models import OUTCOME_FOLDER

_MESSAGES_COLUMNS = "{trajectory_id: 'VARCHAR'}"
_CUDAG_FILES = ("train.jsonl", "val.jsonl", "held_out.jsonl", "test/test.json")
_CUDAG_COLUMNS = "{metadata: 'STRUCT(trajectory_id VARCHAR)'}"


def sft_record_counts(folder: Path) -> Mapping[str, int]:
    """Of an SFT export."""
    return _counts(f"trajectory_id AS id FROM read_parquet({quoted([folder / 'samples.parquet'])})")


def messages_record_counts(folder: Path) -> Mapping[str, int]:
    """Of a messages export."""
    paths = [folder / f"{split.value}.jsonl" for split in Split]
    files = quoted([path for path in paths if path.is_file()])
    reading = f"read_json({files}, columns = {_MESSAGES_COLUMNS}, format = 'newline_delimited')"
    return _counts(f"trajectory_id AS id FROM {reading}")


def table_record_counts(folder: Path) -> Mapping[str, int]:
    """Of an export that is a Parquet file per split."""
    files = quoted(sorted(folder.glob("*.parquet")))
    return _counts(f"trajectory_id AS id FROM read_parquet({files})")


def outcome_record_counts(folder: Path) -> Mapping[str, int]:
    """Of a step labels export: one record per demonstration."""
    return table_record_counts(folder / OUTCOME_FOLDER)


def cudag_record_counts(folder: Path) -> Mapping[str, int]:
    """Of a CUDAG dataset."""
    files = quoted([folder / name for name in _CUDAG_FILES if (folder / name).is_file()])
    reading = f"read_json({files}, columns = {_CUDAG_COLUMNS}, format = 'auto')"
    return _counts(f"metadata.trajectory_id AS id FROM {reading}")


def _counts(source: str) -> dict[str, int]:
    with engine() as sql:
        rows = sql.execute(f"SELECT id, count(*) FROM (SELECT {source}) GROUP BY 1 ORDER BY 1")  # noqa: S608 - ours
        return dict(rows.fetchall())
