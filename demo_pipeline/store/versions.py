"""Versions of outputs: manifests, staged directories, and differences from a manifest.

The id of a version is a hash of its manifest, so equal results have equal ids everywhere. Its
folder is named `<id>-<8 random hex digits>`, so that no commit writes into an existing folder.
Earlier versions of the package named it `<id>`.
"""

import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.problems import Problem
from demo_pipeline.store.errors import ChangedOutput, StorageError

CONTENT = "content"
MANIFEST = "manifest.json"
VERSION_LENGTH = 16  # hex digits of the id of a version
_PLACE = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}(-[0-9a-f]{{8}})?")
VersionKey = tuple[str, str]
"""The name of an output and the id of one of its versions."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that an output depends on.

    Attributes:
        settings: a fingerprint of the settings that the stage reads.
        inputs: maps the name of each input to a fingerprint of its content.
    """

    stage: str
    code_version: str
    settings: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of a check of a staged version.

    Attributes:
        metadata: JSON values that Dagster's UI shows.
        blocking: whether a failure prevents the commit.
    """

    name: str
    passed: bool
    problems: tuple[Problem, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    blocking: bool = True


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A file of a version in its manifest.

    Attributes:
        path: relative to the folder `content`, separated by `/`.
        size: size in bytes.
    """

    path: str
    sha256: str
    size: int


class LinkEntry(msgspec.Struct, frozen=True, gc=False):
    """A link in a version to the content of a version of another output."""

    output: str
    version: str


class Manifest(msgspec.Struct, frozen=True):
    """The file `manifest.json` of a version: its recipe, its files and its checks.

    It contains no times and no paths of a machine, so that equal results have equal manifests.

    Attributes:
        files: the files, sorted by path. Empty folders are not part of an output.
        links: maps the path of each link under `content/` to the version to which it leads.
        content: SHA-256 over paths, digests and links. It does not depend on the recipe.
    """

    output: str
    stage: str
    code_version: str
    settings: str
    inputs: dict[str, str]
    files: list[FileEntry]
    links: dict[str, LinkEntry]
    content: str
    summary: dict[str, Any]
    checks: tuple[CheckOutcome, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """The recipe of the version: stage, code version, settings and inputs."""
        return Recipe(self.stage, self.code_version, self.settings, self.inputs)

    @property
    def size(self) -> int:
        """The total size of all files in bytes."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """Returns the manifest as JSON with sorted keys."""
        values = msgspec.to_builtins(self)
        text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
        return f"{text}\n".encode()


_DECODER = msgspec.json.Decoder(Manifest)


@dataclass(frozen=True, slots=True)
class VersionName:
    """A committed version without its manifest, to save memory.

    Attributes:
        id: see `Version`.
        content: the fingerprint of the content.
    """

    output: str
    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version of an output, as plain data.

    Attributes:
        id: the first 16 hex digits of the SHA-256 of the bytes of the manifest.
        place: the name of the version's folder.
    """

    id: str
    manifest: Manifest
    place: str = field(compare=False)

    @property
    def output(self) -> str:
        """The name of the output."""
        return self.manifest.output

    @property
    def content(self) -> str:
        """The fingerprint of the content."""
        return self.manifest.content

    @property
    def name(self) -> VersionName:
        """The name of the version, without its manifest."""
        return VersionName(self.output, self.id, self.content)

    @property
    def key(self) -> VersionKey:
        """The name of the output and the id of the version."""
        return self.output, self.id

    @property
    def path(self) -> str:
        """The path of the version's folder below the folder of all versions: `<output>/<place>`."""
        return f"{self.output}/{self.place}"


def is_place(name: str) -> bool:
    """Returns whether a text can be the name of a version's folder."""
    return _PLACE.fullmatch(name) is not None


def linked_version(link: str) -> str | None:
    """Returns the id of the version to which a link leads; None for any other path."""
    if not os.path.islink(link) or not os.path.isdir(link):  # noqa: PTH112, PTH114 - faster
        return None
    folder, _, name = os.readlink(link).rpartition("/")  # noqa: PTH115
    place = folder.rpartition("/")[2]
    if name != CONTENT or not is_place(place):
        return None
    return place[:VERSION_LENGTH]


def parse_manifest(data: bytes | None, place: str) -> Manifest | None:
    """Parses the manifest of a version; returns None if it is missing or damaged.

    Args:
        data: the bytes of the manifest; None if missing.
        place: the name of the version's folder, which begins with the manifest's hash.
    """
    if data is None or _version_id(data) != place[:VERSION_LENGTH]:
        return None
    with suppress(msgspec.MsgspecError):
        return _DECODER.decode(data)
    return None


def _version_id(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:VERSION_LENGTH]


def new_version(
    staging: "Staging",
    recipe: Recipe,
    summary: Mapping[str, Any],
    checks: Sequence[CheckOutcome],
    files: list[FileEntry],
) -> tuple[Version, bytes]:
    """Returns a version for the content of a staged directory, and the bytes of its manifest.

    Raises:
        TypeError, ValueError: the summary cannot be written as JSON.
    """
    links = dict(sorted(staging.links.items()))
    digest = hashlib.sha256()  # over the paths and digests of the files and over the links
    for entry in files:
        path = encode_basestring_ascii(entry.path)
        digest.update(f'["file", {path}, "{entry.sha256}"]\n'.encode())
    for path, link in links.items():
        digest.update(f"{json.dumps(['link', path, link.output, link.version])}\n".encode())
    data = Manifest(
        output=staging.output,
        stage=recipe.stage,
        code_version=recipe.code_version,
        settings=recipe.settings,
        inputs=dict(recipe.inputs),
        files=files,
        links=links,
        content=digest.hexdigest(),
        summary=dict(summary),
        checks=tuple(checks),
    ).to_bytes()
    version_id = _version_id(data)
    place = f"{version_id}-{secrets.token_hex(4)}"
    return Version(version_id, _DECODER.decode(data), place), data


@dataclass(frozen=True, slots=True)
class Staging:
    """A version that is being built. The build function writes its files under `path`.

    Attributes:
        directory: the staged directory. It has the same depth as the version's final folder, so
            that relative links remain valid after the move.
        find: returns the local folder of a version, given its output and its id. Raises
            `StorageError` if the version was removed.
        links: maps the path of each link below `path` to the version to which it leads.
        before: the published version, whose content the build may reuse. None if there is none.
        hardlink_sources: versions whose files the build may hard-link under `path`. The digests of
            these files are copied from the old manifest, because a new hash would accept damage as
            new content.
    """

    output: str
    directory: Path
    find: Callable[[str, str], str]
    links: dict[str, LinkEntry] = field(default_factory=dict)
    before: Version | None = None
    hardlink_sources: list[Version | VersionName] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder to write into."""
        return self.directory / CONTENT

    def link(self, relative_path: str, version: Version | VersionName) -> None:
        """Creates a link from `relative_path` to the content of another version.

        Raises:
            StorageError: the path leads out of the staged directory or exists, or the version was
                removed.
        """
        pure = PurePosixPath(relative_path)
        key = str(pure)
        path = self.path / pure
        if pure.is_absolute() or ".." in pure.parts or key == ".":
            raise StorageError(f"{self.output}: {key!r} is not a path inside an output")
        path.parent.mkdir(parents=True, exist_ok=True)
        target = self.find(version.output, version.id)
        try:
            path.symlink_to(os.path.relpath(target, path.parent))
        except FileExistsError:
            raise StorageError(f"{self.output}: {key!r} exists already") from None
        self.links[key] = LinkEntry(version.output, version.id)


Load = Callable[[Version | VersionName], tuple[str, Version] | None]
"""Returns the local folder of a version, and the version with its manifest.

Returns None if the version was removed.
"""


def describe_files(staging: Staging, load: Load) -> tuple[list[FileEntry], list[str]]:
    """Returns the entries of all files of a staged directory, and the paths of the new files.

    New files must be synced to the disk; hard-linked files were synced before.

    Raises:
        ChangedOutput: the size of a hard-linked file differs from the manifest of its source.
        StorageError: an entry is neither a plain file nor made by `Staging.link`, or its name is
            not Unicode.
    """
    files: list[FileEntry] = []
    unsynced: list[str] = []
    missing_links = set(staging.links)
    shared_files = _SharedFiles(staging, load)
    content = str(staging.path)
    for path in walk_files(content):
        status = os.lstat(f"{content}/{path}")
        if path in missing_links and stat.S_ISLNK(status.st_mode):
            missing_links.discard(path)
            continue
        if not stat.S_ISREG(status.st_mode) or path.encode("utf-8", "ignore").decode() != path:
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        shared_file = shared_files.find(status)
        if shared_file is None:
            unsynced.append(path)
            digest = read_digest(Path(content, path)).sha256
        else:
            output, entry = shared_file
            if entry.size != status.st_size:
                raise ChangedOutput(output, ascii_path(entry.path))
            digest = entry.sha256
        files.append(FileEntry(path, digest, status.st_size))
    if missing_links:
        raise StorageError(
            f"{staging.output}: the link {min(missing_links)!r} was removed after it was created"
        )
    return files, unsynced


class _SharedFiles:
    """Finds the version from which a file was hard-linked, with the help of the file's inode.

    Versions are read only until the inode is found, because there may be thousands of versions.
    """

    def __init__(self, staging: Staging, load: Load) -> None:
        self._unread = self._read(staging, load)
        self._by_inode: dict[int, tuple[str, FileEntry]] = {}

    def find(self, status: os.stat_result) -> tuple[str, FileEntry] | None:
        """Returns the output and the entry of the source file; None if no version has the file."""
        if status.st_nlink == 1:
            return None
        while status.st_ino not in self._by_inode:
            following = next(self._unread, None)
            if following is None:
                return None
            inode, output, entry = following
            self._by_inode.setdefault(inode, (output, entry))
        return self._by_inode[status.st_ino]

    @staticmethod
    def _read(staging: Staging, load: Load) -> Iterator[tuple[int, str, FileEntry]]:
        for source in staging.hardlink_sources:
            loaded = load(source)
            if loaded is None:
                continue
            folder, version = loaded
            for entry in version.manifest.files:
                with suppress(OSError):
                    status = os.lstat(f"{folder}/{entry.path}")
                    if status.st_nlink > 1:
                        yield status.st_ino, source.output, entry


def walk_files(content: Path | str, folder: str = "") -> Iterator[str]:
    """Yields the paths of all files and links under `content`, separated by `/` and sorted.

    Args:
        folder: the subfolder to walk, ending in `/`; empty for all of `content`.
    """
    names = []
    with os.scandir(f"{content}/{folder}") as entries:
        for entry in entries:
            # With a slash at the end, a folder is sorted like the paths of its files.
            slash = "/" if entry.is_dir(follow_symlinks=False) else ""
            names.append(f"{folder}{entry.name}{slash}")
    names.sort()
    for name in names:
        if name.endswith("/"):
            yield from walk_files(content, name)
        else:
            yield name


@dataclass(frozen=True, slots=True)
class OutputDamage:
    """A difference between a committed output and its manifest.

    Attributes:
        code: `missing_output`, `damaged_manifest`, `missing_file`, `changed_file`, `broken_link` or
            `unexpected_file`.
        file: the path below the store's root, in printable ASCII.
    """

    output: str
    code: str
    file: str
    message: str

    @classmethod
    def for_path(cls, output: str, code: str, path: str, message: str) -> "OutputDamage":
        """Returns the damage of a file, given its path in the output's content."""
        return cls(output, code, f"{output}/{ascii_path(path)}", message)

    def inside(self, output: str, path: str) -> "OutputDamage":
        """Returns this damage as damage of another output, which links to the damaged output.

        Args:
            path: the path of the link in the content of `output`.
        """
        inner = self.file.removeprefix(f"{self.output}/")
        return OutputDamage(output, self.code, f"{output}/{ascii_path(path)}/{inner}", self.message)

    def as_error(self) -> ChangedOutput:
        """Returns the error to raise where the damaged file is needed."""
        return ChangedOutput(self.output, self.file.removeprefix(f"{self.output}/"))


def damages_of(
    version: Version, sizes: Mapping[str, int | None], digests: Iterable[str | None]
) -> list[OutputDamage]:
    """Compares the files of a version with its manifest; returns every difference.

    Links are not compared.

    Args:
        sizes: maps the path of each entry to its size in bytes, or to None if the entry is not a
            plain file.
        digests: the current SHA-256 of each file, in the order of the manifest; None if unreadable.
    """
    output = version.output
    manifest = version.manifest
    damages: list[OutputDamage] = []
    for file, digest in zip(manifest.files, digests, strict=True):
        size = sizes.get(file.path)
        code = "changed_file"
        message = ""
        if size is None:
            code = "missing_file"
            message = "is missing"
        elif size != file.size:
            message = f"has {size} bytes, expected {file.size}"
        elif digest != file.sha256:
            message = "has another SHA-256 than its manifest"
        if message:
            damages.append(OutputDamage.for_path(output, code, file.path, message))
    expected_paths = {file.path for file in manifest.files} | manifest.links.keys()
    for path in sorted(sizes.keys() - expected_paths):
        message = "does not belong to the output"
        damages.append(OutputDamage.for_path(output, "unexpected_file", path, message))
    return damages


def ascii_path(path: str) -> str:
    """Returns a path in printable ASCII, with escapes for other characters."""
    return ascii(path)[1:-1]
