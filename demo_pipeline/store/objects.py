"""Objects: keys and bytes in a local folder or a bucket, as uploads and the store need them.

Belongs here: the interface, and a folder with the same guarantees as a bucket. Hidden names, and
links that lead outside a folder's root, are ignored; a listing follows links to folders directly
under the root alone: below, links between neighbours would have a path for each way through them.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

from demo_pipeline.files.atomic_write import atomic_file, private_mode, sync
from demo_pipeline.store.errors import StorageError

PAGE = 1000  # S3 lists no more at once
_CHUNK = 2**20  # bytes
_Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a HEAD shows it.

    Attributes:
        key: relative to the root, `/`-separated, never beginning with `/`.
        size: bytes.
        etag: changes whenever the bytes are replaced; opaque, without quotes.
        modified: epoch seconds by the server's clock; for a multipart upload its start, so it may
            only decide the age of garbage.
    """

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class Page:
    """Objects and, with a delimiter, folders that end in `/`, in no order.

    The token is the next page's; None at the end.
    """

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...]
    token: str | None


class ObjectChangedError(StorageError):
    """The object is missing, or is not the expected one."""


class MissingRootError(StorageError):
    """The folder of objects does not exist."""


class Objects(Protocol):
    """Objects under one root. Every failure is a `StorageError` without credentials in it."""

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """Objects whose key begins with `prefix`, at any depth."""

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """The folders (and objects) directly under `prefix`, which is empty or ends in `/`."""

    def head(self, key: str) -> ObjectInfo | None:
        """The object as it is now; None when it does not exist."""

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """A small object's bytes and description; None when it does not exist."""

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Download the object with this ETag to `dest`, complete and synced, or not at all.

        Raises:
            ObjectChangedError: it was removed or replaced before or during the download, or its
                length or ETag is not the announced one.
        """

    def put(
        self,
        key: str,
        data: bytes | Path,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write an object atomically; readers see the old bytes or the new.

        Args:
            key: of the object.
            data: bytes, or a file to read them from.
            if_none_match: write only when no object has the key.
            if_match: write only when the present object has this ETag.

        Raises:
            ObjectChangedError: the condition does not hold; or the call was made twice, because the
                first answer was lost: then the object has these bytes.
        """

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""


def list_all(objects: Objects, prefix: str = "") -> Iterator[ObjectInfo]:
    """Every object whose key begins with `prefix`, page after page, in no order."""
    token: str | None = ""
    while token is not None:
        page = objects.list_page(prefix, token or None)
        yield from page.objects
        token = page.token


@contextmanager
def stored_file(path: Path, draft: Path | None = None) -> Iterator[BinaryIO]:
    """`atomic_file`; `StorageError` when the disk is full or the folder cannot be written to."""
    try:
        with atomic_file(path, draft=draft) as file:
            yield file
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StorageError(f"{path.name}: could not be written: {reason}") from None


def make_folders(path: Path, root: Path) -> None:
    """Create a folder and its missing parents, each recorded in the folder above it.

    `root` is private to its owner when it is made here; see `private_mode`.
    """
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        mode = private_mode(folder.parent) if folder == root else 0o777
        folder.mkdir(mode, exist_ok=True)
        sync(folder.parent)


def parts_of(data: bytes | Path, size: int = _CHUNK) -> Iterator[bytes]:
    """Parts of `size` bytes, the last one shorter. Raises `StorageError` for an unreadable file."""
    if isinstance(data, bytes):
        yield from (data[start : start + size] for start in range(0, len(data), size))
        return
    try:
        with data.open("rb") as file:
            while part := file.read(size):
                yield part
    except OSError as error:
        raise StorageError(f"{data.name}: could not be read: {type(error).__name__}") from None


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """See `Objects`. Keys are listed in the order of their parts, and a token does not expire.

    Args:
        root: the folder; listing requires it, and the first `put` creates it.
        new_draft: names a file, on the same file system, that a `put` writes before it is moved.
    """

    root: Path
    new_draft: Callable[[], Path | None] = lambda: None

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self.root)

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """See `Objects`. Raises `StorageError` also when a folder in it cannot be read."""
        return self._page(prefix, token, limit, deep=True)

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """See `Objects`. Raises as `list_page`."""
        return self._page(prefix, token, limit, deep=False)

    def head(self, key: str) -> ObjectInfo | None:
        """See `Objects`."""
        with suppress(FileNotFoundError), self._opened(key) as file:
            return _described(key, os.fstat(file.fileno()))
        return None

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """See `Objects`."""
        with suppress(FileNotFoundError), self._opened(key) as file:
            data = file.read()
            return data, _described(key, os.fstat(file.fileno()))
        return None

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """See `Objects`."""
        try:
            with self._opened(key) as file, stored_file(dest) as out:
                for chunk in self.chunks(file):
                    out.write(chunk)
                read = _described(key, os.fstat(file.fileno()))
                if read.etag != etag or out.tell() != read.size or self.head(key) != read:
                    raise ObjectChangedError(f"{key!r} is not the file that was listed any more")
        except FileNotFoundError:
            raise ObjectChangedError(f"{key!r} was removed") from None

    def put(
        self,
        key: str,
        data: bytes | Path,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """See `Objects`. Raises `StorageError` also for a hidden key, or that of a folder."""
        if not _is_plain(key):
            raise StorageError(f"{key!r} cannot be a key in a folder")
        path, draft = self.root / key, self.new_draft()
        make_folders(path.parent, self.root)
        lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = self.head(key)
            if (if_none_match and now) or (if_match and (now is None or now.etag != if_match)):
                raise ObjectChangedError(f"{key!r} was written by another process meanwhile")
            with stored_file(path, draft) as out:
                out.writelines(parts_of(data))
            return _described(key, path.stat())
        finally:
            os.close(lock)

    def delete(self, key: str) -> None:
        """See `Objects`."""
        if _is_plain(key) and (self.root / key).is_file():
            (self.root / key).unlink(missing_ok=True)
            sync((self.root / key).parent)

    def chunks(self, file: BinaryIO) -> Iterator[bytes]:
        """The rest of an open file, in chunks."""
        while chunk := file.read(_CHUNK):
            yield chunk

    @contextmanager
    def _opened(self, key: str) -> Iterator[BinaryIO]:
        """The file of a key.

        Raises:
            FileNotFoundError: the key is not an object's; a link to itself is none.
            StorageError: the file, or a folder above it, may not be read.
        """
        path = self.root / key
        try:
            if not (_is_plain(key) and self._holds(path) and path.is_file()):
                raise FileNotFoundError(key)
            file = path.open("rb")
        except (IsADirectoryError, NotADirectoryError, RuntimeError):  # or a loop of links
            raise FileNotFoundError(key) from None
        except PermissionError:
            raise StorageError(f"{key!r}: cannot be read; check its permissions") from None
        with file:
            yield file

    def _page(self, prefix: str, token: str | None, limit: int, *, deep: bool) -> Page:
        if not self.root.is_dir():
            raise MissingRootError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )
        folder, _, start = prefix.rpartition("/")
        if folder and not _is_plain(folder):
            return Page((), (), None)
        base = tuple(folder.split("/")) if folder else ()
        found = list(islice(self._walk(base, start, _after(token), deep=deep), limit + 1))
        page = [("/".join(parts), status) for parts, status in found[:limit]]
        return Page(
            tuple(_described(k, status) for k, status in page if not stat.S_ISDIR(status.st_mode)),
            tuple(f"{key}/" for key, status in page if stat.S_ISDIR(status.st_mode)),
            os.fsencode(page[-1][0]).hex() if len(found) > limit else None,
        )

    def _walk(
        self, folder: _Parts, start: str, after: _Parts, *, deep: bool
    ) -> Iterator[tuple[_Parts, os.stat_result]]:
        """The entries of a folder whose parts come after `after`, by name, with links followed.

        Args:
            folder: parts of its key; nothing is yielded when it does not exist.
            start: what the names begin with.
            after: parts of a key.
            deep: give the files at any depth, instead of files and folders.
        """
        depth = len(folder)
        since = after[depth] if after[:depth] == folder and len(after) > depth else ""
        for name in self._names("/".join(folder)):
            if name < since or name[0] == "." or not name.startswith(start):
                continue
            parts, path = (*folder, name), self.root.joinpath(*folder, name)
            status = self._status(path)
            if status is None:
                continue
            if not deep or stat.S_ISREG(status.st_mode):
                if parts > after:
                    yield parts, status
            elif not path.is_symlink() or (not folder and path.resolve() != self.root.resolve()):
                # One folder that cannot be read hides no other; listing it alone reports it.
                with suppress(StorageError):
                    yield from self._walk(parts, "", after, deep=True)

    def _names(self, folder: str) -> list[str]:
        """The names in a folder inside the root, sorted."""
        path = self.root / folder
        try:
            return sorted(os.listdir(path)) if self._holds(path) else []  # noqa: PTH208 - many
        except (FileNotFoundError, NotADirectoryError, RuntimeError):  # or a loop of links
            return []
        except OSError as error:
            if error.errno == errno.ELOOP:
                return []
            place, reason = ascii(folder) if folder else "the root", os.strerror(error.errno or 0)
            raise StorageError(
                f"{place}: cannot be listed ({reason}); check its permissions"
            ) from None

    def _status(self, path: Path) -> os.stat_result | None:
        """Status of what `path` leads to; None unless that is a file or folder inside the root."""
        try:
            status = None if path.is_symlink() and not self._holds(path) else path.stat()
        except (OSError, RuntimeError):  # removed meanwhile, or a loop of links
            return None
        known = status and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
        return status if known else None

    def _holds(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self.root.resolve())


def _is_plain(key: str) -> bool:
    """Whether every part is a visible name."""
    return "\0" not in key and all(part and part[0] != "." for part in key.split("/"))


def _described(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag, status.st_mtime)


def _after(token: str | None) -> _Parts:
    """The parts of the last key on the page before; empty at the beginning."""
    try:
        return tuple(os.fsdecode(bytes.fromhex(token)).split("/")) if token is not None else ()
    except ValueError:
        message = "this token is not from a listing of a folder; start a new listing"
        raise StorageError(message) from None
