"""Versions in a folder: a staged directory, what it consists of, and finding damage.

Belongs here: which files have to be read. A file that is hard-linked from a committed version was
synced and read by that commit: it is read again when something wrote to it since, or when the turn
of its version has come, since damage of a disk changes no time.
"""

import os
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.store.errors import ChangedOutput, StorageError
from demo_pipeline.store.folder import CONTENT, MANIFEST, Folder, walk_files
from demo_pipeline.store.version_manifest import (
    FileEntry,
    FileTable,
    LinkEntry,
    Version,
    VersionName,
    read_version,
)

TURNS = 8
"""A build reads the linked files of one in so many of its versions, and another time the next."""
_ALWAYS = 16  # versions of which all linked files are read in every build
_CLOCK_SECONDS = 0.1  # writes within one tick of the clock (4 to 10 ms) have the same time
_PICTURES = (".png", ".jpg", ".mp4")  # films are compared by the stages that read them


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
        return cls(output, code, f"{output}/{_printable(path)}", message)

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
    """

    output: str
    folder: Folder
    directory: Path
    links: dict[str, LinkEntry] = field(default_factory=dict)
    hardlink_sources: list[Version | VersionName] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder to write into."""
        return self.directory / CONTENT

    def link(self, relative_path: str, version: Version | VersionName | LinkEntry) -> None:
        """Link `relative_path` to the content of another version, at once and after the commit.

        Raises:
            StorageError: the path leads out of the staged directory or is taken.
        """
        id_ = version.version if isinstance(version, LinkEntry) else version.id
        pure = PurePosixPath(relative_path)
        key = str(pure)
        if pure.is_absolute() or ".." in pure.parts or key == ".":
            raise StorageError(f"{self.output}: {key!r} is not a path inside an output")
        path = self.path / pure
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(self.folder.link_target(path, version.output, id_))
        except FileExistsError:
            raise StorageError(f"{self.output}: {key!r} exists already") from None
        self.links[key] = LinkEntry(version.output, id_)


def describe_files(staging: Staging, turns: str) -> tuple[FileTable, list[str]]:
    """Size and digest of every file of a staged directory, and those that no commit has synced.

    `turns` is what counts the builds of its kind; see `TURNS`.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` differs from the
            manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or has a name that is
            not Unicode.
    """
    files, unsynced, missing = FileTable(), list[str](), set(staging.links)
    committed: _CommittedFiles | None = None
    for path in walk_files(staging.path):
        status = os.lstat(f"{staging.path}/{path}")
        if path in missing and stat.S_ISLNK(status.st_mode):
            missing.discard(path)
            continue
        if not stat.S_ISREG(status.st_mode) or path.encode("utf-8", "ignore").decode() != path:
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        digest = None
        if status.st_nlink > 1:
            committed = committed or _CommittedFiles(staging, turns)
            digest = committed.digest(path, status.st_ino)
        if digest is None:
            digest = read_digest(staging.path / path).sha256
            unsynced.append(path)
        files.extend([path], [status.st_size], digest)
    if missing:
        raise StorageError(
            f"{staging.output}: the link {min(missing)!r} was removed after it was created"
        )
    return files, unsynced


class _CommittedFiles:
    """The files that a staged directory may share, as far as they have other names, by inode."""

    def __init__(self, staging: Staging, turns: str) -> None:
        self._staging, sources = staging, staging.hardlink_sources
        self._versions = sources
        self._digests: dict[int, bytes] = {}
        self._trusted: set[int] = set()
        turn = staging.folder.next_turn(turns) % TURNS if len(sources) > _ALWAYS else None
        for version in self._versions:
            not_due = turn is not None and zlib.crc32(version.output.encode()) % TURNS != turn
            self._add(version, may_trust=not_due)

    def digest(self, path: str, inode: int) -> str | None:
        """Hex digest of a staged file, if it is one of these and as it was committed."""
        known = self._digests.get(inode)
        if known is None:
            return None
        digest = known.hex()
        if inode not in self._trusted and (read_digest(self._staging.path / path).sha256 != digest):
            places = (
                ChangedOutput(version.output, _printable(file.path))
                for version in self._versions
                for file, status in self._shared(version)
                if status.st_ino == inode
            )
            raise next(places)
        return digest

    def _add(self, version: Version | VersionName, *, may_trust: bool) -> None:
        content = self._staging.folder.content(version.output, version.id)
        read_before = 0.0
        if may_trust and os.path.isdir(content):  # noqa: PTH112 - very many
            # The folder got its last entry before its commit read the files.
            read_before = os.stat(content).st_mtime - _CLOCK_SECONDS  # noqa: PTH116
        for file, status in self._shared(version):
            if status.st_ino not in self._digests:
                self._digests[status.st_ino] = bytes.fromhex(file.sha256)
                if status.st_mtime < read_before and status.st_size == file.size:
                    self._trusted.add(status.st_ino)

    def _shared(self, version: Version | VersionName) -> Iterator[tuple[FileEntry, os.stat_result]]:
        content = self._staging.folder.content(version.output, version.id)
        loaded = self._staging.folder.load(version.output, version.id)
        for file in loaded.manifest.files if loaded else ():
            try:
                status = os.stat(f"{content}/{file.path}")  # noqa: PTH116 - very many
            except OSError:
                continue
            if status.st_nlink > 1:
                yield file, status


def has_all_files(folder: Folder, version: Version) -> bool:
    """Whether every file exists in its size and every link leads to an existing version."""
    content = folder.content(*version.key)
    try:
        descriptor = os.open(content, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:  # relative to the folder: the system looks up half as many names
        for path, size in version.manifest.files.sizes():
            status = os.stat(path, dir_fd=descriptor, follow_symlinks=False)
            if status.st_size != size or not stat.S_ISREG(status.st_mode):
                return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    finally:
        os.close(descriptor)
    links = version.manifest.links.items()
    return all(is_linked(folder, Path(content, path), link) for path, link in links)


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
    """Every difference between a version, with `linked` also linked ones, and its manifest."""
    loaded = folder.load(output, version)
    if loaded is None:
        return [manifest_damage(output)]
    content, links = Path(folder.content(output, version)), loaded.manifest.links
    found = walk_files(content) if content.is_dir() else ()
    sizes = {path: size_of(f"{content}/{path}") for path in found}
    whole = {path for path, link in links.items() if is_linked(folder, content / path, link)}
    damages = damages_of(
        loaded, sizes, lambda file: read_digest(content / file.path).sha256 != file.sha256, whole
    )
    for path in whole if linked else ():
        damages += verify_version(folder, links[path].output, links[path].version)
    return damages


def damages_of(
    version: Version,
    sizes: Mapping[str, int | None],
    differs: Callable[[FileEntry], bool],
    whole: Iterable[str],
) -> list[OutputDamage]:
    """Every difference between a version and its manifest.

    Args:
        version: the version.
        sizes: what there is: path → bytes of a plain file, None for anything else.
        differs: whether a file of the right size has other bytes.
        whole: paths of the links that lead to their version.
    """
    output, manifest = version.output, version.manifest
    found = [_file_damage(output, file, sizes.get(file.path), differs) for file in manifest.files]
    found += [
        OutputDamage.of(output, "broken_link", path, f"does not lead to {link.output} any more")
        for path, link in manifest.links.items()
        if path not in whole
    ]
    extra = sizes.keys() - {file.path for file in manifest.files} - manifest.links.keys()
    message = "does not belong to the output"
    found += [OutputDamage.of(output, "unexpected_file", path, message) for path in sorted(extra)]
    return list(filter(None, found))


def _file_damage(
    output: str, file: FileEntry, size: int | None, differs: Callable[[FileEntry], bool]
) -> OutputDamage | None:
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

    def differs(_: FileEntry) -> bool:
        return read_digest(Path(place)).sha256 != file.sha256

    return _file_damage(output, file, size_of(place), differs)


def document_damage(content: Path, output: str) -> OutputDamage | None:
    """The first difference of a file in a version's folder, but pictures, from the manifest."""
    folder = content.parent
    loaded = read_version(f"{folder}/{MANIFEST}", output, folder.name)
    if loaded is None:
        return manifest_damage(output)
    documents = (one for one in loaded.manifest.files if not one.path.endswith(_PICTURES))
    found = (_damage(output, f"{content}/{one.path}", one) for one in documents)
    return next(filter(None, found), None)


def manifest_damage(output: str) -> OutputDamage:
    """The damage of a version whose manifest is not the one of its id."""
    return OutputDamage.of(output, "damaged_manifest", MANIFEST, "is missing or was changed")


def size_of(path: str) -> int | None:
    """Bytes of a plain file, None for anything else."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _printable(path: str) -> str:
    return ascii(path)[1:-1]
