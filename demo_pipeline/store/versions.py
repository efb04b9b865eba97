"""Versions in a folder: describing a staged directory, reading a version back, finding its damage.

Belongs here: which files have to be read. A file that is hard-linked from a committed version was
synced and read by that commit: it is read again when something wrote to it since, or when the turn
of its version has come, since damage of a disk changes no time.
"""

import hashlib
import os
import stat
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.store.errors import ChangedOutput, StorageError
from demo_pipeline.store.folder import CONTENT, MANIFEST, Folder, walk_files
from demo_pipeline.store.version_manifest import (
    VERSION_LENGTH,
    FileEntry,
    FileTable,
    LinkEntry,
    Manifest,
    Version,
    VersionName,
)

TURNS = 8
"""A build reads the linked files of one in so many of its versions, and another time the next."""
_ALWAYS = 16  # versions of which all linked files are read in every build
_CLOCK_SECONDS = 2  # writes within one tick of a coarse clock have the same time
_CHUNK = 2**16  # bytes of a manifest in memory
_DIGEST = 32  # bytes of SHA-256
_PICTURES = (".png", ".jpg", ".mp4")  # films are compared by the stages that read them


@dataclass(frozen=True, slots=True)
class OutputDamage:
    """A difference between a committed output and its manifest.

    Attributes:
        output: name of the output that the file belongs to.
        code: `missing_output`, `damaged_manifest`, `missing_file`, `changed_file`, `broken_link` or
            `unexpected_file`.
        file: path below the store's root, in printable ASCII.
        message: what is wrong with it.
    """

    output: str
    code: str
    file: str
    message: str

    @classmethod
    def of(cls, output: str, code: str, path: str, message: str) -> "OutputDamage":
        """The damage of the file at `path` in an output."""
        return cls(output, code, f"{output}/{ascii(path)[1:-1]}", message)

    def as_error(self) -> ChangedOutput:
        """The error of a reader who needs the file."""
        return ChangedOutput(self.output, self.file.removeprefix(f"{self.output}/"))


@dataclass(frozen=True, slots=True)
class Staging:
    """An output that is being built. Write files under `path`; the context's end removes it.

    Attributes:
        output: its name.
        folder: of the store, or of the cache of a bucket.
        directory: what becomes the version's directory.
        links: path under `path` → the version linked there.
        hardlink_sources: versions whose files may be hard-linked under `path`; they are synced
            already. A commit refuses a file that differs from its version's manifest.
        previous: versions of the output whose files may be hard-linked, too.
    """

    output: str
    folder: Folder
    directory: Path
    links: dict[str, LinkEntry] = field(default_factory=dict)
    hardlink_sources: list[Version | VersionName] = field(default_factory=list)
    previous: list[Version] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder to write into."""
        return self.directory / CONTENT

    def find_earlier(self, path: str, sha256: str) -> tuple[str, bool] | None:
        """Where a version before has a file with these bytes under a path, and that it may be used.

        None: there is no such file, or it was damaged.
        """
        for version in self.previous:
            known = version.manifest.files.find(path)
            place = f"{self.folder.content(version.output, version.id)}/{path}"
            if known and known.sha256 == sha256 and not _damage(version.output, place, known):
                return place, True
        return None

    def link(self, relative_path: str, version: Version | VersionName | LinkEntry) -> None:
        """Link `relative_path` to the content of another version, at once and after the commit.

        Raises:
            StorageError: the path leads out of the staged directory or is taken.
        """
        entry = version
        if not isinstance(entry, LinkEntry):
            entry = LinkEntry(entry.output, entry.id)
        pure = PurePosixPath(relative_path)
        key = str(pure)
        if pure.is_absolute() or ".." in pure.parts or key == ".":
            raise StorageError(f"{self.output}: {key!r} is not a path inside an output")
        path = self.path / pure
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(self.folder.link_target(path, entry.output, entry.version))
        except FileExistsError:
            raise StorageError(f"{self.output}: {key!r} exists already") from None
        self.links[key] = entry


def describe_files(staging: Staging, turns: str) -> tuple[FileTable, list[str], int]:
    """Size and digest of every file of a staged directory.

    Args:
        staging: the directory.
        turns: what counts the builds of its kind; see `TURNS`.

    Returns:
        The files; paths of those that no commit has synced; and how many folders have files.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` differs from the
            manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or has a name that is
            not Unicode.
    """
    files, unsynced, folders = FileTable(), list[str](), set[str]()
    expected, linked = set(staging.links), _LinkedFiles(staging, turns)
    for path in walk_files(staging.path):
        status = os.lstat(f"{staging.path}/{path}")
        if path in expected and stat.S_ISLNK(status.st_mode):
            expected.discard(path)
            continue
        if not stat.S_ISREG(status.st_mode) or not _is_unicode(path):
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        folders.add(path.rpartition("/")[0])
        known = linked.find(status) if status.st_nlink > 1 else None
        digest = linked.digest(path, status, known) if known is not None else None
        if digest is None:
            digest = read_digest(staging.path / path)
            unsynced.append(path)
        files.append(path, *digest)
    if expected:
        raise StorageError(
            f"{staging.output}: the link {min(expected)!r} was removed after it was created"
        )
    return files, unsynced, len(folders)


class _LinkedFiles:
    """The files of the sources of a staged directory that have other names, by inode; 60 bytes."""

    def __init__(self, staging: Staging, turns: str) -> None:
        self._staging, self._device = staging, os.lstat(staging.path).st_dev
        sources = staging.hardlink_sources
        few = len(sources) <= _ALWAYS
        turn = 0 if few else staging.folder.next_turn(f"turn.{turns}") % TURNS
        self._pending = [*staging.previous, *reversed(sources)]
        self._versions: list[Version | VersionName] = []
        self._read_before: list[float] = []
        self._is_due = [few or zlib.crc32(one.output.encode()) % TURNS == turn for one in sources]
        self._is_due += [True] * len(staging.previous)
        self._columns = (array("Q"), array("I"), array("Q"), bytearray())
        self._order, self._ordered = array("I"), array("Q")

    def find(self, status: os.stat_result) -> int | None:
        """Number of the committed file that this is another name of."""
        if self._pending:
            while self._pending:
                self._add(self._pending.pop())
            inodes = self._columns[0]
            self._order = array("I", sorted(range(len(inodes)), key=inodes.__getitem__))
            self._ordered = array("Q", map(inodes.__getitem__, self._order))
        place = bisect_left(self._ordered, status.st_ino)
        found = place < len(self._ordered) and self._ordered[place] == status.st_ino
        return self._order[place] if found and status.st_dev == self._device else None

    def digest(self, path: str, status: os.stat_result, number: int) -> tuple[int, str]:
        """Size and digest of a file. Raises `ChangedOutput` when it is not as committed."""
        _, owners, sizes, digests = self._columns
        known = sizes[number], digests[number * _DIGEST : (number + 1) * _DIGEST].hex()
        owner, old = owners[number], status.st_mtime < self._read_before[owners[number]]
        if old and not self._is_due[owner] and status.st_size == known[0]:
            return known
        if read_digest(self._staging.path / path) != known:
            output, version = self._versions[owner].output, self._versions[owner].id
            loaded = load_version(self._staging.folder, output, version)
            files = loaded.manifest.files if loaded else ()
            there = next((one.path for one in files if one.sha256 == known[1]), path)
            raise ChangedOutput(output, ascii(there)[1:-1])
        return known

    def _add(self, version: Version | VersionName) -> None:
        content = self._staging.folder.content(version.output, version.id)
        loaded = load_version(self._staging.folder, version.output, version.id)
        owner = len(self._versions)
        self._versions.append(version)
        # The folder got its last entry before its commit read the files.
        self._read_before.append(Path(content).stat().st_mtime - _CLOCK_SECONDS if loaded else 0)
        inodes, owners, sizes, digests = self._columns
        for file in loaded.manifest.files if loaded else ():
            try:
                status = os.stat(f"{content}/{file.path}")  # noqa: PTH116 - very many
            except OSError:
                continue
            if status.st_nlink > 1:
                inodes.append(status.st_ino)
                owners.append(owner)
                sizes.append(file.size)
                digests += bytes.fromhex(file.sha256)


def load_version(folder: Folder, output: str, version: str) -> Version | None:
    """The version with this id; None when its manifest is missing or does not match the id."""
    try:
        with open(folder.manifest(output, version), "rb") as file:  # noqa: PTH123 - very many
            return parse_version(iter(partial(file.read, _CHUNK), b""), output, version)
    except (FileNotFoundError, NotADirectoryError):
        return None


def parse_version(chunks: Iterator[bytes], output: str, version: str) -> Version | None:
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


def has_all_files(folder: Folder, version: Version) -> bool:
    """Whether every file exists in its size and every link leads to an existing version."""
    content = folder.content(version.output, version.id)
    return _has_sizes(content, version.manifest.files.sizes()) and all(
        is_linked(folder, Path(content, path), link)
        for path, link in version.manifest.links.items()
    )


def _has_sizes(
    content: str, files: "Iterator[tuple[str, int]] | Sequence[tuple[bytes, int]]"
) -> bool:
    try:
        descriptor = os.open(content, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:  # relative to the folder: the system looks up half as many names
        return all(_size(path, descriptor) == size for path, size in files)
    finally:
        os.close(descriptor)


def is_linked(folder: Folder, path: Path, link: LinkEntry) -> bool:
    """Whether `path` is a link to the content of that version, and the version exists."""
    try:
        text = os.readlink(path)  # noqa: PTH115 - for every trajectory
    except OSError:  # missing, or not a link
        return False
    same = text == folder.link_target(path, link.output, link.version)
    return same and os.path.isfile(folder.manifest(link.output, link.version))  # noqa: PTH113


def verify_version(
    folder: Folder, output: str, version: str, *, linked: bool = True
) -> list[OutputDamage]:
    """Every difference between a version and its manifest; reads every byte.

    With `linked`, the linked versions are verified too.
    """
    loaded = load_version(folder, output, version)
    if loaded is None:
        return [manifest_damage(output)]
    content = Path(folder.content(output, version))
    found = walk_files(content) if content.is_dir() else ()
    sizes = {path: _size(f"{content}/{path}") for path in found}
    links = loaded.manifest.links
    broken = {path for path, link in links.items() if not is_linked(folder, content / path, link)}
    damages = damages_of(
        loaded, sizes, lambda file: read_digest(content / file.path).sha256 != file.sha256, broken
    )
    for path in links.keys() - broken if linked else ():
        damages += verify_version(folder, links[path].output, links[path].version)
    return damages


def damages_of(
    version: Version,
    sizes: Mapping[str, int | None],
    differs: Callable[[FileEntry], bool],
    broken: "set[str]",
) -> list[OutputDamage]:
    """Every difference between a version and its manifest.

    Args:
        version: the version.
        sizes: what there is: path → bytes of a plain file, None for anything else.
        differs: whether a file of the right size has other bytes.
        broken: paths of the links that do not lead to their version.
    """
    output, links = version.output, version.manifest.links
    found = [_file_damage(output, file, sizes, differs) for file in version.manifest.files]
    damages = [damage for damage in found if damage]
    for path, link in links.items():
        if path in broken:
            message = f"does not lead to {link.output} any more"
            damages.append(OutputDamage.of(output, "broken_link", path, message))
    known = {file.path for file in version.manifest.files}
    extra = sorted(sizes.keys() - known - links.keys())
    message = "does not belong to the output"
    return damages + [OutputDamage.of(output, "unexpected_file", path, message) for path in extra]


def _file_damage(
    output: str,
    file: FileEntry,
    sizes: Mapping[str, int | None],
    differs: Callable[[FileEntry], bool],
) -> OutputDamage | None:
    size = sizes.get(file.path)
    if size is None:
        return OutputDamage.of(output, "missing_file", file.path, "is missing")
    if size != file.size:
        message = f"has {size} bytes, expected {file.size}"
    elif differs(file):
        message = "has another SHA-256 than its manifest"
    else:
        return None
    return OutputDamage.of(output, "changed_file", file.path, message)


def _damage(output: str, place: str, file: FileEntry) -> OutputDamage | None:
    """What is wrong with the file at a place."""
    return _file_damage(
        output,
        file,
        {file.path: _size(place)},
        lambda _: read_digest(Path(place)).sha256 != file.sha256,
    )


def document_damage(content: Path, output: str) -> OutputDamage | None:
    """The first difference between the files of a version but its pictures, and its manifest.

    Args:
        content: the version's folder, in a store or a cache.
        output: its name.
    """
    try:
        chunks = iter([(content.parent / MANIFEST).read_bytes()])
    except OSError:
        return manifest_damage(output)
    loaded = parse_version(chunks, output, content.parent.name)
    if loaded is None:
        return manifest_damage(output)
    documents = (one for one in loaded.manifest.files if not one.path.endswith(_PICTURES))
    found = (_damage(output, f"{content}/{one.path}", one) for one in documents)
    return next(filter(None, found), None)


def manifest_damage(output: str) -> OutputDamage:
    """The damage of a version whose manifest is not the one of its id."""
    return OutputDamage.of(output, "damaged_manifest", MANIFEST, "is missing or was changed")


def missing_output_damage(output: str) -> OutputDamage:
    """The damage of an output without any version."""
    return OutputDamage.of(output, "missing_output", ".", "was never built, or was removed")


def _size(path: str | bytes, folder: int | None = None) -> int | None:
    """Bytes of a plain file, None for anything else; `folder` is what the path begins at."""
    try:
        status = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
