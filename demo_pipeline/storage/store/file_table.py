"""The files of a version in little memory: a dataset has hundreds of thousands of them.

Belongs here: holding the entries of a manifest as their text in `manifest.json`, which is written,
read and taken over in blocks.
"""

import json
import re
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, PlainSerializer, PlainValidator, TypeAdapter

_BLOCK = 1024  # entries that are packed together, at least
BETWEEN = b",\n"
"""What stands between the texts of two entries."""
# A path as `encode_basestring` writes it.
_ENTRY = re.compile(
    rb'  \{\n   "path": "((?:[^"\\\x00-\x1f]|\\(?:["\\bfnrt]|u00[01][0-9a-f]))*+)",'
    rb'\n   "sha256": "([0-9a-f]{64})",\n   "size": (\d+)\n  \}'
)
_SIZE = re.compile(rb'\n   "size": (\d+)\n')
_FOREIGN = re.compile(rb"[^ -~\n]")  # what the two forms of a path may differ in


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


@dataclass(eq=False, slots=True)
class FileTable:
    """Files in the order of their paths; some 50 bytes each in memory.

    Attributes:
        size: bytes of all files together.
    """

    size: int = 0
    _count: int = 0
    _blocks: list[bytes] = field(default_factory=list)  # compressed texts of entries
    _ends: list[str] = field(default_factory=list)  # the last path of each block
    _last: list[bytes] = field(default_factory=list)
    _held: int = 0  # entries in `_last`
    _found: tuple[int, Mapping[str, FileEntry]] = (-1, {})  # the block that was looked into

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
        text = entry.text.encode()
        if not _ENTRY.fullmatch(text):
            raise ValueError("a digest is not the hex form of a SHA-256")
        self.append_text(text, 1, entry.size)

    def append_text(self, text: bytes, count: int, size: int) -> None:
        """Add files.

        Args:
            text: their entries, as in the manifest.
            count: how many.
            size: bytes of the files together.
        """
        self.size += size
        self._count += count
        self._last.append(text)
        self._held += count
        if self._held >= _BLOCK:
            self._pack()

    def _pack(self) -> None:
        text = BETWEEN.join(self._last)
        self._blocks.append(zlib.compress(text, 1))
        (last,) = _entries(text[text.rfind(b"\n  {\n") + 1 :])
        self._ends.append(last.path)
        self._last, self._held = [], 0

    def texts(self) -> Iterator[bytes]:
        """Yield the texts of the entries, of many at a time, without what stands between them."""
        for block in self._blocks:
            yield zlib.decompress(block)
        if self._last:
            yield BETWEEN.join(self._last)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yield path and size of each file."""
        for text in self.texts():
            yield from sizes_by_path(text)

    def rows(self) -> Iterator[bytes]:
        """Yield a line of JSON for each file, of many at a time: `["file", path, digest]`."""
        for text in self.texts():
            if _FOREIGN.search(text):
                for entry in _entries(text):
                    path = encode_basestring_ascii(entry.path)
                    yield f'["file", {path}, "{entry.sha256}"]\n'.encode()
            else:
                found = _ENTRY.findall(text)
                yield b"".join(
                    [b'["file", "%b", "%b"]\n' % (path, sha256) for path, sha256, _ in found]
                )

    def find(self, path: str) -> FileEntry | None:
        """The entry of a complete table with this path; quick when asked in the order of paths."""
        number = bisect_left(self._ends, path)
        if self._found[0] != number:
            packed = self._blocks[number : number + 1]
            text = zlib.decompress(packed[0]) if packed else BETWEEN.join(self._last)
            self._found = (number, {entry.path: entry for entry in _entries(text)})
        return self._found[1].get(path)

    def __iter__(self) -> Iterator[FileEntry]:
        for text in self.texts():
            yield from _entries(text)

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileTable):
            return NotImplemented
        same = (self.size, len(self)) == (other.size, len(other))
        return same and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


def _entries(text: bytes) -> Iterator[FileEntry]:
    for found in _ENTRY.finditer(text):
        yield FileEntry(_path(found[1]), int(found[3]), found[2].decode())


def _path(raw: bytes) -> str:
    """The path in an entry."""
    return str(json.loads(b'"%b"' % raw)) if b"\\" in raw else raw.decode()


def sizes_by_path(text: bytes) -> list[tuple[str, int]]:
    """Path and size of the files whose entries a text has."""
    return [(_path(path), int(size)) for path, _, size in _ENTRY.findall(text)]


_LIST = TypeAdapter(tuple[FileEntry, ...])


def _as_table(value: object) -> FileTable:
    if isinstance(value, FileTable):
        return value
    return FileTable.of(_LIST.validate_python(value))


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

    Raises:
        ValueError: a path is not Unicode.
    """
    while True:
        stop = text.find(b"\n ]")
        end = stop if stop >= 0 else text.rfind(b"\n  },\n") + len(b"\n  }")
        if stop >= 0 or end > len(b"\n  }"):
            if not _add_entries(text[:end], table):
                return None
            if stop >= 0:
                return text[stop:]
            text = text[end + 1 :]
        chunk = next(chunks, None)
        if chunk is None:
            return None
        text += chunk


def _add_entries(text: bytes, table: FileTable) -> bool:
    """Add successive entries after a line break; False when the text has another form."""
    rest, count = _ENTRY.subn(b"", text)
    if rest != b"\n" + BETWEEN * (count - 1):
        return False
    text.decode()
    table.append_text(text[1:], count, sum(map(int, _SIZE.findall(text))))
    return True
