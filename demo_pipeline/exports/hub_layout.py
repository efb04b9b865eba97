"""Exports as the Hugging Face Hub takes them: pictures in the rows, in shards, and a card.

Belongs here: the types of columns as `datasets` writes them, which columns become pictures, the
shards (rows with pictures fit neither into memory together nor into one file), and the card. Trees
stay text in a column of strings: the Hub's viewer fails on types that are nested without an end.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from demo_pipeline.datasets.splits import Split
from demo_pipeline.exports.cards import render_card
from demo_pipeline.exports.dataset_statistics import SplitStats
from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.files.parquet import open_rows, read_schema
from demo_pipeline.settings import DatasetSettings, HubSettings

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def with_hub_features(schema: pa.Schema) -> pa.Schema:
    """The schema with the note; without it `datasets` shows a picture as a struct of bytes."""
    note = json.dumps({"info": {"features": _feature(pa.struct(schema))}})
    return schema.with_metadata({"huggingface": note})


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """A type as `datasets` writes it; of a struct column → its type."""
    if kind == PICTURE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


_GROUP_ROWS = 64
_GROUP_BYTES = 32 * 2**20  # in memory; a reader that streams holds a row group too
_FOOTER_BYTES = 256 * 1024  # of a file with the row groups that fit into it
_OPTIONS = {"compression": "zstd", "compression_level": 3}


def write_shards(
    rows: Iterable[Mapping[str, Any]], folder: Path, stem: str, schema: pa.Schema, max_bytes: int
) -> int:
    """Write `<stem>-00000-of-00002.parquet`, …; nothing without a row. Returns the number of rows.

    A file has at most `max_bytes`, but a single row that is larger has a file of its own.
    """
    drafts = list[Path]()
    writer = None
    count = 0
    strings = [field.name for field in schema if pa.types.is_string(field.type)]
    try:
        for group, size in _groups(rows, min(_GROUP_BYTES, max_bytes)):
            if writer and drafts[-1].stat().st_size + size + _FOOTER_BYTES > max_bytes:
                writer.close()
                writer = None
            if writer is None:
                drafts.append(folder / f".{stem}-{len(drafts):05d}")
                writer = pq.ParquetWriter(drafts[-1], schema, use_dictionary=strings, **_OPTIONS)
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
            count += len(group)
    finally:
        if writer:
            writer.close()
    for number, draft in enumerate(drafts):
        draft.rename(folder / f"{stem}-{number:05d}-of-{len(drafts):05d}.parquet")
    return count


def _groups(
    rows: Iterable[Mapping[str, Any]], most: int
) -> Iterator[tuple[list[Mapping[str, Any]], int]]:
    """Yield successive rows that become a row group, with about their bytes."""
    group = list[Mapping[str, Any]]()
    total = 0
    for row in rows:
        size = _bytes_of(row)
        if group and (len(group) >= _GROUP_ROWS or total + size > most):
            yield group, total
            group = []
            total = 0
        group.append(row)
        total += size
    if group:
        yield group, total


def _bytes_of(value: Any) -> int:
    """About the bytes of a value, without compression."""
    if isinstance(value, Mapping):
        return sum(map(_bytes_of, value.values()))
    if isinstance(value, list):
        return sum(map(_bytes_of, value)) + 4
    return len(value) if isinstance(value, bytes | str) else 8


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
    """Write `data/<config>/<split>-….parquet`."""
    folder = out / DATA_FOLDER / table.config
    folder.mkdir(parents=True)
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    paths = ((split.value, export / table.folder / f"{split.value}.parquet") for split in Split)
    sources = [(split, path) for split, path in paths if path.is_file()]
    schema = _hub_schema(read_schema(sources[0][1]), table)
    for split, source in sources:
        with open_rows(source, _ROWS_IN_MEMORY) as (_, values):
            made = (_hub_row(row, table, export) for row in values)
            count = write_shards(made, folder, split, schema, max_bytes)
        if count:
            rows[split] = count
            sizes[split] = sum(file.stat().st_size for file in folder.glob(f"{split}-*"))
    if not rows:
        folder.rmdir()
    return HubConfig(table, schema, rows, sizes)


def _hub_schema(schema: pa.Schema, table: HubTable) -> pa.Schema:
    """The columns with pictures, noted as `datasets` notes them, without descriptions of ours."""
    types = {field.name: field.type for field in schema if field.name not in table.without}
    for name in table.pictures:
        types[name] = pa.list_(PICTURE) if pa.types.is_list(types[name]) else PICTURE
    return with_hub_features(pa.schema(types))


def _hub_row(row: Mapping[str, Any], table: HubTable, export: Path) -> dict[str, Any]:
    made = {name: value for name, value in row.items() if name not in table.without}
    for name in table.pictures:
        made[name] = _embedded(row[name], export)
    for name in table.trees:
        if made[name] is not None and not made[name].startswith("{"):
            made[name] = (export / made[name]).read_text(encoding="utf-8").rstrip("\n")
    return made


def _embedded(value: Any, export: Path) -> Any:
    """A path as the picture itself; pictures that are embedded already stay as they are."""
    if isinstance(value, str):
        return {"bytes": (export / value).read_bytes(), "path": value}
    if isinstance(value, Sequence):
        return [_embedded(one, export) for one in value]
    return value


_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**6, "100K<n<1M"))
_MORE = "1M<n<10M"


def hub_card(
    configs: Sequence[HubConfig],
    splits: Mapping[str, Mapping[str, SplitStats]],
    settings: tuple[DatasetSettings, HubSettings],
    out: Path,
    *,
    privacy: str,
) -> str:
    """The text of the card."""
    used = [config for config in configs if config.rows]
    total = sum(sum(config.rows.values()) for config in used)
    return render_card(
        "hub",
        settings[0],
        configs=used,
        splits=splits,
        language=settings[1].language,
        task_categories=sorted({name for one in used for name in one.table.task_categories}),
        size=next((name for most, name in _SIZES if total < most), _MORE),
        features={one.table.config: list(_yaml(_features(one.schema))) for one in used},
        digests={one.table.config: _digest(one, out) for one in used},
        data=DATA_FOLDER,
        privacy=privacy,
    )


def _features(schema: pa.Schema) -> dict[str, Any]:
    features = _feature(pa.struct(schema))
    return {"features": [{"name": name, **_told(kind)} for name, kind in features.items()]}


def _told(feature: Mapping[str, Any], key: str = "dtype") -> dict[str, Any]:
    """A type as a card has it; `key` is `list` for the type of a list's items."""
    kind = feature.get("_type")
    if kind == "List":
        return _told(feature["feature"], "list")
    if kind in {"Image", "Value"}:
        return {key: feature.get("dtype", "image")}
    below = [{"name": name, **_told(one)} for name, one in feature.items()]
    return {"struct" if key == "dtype" else key: below}


def _yaml(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an object; its texts are YAML already."""
    for name, value in values.items():
        if not isinstance(value, list):
            yield f"{name}: {value}"
            continue
        yield f"{name}:"
        for item in value:
            lines = _yaml(item) if isinstance(item, Mapping) else [item]
            yield from (f"{'  ' if number else '- '}{line}" for number, line in enumerate(lines))


def _digest(config: HubConfig, out: Path) -> str:
    """Changes with the data: `datasets` keys its cache by the card and the names of the files."""
    digest = hashlib.sha256()
    for path in sorted((out / DATA_FOLDER / config.table.config).iterdir()):
        digest.update(read_digest(path).sha256.encode())
    return f"sha256:{digest.hexdigest()}"
