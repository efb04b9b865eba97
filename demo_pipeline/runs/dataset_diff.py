"""Two versions of a dataset: the rows that differ, and what made them differ.

Belongs here: reading the rows of any form by their ids, and following the recipes of both versions
back to the first input, setting or code version that differs. An export brings its recipes in
`versions.jsonl`; a store has the manifests of its versions until they are pruned.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from demo_pipeline.datasets.selection import CORRECTIONS_FILE
from demo_pipeline.datasets.splits import Split
from demo_pipeline.files.atomic_write import file_digest
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.review.decisions import REJECT_REASONS
from demo_pipeline.review.review_store import REVIEWS
from demo_pipeline.runs.datasets import kept_files, read_of
from demo_pipeline.runs.setting_notes import Values, noted_settings, setting_changes
from demo_pipeline.runs.stages import DATASET_STAGE_BY_NAME, DATASET_STAGES, STAGE_BY_NAME
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.stage import RECORDS
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import is_safe_id
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import Version
from demo_pipeline.trajectories.trajectory_files import DatasetTrajectory

VERSIONS_FILE = "versions.jsonl"  # in an export
RECORDING = "recording"
_LIMITS = "limits"  # what names of further settings begin with
_TRAJECTORIES = "trajectories"
# Where a dataset has its rows: the first line with a file counts.
_ROWS = (
    ("steps.parquet",),
    tuple(f"{split.value}.parquet" for split in Split),
    (*(f"{split.value}.jsonl" for split in Split), "test/records.jsonl"),
    ("*/*/trajectory.json", "tasks/*.json", "examples/*/*.json", "cua-lite/**/*.parquet"),
)
_REVIEWS: tuple[tuple[Literal["open", "approved", "rejected"], str], ...] = (
    ("open", ""),
    ("approved", ""),
    *(("rejected", reason) for reason in REJECT_REASONS),
)
_FILE = re.compile(r"[\w./-]{1,200}\.(?:png|jpe?g|json)", re.ASCII)


class Made(msgspec.Struct, frozen=True):
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
    def of(cls, version: Version, store: Store) -> "Made":
        """Of a version in a store."""
        one = version.manifest
        entries = one.files if one.stage == RECORDS else ()
        files = {entry.path: entry.sha256 for entry in entries if "/" not in entry.path}
        decisions: list[str] = []
        if CORRECTIONS_FILE in files:
            with store.open_version(version) as folder:
                decisions = json.loads((folder / CORRECTIONS_FILE).read_bytes())["decisions"]
        recipe = (one.stage, one.code_version, one.settings, one.inputs, one.content)
        return cls(one.output, version.id, *recipe, files, decisions)

    def fingerprints(self) -> Iterator[str]:
        """Yield those of its settings."""
        limits = (text for name, text in self.inputs.items() if name.startswith(_LIMITS))
        yield from filter(None, (self.settings, *limits))


class _Line(msgspec.Struct, omit_defaults=True):
    """A line of `versions.jsonl`."""

    version: Made | None = None
    settings: dict[str, Any] | None = None
    fingerprint: str = ""


@dataclass(frozen=True)
class Origins:
    """Where versions come from: the manifests of a store, or the lines of an export."""

    versions: Callable[[str], Sequence[Made]]
    settings: Callable[[str], Values | None]

    @classmethod
    def of_store(cls, store: Store) -> "Origins":
        """All versions that the store still has."""

        @cache
        def versions(output: str) -> Sequence[Made]:
            return [
                Made.of(one, store)
                for name, one in store.versions(output)
                if one and name == output
            ]

        return cls(versions, lambda fingerprint: noted_settings(store, fingerprint))

    @classmethod
    def of_export(cls, file: Path) -> "Origins":
        """The versions that an export was copied from."""
        lines = [msgspec.json.decode(line, type=_Line) for line in file.read_bytes().splitlines()]
        found: dict[str, list[Made]] = {}
        for line in lines:
            if line.version is not None:
                found.setdefault(line.version.output, []).append(line.version)
        settings = {line.fingerprint: line.settings for line in lines}
        return cls(lambda output: found.get(output, []), settings.get)

    def records(self, dataset: Made, demonstration: str) -> tuple[Made | None, str]:
        """The records that a dataset was built from, and the review that counted."""
        kept, wanted = (
            kept_files(DATASET_STAGE_BY_NAME[dataset.stage]),
            dataset.inputs[demonstration],
        )
        for made in self.versions(f"{RECORDS}/{demonstration}"):
            content = made.inputs[_TRAJECTORIES]
            for review, why in _REVIEWS:
                source = DatasetTrajectory(
                    demonstration, "", content, digests=made.files, review=review, rejected_for=why
                )
                if read_of(source, kept, "none") == wanted:
                    return made, "not rejected"
                if read_of(source, kept, "approved") == wanted:
                    return made, f"{review} ({why})" if why else review
        return None, ""

    def sources(self, made: Made) -> Iterator[Made]:
        """The version and, of a demonstration, every one that it was made of."""
        yield made
        demonstration = made.output.rpartition("/")[2]
        for name, content in made.inputs.items():
            if name in STAGE_BY_NAME and made.stage in STAGE_BY_NAME:
                for one in self.made(name, demonstration, content):
                    yield from self.sources(one)

    def made(self, stage: str, demonstration: str, content: str) -> list[Made]:
        """The versions of a stage with this content."""
        output = STAGE_BY_NAME[stage].output(demonstration)
        return [one for one in self.versions(output) if one.content == content]


def write_origins(store: Store, outputs: Sequence[str], dest: Path) -> None:
    """Write what the exported versions were built from beside them."""
    origins, written, lines = Origins.of_store(store), set[tuple[str, str]](), list[_Line]()
    for output in outputs:
        current = store.current(output)
        if current is None or not _is_compared(current.manifest.stage):
            continue
        dataset = Made.of(current, store)
        records = (origins.records(dataset, key)[0] for key in _demonstrations(dataset))
        chains = (origins.sources(one) for one in records if one is not None)
        for made in (dataset, *(one for chain in chains for one in chain)):
            if (made.output, made.id) not in written:
                written.add((made.output, made.id))
                lines.append(_Line(version=made))
    made_of = [line.version for line in lines if line.version]
    prints = {fingerprint for one in made_of for fingerprint in one.fingerprints()}
    noted = ((one, origins.settings(one)) for one in sorted(prints))
    lines += [_Line(settings=dict(values), fingerprint=one) for one, values in noted if values]
    if not lines:
        return
    (dest / VERSIONS_FILE).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in lines))


def _is_compared(stage: str) -> bool:
    return stage in DATASET_STAGE_BY_NAME and DATASET_STAGE_BY_NAME[stage].reads_trajectories


def _demonstrations(dataset: Made) -> list[str]:
    return [name for name in dataset.inputs if is_safe_id(name)]


@dataclass(frozen=True)
class DatasetRow:
    """A row: its demonstration and split, and what it holds as key → digest, never as text."""

    demonstration: str
    split: str
    parts: Mapping[str, str]


@dataclass(frozen=True)
class ComparedDataset:
    """A dataset to compare."""

    dataset: Made
    rows: Mapping[str, DatasetRow]
    origins: Origins

    @property
    def name(self) -> str:
        """`sft@72045b607079386e`."""
        return f"{self.dataset.output}@{self.dataset.id}"


def open_sides(workspace: Workspace, text: str) -> dict[str, Callable[[], ComparedDataset]]:
    """The datasets that a command names, by their stages.

    Args:
        workspace: whose store has the versions.
        text: an export, a folder in one, `OUTPUT`, `OUTPUT@ID` or an id.

    Raises:
        StorageError: there is no such dataset.
    """
    path = Path(text).absolute()
    for folder in (path, *path.parents) if path.is_dir() else ():
        if (folder / VERSIONS_FILE).is_file():
            return _of_export(folder, path)
    version = _named_version(workspace.store, text)
    return {version.manifest.stage: partial(_stored, workspace.store, version)}


def _stored(store: Store, version: Version) -> ComparedDataset:
    digests = {entry.path: entry.sha256 for entry in version.manifest.files}
    with store.open_version(version) as content:
        rows = dataset_rows(content, digests.get)
    return ComparedDataset(Made.of(version, store), rows, Origins.of_store(store))


def _of_export(export: Path, chosen: Path) -> dict[str, Callable[[], ComparedDataset]]:
    origins = Origins.of_export(export / VERSIONS_FILE)
    folders = [*export.glob("*"), *export.glob("*/*")]
    if chosen != export:
        folders = [folder for folder in folders if folder.is_relative_to(chosen)]
    outputs = (folder.relative_to(export).as_posix() for folder in folders)
    found = (made for output in outputs for made in origins.versions(output))
    return {one.stage: partial(_exported, export, one, origins) for one in found}


def _exported(export: Path, made: Made, origins: Origins) -> ComparedDataset:
    folder = export / made.output

    def digest(name: str) -> str | None:
        return file_digest(folder / name).sha256 if (folder / name).is_file() else None

    return ComparedDataset(made, dataset_rows(folder, cache(digest)), origins)


def _named_version(store: Store, text: str) -> Version:
    folders = sorted({stage.folder for stage in DATASET_STAGES if stage.reads_trajectories})
    known = [one for folder in folders for _, one in store.versions(folder) if one]
    found = [one for one in known if _is_named(store, one, text)]
    if len(found) == 1:
        return found[0]
    alike = [one for one in known if one.output == text.partition("@")[0]]
    current = [one for one in known if _is_named(store, one, one.output)]
    names = ", ".join(f"{one.output}@{one.id}" for one in found or alike or current)
    raise StorageError(
        f"{text!r} is neither one version of a dataset nor a folder that `demo-pipeline export` "
        f"wrote; there are {names or 'no versions yet'}"
    )


def _is_named(store: Store, one: Version, text: str) -> bool:
    """Whether a text is a version's id, its output and id, or the output that it is current of."""
    if text in {one.id, f"{one.output}@{one.id}"}:
        return True
    current = store.published(one.output) if f"{one.output}/".startswith(f"{text}/") else None
    return current is not None and current.id == one.id


def dataset_rows(folder: Path, digest: Callable[[str], str | None]) -> dict[str, DatasetRow]:
    """Id → row of a dataset; `digest` gives the SHA-256 of a file that a row names."""
    rows: dict[str, DatasetRow] = {}
    for patterns in _ROWS:
        files = sorted({path for pattern in patterns for path in folder.glob(pattern)})
        for path in files:
            split = path.parts[len(folder.parts)].partition(".")[0]
            for value in _values(path):
                key, row = _row(value, path, split, digest)
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
    value: Mapping[str, Any], path: Path, split: str, digest: Callable[[str], str | None]
) -> tuple[str, DatasetRow]:
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
    shown = value.get("split") or ("" if path.name == "steps.parquet" else split)
    return key, DatasetRow(demonstration, shown, parts)


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
class RowDifference:
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
    """Two versions of a dataset, compared."""

    stage: str
    before: str
    after: str
    rows: tuple[int, int]
    differences: list[RowDifference] = field(default_factory=list)


def compare(old: ComparedDataset, new: ComparedDataset) -> DatasetDiff:
    """The rows that differ between two versions of a dataset, with their causes."""
    causes = _Causes(old, new)
    found = [
        _difference(key, old.rows.get(key), new.rows.get(key), causes)
        for key in sorted({*old.rows, *new.rows})
        if old.rows.get(key) != new.rows.get(key)
    ]
    counts = (len(old.rows), len(new.rows))
    return DatasetDiff(new.dataset.stage, old.name, new.name, counts, found)


def _difference(
    key: str, old: DatasetRow | None, new: DatasetRow | None, causes: "_Causes"
) -> RowDifference:
    row = new or old
    assert row is not None  # noqa: S101 - it is in one of them
    moved = old is not None and new is not None and old.split != new.split
    because = causes.of(row.demonstration, moved=moved)
    change = "changed" if old and new else "added" if new else "removed"
    split, parts = row.split, list[str]()
    if old and new:
        names = sorted({*old.parts, *new.parts})
        parts = [name for name in names if old.parts.get(name) != new.parts.get(name)]
        split = split if old.split == split else f"{old.split} → {split}"
    return RowDifference(key, row.demonstration, change, split, tuple(parts), because)


class _Causes:
    """What differs between the recipes of two versions of a dataset."""

    def __init__(self, old: ComparedDataset, new: ComparedDataset) -> None:
        self._old, self._new = old, new
        self._kept = kept_files(DATASET_STAGE_BY_NAME[new.dataset.stage])
        self._whole = [*self._of_dataset()]
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

    def _of_dataset(self) -> Iterator[str]:
        old, new = self._old.dataset, self._new.dataset
        yield from self._code_and_settings(old, new)
        for name in sorted({*old.inputs, *new.inputs}):
            before, after = old.inputs.get(name), new.inputs.get(name)
            if name.startswith(_LIMITS) and before and after and before != after:
                yield from self._settings(name, before, after)

    def _of_demonstration(self, key: str) -> Iterator[str]:
        if key not in self._old.dataset.inputs:
            yield f"{RECORDING} added, or no longer quarantined"
        elif key not in self._new.dataset.inputs:
            yield f"{RECORDING} removed, forgotten or quarantined"
        else:
            old, was = self._old.origins.records(self._old.dataset, key)
            new, now = self._new.origins.records(self._new.dataset, key)
            if old is None or new is None:
                yield "unknown: the older records were pruned"
            else:
                if was != now:
                    yield f"decision: it was {was}, and is {now}"
                yield from self._between(old, new, key)

    def _between(self, old: Made, new: Made, key: str) -> Iterator[str]:
        """What differs in the recipes of two versions of a stage, followed back to its origin."""
        yield from self._code_and_settings(old, new)
        for name in sorted({*old.inputs, *new.inputs}):
            before, after = old.inputs.get(name, ""), new.inputs.get(name, "")
            if before == after or (name.endswith(".jsonl") and name not in self._kept):
                continue
            if name == REVIEWS:
                decided = sorted({*old.decisions} ^ {*new.decisions})
                yield from (f"decision {one}" for one in decided)
            elif name in STAGE_BY_NAME:
                yield from self._origin(name, key, before, after)
            elif name.endswith(".jsonl"):
                was, now = (text.partition(" ")[0] for text in (before, after))
                if was != now:
                    yield f"code version of {name}: {was or 'none'} → {now or 'none'}"
            else:
                yield RECORDING if name == "upload" else f"{name.replace('_', ' ')} changed"

    def _origin(self, stage: str, key: str, before: str, after: str) -> Iterator[str]:
        """The same of an input; of versions with equal content those that are most alike."""
        found = [
            [*self._between(old, new, key)]
            for old in self._old.origins.made(stage, key, before)
            for new in self._new.origins.made(stage, key, after)
        ]
        yield from min(found, key=len, default=[f"{stage}: an older version was pruned"])

    def _code_and_settings(self, old: Made, new: Made) -> Iterator[str]:
        if old.code_version != new.code_version:
            yield f"code version of {new.stage}: {old.code_version} → {new.code_version}"
        if old.settings != new.settings:
            yield from self._settings(new.stage, old.settings, new.settings)

    def _settings(self, stage: str, before: str, after: str) -> Iterator[str]:
        old, new = self._old.origins.settings(before), self._new.origins.settings(after)
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
    return [compare(old[stage](), new[stage]()) for stage in shared]
