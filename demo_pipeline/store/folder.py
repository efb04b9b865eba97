"""A folder as the store and the uploads use it: files by their keys, and versions with pointers.

This module does single operations on the file system; the store decides about their order. Hidden
names, and links that lead outside the folder, are ignored. A listing follows no link to a folder,
because folders that link to each other would have endlessly many paths.
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
_LOCKS = ".locks"  # earlier versions of the package wrote it
_ATTEMPTS = 100  # of an operation that fails if another process removes an empty folder meanwhile
_Result = TypeVar("_Result")
_Take = Callable[[Path, Path], object]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One file or object as a listing shows it.

    Attributes:
        key: relative to the root, `/`-separated, never beginning with `/`.
        size: bytes.
        etag: changes whenever the bytes are replaced.
        modified: epoch seconds by the store's clock.
    """

    key: str
    size: int
    etag: str
    modified: float


class Folder:
    """Everything in a root folder. Paths of versions are strings, because a store has very many.

    Args:
        root: must exist for a listing. The first write creates it, readable by its owner alone.

    Attributes:
        url: the root's path.
        pointers: the prefix of the keys of pointers, which are named like outputs.
        tops: the prefixes of the other keys that are named like outputs: versions and drafts.
    """

    tops = (f"{_VERSIONS}/", f"{_STAGING}/")
    pointers = ""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = str(self.root)

    # Files by their keys

    def listing(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the files at any depth below a folder.

        `prefix` ends in `/`; empty: the root. Subfolders that cannot be read are skipped. If the
        root does not exist, there are no files. Raises `StorageError` if the folder cannot be
        listed.
        """
        if not self.root.is_dir():
            return
        for name in self._names(prefix):
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
        """The files directly in a folder by their names; None if the folder does not exist.

        A folder that cannot be listed counts as empty. `folder` may be a link to another folder of
        the root. Raises `StorageError` if the root does not exist.
        """
        if not _is_folder(self._existing() / folder):
            return None
        files: dict[str, ObjectInfo] = {}
        try:
            for name in self._names(folder):
                if info := self._info(f"{folder}/{name}"):
                    files[name] = info
        except StorageError:
            return {}
        return files

    def by_folder(self) -> dict[str, dict[str, ObjectInfo]]:
        """The `files` of each of `folders`."""
        return {name: self.files(name) or {} for name in self.folders()}

    def head(self, key: str) -> ObjectInfo | None:
        """The plain file as it is now; None for anything else.

        Raises:
            StorageError: no permission to read the file or a folder above it.
        """
        with suppress(FileNotFoundError), self._opened(key):
            return self._info(key)
        return None

    def _info(self, key: str) -> ObjectInfo | None:
        """Like `head`, but needs no permission to read the file itself."""
        try:
            status = (self.root / key).stat()
        except PermissionError:
            raise _forbidden(key) from None
        except (OSError, ValueError):  # missing, a loop of links, or an impossible name
            return None
        if not stat.S_ISREG(status.st_mode) or not self.holds(key):
            return None
        etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
        return ObjectInfo(key, status.st_size, etag, status.st_mtime)

    def read(self, key: str) -> bytes | None:
        """The bytes of a small file; None if it does not exist."""
        with suppress(FileNotFoundError), self._opened(key) as file:
            return file.read()
        return None

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Copy the file with this ETag to `dest`.

        Raises:
            ObjectChangedError: the file was removed or replaced, or changed during the copy.
        """
        with suppress(FileNotFoundError), self._opened(key) as file, dest.open("wb") as out:
            shutil.copyfileobj(file, out)
        now = self._info(key)
        if now is None or now.etag != etag:
            raise ObjectChangedError(f"{key!r} is no longer the file that was listed")

    def put(self, key: str, data: bytes | Path) -> None:
        """Write or replace a file; readers see the old bytes or the new."""
        self._write(key, data)

    def add(self, key: str, data: bytes) -> bool:
        """Write a file if it does not exist; returns whether this call wrote it."""
        try:
            self._write(key, data, os.link)
        except FileExistsError:
            return False
        return True

    def _write(self, key: str, data: bytes | Path, take: _Take | None = None) -> None:
        path = self.root / key
        try:
            with self.incoming(path, key.rpartition("/")[0], take) as draft:
                if isinstance(data, Path):
                    data = data.read_bytes()
                draft.write_bytes(data)
                sync(draft)
            sync(path.parent)
        except FileExistsError:
            raise
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            message = f"{path.name}: could not be written: {reason}"
            raise StorageError(message, trouble=reason) from None

    def delete(self, key: str) -> None:
        """Remove a file if it exists, and the folders that become empty."""
        path = self.root / key
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                sync(path.parent)
        self._tidy(path)

    def delete_all(self, key: str) -> bool:
        """Remove a folder with its content, a file or a link; returns whether it existed."""
        path = self.root / key
        existed = os.path.lexists(path)
        remove_tree(path)
        self._tidy(path)
        return existed

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        """Open a file. Raises `FileNotFoundError` if `head` gives None, else what `head` raises."""
        if self._info(key) is None:
            raise FileNotFoundError(key)
        try:
            file = (self.root / key).open("rb")
        except PermissionError:
            raise _forbidden(key) from None
        with file:
            yield file

    def holds(self, key: str) -> bool:
        """Whether a key has only visible names, and no link on its way leads out of the root."""
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
        """The visible names in a folder of the root, sorted; raises what `folders` raises."""
        path = self._existing() / folder
        folder = folder.rstrip("/")
        if folder and not self.holds(folder):
            return []
        try:
            return sorted(name for name in os.listdir(path) if name[0] != ".")  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            place = ascii(folder) if folder else "the root"
            reason = os.strerror(error.errno or 0)
            message = f"{place}: cannot be listed ({reason}); check its permissions"
            raise StorageError(message, trouble=reason) from None

    def _existing(self) -> Path:
        """The root. Raises `StorageError` if it does not exist."""
        if not self.root.is_dir():
            raise StorageError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )
        return self.root

    # Versions. `at` is `<output>/<place>`.

    def content(self, at: str) -> str:
        """The path of the content of a version."""
        return f"{self.root}/{_VERSIONS}/{at}/{CONTENT}"

    def pointer(self, output: str) -> str | None:
        """The folder of the version that readers see, even if it is missing; None without one."""
        return self._target(f"{self.root}/{output}", output)

    def _target(self, link: str, output: str) -> str | None:
        """The place of the version that a link leads to; None if it leads to another output."""
        try:
            text = os.readlink(link)  # noqa: PTH115 - faster; it is called for every trajectory
        except OSError:  # missing, or not a link
            return None
        place = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        if text != self._relative(link, f"{output}/{place}"):
            return None
        return place

    def _relative(self, link: str, at: str) -> str:
        """The text of a link from anywhere below the root to the content of a version."""
        up = "../" * link[len(self.url) + 1 :].count("/")
        return f"{up}{_VERSIONS}/{at}/{CONTENT}"

    def set_link(self, link: str, at: str, draft_of: str) -> None:
        """Create or replace a link to the content of a version."""
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
            StorageError: a file or folder that the store has not written is in the way.
        """
        for folder in Path(output).parents:
            if folder.name and (self.root / folder).is_symlink():
                raise StorageError(_foreign(folder))
        self.set_link(f"{self.root}/{output}", f"{output}/{place}", output)

    def outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        if folder and self.pointer(folder):
            return {folder}
        outputs: set[str] = set()
        for place, folders, files in self._walk(folder):
            for name in (*folders, *files):
                output = f"{place}/{name}".lstrip("/")
                if self.pointer(output):
                    outputs.add(output)
        return outputs

    def ages(self, within: str = "") -> dict[str, float]:
        """Version below a folder → when it was superseded, or else written, in epoch seconds.

        Versions are listed whether or not they are published or complete.
        """
        ages: dict[str, float] = {}
        for place, folders, files in self._walk(f"{_VERSIONS}/{within}"):
            if is_place(place.rpartition("/")[2]) and {*folders, *files} <= {CONTENT, MANIFEST}:
                folders.clear()
                with suppress(FileNotFoundError):
                    ages[place[len(_VERSIONS) + 1 :]] = (self.root / place).stat().st_mtime
        return ages

    def manifest(self, at: str) -> bytes | None:
        """The bytes of a version's manifest; None without one."""
        try:
            with open(f"{self.root}/{_VERSIONS}/{at}/{MANIFEST}", "rb") as file:  # noqa: PTH123
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_whole(self, version: Version) -> bool:
        """Whether every file exists in its size and every link leads to the right version.

        A link is wrong if the same version was published again in another place, because the
        version at the old place was damaged.
        """
        links = version.manifest.links.items()
        return (
            os.path.isdir(self.content(version.at))  # noqa: PTH112 - faster; versions are many
            and not any(self.lacking(version))
            and all(self.linked(version, *link) for link in links)
        )

    def lacking(self, version: Version, pattern: str | None = None) -> Iterator[FileEntry]:
        """Yield the files that are missing or have another size, of those that match."""
        content = self.content(version.at)
        for file in version.manifest.files:
            matches = pattern is None or fnmatchcase(file.path, pattern)
            if matches and _size(f"{content}/{file.path}") != file.size:
                yield file

    def linked(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """The version that a link leads to, as `<output>/<place>`; None if the link is wrong."""
        at = self.leads_to(version, path, link)
        if at is None or self.manifest(at) is None:
            return None
        current = self.pointer(link.output)
        if current and current[:VERSION_LENGTH] == link.version:
            is_replaced = at != f"{link.output}/{current}"
            return None if is_replaced else at
        return at

    def leads_to(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Like `linked`, also if that version was removed or replaced."""
        place = self._target(f"{self.content(version.at)}/{path}", link.output)
        if place is None or place[:VERSION_LENGTH] != link.version:
            return None
        return f"{link.output}/{place}"

    def sizes(self, at: str) -> dict[str, int | None]:
        """Path → bytes of every file in the content of a version; None for anything else."""
        content = self.content(at)
        if not os.path.isdir(content):  # noqa: PTH112
            return {}
        return {path: _size(f"{content}/{path}") for path in walk_files(content)}

    def digests(self, version: Version) -> Iterator[str | None]:
        """SHA-256 of each file of the manifest; None if the file cannot be read."""
        for file in version.manifest.files:
            try:
                yield read_digest(Path(self.content(version.at), file.path)).sha256
            except OSError:
                yield None

    def install(self, staging: Staging, version: Version, unsynced: list[str] | None) -> None:
        """Sync a staged directory, with its manifest in it, and move it to its place.

        `unsynced`: the files that no commit has synced yet; None for a cache, which needs no sync.
        """
        if unsynced is not None:
            files = [f"{CONTENT}/{path}" for path in unsynced]
            sync_tree(staging.directory, [staging.directory / path for path in (*files, MANIFEST)])
        target = self.root / _VERSIONS / version.at
        self._within(target.parent, staging.directory.rename, target)
        sync(target.parent)

    def renew(self, at: str) -> None:
        """Start the grace period of a version now."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS / at)

    def discard(self, at: str) -> None:
        """Remove a version, its manifest first."""
        with suppress(FileNotFoundError):
            (self.root / _VERSIONS / at / MANIFEST).unlink()
        self.delete_all(f"{_VERSIONS}/{at}")

    def traces(self, name: str) -> set[str]:
        """The outputs `<folder>/<name>` that have a version or a draft."""
        outputs: set[str] = set()
        for top in self.tops:
            outputs |= {f"{path.parent.name}/{name}" for path in self.root.glob(f"{top}*/{name}")}
        return outputs

    def now(self) -> float:
        """Epoch seconds by the clock that gives versions their ages. Nothing is created for it."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS)
            return (self.root / _VERSIONS).stat().st_mtime
        return time.time()  # the store is empty

    # Drafts: folders of unfinished work. The process that works in a draft holds a lock on it.

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        """A private folder, as deep as the versions of the output; always removed at the end.

        No other process removes it, because `sweep` removes only folders that it can lock.
        """
        path = self.root / _STAGING / name / f".{secrets.token_hex(8)}"
        handle = self._within(path.parent, make_locked_folder, path)
        try:
            yield path
        finally:
            remove_tree(path)
            os.close(handle)
            self._tidy(path.parent)

    @contextmanager
    def incoming(self, place: Path, name: str, take: _Take | None = None) -> Iterator[Path]:
        """A file to write. Without an error, it is moved to its place at the end, by `take`."""
        with self.draft(name) as folder:
            yield folder / place.name
            self._within(place.parent, take or Path.replace, folder / place.name, place)

    def is_building(self, output: str) -> bool:
        """Whether a process of this machine is building the output."""
        return len(self._drafts(output)) > len(self.abandoned(output))

    def abandoned(self, output: str = "") -> list[str]:
        """The drafts that dead processes have left, of an output or of all, sorted."""
        abandoned: list[str] = []
        for path in self._drafts(output):
            with lock_if_free(path) as is_free:
                if is_free:
                    abandoned.append(path.relative_to(self.root).as_posix())
        return abandoned

    def sweep(self) -> list[str]:
        """Remove the drafts that are `abandoned`, and return their paths."""
        remove_tree(self.root / _LOCKS)
        removed: list[str] = []
        for path in self._drafts():
            with lock_if_free(path) as is_free:
                if is_free:
                    draft = path.relative_to(self.root).as_posix()
                    self.delete_all(draft)
                    removed.append(draft)
        return removed

    def _drafts(self, output: str = "") -> list[Path]:
        drafts: list[Path] = []
        for place, folders, files in self._walk(f"{_STAGING}/{output}"):
            hidden_names = [name for name in (*folders, *files) if name[0] == "."]
            drafts += [self.root / place / name for name in hidden_names]
        return sorted(drafts)

    def _walk(self, top: str) -> Iterator[tuple[str, list[str], list[str]]]:
        """Like `os.walk` from `top` down, with paths below the root; hidden folders are skipped.

        Raises an error for a folder that cannot be listed. If it passed for an empty folder, its
        outputs would be built again, or pruned.
        """
        for place, folders, files in os.walk(self.root / top, onerror=_unlisted):
            yield place[len(self.url) + 1 :], folders, files
            folders[:] = [name for name in folders if name[0] != "."]

    def _within(self, folder: Path, operation: Callable[..., _Result], *arguments: Path) -> _Result:
        """Call an operation in a folder, which other processes remove while it is empty."""
        for attempt in range(_ATTEMPTS):
            try:
                self._make(folder)
                return operation(*arguments)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _make(self, path: Path) -> None:
        """Create a folder and its missing parents, and sync the folder above each."""
        missing: list[Path] = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process created it
                folder.mkdir(0o700 if folder == self.root else 0o777)
            sync(folder.parent)

    def _tidy(self, path: Path) -> None:
        """Remove a folder and the folders above it if they are empty.

        The root, and hidden folders directly in it, stay.
        """
        parts = path.relative_to(self.root).parts
        kept = 0
        if parts and parts[0][0] == ".":
            kept = 1
        for depth in range(len(parts), kept, -1):
            try:
                self.root.joinpath(*parts[:depth]).rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # it is not empty
                return


def make_locked_folder(path: Path) -> int:
    """Create a folder and return a handle that locks it.

    Raises:
        FileNotFoundError: another process removed the folder before it was locked.
    """
    path.mkdir()
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # a file system without locks, where `sweep` cannot lock it either
        fcntl.flock(handle, fcntl.LOCK_SH)
    if not path.is_dir():
        os.close(handle)
        raise FileNotFoundError(path)
    return handle


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Whether no process of this machine works in a draft. None can begin to in this context."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # removed meanwhile, or a link that an earlier version of the package left
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
    """Whether this is a folder. A path that cannot be examined, like a link to itself, counts."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _size(path: str) -> int | None:
    """The bytes of a plain file; None for anything else."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder, if it exists."""
    with suppress(FileNotFoundError):  # another process removes it, too
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
