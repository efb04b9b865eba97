"""The manifest: what a version of an output consists of and what it was built from.

Belongs here: `manifest.json`, writing and reading it, and the hashes over it. A version's id is a
hash of its manifest's bytes, so equal work has equal ids on every machine and in every store.
A dataset has hundreds of thousands of files: their entries are written and read one after the other
and held in columns.
"""

import hashlib
import json
import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue, PlainSerializer, PlainValidator

from demo_pipeline.files.atomic_write import synced_file
from demo_pipeline.problems import Problem

VERSION_LENGTH = 16
_CHUNK = 2**16  # bytes of a manifest in memory
_AT_ONCE = 512  # entries that are written
_DIGEST = 32  # bytes of SHA-256
# A path is as `encode_basestring` writes it.
_ENTRY = re.compile(
    rb'\n  \{\n   "path": ("[^"\\\x00-\x1f]*+'
    rb'(?:\\(?:["\\bfnrt]|u00[01][0-9a-f])[^"\\\x00-\x1f]*+)*+"),\n   "sha256": "([0-9a-f]{64})",'
    rb'\n   "size": (\d+)\n  \},?'
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything an output depends on; an output with an equal recipe is not built again.

    `settings` is a fingerprint of the stage's own settings, and `inputs` leads from the name of
    each input to the content fingerprint of its version.
    """

    stage: str
    code_version: str
    settings: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of one check of a staged version: problems include warnings.

    `metadata` are JSON values to show; the failure of a `blocking` check prevents the commit.
    """

    name: str
    passed: bool
    problems: tuple[Problem, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    blocking: bool = True


class FileEntry(NamedTuple):
    """One file: `/`-separated path under `content/`, bytes, hex digest."""

    path: str
    size: int
    sha256: str


class FileTable:
    """Files in the order of their paths: 50 bytes each in memory, and the path."""

    def __init__(self, entries: Iterable[FileEntry] = ()) -> None:
        self._paths: list[str] = []
        self._sizes, self._digests = array("Q"), bytearray()
        for entry in entries:
            self.extend([entry.path], [entry.size], entry.sha256)

    def extend(self, paths: Iterable[str], sizes: Iterable[int], sha256: str) -> None:
        """Add files; `sha256` are their hex digests, one after the other."""
        self._paths.extend(paths)
        self._sizes.extend(sizes)
        self._digests += bytes.fromhex(sha256)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(self._sizes)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Path and size of each file."""
        return zip(self._paths, self._sizes, strict=True)

    def find(self, path: str) -> FileEntry | None:
        """The file with this path."""
        place = bisect_left(self._paths, path)
        return self._entry(place) if self._paths[place : place + 1] == [path] else None

    def _entry(self, place: int) -> FileEntry:
        digest = self._digests[place * _DIGEST : (place + 1) * _DIGEST]
        return FileEntry(self._paths[place], self._sizes[place], digest.hex())

    def __iter__(self) -> Iterator[FileEntry]:
        return map(self._entry, range(len(self)))

    def __len__(self) -> int:
        return len(self._paths)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileTable) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


_FileField = Annotated[
    FileTable,
    PlainValidator(lambda value: value if isinstance(value, FileTable) else FileTable()),
    PlainSerializer(list),
]


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A link to the content of another output's version."""

    # Not a model: an index has many thousands of links.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    output: str
    version: str


class Manifest(BaseModel):
    """`manifest.json`. It holds no time and no path of a machine.

    Attributes:
        files: sorted by path; empty folders are not part of an output.
        links: path under `content/` → the version that it links to.
        content: SHA-256 over paths, digests and links; equal for equal content, whatever it
            was built from.
        summary: the JSON object that the stage returned.
        checks: outcomes of the checks of the staged version.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    output: str
    stage: str
    code_version: str
    settings: str
    inputs: dict[str, str]
    files: _FileField
    links: dict[str, LinkEntry]
    content: str
    summary: dict[str, JsonValue]
    checks: tuple[CheckOutcome, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """What the version was built from."""
        return Recipe(self.stage, self.code_version, self.settings, self.inputs)

    def chunks(self) -> Iterator[bytes]:
        """The file's bytes: keys sorted, one line per entry, the same for the same manifest."""
        before, start, after = self._text().partition('\n "files": [')
        yield f"{before}{start}".encode()
        rest, parting = iter(self.files), ""
        while some := [
            f'\n  {{\n   "path": {encode_basestring(entry.path)},\n   "sha256": "{entry.sha256}",'
            f'\n   "size": {entry.size}\n  }}'
            for entry in islice(rest, _AT_ONCE)
        ]:
            yield f"{parting}{','.join(some)}".encode()
            parting = ","
        end = "\n " if len(self.files) else ""
        yield f"{end}{after}\n".encode()

    def as_read(self) -> "Manifest":
        """The manifest as it is read back: every value is one of JSON."""
        read = Manifest.model_validate_json(self._text())
        return read.model_copy(update={"files": self.files})

    def _text(self) -> str:
        """The text without the files."""
        values = {**self.model_dump(mode="json", exclude={"files"}), "files": []}
        return json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)

    @classmethod
    def of_chunks(cls, chunks: Iterable[bytes]) -> "Manifest":
        """The manifest with these bytes, which `chunks` wrote. Raises `ValueError`."""
        files, others, rest = FileTable(), list[bytes](), b""

        def take_files(text: bytes) -> bytes:
            parts = _ENTRY.split(text)
            paths, digests = json.loads(b"[%b]" % b",".join(parts[1::4])), b"".join(parts[2::4])
            files.extend(paths, map(int, parts[3::4]), digests.decode())
            return b"".join(parts[::4])

        for chunk in chunks:
            rest += chunk
            complete = max(rest.rfind(b"\n  {"), 0)
            others.append(take_files(rest[:complete]))
            rest = rest[complete:]
        read = cls.model_validate_json(b"".join((*others, take_files(rest))))
        return read.model_copy(update={"files": files})


@dataclass(frozen=True, slots=True)
class VersionName:
    """A committed version without its manifest: many thousands fit into memory."""

    output: str
    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version: plain data, valid for as long as the store keeps it.

    Its id is the first 16 hex of the SHA-256 over the manifest's bytes.
    """

    id: str
    manifest: Manifest

    @property
    def output(self) -> str:
        """The output's name."""
        return self.manifest.output

    @property
    def content(self) -> str:
        """Fingerprint of the content: a later stage's recipe names it as its input."""
        return self.manifest.content

    @property
    def name(self) -> VersionName:
        """The version without its manifest."""
        return VersionName(self.output, self.id, self.content)

    @property
    def key(self) -> tuple[str, str]:
        """Output and id."""
        return self.output, self.id


def parse_version(chunks: Iterable[bytes], output: str, version: str) -> Version | None:
    """The version whose manifest has these bytes; None when they do not match its id."""
    digest = hashlib.sha256()

    def noted() -> Iterator[bytes]:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk

    try:
        manifest = Manifest.of_chunks(noted())
    except ValueError:
        return None
    same = digest.hexdigest()[:VERSION_LENGTH] == version
    return Version(version, manifest) if same and manifest.output == output else None


def read_version(path: str, output: str, version: str) -> Version | None:
    """The version with the manifest at `path`; None when it is missing or not of this id."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - very many
            return parse_version(iter(partial(file.read, _CHUNK), b""), output, version)
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_version(path: Path, manifest: Manifest) -> Version:
    """Write and sync a manifest; returns its version as it is read back."""
    digest = hashlib.sha256()
    with synced_file(path) as file:
        for chunk in manifest.chunks():
            digest.update(chunk)
            file.write(chunk)
    return Version(digest.hexdigest()[:VERSION_LENGTH], manifest.as_read())


def make_manifest(
    output: str,
    recipe: Recipe,
    *,
    files: FileTable,
    links: Mapping[str, LinkEntry],
    summary: Mapping[str, JsonValue],
    checks: Sequence[CheckOutcome],
) -> Manifest:
    """The manifest of a staged directory; `pydantic.ValidationError`: the summary is not JSON."""
    digest = hashlib.sha256()  # over the (path, digest) pairs and the links, sorted by path
    for entry in files:
        path = encode_basestring_ascii(entry.path)
        digest.update(f'["file", {path}, "{entry.sha256}"]\n'.encode())
    for path, link in sorted(links.items()):
        digest.update(f"{json.dumps(['link', path, link.output, link.version])}\n".encode())
    return Manifest(
        output=output,
        stage=recipe.stage,
        code_version=recipe.code_version,
        settings=recipe.settings,
        inputs=dict(recipe.inputs),
        files=files,
        links=dict(links),
        content=digest.hexdigest(),
        summary=dict(summary),
        checks=tuple(checks),
    )
