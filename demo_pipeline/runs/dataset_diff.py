"""Two versions of a dataset: the rows that differ, and what made them differ.

Belongs here: reading the rows of any form by their ids, and following the recipes of both versions
back to the first input, setting or code version that differs. An export brings its recipes in
`versions.jsonl`; a store has the manifests of its versions until they are pruned.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from demo_pipeline.datasets.selection import CORRECTIONS_FILE
from demo_pipeline.datasets.splits import Split
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.review.decisions import REJECT_REASONS
from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.runs.committed_trajectories import trajectory_fingerprint
from demo_pipeline.runs.dataset_outputs import files_of_records
from demo_pipeline.runs.setting_notes import Values, noted_settings, setting_changes
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, STAGE_BY_NAME
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import RECORDS
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory

VERSIONS_FILE = "versions.jsonl"  # in an export
_LIMITS = "limits"  # what names of further settings begin with
_COMPARED = {name: one for name, one in DATASET_STAGE_BY_NAME.items() if one.reads_trajectories}
# Where a dataset has its rows: the first line with a file counts.
_ROWS = (
    ("steps.parquet", "trajectories.parquet"),
    tuple(f"{split}.parquet" for split in Split),
    (*(f"{split}.jsonl" for split in Split), "test/records.jsonl"),
    ("*/*/trajectory.json", "tasks/*.json", "examples/*/*.json", "cua-lite/**/*.parquet"),
)
_REVIEWS: tuple[tuple[Literal["open", "approved", "rejected"], str], ...] = (
    ("open", ""),
    ("approved", ""),
    *(("rejected", reason) for reason in REJECT_REASONS),
)
_FILE = re.compile(r"[\w./-]{1,200}\.(?:png|jpe?g|json)", re.ASCII)


class _Made(msgspec.Struct, frozen=True):
    """What a version was built from; of records also files and decisions."""

    output: str
    id: str
    stage: str
    code_version: str
    settings: str
    inputs: dict[str, str]
    content: str
    files: dict[str, str] = {}
    decisions: list[str] = []

    @classmethod
    def of(cls, version: Version, store: Store) -> "_Made":
        """Of a version in a store."""
        one = version.manifest
        entries = one.files if one.stage == RECORDS else ()
        files = {entry.path: entry.sha256 for entry in entries if "/" not in entry.path}
        decisions: list[str] = []
        if CORRECTIONS_FILE in files:
            folder = store.open_version(version)
            decisions = json.loads((folder / CORRECTIONS_FILE).read_bytes())["decisions"]
        recipe = (one.stage, one.code_version, one.settings, one.inputs, one.content)
        return cls(one.output, version.id, *recipe, files, decisions)


class _DatasetRow(NamedTuple):
    """A row: its demonstration and split, and what it holds as key → digest, never as text."""

    demonstration: str
    split: str
    parts: Mapping[str, str]


@dataclass(frozen=True)
class _ComparedDataset:
    """A dataset to compare, and what is known of where it comes from.

    Attributes:
        dataset: its version.
        rows: id → row, read when this is called.
        versions: those that are known of an output.
        settings: the values with a fingerprint; None when they are not known.
    """

    dataset: _Made
    rows: Callable[[], Mapping[str, _DatasetRow]]
    versions: Callable[[str], Sequence[_Made]]
    settings: Callable[[str], Values | None]

    def records(self, demonstration: str) -> tuple[_Made | None, str]:
        """The records that the dataset was built from, and the review that counted."""
        wanted = self.dataset.inputs[demonstration]
        kept = files_of_records(_COMPARED[self.dataset.stage])
        for made in self.versions(f"{RECORDS}/{demonstration}"):
            content = made.inputs["trajectories"]
            for review, why in _REVIEWS:
                source = DatasetTrajectory(
                    demonstration, "", content, digests=made.files, review=review, rejected_for=why
                )
                if trajectory_fingerprint(source, kept, "none") == wanted:
                    return made, "not rejected"
                if trajectory_fingerprint(source, kept, "approved") == wanted:
                    return made, f"{review} ({why})" if why else review
        return None, ""

    def made(self, stage: str, demonstration: str, content: str) -> list[_Made]:
        """The versions of a stage of a demonstration with this content."""
        output = STAGE_BY_NAME[stage].output(demonstration)
        return [one for one in self.versions(output) if one.content == content]

    def sources(self, made: _Made, demonstration: str) -> Iterator[_Made]:
        """A version of a demonstration, and every one that it was made of."""
        yield made
        for name, content in made.inputs.items():
            for one in self.made(name, demonstration, content) if name in STAGE_BY_NAME else ():
                yield from self.sources(one, demonstration)


def _sides(store: Store, versions: Sequence[Version]) -> list[_ComparedDataset]:
    """Versions of datasets in a store, with all versions that it still has."""

    @cache
    def known(output: str) -> Sequence[_Made]:
        found = store.versions(output)
        return [_Made.of(one, store) for name, one in found if one and name == output]

    def rows(version: Version) -> Mapping[str, _DatasetRow]:
        digests = {entry.path: entry.sha256 for entry in version.manifest.files}
        for place, link in version.manifest.links.items():
            for _, one in store.versions(link.output):
                files = one.manifest.files if one and one.id == link.version else ()
                digests |= {f"{place}/{entry.path}": entry.sha256 for entry in files}
        content = store.open_version(version)
        return dataset_rows(content, digests.get)

    settings = partial(noted_settings, store)
    return [
        _ComparedDataset(_Made.of(one, store), partial(rows, one), known, settings)
        for one in versions
    ]


def _exported_sides(export: Path) -> list[_ComparedDataset]:
    """The datasets in an export, with the versions that they were copied from."""
    lines = [json.loads(line) for line in (export / VERSIONS_FILE).read_bytes().splitlines()]
    known = defaultdict[str, list[_Made]](list)
    for line in lines:
        if "version" in line:
            made = msgspec.convert(line["version"], _Made)
            known[made.output].append(made)
    settings = {line["fingerprint"]: line["settings"] for line in lines if "settings" in line}

    def rows(folder: Path) -> Mapping[str, _DatasetRow]:
        return dataset_rows(folder, cache(partial(_file_digest, folder)))

    return [
        _ComparedDataset(
            made, partial(rows, export / made.output), lambda name: known[name], settings.get
        )
        for found in [*known.values()]
        for made in found
        if made.stage in _COMPARED
    ]


def _file_digest(folder: Path, name: str) -> str | None:
    return file_digest(folder / name).sha256 if (folder / name).is_file() else None


def write_origins(store: Store, outputs: Sequence[str], dest: Path) -> None:
    """Write what the exported versions were built from beside them."""
    found = [one for one in map(store.current, outputs) if one and one.manifest.stage in _COMPARED]
    written: dict[tuple[str, str], _Made] = {}
    for side in _sides(store, found):
        written[side.dataset.output, side.dataset.id] = side.dataset
        for key in _demonstrations(side.dataset):
            records, _ = side.records(key)
            for made in side.sources(records, key) if records else ():
                written[made.output, made.id] = made
    if not written:
        return
    lines: list[Mapping[str, Any]] = [{"version": made} for made in written.values()]
    prints = {text for made in written.values() for text in _fingerprints(made)}
    noted = ((one, noted_settings(store, one)) for one in sorted(prints))
    lines += [{"settings": values, "fingerprint": one} for one, values in noted if values]
    (dest / VERSIONS_FILE).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))


def _fingerprints(made: _Made) -> Iterator[str]:
    """Yield those of a version's settings."""
    limits = (text for name, text in made.inputs.items() if name.startswith(_LIMITS))
    yield from filter(None, (made.settings, *limits))


def _demonstrations(dataset: _Made) -> list[str]:
    return [name for name in dataset.inputs if is_safe_id(name)]


def open_sides(workspace: Workspace, text: str) -> dict[str, _ComparedDataset]:
    """The datasets that a command names, by their stages.

    Args:
        workspace: whose store has the versions.
        text: an export, a folder in one, `OUTPUT`, `OUTPUT@ID` or an id.

    Raises:
        StorageError: there is no such dataset.
    """
    path, store = Path(text).absolute(), workspace.store
    for folder in (path, *path.parents) if path.is_dir() else ():
        if (folder / VERSIONS_FILE).is_file():
            return {
                one.dataset.stage: one
                for one in _exported_sides(folder)
                if (folder / one.dataset.output).is_relative_to(path)
            }
    folders = sorted({stage.folder for stage in _COMPARED.values()})
    known = [one for folder in folders for _, one in store.versions(folder) if one]
    current = [one for one in known if (now := store.published(one.output)) and now.id == one.id]
    named = [one for one in known if text in {one.id, f"{one.output}@{one.id}"}]
    named = named or [one for one in current if f"{one.output}/".startswith(f"{text}/")]
    if len(named) != 1:
        alike = named or [one for one in known if one.output == text.partition("@")[0]] or current
        names = ", ".join(f"{one.output}@{one.id}" for one in alike)
        raise StorageError(
            f"{text!r} is neither one version of a dataset nor a folder that `demo-pipeline "
            f"export` wrote; there are {names or 'no versions yet'}"
        )
    return {one.dataset.stage: one for one in _sides(store, named)}


def dataset_rows(folder: Path, digest: Callable[[str], str | None]) -> dict[str, _DatasetRow]:
    """Id → row of a dataset; `digest` gives the SHA-256 of a file that a row names."""
    rows: dict[str, _DatasetRow] = {}
    for patterns in _ROWS:
        files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
        for path in files:
            split = path.parts[len(folder.parts)].partition(".")[0]
            for value in _values(path):
                key, row = _row(value, split if split in {*Split} else "", digest)
                while key in rows:  # the forms without ids of rows
                    key += "+"
                rows[key] = row
        if files:
            break
    return rows


def _values(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.suffix == ".parquet":
        yield from read_rows(path)
    elif path.suffix == ".jsonl":
        yield from map(json.loads, path.read_bytes().split(b"\n")[:-1])
    else:
        yield json.loads(path.read_bytes())


def _row(
    value: Mapping[str, Any], split: str, digest: Callable[[str], str | None]
) -> tuple[str, _DatasetRow]:
    meta = value.get("metadata") or {}
    meta = json.loads(meta) if isinstance(meta, str) else meta
    known = {**meta.get("others", {}), **meta, **value}
    demonstration = str(known.get("trajectory_id") or known.get("task_id") or known.get("id"))
    step = known.get("step_index")
    key = known.get("id") or f"{demonstration}{'' if step is None else f'_{step:03d}'}"
    parts = {name: _digest(one) for name, one in value.items() if name != "split"}
    for name, one in value.items():
        pictures = [found for file in _strings(one) if (found := digest(file))]
        if pictures:
            parts[f"{name} (file)"] = _digest(pictures)
    return key, _DatasetRow(demonstration, value.get("split") or split, parts)


def _strings(value: Any) -> Iterator[str]:
    """The strings in a value that may be names of files."""
    if isinstance(value, str):
        if _FILE.fullmatch(value):
            yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(one)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class _RowDifference:
    """A row that differs.

    Attributes:
        row: its id.
        demonstration: that it is of.
        change: `added`, `removed` or `changed`.
        split: of the row, `val → train` when that changed.
        parts: that changed.
        causes: what made it differ.
    """

    row: str
    demonstration: str
    change: str
    split: str
    parts: tuple[str, ...]
    causes: tuple[str, ...]


@dataclass(frozen=True)
class DatasetDiff:
    """Two versions of a dataset, `output@id` each, compared; `rows`: how many each has."""

    stage: str
    before: str
    after: str
    rows: tuple[int, int]
    differences: list[_RowDifference]


def compare(old: _ComparedDataset, new: _ComparedDataset) -> DatasetDiff:
    """The rows that differ between two versions of a dataset, with their causes."""
    causes, before, after = _Causes(old, new), old.rows(), new.rows()
    found = []
    for key in sorted({*before, *after}):
        was, now = before.get(key), after.get(key)
        row = now or was
        if row is None or was == now:
            continue
        change = "changed" if was and now else "added" if now else "removed"
        split, parts = row.split, tuple[str, ...]()
        if was and now:
            differing = {*was.parts.items()} ^ {*now.parts.items()}
            parts = tuple(sorted({name for name, _ in differing}))
            split = split if was.split == split else f"{was.split} → {split}"
        because = causes.of(row.demonstration, moved=split != row.split)
        found.append(_RowDifference(key, row.demonstration, change, split, parts, because))
    names = [f"{side.dataset.output}@{side.dataset.id}" for side in (old, new)]
    return DatasetDiff(new.dataset.stage, names[0], names[1], (len(before), len(after)), found)


class _Causes:
    """What differs between the recipes of two versions of a dataset."""

    def __init__(self, old: _ComparedDataset, new: _ComparedDataset) -> None:
        self._old, self._new = old, new
        self._kept = files_of_records(_COMPARED[new.dataset.stage])
        self._whole = [*self._between(old.dataset, new.dataset)]
        before, after = old.dataset.inputs, new.dataset.inputs
        self._own = {
            key: [*dict.fromkeys(self._of_demonstration(key))]
            for key in {*_demonstrations(old.dataset), *_demonstrations(new.dataset)}
            if before.get(key) != after.get(key)
        }

    def of(self, demonstration: str, *, moved: bool) -> tuple[str, ...]:
        """The causes for a row: of its demonstration, of the dataset, else of other ones.

        `moved`: it is in another split, which other demonstrations may have caused.
        """
        found = [*self._own.get(demonstration, ()), *self._whole]
        others = [
            f"{cause} (of {key})"
            for key, causes in sorted(self._own.items())
            for cause in causes
            if key != demonstration and (moved or not found)
        ]
        return tuple(dict.fromkeys(found + others)) or ("unknown: the recipes are the same",)

    def _of_demonstration(self, key: str) -> Iterator[str]:
        if key not in self._old.dataset.inputs:
            yield "recording added, or no longer quarantined"
        elif key not in self._new.dataset.inputs:
            yield "recording removed, forgotten or quarantined"
        else:
            (old, was), (new, now) = self._old.records(key), self._new.records(key)
            if old is None or new is None:
                yield "unknown: the older records were pruned"
            else:
                if was != now:
                    yield f"decision: it was {was}, and is {now}"
                yield from self._between(old, new, key)

    def _between(self, old: _Made, new: _Made, key: str = "") -> Iterator[str]:
        """What differs in two recipes, of a demonstration `key` followed back to its origin."""
        if old.code_version != new.code_version:
            yield f"code version of {new.stage}: {old.code_version} → {new.code_version}"
        if old.settings != new.settings:
            yield from self._settings(new.stage, old.settings, new.settings)
        for name in sorted({*old.inputs, *new.inputs}):
            before, after = old.inputs.get(name, ""), new.inputs.get(name, "")
            if before == after or (name.endswith(".jsonl") and name not in self._kept):
                continue
            if not key:  # a dataset, whose demonstrations are followed one by one
                if name.startswith(_LIMITS) and before and after:
                    yield from self._settings(name, before, after)
            elif name == REVIEWS:
                decided = sorted({*old.decisions} ^ {*new.decisions})
                yield from (f"decision {one}" for one in decided)
            elif name in STAGE_BY_NAME:
                yield from self._origin(name, key, before, after)
            elif name.endswith(".jsonl"):
                was, now = (text.partition(" ")[0] for text in (before, after))
                if was != now:
                    yield f"code version of {name}: {was or 'none'} → {now or 'none'}"
            else:
                yield "recording" if name == "upload" else f"{name.replace('_', ' ')} changed"

    def _origin(self, stage: str, key: str, before: str, after: str) -> Iterator[str]:
        """The same of an input; of versions with equal content those that are most alike."""
        found = [
            [*self._between(old, new, key)]
            for old in self._old.made(stage, key, before)
            for new in self._new.made(stage, key, after)
        ]
        yield from min(found, key=len, default=[f"{stage}: an older version was pruned"])

    def _settings(self, stage: str, before: str, after: str) -> Iterator[str]:
        old, new = self._old.settings(before), self._new.settings(after)
        if old is None or new is None:
            yield f"settings of {stage}, whose values were not noted"
        else:
            yield from setting_changes(old, new)


def compare_datasets(workspace: Workspace, before: str, after: str) -> list[DatasetDiff]:
    """Every dataset that both name, compared.

    Raises:
        StorageError: one names no dataset, or they have none in common.
    """
    old, new = open_sides(workspace, before), open_sides(workspace, after)
    shared = [stage for stage in old if stage in new]
    if not shared:
        kinds = [", ".join(side) or "no dataset" for side in (old, new)]
        raise StorageError(
            f"nothing to compare: {before} has {kinds[0]}, and {after} has {kinds[1]}"
        )
    return [compare(old[stage], new[stage]) for stage in shared]
