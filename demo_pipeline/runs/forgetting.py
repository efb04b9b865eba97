"""Finds a person's demonstrations by meta.json, and lists the data that `forget` would remove."""

import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.index import EXPORTS_SCHEMA, EXPORTS_TABLE
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.files.json_files import JsonFileError, load_json
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.files.recording_files import META_FILE
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.recording.manifest import MANIFEST_FILE
from demo_pipeline.recording.meta import read_meta
from demo_pipeline.recording.recording_stages import RAW_RECORDINGS_STAGE
from demo_pipeline.review.review_store import documents_of, outputs_of
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.bucket import in_parallel
from demo_pipeline.store.errors import ObjectChangedError, StorageError
from demo_pipeline.store.store import Store

# Words in the names of fields that identify the recorded person.
_PERSON_FIELD = re.compile(
    r"user|person|people|author|annotator|participant|contributor|operator|owner|uploader"
    r"|recorded_?by|recorder|e-?mail|wallet|address",
    re.IGNORECASE,
)
_MAX_DEPTH = 8  # maximum depth of the search in nested objects and lists


@dataclass(frozen=True)
class FieldValue:
    """A field of meta.json.

    Attributes:
        name: the name. Names of nested fields have dots, as in `recorder.user`.
        value: the value as text.
    """

    name: str
    value: str

    @property
    def names_person(self) -> bool:
        """Whether the field's name suggests that its value identifies the recorded person."""
        return bool(_PERSON_FIELD.search(self.name))


def field_values(meta: Any, prefix: str = "", depth: int = 0) -> Iterator[FieldValue]:
    """Yields every text and number in meta.json as a field, including those inside lists.

    Args:
        meta: meta.json, or a value in it.
        prefix: the name of the containing field; empty for meta.json itself.
        depth: the number of levels above the value.
    """
    if isinstance(meta, Mapping) and depth < _MAX_DEPTH:
        for key, value in meta.items():
            name = f"{prefix}.{key}" if prefix else str(key)
            yield from field_values(value, name, depth + 1)
    elif isinstance(meta, list) and depth < _MAX_DEPTH:
        for value in meta:
            yield from field_values(value, prefix, depth + 1)
    elif isinstance(meta, str | int | float) and not isinstance(meta, bool):
        yield FieldValue(prefix, str(meta).strip())


@dataclass(frozen=True)
class PersonSearch:
    """The conditions of a search for demonstrations.

    Attributes:
        person: the full value of a field that identifies the person. Case is ignored. If empty,
            any person matches.
        fields: maps names of fields to their required values. All fields must match.
    """

    person: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    def matches(self, meta: Any) -> bool:
        """Returns whether the content of a meta.json meets all conditions."""
        values = list(field_values(meta))
        names = {value.value.casefold() for value in values if value.names_person}
        if self.person and self.person.strip().casefold() not in names:
            return False
        pairs = {(value.name, value.value) for value in values}
        return all((name, value.strip()) in pairs for name, value in self.fields.items())


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        matching: the ids of the demonstrations that meet the conditions.
        unreadable: the ids of the demonstrations whose meta.json cannot be read.
    """

    matching: list[str]
    unreadable: list[str]


def find_demonstrations(workspace: Workspace, search: PersonSearch) -> SearchResult:
    """Finds the demonstrations in the uploads and in the store that meet the conditions.

    Raises:
        StorageError: the uploads or the store cannot be read.
    """
    folder = RAW_RECORDINGS_STAGE.folder
    stored = [name.rpartition("/")[2] for name in workspace.store.outputs(folder)]
    uploaded = [upload.id for upload in workspace.uploads.list_demonstrations()]
    ids = sorted({*stored, *uploaded})
    all_metas = in_parallel(partial(_metas, workspace), ids)
    matching: list[str] = []
    unreadable: list[str] = []
    for key, metas in zip(ids, all_metas, strict=True):
        if not metas:
            unreadable.append(key)
        elif any(map(search.matches, metas)):
            matching.append(key)
    return SearchResult(matching, unreadable)


def _metas(workspace: Workspace, demonstration: str) -> list[Mapping[str, Any]]:
    """Returns the content of meta.json in the upload and in the store; the two may differ.

    A file that is missing or cannot be read is left out.
    """
    metas: list[Mapping[str, Any]] = []
    info = (workspace.uploads.objects.files(demonstration) or {}).get(META_FILE)
    if info is not None:
        with tempfile.TemporaryDirectory() as temporary:
            path = Path(temporary, META_FILE)
            with suppress(ObjectChangedError, DemonstrationError, OSError):
                workspace.uploads.objects.fetch(info.key, info.etag, path)
                metas.append(read_meta(path.read_bytes())[0].members())
    output = RAW_RECORDINGS_STAGE.output(demonstration)
    if workspace.store.current(output) is not None:
        with suppress(JsonFileError, KeyError):
            manifest = load_json(workspace.store.open(output, MANIFEST_FILE)[0] / MANIFEST_FILE)
            metas.append(manifest["meta"])
    return metas


@dataclass(frozen=True)
class Removal:
    """The data that `forget` removes for a demonstration.

    Attributes:
        is_uploaded: whether the uploads have a folder of the demonstration.
        upload: the names of the files in the uploaded folder.
        outputs: the demonstration's own outputs. All their versions are removed.
        datasets: the datasets that contain the demonstration. All their versions are removed.
        documents: the number of quarantine records, decisions and annotations.
        records: maps the name of each training export to the number of the demonstration's records
            in its last build.
    """

    demonstration: str
    is_uploaded: bool
    upload: tuple[str, ...]
    outputs: list[str]
    datasets: list[str]
    documents: int
    records: Mapping[str, int]

    @property
    def is_empty(self) -> bool:
        """Whether `forget` has nothing to remove."""
        return not (self.is_uploaded or self.outputs or self.datasets or self.documents)


def plan_removals(workspace: Workspace, ids: Sequence[str]) -> list[Removal]:
    """Lists the data that `forget` would remove for each demonstration."""
    stages = [stage.name for stage in STAGES]
    records = _records(workspace.store)
    removals = []
    for demonstration in ids:
        outputs = outputs_of(workspace.store, demonstration, stages)
        files = workspace.uploads.objects.files(demonstration) or {}
        removals.append(
            Removal(
                demonstration,
                workspace.uploads.find(demonstration) is not None,
                tuple(sorted(files)),
                sorted(outputs.own),
                sorted(outputs.datasets),
                len(documents_of(workspace.store, demonstration)),
                records.get(demonstration, Counter()),
            )
        )
    return removals


def _records(store: Store) -> Mapping[str, Counter[str]]:
    """Returns, for each demonstration, the number of its records in each training export.

    Returns an empty dictionary if the index of the datasets was never built or is damaged.
    """
    records: dict[str, Counter[str]] = {}
    if store.current(INDEX_STAGE.folder) is None:
        return records
    try:
        folder = store.open(INDEX_STAGE.folder, EXPORTS_TABLE)[0]
    except StorageError:
        return records
    for row in read_rows(folder / EXPORTS_TABLE, EXPORTS_SCHEMA):
        if row["records"]:
            counts = records.setdefault(row["trajectory_id"], Counter())
            counts[row["export"]] += row["records"]
    return records
