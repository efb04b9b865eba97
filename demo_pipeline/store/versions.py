"""Versions of outputs: manifests, staged directories, and differences from a manifest.

The id of a version is a hash of the bytes of its manifest, so that equal work has equal ids on
every machine and in every store. The folder of a version is named `<id>-<8 hex>` with random
digits, so that no commit writes into a folder that exists. Earlier versions of the package named it
`<id>`.
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
VERSION_LENGTH = 16
_PLACE = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}(-[0-9a-f]{{8}})?")
VersionKey = tuple[str, str]
"""Output and version id."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that an output depends on. An output with an equal recipe is not built again.

    Attributes:
        settings: a fingerprint of the stage's own settings.
        inputs: the name of each input → the content fingerprint of its version.
    """

    stage: str
    code_version: str
    settings: str
    inputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of a check of a staged version.

    Attributes:
        problems: errors and warnings.
        metadata: JSON values to show.
        blocking: a failure prevents the commit.
    """

    name: str
    passed: bool
    problems: tuple[Problem, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    blocking: bool = True


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """A file of a version; `path` is `/`-separated and relative to `content/`."""

    path: str
    sha256: str
    size: int


class LinkEntry(msgspec.Struct, frozen=True, gc=False):
    """A link to the content of another output's version."""

    output: str
    version: str


class Manifest(msgspec.Struct, frozen=True):
    """`manifest.json`. It contains no time and no path of a machine.

    Attributes:
        files: sorted by path; empty folders are not part of an output.
        links: path under `content/` → the version that the link leads to.
        content: SHA-256 over paths, digests and links. Equal content has an equal value, whatever
            it was built from.
        summary: the JSON object that the stage returned.
        checks: the results of the checks of the staged version.
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
        """What the version was built from."""
        return Recipe(self.stage, self.code_version, self.settings, self.inputs)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        """The bytes of the file, with sorted keys: equal for equal manifests."""
        values = msgspec.to_builtins(self)
        text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
        return f"{text}\n".encode()


_DECODER = msgspec.json.Decoder(Manifest)


@dataclass(frozen=True, slots=True)
class VersionName:
    """A committed version without its manifest, so that many thousands fit into memory."""

    output: str
    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version, as plain data that stays valid while the store keeps the version.

    Attributes:
        id: the first 16 hex digits of the SHA-256 of the manifest's bytes.
        place: the name of its folder.
    """

    id: str
    manifest: Manifest
    place: str = field(compare=False)

    @property
    def output(self) -> str:
        """The output's name."""
        return self.manifest.output

    @property
    def content(self) -> str:
        """The fingerprint of the content, which recipes of later stages contain."""
        return self.manifest.content

    @property
    def name(self) -> VersionName:
        """The version without its manifest."""
        return VersionName(self.output, self.id, self.content)

    @property
    def key(self) -> VersionKey:
        """Output and id."""
        return self.output, self.id

    @property
    def at(self) -> str:
        """Its path below the folder of all versions: `<output>/<place>`."""
        return f"{self.output}/{self.place}"


def is_place(name: str) -> bool:
    """Whether the folder of a version may have this name."""
    return _PLACE.fullmatch(name) is not None


def linked_version(link: str) -> str | None:
    """The id of the version whose content a link leads to; None if it leads elsewhere."""
    if not os.path.islink(link) or not os.path.isdir(link):  # noqa: PTH112, PTH114 - faster
        return None
    folder, _, name = os.readlink(link).rpartition("/")  # noqa: PTH115
    place = folder.rpartition("/")[2]
    if name != CONTENT or not is_place(place):
        return None
    return place[:VERSION_LENGTH]


def parse_manifest(data: bytes | None, place: str) -> Manifest | None:
    """The manifest with these bytes; None if they do not match the name of the folder."""
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
    """The version that a staged directory becomes, and the bytes of its manifest.

    Raises:
        TypeError, ValueError: the summary cannot be written as JSON.
    """
    links = dict(sorted(staging.links.items()))
    digest = hashlib.sha256()  # over the (path, digest) pairs and the links, sorted by path
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
    """An output that is being built: the build function writes files under `path`.

    Attributes:
        output: its name.
        directory: becomes the directory of the version. It is as deep as that one, so that relative
            links stay right.
        find: output and id of a version → local folder of its content; raises `StorageError`.
        links: path under `path` → the linked version.
        before: the published version, for builds that read it.
        hardlink_sources: versions whose files may be hard-linked under `path`. Such a file keeps
            the digest of that version's manifest. If it was hashed again, damage would pass for
            content.
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
        """Link `relative_path` to the content of another version.

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
"""A version → the local folder of its content, and the version; None if it was removed."""


def describe_files(staging: Staging, load: Load) -> tuple[list[FileEntry], list[str]]:
    """The files of a staged directory, and the paths of those that no commit has synced yet.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` has another size
            than in the manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or its name is not
            Unicode.
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
    """The files of other versions that a staged directory may share, by inode.

    Versions are read only until the wanted file was met, since there may be thousands.
    """

    def __init__(self, staging: Staging, load: Load) -> None:
        self._unread = self._read(staging, load)
        self._by_inode: dict[int, tuple[str, FileEntry]] = {}

    def find(self, status: os.stat_result) -> tuple[str, FileEntry] | None:
        """The output and the entry of a file that is hard-linked; None for any other file."""
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
    """Yield the `/`-separated path of everything under `content` except folders, sorted.

    Only the names of a folder are kept in memory, since a dataset has thousands of files in one.
    """
    names = []
    with os.scandir(f"{content}/{folder}") as entries:
        for entry in entries:
            # The slash sorts a folder like the paths of its files.
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
    def of(cls, output: str, code: str, path: str, message: str) -> "OutputDamage":
        """The damage of the file at `path` in an output."""
        return cls(output, code, f"{output}/{ascii_path(path)}", message)

    def inside(self, output: str, path: str) -> "OutputDamage":
        """The same damage as part of another output, which links to the damaged one at `path`."""
        inner = self.file.removeprefix(f"{self.output}/")
        return OutputDamage(output, self.code, f"{output}/{ascii_path(path)}/{inner}", self.message)

    def as_error(self) -> ChangedOutput:
        """The error of a reader who needs the file."""
        return ChangedOutput(self.output, self.file.removeprefix(f"{self.output}/"))


def damages_of(
    version: Version, sizes: Mapping[str, int | None], digests: Iterable[str | None]
) -> list[OutputDamage]:
    """Every difference between the own files of a version and its manifest.

    Args:
        version: the version.
        sizes: path of everything in its folder → bytes of a plain file, None for anything else.
        digests: the digests of the files of the manifest, in its order; None if a file cannot be
            read.
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
            damages.append(OutputDamage.of(output, code, file.path, message))
    expected_paths = {file.path for file in manifest.files} | manifest.links.keys()
    for path in sorted(sizes.keys() - expected_paths):
        message = "does not belong to the output"
        damages.append(OutputDamage.of(output, "unexpected_file", path, message))
    return damages


def ascii_path(path: str) -> str:
    """A path in ASCII that can be printed."""
    return ascii(path)[1:-1]
