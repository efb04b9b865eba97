"""Versions in a folder: staging, what a commit describes and installs, damage, what is unneeded.

Belongs here: which files have to be read. A file that is hard-linked from a committed version was
synced and read by that commit: it is read again when something wrote to it since, or when its turn
has come, since damage of a disk changes no time.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from demo_pipeline.files.atomic_write import read_digest, replace_synced
from demo_pipeline.store.errors import ChangedOutput, StorageError
from demo_pipeline.store.folder import (
    CONTENT,
    MANIFEST,
    Folder,
    VersionKey,
    remove_tree,
    walk_files,
)
from demo_pipeline.store.version_manifest import (
    FileEntry,
    FileTable,
    LinkEntry,
    Version,
    VersionName,
    read_version,
)

TURNS = 8
"""A build reads one in so many of its linked files, and another time others."""
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

    @classmethod
    def of_manifest(cls, output: str) -> "OutputDamage":
        """The damage of a version whose manifest is not the one of its id."""
        return cls.of(output, "damaged_manifest", MANIFEST, "is missing or was changed")

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
        before: the version that readers see meanwhile, for builds that read it.
        hardlink_sources: versions whose files may be hard-linked under `path`; they are synced
            already. A commit refuses a file that differs from its version's manifest.
    """

    output: str
    folder: Folder
    directory: Path
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
            StorageError: the path leads out of the staged directory or is taken.
        """
        pure = PurePosixPath(relative_path)
        key, link = str(pure), LinkEntry(version.output, version.id)
        if pure.is_absolute() or ".." in pure.parts or key == ".":
            raise StorageError(f"{self.output}: {key!r} is not a path inside an output")
        try:
            place_link(self.folder, self.path / pure, link)
        except FileExistsError:
            raise StorageError(f"{self.output}: {key!r} exists already") from None
        self.links[key] = link


@contextmanager
def staged(folder: Folder, output: str) -> Iterator[Staging]:
    """A private directory to build a version in; removed at the end in any case."""
    staging = Staging(output, folder, folder.draft(output))
    try:
        folder.make(staging.path)
        yield staging
    finally:
        remove_tree(staging.directory)


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
    content = str(staging.path)
    for path in walk_files(content):
        place = f"{content}/{path}"
        status = os.lstat(place)
        if path in missing and stat.S_ISLNK(status.st_mode):
            missing.discard(path)
            continue
        if not stat.S_ISREG(status.st_mode) or path.encode("utf-8", "ignore").decode() != path:
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        known, trusted = b"", False
        if status.st_nlink > 1:
            committed = committed or _CommittedFiles(staging, turns)
            known, trusted = committed.find(status.st_ino)
        digest = known.hex() if trusted else read_digest(Path(place)).sha256
        if not known:
            unsynced.append(path)
        elif known.hex() != digest:
            raise _changed_source(staging, status.st_ino)
        files.extend([path], [status.st_size], digest)
    if missing:
        raise StorageError(
            f"{staging.output}: the link {min(missing)!r} was removed after it was created"
        )
    return files, unsynced


class _CommittedFiles:
    """The files that a staged directory may share, as far as they have other names, by inode.

    Their versions are read one after the other until a file is found.
    """

    def __init__(self, staging: Staging, turns: str) -> None:
        self._folder, self._unread = staging.folder, iter(staging.hardlink_sources)
        self._found: dict[int, tuple[bytes, bool]] = {}
        many = len(staging.hardlink_sources) > _ALWAYS
        self._turn = staging.folder.next_turn(turns) % TURNS if many else None

    def find(self, inode: int) -> tuple[bytes, bool]:
        """Digest of a file, and whether it needs no reading now; empty of any other file."""
        while inode not in self._found and (version := next(self._unread, None)) is not None:
            self._read(version)
        return self._found.get(inode, (b"", False))

    def _read(self, version: Version | VersionName) -> None:
        content, read_before = self._folder.content(version.output, version.id), 0.0
        if self._turn is not None and os.path.isdir(content):  # noqa: PTH112 - very many
            # The folder got its last entry before its commit read the files.
            read_before = os.stat(content).st_mtime - _CLOCK_SECONDS  # noqa: PTH116
        for file, status in _shared_files(self._folder, version):
            same = status.st_mtime < read_before and status.st_size == file.size
            trusted = same and status.st_ino % TURNS != self._turn
            self._found.setdefault(status.st_ino, (bytes.fromhex(file.sha256), trusted))


def _shared_files(
    folder: Folder, version: Version | VersionName
) -> Iterator[tuple[FileEntry, os.stat_result]]:
    """Yield the files of a version that have further names."""
    content = folder.content(version.output, version.id)
    loaded = version if isinstance(version, Version) else folder.load(version.output, version.id)
    for file in loaded.manifest.files if loaded else ():
        with suppress(OSError):
            status = os.stat(f"{content}/{file.path}")  # noqa: PTH116 - very many
            if status.st_nlink > 1:
                yield file, status


def _changed_source(staging: Staging, inode: int) -> ChangedOutput:
    # The version before has the file from another, which is the one to build again.
    sources = sorted(staging.hardlink_sources, key=lambda one: one.output == staging.output)
    places = (
        (version.output, _printable(file.path))
        for version in sources
        for file, status in _shared_files(staging.folder, version)
        if status.st_ino == inode
    )
    return ChangedOutput(*next(places))


def has_all_files(folder: Folder, version: Version) -> bool:
    """Whether every file exists in its size and every link leads to an existing version."""
    content, manifest = folder.content(*version.key), version.manifest
    return (
        os.path.isdir(content)  # noqa: PTH112 - very many
        and all(size_of(f"{content}/{path}") == size for path, size in manifest.files.sizes())
        and all(is_linked(folder, f"{content}/{at}", link) for at, link in manifest.links.items())
    )


def place_link(folder: Folder, path: Path, link: LinkEntry) -> None:
    """Make a link to the content of a version. Raises `FileExistsError` when the path is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(folder.link_target(path, link.output, link.version))


def is_linked(folder: Folder, path: Path | str, link: LinkEntry) -> bool:
    """Whether `path` is a link to the content of that version, and the version exists."""
    try:
        text = os.readlink(path)  # noqa: PTH115 - for every trajectory
    except OSError:  # missing, or not a link
        return False
    same = text == folder.link_target(path, link.output, link.version)
    return same and os.path.isfile(folder.manifest(link.output, link.version))  # noqa: PTH113


def link_removed(output: str, link: LinkEntry) -> StorageError:
    """The error of a commit whose link leads nowhere any more."""
    return StorageError(f"{output}: {link.output} was removed or replaced meanwhile; run again")


def verify_version(
    folder: Folder, output: str, version: str, *, linked: bool = True
) -> list[OutputDamage]:
    """Every difference between a version, with `linked` also linked ones, and its manifest."""
    loaded = folder.load(output, version)
    if loaded is None:
        return [OutputDamage.of_manifest(output)]
    content, links = Path(folder.content(output, version)), loaded.manifest.links
    found = walk_files(content) if content.is_dir() else ()
    sizes = {path: size_of(f"{content}/{path}") for path in found}
    whole = {path for path, link in links.items() if is_linked(folder, content / path, link)}
    damages = damages_of(loaded, sizes, lambda file: _differs(content, file), whole)
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


def document_damage(
    content: Path, output: str, *, only: str = "", read_before: float = 0.0
) -> OutputDamage | None:
    """The first difference of a file in a version's folder, but pictures, from the manifest.

    Args:
        content: the version's folder.
        output: its name.
        only: what the names of the files end with that are looked at.
        read_before: files of the right size to which nothing wrote after it are not read.
    """
    folder = content.parent
    loaded = read_version(f"{folder}/{MANIFEST}", output, folder.name)
    if loaded is None:
        return OutputDamage.of_manifest(output)

    named = (one for one in loaded.manifest.files if one.path.endswith(only))
    for file in (one for one in named if not one.path.endswith(_PICTURES)):
        status = _plain_status(f"{content}/{file.path}")
        is_same = status and status.st_size == file.size and status.st_mtime < read_before
        size = status.st_size if status else None
        if not is_same and (found := _file_damage(output, file, size, partial(_differs, content))):
            return found
    return None


def linked_damage(staging: Staging, turns: str) -> OutputDamage | None:
    """The first damage of a document of the versions that are linked into a staged directory.

    Documents of versions that were linked before, too, were read then: they are read again when
    something wrote to them since, or when their turn has come.
    """
    folder, before, read_before, turn = staging.folder, staging.before, 0.0, 0
    if before and len(staging.links) > _ALWAYS:
        turn = folder.next_turn(turns) % TURNS
        with suppress(OSError):
            read_before = os.stat(folder.content(*before.key)).st_mtime - _CLOCK_SECONDS  # noqa: PTH116
    known = before.manifest.links if before else {}
    for path, link in staging.links.items():
        due = known.get(path) != link or int(link.version, 16) % TURNS == turn
        content = Path(folder.content(link.output, link.version))
        if found := document_damage(content, link.output, read_before=0.0 if due else read_before):
            return found
    return None


def _differs(content: Path, file: FileEntry) -> bool:
    return read_digest(content / file.path).sha256 != file.sha256


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


def size_of(path: str) -> int | None:
    """Bytes of a plain file, None for anything else."""
    status = _plain_status(path)
    return status.st_size if status else None


def _plain_status(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _printable(path: str) -> str:
    return ascii(path)[1:-1]


# Steps of a commit; the caller holds the output's lock


def install(folder: Folder, staged_version: Path, version: Version) -> None:
    """Move a staged directory to its version's place, unless the version is there whole."""
    place = folder.version(*version.key)
    folder.make(place.parent)
    if os.path.lexists(place):
        if not verify_version(folder, *version.key, linked=False):
            os.utime(place)
            return
        remove_tree(folder.discard(place))
    replace_synced(staged_version, place)


def publish(folder: Folder, version: Version) -> None:
    """Move the pointer of an output: readers see the version."""
    if folder.published_version(version.output) == version.id:
        return
    start_grace_period(folder, version.output)
    pointer, link = folder.pointer(version.output), folder.draft()
    folder.make(pointer.parent)
    link.symlink_to(folder.link_target(pointer, *version.key))
    replace_synced(link, pointer)


def start_grace_period(folder: Folder, output: str) -> None:
    """Start the grace period of the version that is published now."""
    published = folder.published_version(output)
    if published and folder.version(output, published).is_dir():
        os.utime(folder.version(output, published))


def require_free(folder: Folder, output: str) -> None:
    """Refuse to commit where the store's own link is not the only thing. Raises `StorageError`."""
    pointer, root = folder.pointer(output), folder.root
    foreign = [root / parent for parent in Path(output).parents if (root / parent).is_symlink()]
    if os.path.lexists(pointer) and not pointer.is_symlink():
        foreign.append(pointer)
    foreign = [path for path in foreign if path != root]
    if foreign:
        name = foreign[0].relative_to(root).as_posix()
        raise StorageError(
            f"{output}: {name} in the store was not written by the store; move it away"
        )
    ignores_case = os.path.lexists(root / ".VERSIONS")
    if ignores_case and os.path.lexists(pointer):
        names = {path.name.lower(): path.name for path in pointer.parent.iterdir()}
        known = names.get(pointer.name.lower(), pointer.name)
        if known != pointer.name:
            raise StorageError(
                f"{output}: its name differs from {output.rpartition('/')[0]}/{known} only in "
                "case, and the store's file system does not tell the two apart; rename one of "
                "the folders"
            )


def unneeded_versions(
    needed_at: Mapping[VersionKey, float],
    current: Iterable[tuple[str, str | None]],
    before: float,
    load: Callable[[list[VersionKey]], Iterable[Version | None]],
) -> list[VersionKey]:
    """The versions that were last needed before a time, sorted.

    A version is needed while it is one of `current`, for the grace period after that, and while a
    needed version links to it. `needed_at` are all versions, with the time as far as it is known;
    `load` gives many of them, None for one that is damaged.
    """
    published = set(current)
    roots = {key for key, at in needed_at.items() if key in published or at >= before}
    if len(roots) == len(needed_at):
        return []
    return sorted(needed_at.keys() - with_linked(roots, load))


def with_linked(
    roots: Iterable[VersionKey], load: Callable[[list[VersionKey]], Iterable[Version | None]]
) -> set[VersionKey]:
    """The roots and every version that they link to, directly or not."""
    found: set[VersionKey] = set()
    level = sorted(roots)
    while level:
        found.update(level)
        manifests = (version.manifest for version in load(level) if version)
        links = {(link.output, link.version) for one in manifests for link in one.links.values()}
        level = sorted(links - found)
    return found
