"""A folder as the store and the uploads use it: files by their keys, and versions with pointers.

Belongs here: what the file system does. In which order it is done is decided by the store. Hidden
names, and links that lead outside the folder, are ignored; a listing follows no link to a folder,
since links between neighbours would have a path for each way through them.
"""

import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import BinaryIO, TypeVar

from demo_pipeline.files.atomic_write import read_digest, sync, sync_file_system
from demo_pipeline.store.errors import MissingRootError, ObjectChangedError, StorageError
from demo_pipeline.store.versions import (
    CONTENT,
    MANIFEST,
    VERSION_LENGTH,
    FileEntry,
    LinkEntry,
    Manifest,
    Staging,
    Version,
    is_place,
    parse_manifest,
    walk_files,
)

_VERSIONS, _STAGING = ".versions", ".staging"
_LOCKS = ".locks"  # of older stores
_MANY = 1000  # files that are synced by one call for the file system
_ATTEMPTS = 100  # of what fails only when another process removes an empty folder meanwhile
_SECONDS_TO_LOCK = 60.0  # a draft this old that nobody holds is of a process that died
_Result = TypeVar("_Result")
_Take = Callable[[Path, Path], object]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One file or object as a listing shows it.

    Attributes:
        key: relative to the root, `/`-separated, never beginning with `/`.
        size: bytes.
        etag: changes whenever the bytes are replaced; opaque, without quotes.
        modified: epoch seconds by the store's clock.
    """

    key: str
    size: int
    etag: str
    modified: float


class Folder:
    """One root. Paths made for each of many trajectories are plain text.

    Args:
        root: listing requires it; the first write creates it, for its owner alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self.root)

    # Files by their keys

    def listing(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files at any depth of a folder, which ends in `/`; empty: of the root.

        A folder in it that cannot be read hides no other; links to folders are not followed.

        Raises:
            StorageError: there is no root, or the folder cannot be listed.
        """
        for name in self.names(prefix):
            info = self._info(f"{prefix}{name}")
            path = f"{self.root}/{prefix}{name}"
            if info:
                yield info
            elif os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - many
                with suppress(StorageError):
                    yield from self.listing(f"{prefix}{name}/")

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the visible folders directly under a folder; see `is_folder`, `listing`."""
        return [name for name in self.names(prefix) if self.is_folder(f"{prefix}{name}")]

    def is_folder(self, name: str) -> bool:
        """Whether this is a folder, or cannot be examined, such as a link to itself."""
        try:
            return stat.S_ISDIR((self._existing() / name).stat().st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True

    def files(self, folder: str) -> dict[str, ObjectInfo] | None:
        """The files directly in a folder by their names; None without the folder.

        A link to a folder is followed, but not out of the root.

        Raises:
            StorageError: there is no root, or the folder cannot be listed.
        """
        if not self.is_folder(folder):
            return None
        found = ((name, self._info(f"{folder}/{name}")) for name in self.names(folder))
        return {name: info for name, info in found if info}

    def by_folder(self) -> dict[str, dict[str, ObjectInfo]]:
        """The `files` of each of `folders`; none of one that cannot be listed."""
        found = dict[str, dict[str, ObjectInfo]]()
        for name in self.folders():
            found[name] = {}
            with suppress(StorageError):
                found[name] = self.files(name) or {}
        return found

    def head(self, key: str) -> ObjectInfo | None:
        """The file as it is now; None when it does not exist."""
        with suppress(FileNotFoundError), self._opened(key) as file:
            return _described(key, os.fstat(file.fileno()))
        return None

    def read(self, key: str) -> bytes | None:
        """A small file's bytes; None when it does not exist."""
        with suppress(FileNotFoundError), self._opened(key) as file:
            return file.read()
        return None

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Copy the file with this ETag to `dest`.

        Raises:
            ObjectChangedError: it was removed or replaced, or changed during the copy.
        """
        with suppress(FileNotFoundError), self._opened(key) as file, dest.open("wb") as out:
            shutil.copyfileobj(file, out)
            if _described(key, os.fstat(file.fileno())).etag == etag:
                return
        raise ObjectChangedError(f"{key!r} is not the file that was listed any more")

    def put(self, key: str, data: bytes | Path) -> None:
        """Write or replace a file; readers see the old bytes or the new."""
        self._write(key, data, Path.replace)

    def add(self, key: str, data: bytes) -> bool:
        """Write a file unless there is one; returns whether this call wrote it."""
        try:
            self._write(key, data, os.link)
        except FileExistsError:
            return False
        return True

    def _write(self, key: str, data: bytes | Path, take: _Take) -> None:
        if not _is_plain(key):
            raise StorageError(f"{key!r} cannot be a key in a folder")
        path = self.root / key
        try:
            with self.incoming(path, key.rpartition("/")[0], take) as draft:
                if isinstance(data, bytes):
                    draft.write_bytes(data)
                else:
                    shutil.copyfile(data, draft)
                sync(draft)
            sync(path.parent)
        except FileExistsError:
            raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise StorageError(f"{path.name}: could not be written: {reason}") from None

    def delete(self, key: str) -> None:
        """Remove a file or an empty folder, if it exists, and the folders that are empty then."""
        path = self.root / key
        if _is_plain(key) and path.is_file():
            path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                sync(path.parent)
        self._tidy(path if path.is_dir() else path.parent)

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        """The file of a key.

        Raises:
            FileNotFoundError: the key is not a file's; a link to itself is none.
            StorageError: the file, or a folder above it, may not be read.
        """
        path = self.root / key
        try:
            if not (_is_plain(key) and self._holds(path) and path.is_file()):
                raise FileNotFoundError(key)
            file = path.open("rb")
        except (IsADirectoryError, NotADirectoryError):
            raise FileNotFoundError(key) from None
        except PermissionError:
            raise StorageError(f"{key!r}: cannot be read; check its permissions") from None
        with file:
            yield file

    def _info(self, key: str) -> ObjectInfo | None:
        """The plain file of a key; None for anything else, and for a link out of the root."""
        path = self.root / key
        try:
            status = path.stat()
            if stat.S_ISREG(status.st_mode) and not self.leaves(path):
                return _described(key, status)
        except OSError:  # removed meanwhile
            pass
        return None

    def leaves(self, path: Path) -> bool:
        """Whether a path below the root is a link to somewhere outside it, or to itself."""
        try:
            return path.is_symlink() and not self._holds(path)
        except OSError:  # of its folder: who opens it reports that
            return False

    def names(self, folder: str = "") -> list[str]:
        """The visible names in a folder inside the root, sorted.

        Raises:
            StorageError: there is no root, or the folder cannot be listed.
        """
        folder = folder.rstrip("/")
        path = self._existing() / folder
        try:
            inside = (not folder or _is_plain(folder)) and self._holds(path)
            names = os.listdir(path) if inside else []  # noqa: PTH208 - many
            return sorted(name for name in names if name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            place, reason = ascii(folder) if folder else "the root", os.strerror(error.errno or 0)
            raise StorageError(
                f"{place}: cannot be listed ({reason}); check its permissions"
            ) from None

    def _existing(self) -> Path:
        """The root. Raises `MissingRootError` when there is none."""
        if not self.root.is_dir():
            raise MissingRootError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )
        return self.root

    def _holds(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.root.resolve())
        except (OSError, RuntimeError):  # a loop of links
            return False

    # Versions. `at` is `<output>/<place>`.

    def content(self, at: str) -> str:
        """Path of the content of a version."""
        return f"{self.root}/{_VERSIONS}/{at}/{CONTENT}"

    def pointer(self, output: str) -> str | None:
        """The folder of the version that readers see, even a missing one; None without one."""
        return self.target(f"{self.root}/{output}", output)

    def target(self, link: str, output: str) -> str | None:
        """The place of the version of an output that a link leads to; None for any other."""
        try:
            text = os.readlink(link)  # noqa: PTH115 - for every trajectory
        except OSError:  # missing, or not a link
            return None
        place = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        return place if text == self._relative(link, f"{output}/{place}") else None

    def _relative(self, link: str, at: str) -> str:
        """The text of a link, anywhere below the root, to the content of a version."""
        up = "../" * link[len(str(self.root)) + 1 :].count("/")
        return f"{up}{_VERSIONS}/{at}/{CONTENT}"

    def set_link(self, link: str, at: str, draft_of: str) -> None:
        """Let a link, which is made or replaced, lead to the content of a version."""
        path = Path(link)
        try:
            with self.incoming(path, draft_of) as draft:
                draft.unlink()
                self._within(draft.parent, lambda: draft.symlink_to(self._relative(link, at)))
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            raise StorageError(_foreign(path.relative_to(self.root))) from None
        sync(path.parent)

    def point(self, output: str, place: str) -> None:
        """Move the pointer of an output: readers see the version.

        Raises:
            StorageError: there is something that the store has not written.
        """
        for folder in Path(output).parents:
            if folder.name and (self.root / folder).is_symlink():
                raise StorageError(_foreign(folder))
        self.set_link(f"{self.root}/{output}", f"{output}/{place}", output)

    def unpoint(self, output: str) -> None:
        """Remove the pointer of an output."""
        path = self.root / output
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            sync(path.parent)
        self._tidy(path.parent)

    def outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        if folder and self.pointer(folder):
            return {folder}
        found = set[str]()
        for place, folders, files in os.walk(self.root / folder, onerror=_unlisted):
            above = place[len(str(self.root)) + 1 :]
            found |= {f"{above}/{name}".lstrip("/") for name in (*folders, *files)}
            folders[:] = [name for name in folders if name[0] != "."]
        return set(filter(self.pointer, found))

    def ages(self, within: str = "") -> dict[str, float]:
        """Every version below a folder, published or not, complete or not → when it was needed.

        That is when it was superseded, else when it was made.
        """
        top, found = self.root / _VERSIONS, dict[str, float]()
        for place, folders, files in os.walk(top / within, onerror=_unlisted):
            names = {*folders, *files}
            if is_place(os.path.basename(place)) and names <= {CONTENT, MANIFEST}:  # noqa: PTH119
                folders.clear()
                with suppress(FileNotFoundError):
                    found[place[len(str(top)) + 1 :]] = os.stat(place).st_mtime  # noqa: PTH116
        return found

    def manifest(self, at: str) -> Manifest | None:
        """The manifest of a version; None when it is missing or damaged."""
        try:
            with open(f"{self.root}/{_VERSIONS}/{at}/{MANIFEST}", "rb") as file:  # noqa: PTH123
                return parse_manifest(file.read(), at.rpartition("/")[2])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, at: str) -> bool:
        """Whether the manifest of a version is there."""
        return os.path.isfile(f"{self.root}/{_VERSIONS}/{at}/{MANIFEST}")  # noqa: PTH113

    def is_whole(self, version: Version) -> bool:
        """Whether every file exists in its size and every link leads to the right version.

        A link to a version is wrong when the same version was published again elsewhere: then the
        one that it leads to was damaged.
        """
        content = self.content(version.at)
        return (
            os.path.isdir(content)  # noqa: PTH112 - very many
            and all(_size(f"{content}/{file.path}") == file.size for file in version.manifest.files)
            and all(self.linked(version, *link) for link in version.manifest.links.items())
        )

    def linked(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Where the version is that a link leads to; None when the link is wrong."""
        at, now = self.leads_to(version, path, link), self.pointer(link.output)
        replaced = now and at != f"{link.output}/{now}" and now[:VERSION_LENGTH] == link.version
        return at if at and not replaced and self.exists(at) else None

    def leads_to(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Where the version of a link is, or was; None when it leads elsewhere."""
        place = self.target(f"{self.content(version.at)}/{path}", link.output) or ""
        return f"{link.output}/{place}" if place[:VERSION_LENGTH] == link.version else None

    def sizes(self, at: str) -> dict[str, int | None]:
        """Path → bytes of every file in the content of a version; None for anything else."""
        content = self.content(at)
        found = walk_files(content) if os.path.isdir(content) else ()  # noqa: PTH112
        return {path: _size(f"{content}/{path}") for path in found}

    def digests(self, version: Version) -> Iterator[str | None]:
        """SHA-256 of each file of the manifest; None of one that cannot be read."""
        for file in version.manifest.files:
            try:
                yield read_digest(Path(self.content(version.at), file.path)).sha256
            except OSError:
                yield None

    def install(self, staging: Staging, version: Version, unsynced: list[str] | None) -> None:
        """Sync a staged directory, with its manifest in it, and move it to its place.

        `unsynced`: the files that no commit has synced; None: in a cache nothing has to be.
        """
        places = [staging.path / path for path in unsynced or ()]
        if len(places) > _MANY and sync_file_system(staging.directory):
            places = []
        if unsynced is not None:
            places.append(staging.directory / MANIFEST)
            places += [Path(place[0]) for place in os.walk(staging.directory, topdown=False)]
        for place in places:
            sync(place)
        target = self.root / _VERSIONS / version.at
        self._within(target.parent, lambda: staging.directory.rename(target))
        sync(target.parent)

    def renew(self, at: str) -> None:
        """Let the grace period of a version start now."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS / at)

    def discard(self, at: str) -> None:
        """Remove a version, its manifest first."""
        place = self.root / _VERSIONS / at
        with suppress(FileNotFoundError):
            (place / MANIFEST).unlink()
        remove_tree(place)
        self._tidy(place.parent)

    def erase(self, output: str) -> bool:
        """Remove all that carries the name of an output but its pointer; whether there was any."""
        places = [self.root / top / output for top in (_VERSIONS, _STAGING)]
        locks = self.root / _LOCKS / f"{output}.lock"
        places += [locks, locks.with_name(f"{locks.stem}.fetch.lock")]
        found = any(map(os.path.lexists, places))
        for place in places:
            remove_tree(place)
            self._tidy(place.parent)
        return found

    def traces(self, name: str) -> set[str]:
        """Outputs `<folder>/<name>` of which a version, a draft, or an old lock file is left."""
        tops = (self.root / top for top in (_VERSIONS, _STAGING, _LOCKS))
        ends = (name, f"{name}.lock", f"{name}.fetch.lock")
        found = (path for top in tops for end in ends for path in top.glob(f"*/{end}"))
        return {f"{path.parent.name}/{name}" for path in found}

    def now(self) -> float:
        """Epoch seconds by the clock that gives versions their ages; nothing is created for it."""
        return self._touched(_VERSIONS)

    def _touched(self, name: str) -> float:
        with suppress(FileNotFoundError):
            os.utime(self.root / name)
            return (self.root / name).stat().st_mtime
        return time.time()  # there is nothing in it

    # As the cache of a bucket

    def keep(self, at: str, data: bytes) -> None:
        """Keep the manifest of a version."""
        place = self.root / _VERSIONS / at / MANIFEST
        with self.incoming(place, at.rpartition("/")[0]) as draft:
            draft.write_bytes(data)

    def lacking(self, version: Version, pattern: str | None) -> list[FileEntry]:
        """The files, of those that match, that are not here in their size."""
        content = self.content(version.at)
        matching = (f for f in version.manifest.files if fnmatchcase(f.path, pattern or "*"))
        return [file for file in matching if _size(f"{content}/{file.path}") != file.size]

    def used(self, at: str) -> None:
        """Make the folder of a version, which is needed from now on."""
        path = Path(self.content(at))
        self._within(path.parent, lambda: path.mkdir(exist_ok=True))
        os.utime(path.parent)

    # Drafts: what is not finished. The process that builds in one holds a lock on it.

    def _draft(self, name: str) -> Path:
        return self.root / _STAGING / name / f".{secrets.token_hex(8)}"

    @contextmanager
    def incoming(self, place: Path, name: str, take: _Take | None = None) -> Iterator[Path]:
        """A file to write, which takes its place at the end unless an error was raised."""
        draft = self._draft(name)
        try:
            self._within(draft.parent, draft.touch)
            yield draft
            self._within(place.parent, lambda: (take or Path.replace)(draft, place))
        finally:
            draft.unlink(missing_ok=True)
            self._tidy(draft.parent)

    @contextmanager
    def draft(self, output: str) -> Iterator[Path]:
        """A private directory, as deep as the output's versions; removed at the end in any case."""
        path = self._draft(output)
        self._within(path.parent, path.mkdir)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with suppress(OSError):  # a file system without locks: the draft's age decides
                fcntl.flock(handle, fcntl.LOCK_SH)
            (path / CONTENT).mkdir()
            yield path
        finally:
            remove_tree(path)
            os.close(handle)
            self._tidy(path.parent)

    def is_building(self, output: str) -> bool:
        """Whether a process of this machine builds the output."""
        return any(map(_is_held, self._drafts(output)))

    def abandoned(self, before: float | None = None) -> list[str]:
        """What processes that died have left, sorted; with a time only what is older."""
        limit = self._touched(_STAGING) - _SECONDS_TO_LOCK if before is None else before
        old = (path for path in self._drafts("") if _is_old(path, limit))
        return [path.relative_to(self.root).as_posix() for path in old if not _is_held(path)]

    def sweep(self, before: float | None = None) -> list[str]:
        """Remove what is `abandoned`; returns it."""
        names = self.abandoned(before)
        for name in names:
            remove_tree(self.root / name)
            self._tidy((self.root / name).parent)
        return names

    def _drafts(self, output: str) -> list[Path]:
        found = list[Path]()
        for place, folders, files in os.walk(self.root / _STAGING / output, onerror=_unlisted):
            found += [Path(place, name) for name in (*folders, *files) if name[0] == "."]
            folders[:] = [name for name in folders if name[0] != "."]
        return sorted(found)

    def _within(self, folder: Path, work: Callable[[], _Result]) -> _Result:
        """Do something in a folder, which is made, and may be removed when it is empty."""
        for attempt in range(_ATTEMPTS):
            try:
                self._make(folder)
                return work()
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _make(self, path: Path) -> None:
        """Create a folder and its missing parents, each recorded in the folder above it."""
        missing: list[Path] = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            folder.mkdir(0o700 if folder == self.root else 0o777, exist_ok=True)
            sync(folder.parent)

    def _tidy(self, folder: Path) -> None:
        """Remove folders that are empty, up to those of the store."""
        parts = folder.relative_to(self.root).parts
        top = 1 if parts and parts[0][0] == "." else 0
        with suppress(OSError):  # it is not empty, or another process was quicker
            for depth in range(len(parts), top, -1):
                self.root.joinpath(*parts[:depth]).rmdir()


def _foreign(path: Path) -> str:
    return f"{path} in the store was not written by the store; move it away"


def _is_held(path: Path) -> bool:
    """Whether a living process of this machine holds a draft."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
    return False


def _is_old(path: Path, before: float) -> bool:
    with suppress(FileNotFoundError):  # another process removes it
        return path.lstat().st_mtime < before
    return False


def _unlisted(error: OSError) -> None:
    """Let no folder pass for an empty one: what it holds would be rebuilt, or pruned."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _is_plain(key: str) -> bool:
    """Whether every part is a visible name."""
    return "\0" not in key and all(part and part[0] != "." for part in key.split("/"))


def _described(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag, status.st_mtime)


def _size(path: str) -> int | None:
    """Bytes of a plain file, None for anything else."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def remove_tree(path: Path) -> None:
    """Remove a file, a link, or a folder that nobody reads, if it exists."""
    with suppress(FileNotFoundError):  # another process removes it, too
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
