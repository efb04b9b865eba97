"""Writes exports for the Hugging Face Hub: Parquet shards that contain the images, and a card.

UI trees stay text, because the Hub's viewer fails on recursively nested types.
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

# The type in which the library `datasets` stores an image.
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def with_hub_features(schema: pa.Schema) -> pa.Schema:
    """Adds metadata so that `datasets` shows images instead of structs of bytes."""
    note = json.dumps({"info": {"features": _feature(pa.struct(schema))}})
    return schema.with_metadata({"huggingface": note})


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """Describes a type in the format of `datasets`; a struct becomes a dict of field types."""
    if kind == PICTURE:
        return {"_type": "Image"}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    return {"dtype": str(kind), "_type": "Value"}


_GROUP_ROWS = 64  # maximum number of rows of a row group
# Maximum size of a row group, which writers and streaming readers keep in memory as a whole.
_GROUP_BYTES = 32 * 2**20
_FOOTER_BYTES = 256 * 1024  # space reserved for the footer of a file
_OPTIONS = {"compression": "zstd", "compression_level": 3}


def write_shards(
    rows: Iterable[Mapping[str, Any]], folder: Path, stem: str, schema: pa.Schema, max_bytes: int
) -> int:
    """Writes rows to the files `<stem>-00000-of-00002.parquet` and so on.

    Without rows, no file is written. A file has at most `max_bytes`, unless a single row is larger.

    Returns:
        The number of rows.
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
    """Yields the rows of each row group, and their approximate size in bytes.

    A group has at most `most` bytes, unless a single row is larger.
    """
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
    """Returns the approximate size of a value in bytes, without compression."""
    if isinstance(value, Mapping):
        return sum(map(_bytes_of, value.values()))
    if isinstance(value, list):
        return sum(map(_bytes_of, value)) + 4
    if isinstance(value, bytes | str):
        return len(value)
    return 8


DATA_FOLDER = "data"
_ROWS_IN_MEMORY = 16  # rows that are read from the export at once


@dataclass(frozen=True, slots=True)
class HubTable:
    """Describes how the tables of an export become a dataset configuration on the Hub.

    Attributes:
        config: name of the configuration.
        about: description of a row for the card.
        folder: the folder of the tables `<split>.parquet`, relative to the export.
        pictures: columns with image paths relative to the export, or with lists of such paths. The
            images replace the paths.
        trees: columns with the path of a UI tree, or with the tree as text.
        without: columns that are left out.
        task_categories: the Hub's names of the tasks for which the dataset is made.
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
    """A dataset configuration that was written.

    Attributes:
        table: description of the configuration.
        schema: schema of the files.
        rows: number of rows in each split that is not empty.
        sizes: total size of the files of each split, bytes.
    """

    table: HubTable
    schema: pa.Schema
    rows: Mapping[str, int]
    sizes: Mapping[str, int]


def write_hub_config(table: HubTable, export: Path, out: Path, max_bytes: int) -> HubConfig:
    """Writes the Parquet shards of a dataset configuration to `data/<config>/`.

    Args:
        table: describes the configuration.
        export: folder of the export.
        out: folder of the dataset for the Hub.
        max_bytes: see `write_shards`.
    """
    folder = out / DATA_FOLDER / table.config
    folder.mkdir(parents=True)
    rows: dict[str, int] = {}
    sizes: dict[str, int] = {}
    sources = dict[str, Path]()
    for split in Split:
        path = export / table.folder / f"{split.value}.parquet"
        if path.is_file():
            sources[split.value] = path
    schema = _hub_schema(read_schema(next(iter(sources.values()))), table)
    for name, source in sources.items():
        with open_rows(source, _ROWS_IN_MEMORY) as (_, export_rows):
            hub_rows = (_hub_row(row, table, export) for row in export_rows)
            count = write_shards(hub_rows, folder, name, schema, max_bytes)
        if count:
            rows[name] = count
            sizes[name] = sum(file.stat().st_size for file in folder.glob(f"{name}-*"))
    if not rows:
        folder.rmdir()
    return HubConfig(table, schema, rows, sizes)


def _hub_schema(schema: pa.Schema, table: HubTable) -> pa.Schema:
    """Returns the schema on the Hub: images instead of paths, and no metadata of this pipeline."""
    types = {field.name: field.type for field in schema if field.name not in table.without}
    for name in table.pictures:
        if pa.types.is_list(types[name]):
            types[name] = pa.list_(PICTURE)
        else:
            types[name] = PICTURE
    return with_hub_features(pa.schema(types))


def _hub_row(row: Mapping[str, Any], table: HubTable, export: Path) -> dict[str, Any]:
    hub_row = {name: value for name, value in row.items() if name not in table.without}
    for name in table.pictures:
        hub_row[name] = _embedded(row[name], export)
    for name in table.trees:
        tree = hub_row[name]
        if tree is not None and not tree.startswith("{"):
            hub_row[name] = (export / tree).read_text(encoding="utf-8").rstrip("\n")
    return hub_row


def _embedded(value: Any, export: Path) -> Any:
    """Replaces an image path, or a list of paths, with the images; other values stay unchanged."""
    if isinstance(value, str):
        return {"bytes": (export / value).read_bytes(), "path": value}
    if isinstance(value, Sequence):
        return [_embedded(item, export) for item in value]
    return value


# Maps numbers of rows to the Hub's size category for datasets with fewer rows.
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 10**6: "100K<n<1M"}
_LARGEST_SIZE = "1M<n<10M"


def hub_card(
    configs: Sequence[HubConfig],
    splits: Mapping[str, Mapping[str, SplitStats]],
    settings: tuple[DatasetSettings, HubSettings],
    out: Path,
    *,
    privacy: str,
) -> str:
    """Returns the text of the card of a dataset for the Hub.

    Args:
        splits: maps the name of each configuration to the statistics of its splits.
        settings: the settings of the datasets, and those of the Hub.
        out: folder of the dataset.
        privacy: see `CommittedTrajectories.privacy`.
    """
    non_empty = [config for config in configs if config.rows]
    task_categories = set[str]()
    features = dict[str, list[str]]()
    digests = dict[str, str]()
    total = 0
    for config in non_empty:
        name = config.table.config
        task_categories.update(config.table.task_categories)
        features[name] = list(_yaml(_features(config.schema)))
        digests[name] = _digest(config, out)
        total += sum(config.rows.values())
    return render_card(
        "hub",
        settings[0],
        configs=non_empty,
        splits=splits,
        language=settings[1].language,
        task_categories=sorted(task_categories),
        size=_size_category(total),
        features=features,
        digests=digests,
        data=DATA_FOLDER,
        privacy=privacy,
    )


def _size_category(rows: int) -> str:
    for limit, category in _SIZES.items():
        if rows < limit:
            return category
    return _LARGEST_SIZE


def _features(schema: pa.Schema) -> dict[str, Any]:
    features = _feature(pa.struct(schema))
    return {"features": [{"name": name, **_card_type(kind)} for name, kind in features.items()]}


def _card_type(feature: Mapping[str, Any], key: str = "dtype") -> dict[str, Any]:
    """Converts a type from the format of `_feature` to that of the card's metadata.

    Args:
        feature: the type in the format of `_feature`.
        key: the key for the type's name: `dtype`, or `list` for list items.
    """
    kind = feature.get("_type")
    if kind == "List":
        return _card_type(feature["feature"], "list")
    if kind in {"Image", "Value"}:
        return {key: feature.get("dtype", "image")}
    members = [{"name": name, **_card_type(member)} for name, member in feature.items()]
    return {"struct" if key == "dtype" else key: members}


def _yaml(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields the lines of a mapping as YAML. Strings are not quoted, so they must be valid YAML."""
    for name, value in values.items():
        if not isinstance(value, list):
            yield f"{name}: {value}"
            continue
        yield f"{name}:"
        for item in value:
            lines = _yaml(item) if isinstance(item, Mapping) else [item]
            prefix = "- "
            for line in lines:
                yield prefix + line
                prefix = "  "


def _digest(config: HubConfig, out: Path) -> str:
    """Returns a hash of the files of a configuration.

    The card contains the hash, because the library `datasets` recognises cached data by the card
    and the names of files, not by their contents.
    """
    digest = hashlib.sha256()
    for path in sorted((out / DATA_FOLDER / config.table.config).iterdir()):
        digest.update(read_digest(path).sha256.encode())
    return f"sha256:{digest.hexdigest()}"
