"""The manifest: what a version of an output consists of and what it was built from.

Belongs here: the models of `manifest.json` and the hashes over them. A version's id is a hash of
its manifest's bytes, so equal work has equal ids on every machine and in every kind of store.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue

from demo_pipeline.problems import Problem
from demo_pipeline.storage.store.file_table import (
    BETWEEN,
    FileEntry,
    FileField,
    FileTable,
    read_entries,
)

VERSION_LENGTH = 16
_MEMBERS = 512  # of a long object, that are written at once


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything an output depends on; an output with an equal recipe is not built again.

    Attributes:
        stage: the stage's name, e.g. `events`.
        code_version: of the code that builds it.
        settings: fingerprint of the stage's own settings.
        inputs: name of each input → content fingerprint of its version.
    """

    stage: str
    code_version: str
    settings: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of one check of a staged version.

    Attributes:
        name: of the check.
        passed: whether it passed.
        problems: what it found, including warnings.
        metadata: JSON values to show.
        blocking: whether a failure prevents the commit.
    """

    name: str
    passed: bool
    problems: tuple[Problem, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    blocking: bool = True


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A link to the content of another output's version."""

    # Not a model: an index has many thousands of links.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    output: str
    version: str


_FILES = '\n "files": ['


class Manifest(_Frozen):
    """`manifest.json`. It holds no time and no path of a machine.

    Attributes:
        files: sorted by path; empty folders are not part of an output.
        links: path under `content/` → the version that it links to.
        content: SHA-256 over paths, digests and links; equal for equal content, whatever it
            was built from.
        summary: the JSON object that the stage returned.
        checks: outcomes of the checks of the staged version.
    """

    output: str
    stage: str
    code_version: str
    settings: str
    inputs: dict[str, str]
    files: FileField
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
        rest = _indented(self._values())
        links = ((path, asdict(link)) for path, link in sorted(self.links.items()))
        long = {
            "files": ("[", "]", self.files.texts()),
            "inputs": ("{", "}", _members(sorted(self.inputs.items()))),
            "links": ("{", "}", _members(links)),
        }
        for name, (opening, closing, texts) in long.items():
            before, start, rest = rest.partition(f'\n "{name}": {opening}')
            yield f"{before}{start}".encode()
            parting, end = b"\n", closing
            for text in texts:
                yield parting + text
                parting, end = BETWEEN, f"\n {closing}"
            rest = f"{end}{rest.removeprefix(closing)}"
        yield f"{rest}\n".encode()

    def to_bytes(self) -> bytes:
        """The file's bytes, all at once."""
        return b"".join(self.chunks())

    def as_read(self) -> "Manifest":
        """The manifest as it is read back: every value is one of JSON."""
        read = Manifest.model_validate_json(json.dumps(self._values(), sort_keys=True))
        inputs, links = dict(sorted(self.inputs.items())), dict(sorted(self.links.items()))
        return read.model_copy(update={"files": self.files, "inputs": inputs, "links": links})

    @classmethod
    def of_chunks(cls, chunks: Iterator[bytes]) -> "Manifest | None":
        """The manifest with these bytes; None when `chunks` writes it in another form.

        Raises:
            pydantic.ValidationError: the manifest is not valid.
            ValueError: a path is not Unicode.
        """
        head, found, rest, parting = b"", b"", b"", _FILES.encode()
        while not found:
            chunk = next(chunks, None)
            if chunk is None:
                return None
            head, found, rest = (head + chunk).partition(parting)
        files = FileTable()
        tail = rest if rest[:1] == b"]" else read_entries(chunks, rest, files)
        if tail is None:
            return None
        read = cls.model_validate_json(b"".join((head, found, tail.lstrip(), *chunks)))
        return read.model_copy(update={"files": files})

    def _values(self) -> dict[str, Any]:
        """The manifest with nothing in its three members that may be very long."""
        long: dict[str, Any] = {"files": [], "inputs": {}, "links": {}}
        return {**self.model_dump(mode="json", exclude={*long}), **long}


def _indented(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)


def _members(items: Iterable[tuple[str, Any]]) -> Iterator[bytes]:
    """Yield the text of the members of an object at the top, of many at a time."""
    rest = iter(items)
    while some := dict(islice(rest, _MEMBERS)):
        lines = _indented(some).encode().split(b"\n")[1:-1]
        yield b" " + b"\n ".join(lines)


@dataclass(frozen=True, slots=True)
class VersionName:
    """A committed version without its manifest: many thousands fit into memory."""

    output: str
    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version: plain data, valid for as long as the store keeps it.

    Attributes:
        id: first 16 hex of the SHA-256 over the manifest's bytes.
        manifest: what it consists of.
    """

    id: str
    manifest: Manifest

    @property
    def output(self) -> str:
        """The output's name."""
        return self.manifest.output

    @property
    def name(self) -> VersionName:
        """The version without its manifest."""
        return VersionName(self.output, self.id, self.content)

    @property
    def content(self) -> str:
        """Fingerprint of the content: a later stage's recipe names it as its input."""
        return self.manifest.content


def version_id(data: bytes) -> str:
    """The id of the version whose `manifest.json` has these bytes."""
    return hashlib.sha256(data).hexdigest()[:VERSION_LENGTH]


def content_fingerprint(files: FileTable, links: Mapping[str, LinkEntry]) -> str:
    """SHA-256 over the (path, digest) pairs and the sorted (path, output, version) links.

    Args:
        files: sorted by path.
        links: path → link.
    """
    digest = hashlib.sha256()
    for rows in files.rows():
        digest.update(rows)
    for path, link in sorted(links.items()):
        digest.update(f"{json.dumps(['link', path, link.output, link.version])}\n".encode())
    return digest.hexdigest()


def make_manifest(
    output: str,
    recipe: Recipe,
    *,
    files: FileTable | Iterable[FileEntry],
    links: Mapping[str, LinkEntry],
    summary: Mapping[str, JsonValue],
    checks: Sequence[CheckOutcome],
) -> Manifest:
    """The manifest of a staged directory.

    Args:
        output: its name.
        recipe: what it was built from.
        files: its files; a table is sorted by path.
        links: path → link.
        summary: the JSON object that the stage returned.
        checks: outcomes of its checks.

    Raises:
        pydantic.ValidationError: the summary is not a JSON object.
    """
    if isinstance(files, FileTable):
        ordered = files
    else:
        ordered = FileTable.of(sorted(files, key=lambda entry: entry.path))
    return Manifest(
        output=output,
        stage=recipe.stage,
        code_version=recipe.code_version,
        settings=recipe.settings,
        inputs=dict(recipe.inputs),
        files=ordered,
        links=dict(links),
        content=content_fingerprint(ordered, links),
        summary=dict(summary),
        checks=tuple(checks),
    )
