"""Compares two versions of a dataset, and finds the rows that were added, removed or changed.

A difference contains only digests, never text of a recording.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from demo_pipeline.datasets.splits import Split
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.runs.stages import dataset_stages_by_name
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version

# Maps the stages whose datasets can be compared to the folders of the datasets.
_COMPARED = {
    name: stage.folder
    for name, stage in dataset_stages_by_name().items()
    if stage.reads_trajectories
}
# Patterns of the files with the rows of a dataset. The first tuple with an existing file is used.
_ROW_FILES = (
    ("steps.parquet", "trajectories.parquet"),
    tuple(f"{split}.parquet" for split in Split),
    (*(f"{split}.jsonl" for split in Split), "test/records.jsonl"),
    ("*/*/trajectory.json", "tasks/*.json", "examples/*/*.json", "cua-lite/**/*.parquet"),
)
# An argument may name the exported folder, or a folder at most two levels below it.
_EXPORT_LEVELS = 2
_FILE_NAME = re.compile(r"[\w./-]{1,200}\.(?:png|jpe?g|json)", re.ASCII)

_FileDigest = Callable[[str], str | None]
"""Takes a file's path in a dataset. Returns its SHA-256, or None if the file does not exist."""


@dataclass(frozen=True)
class _Row:
    """A row of a dataset, reduced to digests.

    Attributes:
        demonstration: the id of the demonstration from which the row was made.
        split: the split of the row; empty if unknown.
        parts: maps each column to the digest of its value. If the value names files, the key
            `<column> (file)` has the digest of the files' contents.
    """

    demonstration: str
    split: str
    parts: Mapping[str, str]


@dataclass(frozen=True)
class _Dataset:
    """A dataset to compare.

    Attributes:
        stage: the name of the stage that built the dataset.
        name: the dataset's version or folder, as shown to people.
        read_rows: a function that returns a dictionary from ids to rows.
    """

    stage: str
    name: str
    read_rows: Callable[[], Mapping[str, _Row]]


@dataclass(frozen=True)
class RowDifference:
    """A row that differs between two versions.

    Attributes:
        row: the id of the row.
        demonstration: the id of the demonstration from which the row was made.
        change: how the row differs.
        split: the split of the row. If the split changed, the old and the new one: `val → train`.
        parts: the columns whose values or files changed.
    """

    row: str
    demonstration: str
    change: Literal["added", "removed", "changed"]
    split: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetDiff:
    """The result of comparing two versions of a dataset.

    Attributes:
        stage: the stage that built both versions.
        before, after: the two versions, as shown to people.
        rows: the number of rows before and after.
    """

    stage: str
    before: str
    after: str
    rows: tuple[int, int]
    differences: list[RowDifference]


def compare_datasets(workspace: Workspace, before: str, after: str) -> list[DatasetDiff]:
    """Compares every dataset that is named by both arguments.

    Args:
        before: the id of a version, `OUTPUT@ID`, the name of an output (for its current version),
            a folder that `demo-pipeline export` wrote, or a dataset in such a folder.
        after: the other version or folder, in the same notation as `before`.

    Raises:
        StorageError: an argument names no dataset, or the arguments have no dataset in common.
    """
    old = _named_datasets(workspace.store, before)
    new = _named_datasets(workspace.store, after)
    shared = [stage for stage in old if stage in new]
    if not shared:
        raise StorageError(
            f"nothing to compare: {before} has {', '.join(old) or 'no dataset'}, and {after} has "
            f"{', '.join(new) or 'no dataset'}"
        )
    return [_compare(old[stage], new[stage]) for stage in shared]


def _compare(old: _Dataset, new: _Dataset) -> DatasetDiff:
    rows_before = old.read_rows()
    rows_after = new.read_rows()
    differences = []
    for key in sorted({*rows_before, *rows_after}):
        before = rows_before.get(key)
        after = rows_after.get(key)
        if before is None and after is not None:
            differences.append(RowDifference(key, after.demonstration, "added", after.split))
        elif before is not None and after is None:
            differences.append(RowDifference(key, before.demonstration, "removed", before.split))
        elif before is not None and after is not None and before != after:
            changed = {name for name, _ in set(before.parts.items()) ^ set(after.parts.items())}
            split = after.split
            if before.split != after.split:
                split = f"{before.split} → {after.split}"
            differences.append(
                RowDifference(key, after.demonstration, "changed", split, tuple(sorted(changed)))
            )
    counts = (len(rows_before), len(rows_after))
    return DatasetDiff(new.stage, old.name, new.name, counts, differences)


def _named_datasets(store: Store, text: str) -> dict[str, _Dataset]:
    """Maps stages to the datasets named by an argument of `compare_datasets`."""
    path = Path(text).absolute()
    exported = _exported_datasets(path) if path.is_dir() else {}
    if exported:
        return exported
    folders = sorted(set(_COMPARED.values()))
    versions = []
    current = []
    for folder in folders:
        for output, version in store.versions(folder):
            if version is None:
                continue
            versions.append(version)
            published = store.published(output)
            if published is not None and published.id == version.id:
                current.append(version)
    named = [version for version in versions if text in {version.id, _version_name(version)}]
    if not named:
        named = [version for version in current if f"{version.output}/".startswith(f"{text}/")]
    if len(named) != 1:
        candidates = named or current
        names = ", ".join(map(_version_name, candidates))
        raise StorageError(
            f"{text!r} is neither one version of a dataset nor a folder that `demo-pipeline "
            f"export` wrote; there are {names or 'no versions yet'}"
        )
    [version] = named
    rows = partial(_version_rows, store, version)
    return {version.manifest.stage: _Dataset(version.manifest.stage, _version_name(version), rows)}


def _version_name(version: Version) -> str:
    return f"{version.output}@{version.id}"


def _version_rows(store: Store, version: Version) -> Mapping[str, _Row]:
    """Maps ids to the rows of a dataset version in the store.

    The digests of files come from the manifests.
    """
    digests = {entry.path: entry.sha256 for entry in version.manifest.files}
    for place, link in version.manifest.links.items():
        for _, linked in store.versions(link.output):
            if linked is not None and linked.id == link.version:
                for entry in linked.manifest.files:
                    digests[f"{place}/{entry.path}"] = entry.sha256
    return dataset_rows(store.open_version(version), digests.get)


def _exported_datasets(path: Path) -> dict[str, _Dataset]:
    """Maps stages to the datasets below a path in an exported folder.

    Returns an empty dictionary if the path is not in an exported folder.
    """
    for root in (path, *path.parents[:_EXPORT_LEVELS]):
        datasets = {}
        for stage, folder in _COMPARED.items():
            # A CUDAG dataset is one level deeper, in a folder whose name depends on its content.
            for candidate in (root / folder, *sorted((root / folder).glob("*"))):
                if candidate.is_relative_to(path) and _row_files(candidate):
                    rows = partial(_folder_rows, candidate)
                    datasets[stage] = _Dataset(stage, str(candidate), rows)
                    break
        if datasets:
            return datasets
    return {}


def _folder_rows(folder: Path) -> Mapping[str, _Row]:
    @cache
    def digest(name: str) -> str | None:
        file = folder / name
        return file_digest(file).sha256 if file.is_file() else None

    return dataset_rows(folder, digest)


def _row_files(folder: Path) -> list[Path]:
    for patterns in _ROW_FILES:
        files = set[Path]()
        for pattern in patterns:
            files.update(folder.glob(pattern))
        if files:
            return sorted(files)
    return []


def dataset_rows(folder: Path, digest: _FileDigest) -> dict[str, _Row]:
    """Maps ids to the rows of a dataset.

    A row without an id gets one from the id of its demonstration and the number of its step.

    Args:
        digest: returns the SHA-256 of a file in the dataset.
    """
    rows: dict[str, _Row] = {}
    for path in _row_files(folder):
        split = path.parts[len(folder.parts)].partition(".")[0]
        if split not in {*Split}:
            split = ""
        for value in _values(path):
            key, row = _row(value, split, digest)
            while key in rows:
                key += "+"
            rows[key] = row
    return rows


def _values(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        yield from read_rows(path)
    elif path.suffix == ".jsonl":
        yield from map(json.loads, path.read_bytes().split(b"\n")[:-1])
    else:
        yield json.loads(path.read_bytes())


def _row(value: Mapping[str, Any], split: str, digest: _FileDigest) -> tuple[str, _Row]:
    metadata = value.get("metadata") or {}
    if isinstance(metadata, str):
        metadata = json.loads(metadata)
    keys = {**metadata.get("others", {}), **metadata, **value}
    demonstration = str(keys.get("trajectory_id") or keys.get("task_id") or keys.get("id"))
    key = keys.get("id")
    if not key:
        step = keys.get("step_index")
        key = demonstration if step is None else f"{demonstration}_{step:03d}"
    parts = {}
    for name, part in value.items():
        if name != "split":
            parts[name] = _value_digest(part)
        files = [sha256 for file in _file_names(part) if (sha256 := digest(file))]
        if files:
            parts[f"{name} (file)"] = _value_digest(files)
    return key, _Row(demonstration, value.get("split") or split, parts)


def _file_names(value: Any) -> Iterator[str]:
    """Yields the strings in a value that may be names of files."""
    if isinstance(value, str):
        if _FILE_NAME.fullmatch(value):
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _file_names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _file_names(item)


def _value_digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
