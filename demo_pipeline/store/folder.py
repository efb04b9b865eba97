"""A folder as the store and the uploads use it: files by their keys, and versions with pointers.

Belongs here: what the file system does. In which order it is done is decided by the store. Hidden
names, and links that lead outside the folder, are ignored; a listing follows no link to a folder,
since links between neighbours would have a path for each way through them.
"""

import errno
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
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, TypeVar

from demo_pipeline.files.atomic_write import read_digest, sync, sync_tree
from demo_pipeline.store.errors import ObjectChangedError, StorageError
from demo_pipeline.store.versions import (
    CONTENT,
    MANIFEST,
    VERSION_LENGTH,
    FileEntry,
    LinkEntry,
    Staging,
    Version,
    is_place,
    walk_files,
)

_VERSIONS = ".versions"
_STAGING = ".staging"
_LOCKS = ".locks"  # of older stores
_ATTEMPTS = 100  # of what fails only when another process removes an empty folder meanwhile
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

    Attributes:
        url: the root's path.
        pointers: what the key of an output's pointer begins with.
        tops: what the keys of all else begin with that is named by an output.
    """

    tops = (f"{_VERSIONS}/", f"{_STAGING}/")
    pointers = ""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = str(self.root)

    # Files by their keys

    def listing(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files at any depth of a folder, which ends in `/`; empty: of the root.

        A folder in it that cannot be read hides no other; links to folders are not followed.
        Without a root there are none. Raises `StorageError` when the folder cannot be listed.
        """
        for name in self._names(prefix) if self.root.is_dir() else ():
            path = self.root / f"{prefix}{name}"
            if info := self._info(f"{prefix}{name}"):
                yield info
            elif path.is_dir() and not path.is_symlink():
                with suppress(StorageError):
                    yield from self.listing(f"{prefix}{name}/")

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the visible folders directly under a folder.

        Raises:
            StorageError: there is no root, or the folder cannot be listed.
        """
        return [name for name in self._names(prefix) if _is_folder(self.root / f"{prefix}{name}")]

    def files(self, folder: str) -> dict[str, ObjectInfo] | None:
        """The files directly in a folder by their names; None without the folder.

        A link to a folder is followed, but not out of the root. In a folder that cannot be listed
        there are none. Raises `StorageError` when there is no root.
        """
        if not _is_folder(self._existing() / folder):
            return None
        with suppress(StorageError):
            found = ((name, self._info(f"{folder}/{name}")) for name in self._names(folder))
            return {name: info for name, info in found if info}
        return {}

    def by_folder(self) -> dict[str, dict[str, ObjectInfo]]:
        """The `files` of each of `folders`."""
        return {name: self.files(name) or {} for name in self.folders()}

    def head(self, key: str) -> ObjectInfo | None:
        """The plain file as it is now; None for anything else.

        Raises:
            StorageError: it, or a folder above it, may not be read.
        """
        with suppress(FileNotFoundError), self._opened(key):
            return self._info(key)
        return None

    def _info(self, key: str) -> ObjectInfo | None:
        """The same, whether or not it may be read itself."""
        try:
            status = (self.root / key).stat()
        except PermissionError:
            raise _forbidden(key) from None
        except (OSError, ValueError):  # missing, a loop of links, or no name that a file may have
            return None
        if not stat.S_ISREG(status.st_mode) or not self.holds(key):
            return None
        etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
        return ObjectInfo(key, status.st_size, etag, status.st_mtime)

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
        now = self._info(key)
        if now is None or now.etag != etag:
            raise ObjectChangedError(f"{key!r} is not the file that was listed any more")

    def put(self, key: str, data: bytes | Path) -> None:
        """Write or replace a file; readers see the old bytes or the new."""
        self._write(key, data)

    def add(self, key: str, data: bytes) -> bool:
        """Write a file unless there is one; returns whether this call wrote it."""
        try:
            self._write(key, data, os.link)
        except FileExistsError:
            return False
        return True

    def _write(self, key: str, data: bytes | Path, take: _Take | None = None) -> None:
        path = self.root / key
        try:
            with self.incoming(path, key.rpartition("/")[0], take) as draft:
                draft.write_bytes(data if isinstance(data, bytes) else data.read_bytes())
                sync(draft)
            sync(path.parent)
        except FileExistsError:
            raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            message = f"{path.name}: could not be written: {reason}"
            raise StorageError(message, trouble=reason) from None

    def delete(self, key: str) -> None:
        """Remove a file, if it exists, and the folders that are empty then."""
        path = self.root / key
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                sync(path.parent)
        self._tidy(path)

    def delete_all(self, key: str) -> bool:
        """Remove a folder with all in it, a file or a link; returns whether it was there."""
        path = self.root / key
        found = os.path.lexists(path)
        remove_tree(path)
        self._tidy(path)
        return found

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        """The file of a key. Raises `FileNotFoundError` where `head` gives None, else as that."""
        if self._info(key) is None:
            raise FileNotFoundError(key)
        try:
            file = (self.root / key).open("rb")
        except PermissionError:
            raise _forbidden(key) from None
        with file:
            yield file

    def holds(self, key: str) -> bool:
        """Whether a key consists of visible names, and no link in it leads out of the root."""
        parts = key.split("/")
        if "\0" in key or not all(part and part[0] != "." for part in parts):
            return False
        places = accumulate(parts, "{}/{}".format)
        if not any(os.path.islink(f"{self.root}/{place}") for place in places):  # noqa: PTH114
            return True
        try:
            return (self.root / key).resolve().is_relative_to(self.root.resolve())
        except (OSError, RuntimeError):  # a loop of links
            return False

    def _names(self, folder: str) -> list[str]:
        """The visible names in a folder inside the root, sorted; raises as `folders`."""
        path = self._existing() / folder
        folder = folder.rstrip("/")
        try:
            names = os.listdir(path) if not folder or self.holds(folder) else []  # noqa: PTH208
            return sorted(name for name in names if name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            place = ascii(folder) if folder else "the root"
            reason = os.strerror(error.errno or 0)
            message = f"{place}: cannot be listed ({reason}); check its permissions"
            raise StorageError(message, trouble=reason) from None

    def _existing(self) -> Path:
        """The root. Raises `StorageError` when there is none."""
        if not self.root.is_dir():
            raise StorageError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )
        return self.root

    # Versions. `at` is `<output>/<place>`.

    def content(self, at: str) -> str:
        """Path of the content of a version."""
        return f"{self.root}/{_VERSIONS}/{at}/{CONTENT}"

    def pointer(self, output: str) -> str | None:
        """The folder of the version that readers see, even a missing one; None without one."""
        return self._target(f"{self.root}/{output}", output)

    def _target(self, link: str, output: str) -> str | None:
        """The place of the version of an output that a link leads to; None for any other."""
        try:
            text = os.readlink(link)  # noqa: PTH115 - for every trajectory
        except OSError:  # missing, or not a link
            return None
        place = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        return place if text == self._relative(link, f"{output}/{place}") else None

    def _relative(self, link: str, at: str) -> str:
        """The text of a link, anywhere below the root, to the content of a version."""
        up = "../" * link[len(self.url) + 1 :].count("/")
        return f"{up}{_VERSIONS}/{at}/{CONTENT}"

    def set_link(self, link: str, at: str, draft_of: str) -> None:
        """Let a link, which is made or replaced, lead to the content of a version."""
        path = Path(link)
        try:
            with self.incoming(path, draft_of) as draft:
                draft.symlink_to(self._relative(link, at))
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

    def outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        if folder and self.pointer(folder):
            return {folder}
        found = set[str]()
        for place, folders, files in self._walk(folder):
            found |= {f"{place}/{name}".lstrip("/") for name in (*folders, *files)}
        return set(filter(self.pointer, found))

    def ages(self, within: str = "") -> dict[str, float]:
        """Every version below a folder, published or not, complete or not → when it was needed.

        That is when it was superseded, else when it was made.
        """
        found = dict[str, float]()
        for place, folders, files in self._walk(f"{_VERSIONS}/{within}"):
            if is_place(place.rpartition("/")[2]) and {*folders, *files} <= {CONTENT, MANIFEST}:
                folders.clear()
                with suppress(FileNotFoundError):
                    found[place[len(_VERSIONS) + 1 :]] = (self.root / place).stat().st_mtime
        return found

    def manifest(self, at: str) -> bytes | None:
        """The bytes of a version's manifest; None without one."""
        try:
            with open(f"{self.root}/{_VERSIONS}/{at}/{MANIFEST}", "rb") as file:  # noqa: PTH123
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_whole(self, version: Version) -> bool:
        """Whether every file exists in its size and every link leads to the right version.

        A link to a version is wrong when the same version was published again elsewhere: then the
        one that it leads to was damaged.
        """
        links = version.manifest.links.items()
        return (
            os.path.isdir(self.content(version.at))  # noqa: PTH112 - very many
            and not any(self.lacking(version))
            and all(self.linked(version, *link) for link in links)
        )

    def lacking(self, version: Version, pattern: str | None = None) -> Iterator[FileEntry]:
        """Yield the files, of those that match, that are not here in their size."""
        content = self.content(version.at)
        for file in version.manifest.files:
            matches = pattern is None or fnmatchcase(file.path, pattern)
            if matches and _size(f"{content}/{file.path}") != file.size:
                yield file

    def linked(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Where the version is that a link leads to; None when the link is wrong."""
        at = self.leads_to(version, path, link)
        now = self.pointer(link.output)
        replaced = now and at != f"{link.output}/{now}" and now[:VERSION_LENGTH] == link.version
        return at if at and not replaced and self.manifest(at) else None

    def leads_to(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Where the version of a link is, or was; None when it leads elsewhere."""
        place = self._target(f"{self.content(version.at)}/{path}", link.output) or ""
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
        if unsynced is not None:
            files = [f"{CONTENT}/{path}" for path in unsynced]
            sync_tree(staging.directory, [staging.directory / path for path in (*files, MANIFEST)])
        target = self.root / _VERSIONS / version.at
        self._within(target.parent, lambda: staging.directory.rename(target))
        sync(target.parent)

    def renew(self, at: str) -> None:
        """Let the grace period of a version start now."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS / at)

    def discard(self, at: str) -> None:
        """Remove a version, its manifest first."""
        with suppress(FileNotFoundError):
            (self.root / _VERSIONS / at / MANIFEST).unlink()
        self.delete_all(f"{_VERSIONS}/{at}")

    def traces(self, name: str) -> set[str]:
        """Outputs `<folder>/<name>` of which a version or a draft is left."""
        found = (path for top in self.tops for path in self.root.glob(f"{top}*/{name}"))
        return {f"{path.parent.name}/{name}" for path in found}

    def now(self) -> float:
        """Epoch seconds by the clock that gives versions their ages; nothing is created for it."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS)
            return (self.root / _VERSIONS).stat().st_mtime
        return time.time()  # there is nothing in it

    # Drafts: folders of what is not finished. The process that made one holds a lock on it.

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        """A private folder, as deep as the versions of the output; removed at the end in any case.

        No other process takes it for one of a dead process: who removes those locks them first.
        """
        path = self.root / _STAGING / name / f".{secrets.token_hex(8)}"
        handle = self._within(path.parent, lambda: _made_and_held(path))
        try:
            yield path
        finally:
            remove_tree(path)
            os.close(handle)
            self._tidy(path.parent)

    @contextmanager
    def incoming(self, place: Path, name: str, take: _Take | None = None) -> Iterator[Path]:
        """A file to write, which takes its place at the end unless an error was raised."""
        with self.draft(name) as folder:
            yield folder / place.name
            self._within(place.parent, lambda: (take or Path.replace)(folder / place.name, place))

    def is_building(self, output: str) -> bool:
        """Whether a process of this machine builds the output."""
        return len(self._drafts(output)) > len(self.abandoned(output))

    def abandoned(self, output: str = "") -> list[str]:
        """What processes that died have left of an output, or of all, sorted."""
        found = list[str]()
        for path in self._drafts(output):
            with _lock(path) as is_free:
                found += [path.relative_to(self.root).as_posix()] if is_free else []
        return found

    def sweep(self) -> list[str]:
        """Remove what is `abandoned`, and what older stores locked; returns the former."""
        remove_tree(self.root / _LOCKS)
        found = list[str]()
        for path in self._drafts():
            with _lock(path) as is_free:
                if is_free:
                    self.delete_all(path.relative_to(self.root).as_posix())
                    found.append(path.relative_to(self.root).as_posix())
        return found

    def _drafts(self, output: str = "") -> list[Path]:
        found = list[Path]()
        for place, folders, files in self._walk(f"{_STAGING}/{output}"):
            names = (name for name in (*folders, *files) if name[0] == ".")
            found += [self.root / place / name for name in names]
        return sorted(found)

    def _walk(self, top: str) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield each folder from `top` down, by its path below the root, as `os.walk` does.

        Only visible folders are entered. One that cannot be listed does not pass for an empty one:
        what it holds would be built again, or pruned.
        """
        for place, folders, files in os.walk(self.root / top, onerror=_unlisted):
            yield place[len(self.url) + 1 :], folders, files
            folders[:] = [name for name in folders if name[0] != "."]

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
            with suppress(FileExistsError):  # made by another, who may remove it at once: no error
                folder.mkdir(0o700 if folder == self.root else 0o777)
            sync(folder.parent)

    def _tidy(self, path: Path) -> None:
        """Remove a folder and those above it that are empty, up to those of the store."""
        parts = path.relative_to(self.root).parts
        top = 1 if parts and parts[0][0] == "." else 0
        for depth in range(len(parts), top, -1):
            try:
                self.root.joinpath(*parts[:depth]).rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # it is not empty
                return


def _made_and_held(path: Path) -> int:
    """A handle of a new folder, with a lock; `FileNotFoundError` when it was removed before."""
    path.mkdir()
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # a file system without locks, where nobody can lock it to remove it
        fcntl.flock(handle, fcntl.LOCK_SH)
    if not path.is_dir():
        os.close(handle)
        raise FileNotFoundError(path)
    return handle


@contextmanager
def _lock(path: Path) -> Iterator[bool]:
    """Whether no living process of this machine holds a draft; in this context none can."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # it was removed meanwhile, or is a link that an older version has left
        yield path.is_symlink()
        return
    is_free = False
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        yield is_free
    finally:
        os.close(handle)


def _foreign(path: Path) -> str:
    return f"{path} in the store was not written by the store; move it away"


def _forbidden(key: str) -> StorageError:
    message = f"{key!r}: cannot be read; check its permissions"
    return StorageError(message, trouble=os.strerror(errno.EACCES))


def _unlisted(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _is_folder(path: Path) -> bool:
    """Whether this is a folder, or cannot be examined, such as a link to itself."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


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
