"""The manifest: what a version of an output consists of and what it was built from.

Belongs here: the models of `manifest.json` and the hashes over them. A version's id is a hash of
its manifest's bytes, so equal work has equal ids on every machine and in every kind of store.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue

from demo_pipeline.problems import Problem

VERSION_LENGTH = 16


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
class FileEntry:
    """One file: `/`-separated path under `content/`, bytes, hex digest."""

    # Not a model: a dataset has hundreds of thousands of files.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    path: str
    size: int
    sha256: str


class LinkEntry(_Frozen):
    """A link to the content of another output's version."""

    output: str
    version: str


_NO_FILES = '\n "files": []'


def _file_text(file: FileEntry) -> str:
    """An entry as `json.dumps` writes it in a list at the top."""
    path = encode_basestring(file.path)
    return f'  {{\n   "path": {path},\n   "sha256": "{file.sha256}",\n   "size": {file.size}\n  }}'


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
    files: tuple[FileEntry, ...]
    links: dict[str, LinkEntry]
    content: str
    summary: dict[str, JsonValue]
    checks: tuple[CheckOutcome, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """What the version was built from."""
        return Recipe(self.stage, self.code_version, self.settings, self.inputs)

    def to_bytes(self) -> bytes:
        """The file's bytes: keys sorted, one line per entry, the same for the same manifest."""
        values = {**self.model_dump(mode="json", exclude={"files"}), "files": []}
        text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
        if self.files:
            # `json` indents in Python, which takes seconds for all files of a dataset.
            head, _, tail = text.partition(_NO_FILES)
            entries = ",\n".join(map(_file_text, self.files))
            text = f"{head}{_NO_FILES[:-1]}\n{entries}\n ]{tail}"
        return f"{text}\n".encode()


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


def content_fingerprint(files: Sequence[FileEntry], links: Mapping[str, LinkEntry]) -> str:
    """SHA-256 over the sorted (path, digest) pairs and the sorted (path, output, version) links."""
    digest = hashlib.sha256()
    for path, sha256 in sorted((entry.path, entry.sha256) for entry in files):
        row = f'["file", {encode_basestring_ascii(path)}, "{sha256}"]\n'
        digest.update(row.encode())
    for path, link in sorted(links.items()):
        digest.update(f"{json.dumps(['link', path, link.output, link.version])}\n".encode())
    return digest.hexdigest()


def make_manifest(
    output: str,
    recipe: Recipe,
    *,
    files: Sequence[FileEntry],
    links: Mapping[str, LinkEntry],
    summary: Mapping[str, JsonValue],
    checks: Sequence[CheckOutcome],
) -> Manifest:
    """The manifest of a staged directory.

    Raises:
        pydantic.ValidationError: the summary is not a JSON object.
    """
    ordered = tuple(sorted(files, key=lambda entry: entry.path))
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
