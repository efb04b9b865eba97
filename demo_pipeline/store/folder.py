"""Operations on a folder that holds a store or uploads.

The pointer of an output is a link to its published version. This module only executes operations;
store.py decides their order.

Hidden names, and links that lead out of the folder, are ignored. Listings do not follow links to
folders, which could form loops.
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
_LOCKS = ".locks"  # a folder that only earlier versions of the package wrote
# Maximum attempts to write into a new folder, which other processes may remove while it is empty.
_ATTEMPTS = 100
_Result = TypeVar("_Result")
_Take = Callable[[Path, Path], object]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """A file in the listing of a folder, or an object in the listing of a bucket.

    Attributes:
        key: the path below the root, such as `a/b.json`.
        size: size in bytes.
        etag: a text that changes whenever the bytes are replaced.
        modified: time of the last change, in epoch seconds of the file system's or server's clock.
    """

    key: str
    size: int
    etag: str
    modified: float


class Folder:
    """Reads and writes the files, versions and pointers below a root folder.

    Paths of versions are strings, because a store has too many versions for `Path`s.

    Args:
        root: the folder. The first write creates it, readable only by its owner.

    Attributes:
        pointers: the prefix of the keys of pointers. The name of the output follows it.
        tops: the prefixes of the keys of versions and drafts. The name of the output follows them.
    """

    tops = (f"{_VERSIONS}/", f"{_STAGING}/")
    pointers = ""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = str(self.root)

    # Access to files by key

    def listing(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yields the files at any depth below a folder; nothing if the root does not exist.

        Skips subfolders that cannot be listed.

        Args:
            prefix: the folder, ending in `/`; empty for the root.

        Raises:
            StorageError: the folder itself cannot be listed.
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
        """Returns the names of the visible folders directly below a folder.

        Raises:
            StorageError: the root does not exist, or the folder cannot be listed.
        """
        return [name for name in self._names(prefix) if _is_folder(self.root / f"{prefix}{name}")]

    def files(self, folder: str) -> dict[str, ObjectInfo] | None:
        """Returns a dictionary from names to the files directly in a folder.

        Returns None if the folder is missing.

        A folder that cannot be listed counts as empty.

        Args:
            folder: the folder, or a link to a folder below the root.

        Raises:
            StorageError: the root does not exist.
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
        """Returns the files of all visible folders directly below the root.

        The keys are the names of the folders. Each value is a dictionary from names to files.
        """
        return {name: self.files(name) or {} for name in self.folders()}

    def head(self, key: str) -> ObjectInfo | None:
        """Returns the current size and ETag of a plain file; None if the key is not a plain file.

        Raises:
            StorageError: the user may not read the file or a folder above it.
        """
        with suppress(FileNotFoundError), self._opened(key):
            return self._info(key)
        return None

    def _info(self, key: str) -> ObjectInfo | None:
        """Returns the result of `head`, even for a file that the user may not read."""
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
        """Returns the bytes of a small file; None if it does not exist."""
        with suppress(FileNotFoundError), self._opened(key) as file:
            return file.read()
        return None

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Copies a file to `dest` if it still has this ETag.

        Raises:
            ObjectChangedError: the file was removed or replaced, or it changed during the copy.
        """
        with suppress(FileNotFoundError), self._opened(key) as file, dest.open("wb") as out:
            shutil.copyfileobj(file, out)
        now = self._info(key)
        if now is None or now.etag != etag:
            raise ObjectChangedError(f"{key!r} is no longer the file that was listed")

    def put(self, key: str, data: bytes | Path) -> None:
        """Writes or replaces a file, atomically."""
        self._write(key, data)

    def add(self, key: str, data: bytes) -> bool:
        """Writes a file if it does not exist; returns whether this call wrote it."""
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
        """Removes a file if it exists, and each folder above it that becomes empty."""
        path = self.root / key
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                sync(path.parent)
        self._tidy(path)

    def delete_all(self, key: str) -> bool:
        """Removes a folder with its content, a file or a link; returns whether it existed."""
        path = self.root / key
        existed = os.path.lexists(path)
        remove_tree(path)
        self._tidy(path)
        return existed

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        """Opens a plain file for reading.

        Raises:
            FileNotFoundError: the key is not a plain file.
            StorageError: the user may not read the file or a folder above it.
        """
        if self._info(key) is None:
            raise FileNotFoundError(key)
        try:
            file = (self.root / key).open("rb")
        except PermissionError:
            raise _forbidden(key) from None
        with file:
            yield file

    def holds(self, key: str) -> bool:
        """Returns whether a key has no hidden names, and no link that leads out of the root."""
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
        """Returns the visible names in a folder, sorted; an empty list if the folder is missing.

        Raises:
            StorageError: the root does not exist, or the folder cannot be listed.
        """
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
        """Returns the root. Raises `StorageError` if it does not exist."""
        if not self.root.is_dir():
            raise StorageError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )
        return self.root

    # Versions. The argument `version_path` is `<output>/<place>`, where the place is the name of
    # the version's folder.

    def content(self, version_path: str) -> str:
        """Returns the absolute path of the folder with the content of a version."""
        return f"{self.root}/{_VERSIONS}/{version_path}/{CONTENT}"

    def pointer(self, output: str) -> str | None:
        """Returns the folder name of the published version; None if the output has no pointer.

        The version itself may be missing.
        """
        return self._target(f"{self.root}/{output}", output)

    def _target(self, link: str, output: str) -> str | None:
        """Returns the folder name of the version to which a link leads.

        The version may be missing. Returns None if `link` does not lead to a version of `output`.
        """
        try:
            text = os.readlink(link)  # noqa: PTH115 - faster; it is called for every trajectory
        except OSError:  # missing, or not a link
            return None
        place = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        if text != self._relative(link, f"{output}/{place}"):
            return None
        return place

    def _relative(self, link: str, version_path: str) -> str:
        """Returns the relative target that a link to the content of a version must have."""
        up = "../" * link[len(self.url) + 1 :].count("/")
        return f"{up}{_VERSIONS}/{version_path}/{CONTENT}"

    def set_link(self, link: str, version_path: str, draft_of: str) -> None:
        """Creates or replaces a link to the content of a version.

        Args:
            link: the absolute path.
            draft_of: an output. The link is created in the draft folder of this output, then moved.
        """
        path = Path(link)
        try:
            with self.incoming(path, draft_of) as draft:
                draft.symlink_to(self._relative(link, version_path))
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            raise StorageError(_foreign(path.relative_to(self.root))) from None
        sync(path.parent)

    def point(self, output: str, place: str) -> None:
        """Publishes the version of an output in the folder `place`.

        Raises:
            StorageError: a foreign file or folder has the name of the pointer.
        """
        for folder in Path(output).parents:
            if folder.name and (self.root / folder).is_symlink():
                raise StorageError(_foreign(folder))
        self.set_link(f"{self.root}/{output}", f"{output}/{place}", output)

    def outputs(self, folder: str) -> set[str]:
        """Returns the names of the published outputs.

        Args:
            folder: an output, or a folder of outputs; empty for all outputs.
        """
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
        """Returns the start of each version's grace period, in epoch seconds.

        The keys are the paths of the versions. The grace period starts when the version is written,
        and again when it is superseded or removed. Incomplete versions are included.

        Args:
            within: an output, or a folder of outputs; empty for all outputs.
        """
        ages: dict[str, float] = {}
        for place, folders, files in self._walk(f"{_VERSIONS}/{within}"):
            if is_place(place.rpartition("/")[2]) and {*folders, *files} <= {CONTENT, MANIFEST}:
                folders.clear()
                with suppress(FileNotFoundError):
                    ages[place[len(_VERSIONS) + 1 :]] = (self.root / place).stat().st_mtime
        return ages

    def manifest(self, version_path: str) -> bytes | None:
        """Returns the bytes of the manifest of a version; None if it is missing."""
        try:
            with open(f"{self.root}/{_VERSIONS}/{version_path}/{MANIFEST}", "rb") as file:  # noqa: PTH123
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def is_whole(self, version: Version) -> bool:
        """Returns whether the files and links of a version match its manifest.

        Compares the sizes of files, not their bytes. A link also counts as wrong if the linked
        version was published again in another folder, which happens only if the old folder is
        damaged.
        """
        links = version.manifest.links.items()
        return (
            os.path.isdir(self.content(version.path))  # noqa: PTH112 - faster
            and not any(self.lacking(version))
            and all(self.linked(version, *link) for link in links)
        )

    def lacking(self, version: Version, pattern: str | None = None) -> Iterator[FileEntry]:
        """Yields the files of a version that are missing or have a wrong size.

        Args:
            pattern: a glob for the paths to examine; None for all files.
        """
        content = self.content(version.path)
        for file in version.manifest.files:
            matches = pattern is None or fnmatchcase(file.path, pattern)
            if matches and _size(f"{content}/{file.path}") != file.size:
                yield file

    def linked(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Returns the path of the version to which a link leads; None if the link is wrong.

        A link is wrong if it does not lead to the version that the manifest names. It is also wrong
        if that version was removed, or was published again in another folder.

        Args:
            path: the path of the link inside `version`.
        """
        version_path = self.leads_to(version, path, link)
        if version_path is None or self.manifest(version_path) is None:
            return None
        current = self.pointer(link.output)
        if current and current[:VERSION_LENGTH] == link.version:
            is_replaced = version_path != f"{link.output}/{current}"
            return None if is_replaced else version_path
        return version_path

    def leads_to(self, version: Version, path: str, link: LinkEntry) -> str | None:
        """Returns the path of the version to which a link leads, even if the version was removed.

        Returns None if the link does not lead to the version that the manifest names.
        """
        place = self._target(f"{self.content(version.path)}/{path}", link.output)
        if place is None or place[:VERSION_LENGTH] != link.version:
            return None
        return f"{link.output}/{place}"

    def sizes(self, version_path: str) -> dict[str, int | None]:
        """Returns a dictionary from the paths of a version's files to their sizes in bytes.

        The size is None for an entry that is not a plain file.
        """
        content = self.content(version_path)
        if not os.path.isdir(content):  # noqa: PTH112
            return {}
        return {path: _size(f"{content}/{path}") for path in walk_files(content)}

    def digests(self, version: Version) -> Iterator[str | None]:
        """Yields the SHA-256 of each file in the manifest of a version.

        Yields None for a file that cannot be read.
        """
        for file in version.manifest.files:
            try:
                yield read_digest(Path(self.content(version.path), file.path)).sha256
            except OSError:
                yield None

    def install(self, staging: Staging, version: Version, unsynced: list[str] | None) -> None:
        """Syncs a staged directory to the disk, and moves it to the folder of its version.

        Args:
            unsynced: paths of the files to sync. None for a cache, which needs no sync.
        """
        if unsynced is not None:
            files = [f"{CONTENT}/{path}" for path in unsynced]
            sync_tree(staging.directory, [staging.directory / path for path in (*files, MANIFEST)])
        target = self.root / _VERSIONS / version.path
        self._within(target.parent, staging.directory.rename, target)
        sync(target.parent)

    def renew(self, version_path: str) -> None:
        """Restarts the grace period of a version."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS / version_path)

    def discard(self, version_path: str) -> None:
        """Removes a version.

        The manifest is removed first, so that no reader uses a version with missing files.
        """
        with suppress(FileNotFoundError):
            (self.root / _VERSIONS / version_path / MANIFEST).unlink()
        self.delete_all(f"{_VERSIONS}/{version_path}")

    def traces(self, name: str) -> set[str]:
        """Returns the names of the outputs `<any folder>/<name>` that have a version or a draft."""
        outputs: set[str] = set()
        for top in self.tops:
            outputs |= {f"{path.parent.name}/{name}" for path in self.root.glob(f"{top}*/{name}")}
        return outputs

    def now(self) -> float:
        """Returns the file system's time in epoch seconds, without creating a file."""
        with suppress(FileNotFoundError):
            os.utime(self.root / _VERSIONS)
            return (self.root / _VERSIONS).stat().st_mtime
        return time.time()  # the store is empty

    # Drafts: folders with unfinished work. A process holds locks on its drafts.

    @contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        """Creates a locked private folder, and removes it after the block.

        The folder has the same depth below the root as the versions of the output. No other process
        removes it, because `sweep` removes only folders that it can lock.

        Args:
            name: the output that is built, or another folder name, such as `downloads`.
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
        """Yields a temporary path for a file, and moves the file to `place` after the block.

        If the block raises an error, the file is removed instead.

        Args:
            name: see `draft`.
            take: moves the file; None for `Path.replace`.
        """
        with self.draft(name) as folder:
            yield folder / place.name
            self._within(place.parent, take or Path.replace, folder / place.name, place)

    def is_building(self, output: str) -> bool:
        """Returns whether a process on this machine is building the output."""
        return len(self._drafts(output)) > len(self.abandoned(output))

    def abandoned(self, output: str = "") -> list[str]:
        """Returns the paths of the drafts that dead processes have left, sorted.

        Args:
            output: the name of an output; empty for all outputs.
        """
        abandoned: list[str] = []
        for path in self._drafts(output):
            with lock_if_free(path) as is_free:
                if is_free:
                    abandoned.append(path.relative_to(self.root).as_posix())
        return abandoned

    def sweep(self) -> list[str]:
        """Removes the drafts that dead processes have left; returns their paths."""
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
        """Walks the folders below `top` as `os.walk` does, but with paths relative to the root.

        Hidden folders are listed but not entered.

        Raises:
            OSError: a folder cannot be listed. It must not count as empty, because its outputs
                would then be built again or pruned.
        """
        for place, folders, files in os.walk(self.root / top, onerror=_unlisted):
            yield place[len(self.url) + 1 :], folders, files
            folders[:] = [name for name in folders if name[0] != "."]

    def _within(self, folder: Path, operation: Callable[..., _Result], *arguments: Path) -> _Result:
        """Creates a folder, calls an operation that writes into it, and returns its result.

        Repeats both if another process removes the empty folder in between.
        """
        for attempt in range(_ATTEMPTS):
            try:
                self._make(folder)
                return operation(*arguments)
            except FileNotFoundError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _make(self, path: Path) -> None:
        """Creates a folder and its missing parents, and syncs the parent of each new folder."""
        missing: list[Path] = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            with suppress(FileExistsError):  # another process created it
                folder.mkdir(0o700 if folder == self.root else 0o777)
            sync(folder.parent)

    def _tidy(self, path: Path) -> None:
        """Removes a folder and the folders above it, as long as they are empty.

        The root and the hidden folders directly below it are kept.
        """
        parts = path.relative_to(self.root).parts
        kept_depth = 0
        if parts and parts[0][0] == ".":
            kept_depth = 1
        for depth in range(len(parts), kept_depth, -1):
            try:
                self.root.joinpath(*parts[:depth]).rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # the folder is not empty
                return


def make_locked_folder(path: Path) -> int:
    """Creates a folder and locks it; returns the open handle that holds the lock.

    Raises:
        FileNotFoundError: another process removed the folder before it was locked.
    """
    path.mkdir()
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    # On a file system without locks, `sweep` cannot lock the folder either, and keeps it.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_SH)
    if not path.is_dir():
        os.close(handle)
        raise FileNotFoundError(path)
    return handle


@contextmanager
def lock_if_free(path: Path) -> Iterator[bool]:
    """Tries to lock a draft during the block, and yields whether this succeeded.

    Yields False if a living process on this machine has locked the draft.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # the draft was removed, or is a link from an earlier version of the package
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
    """Returns whether a path is a folder.

    A path that cannot be examined, such as a link to itself, counts as a folder.
    """
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _size(path: str) -> int | None:
    """Returns the size of a plain file in bytes; None for anything else."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def remove_tree(path: Path) -> None:
    """Removes a file, a link or a folder, if it exists."""
    with suppress(FileNotFoundError):  # another process has removed it
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
