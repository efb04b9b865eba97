"""The files of a version in little memory: a dataset has hundreds of thousands of them.

Belongs here: holding the entries of a manifest, and their text in `manifest.json`.
"""

import json
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from json.encoder import encode_basestring
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter

_BLOCK = 1024  # entries that are packed together
_DIGEST = 32  # bytes of SHA-256
_PARTING = "\0"  # in no path
_ENTRY = re.compile(
    rb'\n  \{\n   "path": "((?:[^"\\]|\\.)*)",\n   "sha256": "([0-9a-f]{64})",'
    rb'\n   "size": (\d+)\n  \}(,?)'
)


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: `/`-separated path under `content/`, bytes, hex digest."""

    # Not a model: a dataset has hundreds of thousands of files.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    path: str
    size: int
    sha256: str

    @property
    def text(self) -> str:
        """The entry as `json.dumps` writes it in a list at the top."""
        path = encode_basestring(self.path)
        return (
            f'  {{\n   "path": {path},\n   "sha256": "{self.sha256}",\n   "size": {self.size}\n  }}'
        )


@dataclass(frozen=True, slots=True)
class _Block:
    paths: bytes  # compressed
    sizes: Sequence[int]
    digests: bytes

    @classmethod
    def of(cls, entries: list[FileEntry]) -> Self:
        paths = _PARTING.join(entry.path for entry in entries).encode()
        digests = b"".join(bytes.fromhex(entry.sha256) for entry in entries)
        return cls(zlib.compress(paths, 1), array("Q", (entry.size for entry in entries)), digests)

    def __iter__(self) -> Iterator[FileEntry]:
        paths = zlib.decompress(self.paths).decode().split(_PARTING)
        digests = self.digests.hex()
        for number, (path, size) in enumerate(zip(paths, self.sizes, strict=True)):
            start = 2 * _DIGEST * number
            yield FileEntry(path, size, digests[start : start + 2 * _DIGEST])


@dataclass(eq=False, slots=True)
class FileTable:
    """Files in the order of their paths; some 50 bytes each in memory.

    Attributes:
        size: bytes of all files together.
    """

    size: int = 0
    _blocks: list[_Block] = field(default_factory=list)
    _last: list[FileEntry] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Iterable[FileEntry]) -> Self:
        """A table of entries, in their order.

        Raises:
            ValueError: a digest is not hexadecimal, or a path is not Unicode.
        """
        table = cls()
        for entry in entries:
            table.append(entry)
        return table

    def append(self, entry: FileEntry) -> None:
        """Add a file."""
        self.size += entry.size
        self._last.append(entry)
        if len(self._last) == _BLOCK:
            self._blocks.append(_Block.of(self._last))
            self._last = []

    def __iter__(self) -> Iterator[FileEntry]:
        for block in self._blocks:
            yield from block
        yield from self._last

    def __len__(self) -> int:
        return len(self._blocks) * _BLOCK + len(self._last)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileTable):
            return NotImplemented
        same = (self.size, len(self)) == (other.size, len(other))
        return same and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


_ENTRIES = TypeAdapter(tuple[FileEntry, ...])


def _as_table(value: object) -> FileTable:
    if isinstance(value, FileTable):
        return value
    return FileTable.of(_ENTRIES.validate_python(value))


def _as_dicts(table: FileTable) -> list[dict[str, Any]]:
    return [asdict(entry) for entry in table]


FileField = Annotated[FileTable, PlainValidator(_as_table), PlainSerializer(_as_dicts)]
"""A table in a model, where its JSON is a list of entries."""


def read_entries(chunks: Iterator[bytes], text: bytes, table: FileTable) -> bytes | None:
    """Add the entries of a list to a table, as `FileEntry.text` writes them.

    Args:
        chunks: what follows `text`.
        text: begins after the list's bracket.
        table: gets the entries.

    Returns:
        What follows the last entry, with the bracket at the end of the list, before the chunks
        that are left; None when the text has another form.
    """
    start, more = 0, True
    while more:
        found = _ENTRY.match(text, start)
        if found is None or found.end() == len(text):
            chunk = next(chunks, None)
            if chunk is None:
                return None
            text, start = text[start:] + chunk, 0
            continue
        raw = found[1]
        path = json.loads(b'"%b"' % raw) if b"\\" in raw else raw.decode()
        table.append(FileEntry(path, int(found[3]), found[2].decode()))
        start, more = found.end(), bool(found[4])
    return text[start:]
