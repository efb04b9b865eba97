"""Tables of exports as the Hugging Face Hub takes them: pictures in the rows, in shards.

Belongs here: which columns become pictures, and the files. The card is in `hub_card`. Trees stay
text in a column of strings: the Hub's viewer fails on types that are nested without an end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.common.hub_features import PICTURE, with_hub_features
from demo_pipeline.common.parquet import read_schema
from demo_pipeline.common.parquet_rows import open_rows
from demo_pipeline.common.parquet_shards import ShardWriter
from demo_pipeline.datasets.splits import Split

DATA_FOLDER = "data"
_ROWS_IN_MEMORY = 16


@dataclass(frozen=True, slots=True)
class HubTable:
    """A configuration on the Hub, made of one table per split of an export.

    Attributes:
        config: its name.
        about: what a row is, for the card.
        folder: of the tables, below that of the export; empty: the same.
        pictures: columns that hold paths below the export's folder, or lists of them.
        trees: columns that hold the path of a tree, or the tree as text.
        without: columns that are left out.
        task_categories: the Hub's names of what it is for.
    """

    config: str
    about: str
    folder: str = ""
    pictures: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    task_categories: tuple[str, ...] = ("image-text-to-text",)


@dataclass(frozen=True, slots=True)
class HubConfig:
    """What was written of a `HubTable`.

    Attributes:
        table: which.
        schema: of the files.
        rows: split → number of rows, for the splits that have any.
        sizes: split → bytes of its files.
    """

    table: HubTable
    schema: pa.Schema
    rows: Mapping[str, int]
    sizes: Mapping[str, int]


def write_hub_config(table: HubTable, export: Path, out: Path, max_bytes: int) -> HubConfig:
    """Write `data/<config>/<split>-….parquet`.

    Args:
        table: what to write.
        export: the folder of the export.
        out: the folder of the dataset.
        max_bytes: of a file.
    """
    folder = out / DATA_FOLDER / table.config
    folder.mkdir(parents=True)
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    sources = list(_sources(table, export))
    schema = _hub_schema(read_schema(sources[0][1]), table)
    for split, source in sources:
        with (
            ShardWriter(folder, split, schema, max_bytes) as writer,
            open_rows(source, _ROWS_IN_MEMORY) as (_, values),
        ):
            for row in values:
                writer.append(_hub_row(row, table, export))
        if writer.rows:
            rows[split] = writer.rows
            sizes[split] = sum(file.stat().st_size for file in folder.glob(f"{split}-*"))
    if not rows:
        folder.rmdir()
    return HubConfig(table, schema, rows, sizes)


def _sources(table: HubTable, export: Path) -> Iterator[tuple[str, Path]]:
    paths = ((split.value, export / table.folder / f"{split.value}.parquet") for split in Split)
    return ((name, path) for name, path in paths if path.is_file())


def _hub_schema(schema: pa.Schema, table: HubTable) -> pa.Schema:
    """The columns with pictures, noted as `datasets` notes them, without descriptions of ours."""
    fields = [field for field in schema if field.name not in table.without]
    types = [_picture_type(one.type) if one.name in table.pictures else one.type for one in fields]
    columns = [pa.field(field.name, kind) for field, kind in zip(fields, types, strict=True)]
    return with_hub_features(pa.schema(columns))


def _picture_type(kind: pa.DataType) -> pa.DataType:
    return pa.list_(PICTURE) if pa.types.is_list(kind) else PICTURE


def _hub_row(row: Mapping[str, Any], table: HubTable, export: Path) -> dict[str, Any]:
    made = {name: value for name, value in row.items() if name not in table.without}
    for name in table.pictures:
        made[name] = _embedded(row[name], export)
    for name in table.trees:
        made[name] = None if row[name] is None else _tree_text(row[name], export)
    return made


def _embedded(value: Any, export: Path) -> Any:
    """A path as the picture itself; pictures that are embedded already stay as they are."""
    if isinstance(value, str):
        return {"bytes": (export / value).read_bytes(), "path": value}
    if isinstance(value, Sequence):
        return [_embedded(one, export) for one in value]
    return value


def _tree_text(value: str, export: Path) -> str:
    if value.startswith("{"):
        return value
    return (export / value).read_text(encoding="utf-8").rstrip("\n")
