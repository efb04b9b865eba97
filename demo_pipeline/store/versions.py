"""Versions: what a manifest says, what is staged, and what differs from a manifest.

Belongs here: `manifest.json` and the hashes over it. A version's id is a hash of its manifest's
bytes, so equal work has equal ids on every machine and in every store. Its folder is `<id>-<8 hex>`
with digits of its own, so that no commit writes into a folder that exists; `<id>` alone is a folder
of older stores.
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


class FileEntry(msgspec.Struct, frozen=True, gc=False):
    """One file: `/`-separated path under `content/`, hex digest, bytes."""

    path: str
    sha256: str
    size: int


class LinkEntry(msgspec.Struct, frozen=True, gc=False):
    """A link to the content of another output's version."""

    output: str
    version: str


class Manifest(msgspec.Struct, frozen=True):
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
        """The file's bytes: keys sorted, the same for the same manifest."""
        values = msgspec.to_builtins(self)
        text = json.dumps(values, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=1)
        return f"{text}\n".encode()


_DECODER = msgspec.json.Decoder(Manifest)


@dataclass(frozen=True, slots=True)
class VersionName:
    """A committed version without its manifest: many thousands fit into memory."""

    output: str
    id: str
    content: str


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version: plain data, valid for as long as the store keeps it.

    Its id is the first 16 hex of the SHA-256 over the manifest's bytes; `place` is its folder.
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
        """Fingerprint of the content: a later stage's recipe names it as its input."""
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
        """Where it is below the folder of all versions: `<output>/<place>`."""
        return f"{self.output}/{self.place}"


def is_place(name: str) -> bool:
    """Whether a folder of a version may have this name."""
    return _PLACE.fullmatch(name) is not None


def linked_version(link: str) -> str | None:
    """The id of the version whose content a link leads to; None when it leads to none."""
    if not os.path.islink(link) or not os.path.isdir(link):  # noqa: PTH112, PTH114 - of thousands
        return None
    place, _, content = os.readlink(link).rpartition("/")  # noqa: PTH115
    name = place.rpartition("/")[2]
    return name[:VERSION_LENGTH] if content == CONTENT and is_place(name) else None


def parse_manifest(data: bytes | None, place: str) -> Manifest | None:
    """The manifest with these bytes; None when they are not those that the folder is named by."""
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
    """The version of a staged directory with these files, as it is read back; its manifest.

    Raises:
        TypeError, ValueError: the summary is not JSON.
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
    name = _version_id(data)
    return Version(name, _DECODER.decode(data), f"{name}-{secrets.token_hex(4)}"), data


@dataclass(frozen=True, slots=True)
class Staging:
    """An output that is being built. Write files under `path`; the context's end removes it.

    Attributes:
        output: its name.
        directory: what becomes the version's directory; as deep as it, so that relative links are
            right before and after.
        find: output and id of a version → local folder of its content; raises `StorageError`.
        links: path under `path` → the version linked there.
        before: the version that readers see meanwhile, for builds that read it.
        hardlink_sources: versions whose files may be hard-linked under `path`. Such a file keeps
            the digest of that version's manifest: hashed anew, damage would look like its content.
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
        """Link `relative_path` to the content of another version, at once and after the commit.

        Raises:
            StorageError: the path leads out of the staged directory or is taken, or the version
                was removed.
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
"""A version → the local folder of its content, and its manifest; None when it is gone."""


def describe_files(staging: Staging, load: Load) -> tuple[list[FileEntry], list[str]]:
    """Size and digest of every file of a staged directory, and those that no commit has synced.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` has another size
            than in the manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or has a name that is
            not Unicode.
    """
    files = list[FileEntry]()
    unsynced = list[str]()
    missing = set(staging.links)
    unread = _taken_files(staging, load)
    taken = dict[int, tuple[str, FileEntry]]()
    content = str(staging.path)
    for path in walk_files(content):
        status = os.lstat(f"{content}/{path}")
        if path in missing and stat.S_ISLNK(status.st_mode):
            missing.discard(path)
            continue
        if not stat.S_ISREG(status.st_mode) or path.encode("utf-8", "ignore").decode() != path:
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        while status.st_nlink > 1 and status.st_ino not in taken and (more := next(unread, None)):
            taken.setdefault(*more)
        source = taken.get(status.st_ino) if status.st_nlink > 1 else None
        if source is None:
            unsynced.append(path)
            digest = read_digest(Path(content, path)).sha256
        else:
            output, entry = source
            if entry.size != status.st_size:
                raise ChangedOutput(output, ascii_path(entry.path))
            digest = entry.sha256
        files.append(FileEntry(path, digest, status.st_size))
    if missing:
        raise StorageError(
            f"{staging.output}: the link {min(missing)!r} was removed after it was created"
        )
    return files, unsynced


def _taken_files(staging: Staging, load: Load) -> Iterator[tuple[int, tuple[str, FileEntry]]]:
    """Yield (inode, (output, entry)) of the files that a staged directory may share.

    The versions are read one after the other, as long as the caller goes on.
    """
    for source in staging.hardlink_sources:
        folder, version = load(source) or ("", None)
        for file in version.manifest.files if version else ():
            with suppress(OSError):
                status = os.lstat(f"{folder}/{file.path}")
                if status.st_nlink > 1:
                    yield status.st_ino, (source.output, file)


def walk_files(content: Path | str, folder: str = "") -> Iterator[str]:
    """The `/`-separated path of every entry under `content` but folders, sorted.

    Of the entries of a folder only names are held: a dataset has many thousand pictures in one.
    """
    with os.scandir(f"{content}/{folder}") as entries:
        # The slash puts a folder where the paths of its files are in the order of all paths.
        names = sorted(
            f"{folder}{entry.name}{'/' if entry.is_dir(follow_symlinks=False) else ''}"
            for entry in entries
        )
    for name in names:
        if name.endswith("/"):
            yield from walk_files(content, name)
        else:
            yield name


@dataclass(frozen=True, slots=True)
class OutputDamage:
    """A difference between a committed output and its manifest.

    `code` is `missing_output`, `damaged_manifest`, `missing_file`, `changed_file`, `broken_link` or
    `unexpected_file`; `file` is the path below the store's root, in printable ASCII.
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
        """The same as another output has it, which links the damaged one at `path`."""
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
        sizes: what there is: path → bytes of a plain file, None for anything else.
        digests: of the files of the manifest, in their order; None of one that cannot be read.
    """
    output = version.output
    manifest = version.manifest
    found = list[OutputDamage]()
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
            found.append(OutputDamage.of(output, code, file.path, message))
    known = {file.path for file in manifest.files}
    message = "does not belong to the output"
    found += [
        OutputDamage.of(output, "unexpected_file", path, message)
        for path in sorted(sizes.keys() - known - manifest.links.keys())
    ]
    return found


def ascii_path(path: str) -> str:
    """A path in ASCII that can be printed."""
    return ascii(path)[1:-1]
