"""What a few neighbouring trajectories add to an export, kept for the next build.

Belongs here: the key of a part, its bytes, and holding it in memory. What a part holds is up to the
export; where parts are kept, up to the store.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.files.line_digests import FACT, DigestColumn, KnownLines, line_digest
from demo_pipeline.files.parquet import rows_table

LARGEST_PART = 64 * 2**20  # bytes; a larger one is not kept, since it is made and read in memory
_CODEC = "zstd"
_VERDICT = "valid 3"
_LINES = ("0.lines", "0.tests", "0.test_lines")  # blobs of lines that checks may know


FindEarlier = Callable[[str, str], tuple[str, bool] | None]
"""From a path below the export and the SHA-256 of its file to where an earlier version has it.

That is its full path, and whether it may be hard-linked; None when there is no such file.
"""


class PartStore(Protocol):
    """Keeps parts by key. It may forget any of them, and gives no damaged one."""

    def read(self, key: str) -> bytes | None:
        """The bytes that were kept under the key; None when they are gone or damaged."""

    def has(self, key: str) -> bool:
        """Whether something is kept under the key; it may be damaged."""

    def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key."""


@dataclass(frozen=True, slots=True)
class Part:
    """JSON values and named bytes."""

    header: Mapping[str, Any]
    blobs: Mapping[str, bytes] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The part as it is kept; equal parts give equal bytes."""
        sizes = {name: len(blob) for name, blob in self.blobs.items()}
        head = json.dumps([self.header, sizes], separators=(",", ":")).encode()
        text = b"".join((head, b"\n", *self.blobs.values()))
        packed: bytes = pa.Codec(_CODEC).compress(text, asbytes=True)
        return f"{len(text)}\n".encode() + packed

    @classmethod
    def from_bytes(cls, data: bytes) -> "Part":
        """The part that `to_bytes` wrote."""
        size, _, packed = data.partition(b"\n")
        text = pa.Codec(_CODEC).decompress(packed, int(size), asbytes=True)
        start = text.index(b"\n") + 1
        header, sizes = json.loads(text[:start])
        blobs = {}
        for name, length in sizes.items():
            blobs[name] = text[start : start + length]
            start += length
        return cls(header, blobs)


SegmentT = TypeVar("SegmentT")


class PartSink(Protocol[SegmentT]):
    """Where an exporter writes records so that they can be kept in parts.

    Everything that `Exporter.write` changes has to be in a sink: for a kept part only `add` runs.
    """

    def hold(self) -> None:
        """Write nothing until `take`."""

    def take(self, trajectory: str, folder: str) -> SegmentT:
        """What would have been written since `hold`: the records of one trajectory."""

    def add(self, segment: SegmentT, folders: Mapping[str, str]) -> None:
        """Write a segment; `folders` are those of its trajectories, by id."""

    def linked(self, segment: SegmentT) -> Sequence[str]:
        """Folders of the export that hold nothing but hard links that its part has made."""

    def pack(self, segments: Sequence[SegmentT]) -> Part:
        """Successive segments as a part."""

    def unpack(self, part: Part) -> SegmentT | None:
        """What `pack` packed, as one segment; None when a file that it needs is gone."""


@dataclass(frozen=True, slots=True)
class KeptParts:
    """The parts of one dataset stage.

    Attributes:
        store: where they are kept.
        stage: name of the stage.
        code_version: of the stage.
        settings: fingerprint of the settings that the stage depends on.
        used: keys of the parts of records that this build has used or made.
        written: trajectory → records that this build has written.
        linked: key of a part → the folders of the export with its hard links alone.
        earlier: find files in the versions that the store has of the export.
    """

    store: PartStore
    stage: str
    code_version: str
    settings: str
    used: list[str] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)
    linked: dict[str, Sequence[str]] = field(default_factory=dict)
    earlier: list[FindEarlier] = field(default_factory=list)

    def key(self, kind: str, facts: object) -> str:
        """The key of a part of this stage: a hash of everything that it depends on."""
        return _digest([kind, self.stage, self.code_version, self.settings, facts])

    def shared_key(self, kind: str, facts: object) -> str:
        """The key of a part that depends on neither stage nor settings."""
        return _digest([kind, "", self.code_version, "", facts])

    def find_earlier(self, path: str, sha256: str) -> tuple[str, bool] | None:
        """See `FindEarlier`; in any of the earlier versions."""
        found = (find(path, sha256) for find in self.earlier)
        return next(filter(None, found), None)

    def get(self, key: str) -> Part | None:
        """The part with this key, if it is kept."""
        data = self.store.read(key)
        return Part.from_bytes(data) if data is not None else None

    def put(self, key: str, part: Part) -> None:
        """Keep a part, unless it is very large."""
        if sum(map(len, part.blobs.values())) <= LARGEST_PART:
            self.store.write(key, part.to_bytes())

    def kept_lines(self) -> KnownLines:
        """The lines of this build's parts that an earlier check has found valid."""
        known = KnownLines()
        for key in self.used:
            verdict = self.get(self.key(_VERDICT, key))
            if verdict is not None:
                known.add(verdict.blobs["digests"], verdict.blobs["facts"])
        return known

    def keep_lines(self, known: KnownLines) -> None:
        """Keep the verdict on every part of this build whose lines are all known to be valid."""
        for key in self.used:
            verdict = self.key(_VERDICT, key)
            part = None if self.store.has(verdict) else self.get(key)
            if part is None:
                continue
            lines = [line for name in _LINES for line in part.blobs.get(name, b"").split(b"\n")]
            digests = DigestColumn(b"".join(line_digest(line) for line in lines if line))
            facts = list(known.any_facts(digests))
            found = [fact or bytes(FACT) for fact in facts if fact is not None]
            if len(found) == len(facts):
                blobs = {"facts": b"".join(found), "digests": bytes(digests.data)}
                self.put(verdict, Part({}, blobs))


_PARTS: ContextVar[KeptParts | None] = ContextVar("parts", default=None)


def kept_parts() -> KeptParts | None:
    """The parts that the running build may use; None: it makes everything anew."""
    return _PARTS.get()


@contextmanager
def using_parts(parts: KeptParts | None) -> Iterator[None]:
    """Let builds and checks inside the context use kept parts; their results are the same."""
    token = _PARTS.set(parts)
    try:
        yield
    finally:
        _PARTS.reset(token)


def join_parts(header: Mapping[str, Any], parts: Sequence[Part]) -> Part:
    """Several parts as one, with a header of its own."""
    blobs = {
        f"{number}.{name}": blob
        for number, part in enumerate(parts)
        for name, blob in part.blobs.items()
    }
    return Part({**header, "parts": [part.header for part in parts]}, blobs)


def split_part(part: Part) -> list[Part]:
    """The parts that `join_parts` joined."""
    found = [Part(header, {}) for header in part.header["parts"]]
    blobs: list[dict[str, bytes]] = [{} for _ in found]
    for key, blob in part.blobs.items():
        number, _, name = key.partition(".")
        blobs[int(number)][name] = blob
    return [Part(one.header, own) for one, own in zip(found, blobs, strict=True)]


def table_bytes(table: pa.Table) -> bytes:
    """A table as Arrow's stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def table_of(data: bytes) -> pa.Table:
    """The table that `table_bytes` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Run(NamedTuple):
    """Successive records of one trajectory in one split.

    Attributes:
        trajectory: id.
        split: name.
        records: how many.
        size: bytes of their lines.
        links: path below the export's folder → path below the trajectory's.
    """

    trajectory: str
    split: str
    records: int
    size: int
    links: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Segment:
    """The runs, their lines one after the other, and their rows."""

    runs: tuple[Run, ...]
    lines: bytes
    rows: pa.Table

    @property
    def size(self) -> int:
        """Its bytes, about."""
        return len(self.lines) + int(self.rows.nbytes)


@dataclass(slots=True)
class RecordSpan:
    """Successive records of a segment.

    Attributes:
        start, end: of their lines, bytes.
        row: the first one's.
        records: how many.
    """

    start: int
    end: int
    row: int
    records: int


@dataclass(slots=True)
class HeldRecords:
    """The records of one trajectory, until they become a segment."""

    schema: pa.Schema
    splits: list[str] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    links: list[dict[str, Path]] = field(default_factory=list)

    def append(self, split: str, line: bytes, row: Mapping[str, Any]) -> None:
        """Add a record."""
        self.splits.append(split)
        self.lines.append(line)
        self.rows.append([row.get(name) for name in self.schema.names])
        self.links.append({})

    def segment(self, trajectory: str, folder: str) -> Segment:
        """The records as a segment.

        Args:
            trajectory: its id.
            folder: of the trajectory, which all linked files are in.
        """
        runs: list[Run] = []
        start, top = 0, len(folder) + 1
        for end in range(1, len(self.splits) + 1):
            if end == len(self.splits) or self.splits[end] != self.splits[start]:
                size = sum(map(len, self.lines[start:end]))
                links = {
                    name: str(source)[top:]
                    for files in self.links[start:end]
                    for name, source in files.items()
                }
                runs.append(Run(trajectory, self.splits[start], end - start, size, links))
                start = end
        columns = list(zip(*self.rows, strict=True))
        rows = rows_table(columns, self.schema) if columns else self.schema.empty_table()
        return Segment(tuple(runs), b"".join(self.lines), rows)


def pack_segments(segments: Sequence[Segment], schema: pa.Schema) -> Part:
    """Segments as one part."""
    rows = pa.concat_tables([schema.empty_table(), *(segment.rows for segment in segments)])
    header = {"runs": [list(run) for segment in segments for run in segment.runs]}
    lines = b"".join(segment.lines for segment in segments)
    return Part(header, {"lines": lines, "rows": table_bytes(rows)})


def unpack_segment(part: Part) -> Segment:
    """The segment that a part holds."""
    runs = tuple(Run(*values) for values in part.header["runs"])
    return Segment(runs, part.blobs["lines"], table_of(part.blobs["rows"]))


def linked_folders(segment: Segment) -> list[str]:
    """Folders of the export that hold nothing but files of the segment's runs."""
    folders: dict[str, bool] = {}
    for run in segment.runs:
        folder = f"trajectories/{run.trajectory}"
        if run.links:
            inside = all(name.startswith(f"{folder}/") for name in run.links)
            folders[folder] = inside and folders.get(folder, True)
    return [folder for folder, inside in folders.items() if inside]


def make_links(out: str, folder: str, links: Mapping[str, str], made: str = "") -> str:
    """Make the files of a run, each once, as hard links; copies where that is refused.

    Args:
        out: folder of the export.
        folder: of the trajectory.
        links: path below `out` → path below `folder`.
        made: a folder below `out` that this has made before.

    Returns:
        The last folder below `out` that it made.
    """
    for name, source in links.items():
        above = name.rpartition("/")[0]
        if above != made:
            _make_folders(out, above.split("/"), made.split("/"))
            made = above
        place, target = f"{folder}/{source}", f"{out}/{name}"
        try:
            os.link(place, target)
        except FileExistsError:
            continue
        except OSError:
            link_or_copy(Path(place), Path(target))
    return made


def _make_folders(top: str, names: list[str], made: list[str]) -> None:
    """Make a folder below `top` and those above it; `made` is another one that exists."""
    path, exists = top, True
    for place, name in enumerate(names):
        path, exists = f"{path}/{name}", exists and made[place : place + 1] == [name]
        if not exists:
            try:
                os.mkdir(path)  # noqa: PTH102 - a hundred thousand times
            except FileExistsError:
                continue
