"""Tests the size of the shards of Parquet files, and that readers find all their rows."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demo_pipeline.exports.hub_layout import write_shards

SCHEMA = pa.schema([("n", pa.int64()), ("picture", pa.binary()), ("words", pa.string())])
MILLION = 10**6


def noise(seed: int, size: int) -> bytes:
    """Returns bytes that cannot be compressed, like those of a PNG file."""
    return random.Random(seed).randbytes(size)


def write(folder: Path, sizes: list[int], max_bytes: int) -> list[Path]:
    rows = (
        {"n": number, "picture": noise(number, size), "words": "word" * 50}
        for number, size in enumerate(sizes)
    )
    assert write_shards(rows, folder, "train", SCHEMA, max_bytes) == len(sizes)
    return sorted(folder.iterdir())


def test_no_shard_is_larger_than_the_limit_and_no_row_is_lost(tmp_path):
    sizes = [random.Random(n).randrange(1, 400_000) for n in range(60)]
    files = write(tmp_path, sizes, 2 * MILLION)
    assert len(files) > 3
    assert all(file.stat().st_size <= 2 * MILLION for file in files)
    assert [file.name for file in files] == [
        f"train-{number:05d}-of-{len(files):05d}.parquet" for number in range(len(files))
    ]
    rows = []
    for file in files:
        rows += pq.read_table(file).to_pylist()
    assert [row["n"] for row in rows] == list(range(60))
    assert all(row["picture"] == noise(row["n"], sizes[row["n"]]) for row in rows)


def test_shards_are_filled_before_the_next_one_begins(tmp_path):
    files = write(tmp_path, [100_000] * 100, 4 * MILLION)
    assert len(files) <= 4


def test_a_row_that_is_larger_than_a_shard_has_one_of_its_own(tmp_path):
    files = write(tmp_path, [1000, 3 * MILLION, 1000], 2 * MILLION)
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) == 3


def test_a_row_group_is_small_enough_to_be_read_at_once(tmp_path):
    (file,) = write(tmp_path, [10] * 1000, 10 * MILLION)
    groups = pq.ParquetFile(file).metadata
    assert max(groups.row_group(n).num_rows for n in range(groups.num_row_groups)) <= 64


def test_without_a_row_there_is_no_file(tmp_path):
    assert write(tmp_path, [], MILLION) == []


def test_an_error_leaves_no_file_that_looks_finished(tmp_path):
    def rows() -> Iterator[dict[str, Any]]:
        for number in range(200):
            yield {"n": number, "picture": noise(number, 20_000), "words": ""}
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_shards(rows(), tmp_path, "train", SCHEMA, MILLION)
    assert list(tmp_path.glob("*.parquet")) == []
