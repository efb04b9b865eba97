"""Objects: keys and bytes in a local folder or a bucket, as uploads and the store need them.

Belongs here: the interface, and a folder with the same guarantees as a bucket. Hidden names, and
links that lead outside a folder's root, are ignored; a listing follows links to folders directly
under the root alone: below, links between neighbours would have a path for each way through them.
"""

import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from demo_pipeline.files.atomic_write import atomic_file, private_mode, sync
from demo_pipeline.store.errors import StorageError

PAGE = 1000  # S3 lists no more at once


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
    """Objects and, of a listing that is not deep, folders that end in `/`, in no order.

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

    def list_page(self, prefix: str = "", token: str | None = None, *, deep: bool = True) -> Page:
        """Objects whose key begins with `prefix`, at any depth.

        Without `deep` the folders and objects directly under `prefix`, which is empty or ends in
        `/`. A token is of a listing with the same other arguments.
        """

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

    def put(self, key: str, data: bytes | Path, *, replaces: str | None = None) -> str:
        """Write an object atomically, and return its ETag; readers see the old bytes or the new.

        Args:
            key: of the object.
            data: bytes, or a file to read them from, which has no condition.
            replaces: write only when the present object has this ETag, or with an empty one when
                there is none.

        Raises:
            ObjectChangedError: the condition does not hold; or the call was made twice, because the
                first answer was lost: then the object has these bytes.
        """

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""


def list_all(objects: Objects, prefix: str = "") -> Iterator[ObjectInfo]:
    """Every object whose key begins with `prefix`, page after page, in no order."""
    for page in _pages(objects, prefix, deep=True):
        yield from page.objects


def list_folders(objects: Objects, prefix: str = "") -> Iterator[str]:
    """The names of the folders directly under `prefix` that are not hidden, in no order."""
    for page in _pages(objects, prefix, deep=False):
        names = (folder.removeprefix(prefix)[:-1] for folder in page.prefixes)
        yield from (name for name in names if name and name[0] != ".")


def _pages(objects: Objects, prefix: str, *, deep: bool) -> Iterator[Page]:
    page = objects.list_page(prefix, deep=deep)
    yield page
    while page.token is not None:
        page = objects.list_page(prefix, page.token, deep=deep)
        yield page


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


def opened_data(data: bytes | Path) -> BinaryIO:
    """What is put, as an open file. Raises `StorageError` for a file that cannot be read."""
    try:
        return BytesIO(data) if isinstance(data, bytes) else data.open("rb")
    except OSError as error:
        name = Path(str(data)).name
        raise StorageError(f"{name}: could not be read: {type(error).__name__}") from None


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """See `Objects`. Pages are in the order of names, and a token does not expire.

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

    def list_page(self, prefix: str = "", token: str | None = None, *, deep: bool = True) -> Page:
        """See `Objects`. Raises `StorageError` also when a folder in it cannot be read.

        A page ends with all that is below one of the names that `prefix` leads to.
        """
        above, _, start = prefix.rpartition("/")
        after = _name_in(token)
        objects, folders = list[ObjectInfo](), list[str]()
        for name in self.names(above):
            if name <= after or not name.startswith(start):
                continue
            if len(objects) + len(folders) >= PAGE:
                return Page(tuple(objects), tuple(folders), os.fsencode(after).hex())
            after, key = name, f"{above}/{name}" if above else name
            info, is_folder = self._entry(key, follow=not (deep and above))
            objects += [info] if info else []
            if is_folder and not deep:
                folders.append(f"{key}/")
            elif is_folder:
                objects += self._below(key)
        return Page(tuple(objects), tuple(folders), None)

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
                shutil.copyfileobj(file, out)
                read = _described(key, os.fstat(file.fileno()))
                if read.etag != etag or out.tell() != read.size or self.head(key) != read:
                    raise ObjectChangedError(f"{key!r} is not the file that was listed any more")
        except FileNotFoundError:
            raise ObjectChangedError(f"{key!r} was removed") from None

    def put(self, key: str, data: bytes | Path, *, replaces: str | None = None) -> str:
        """See `Objects`. Raises `StorageError` also for a hidden key, or that of a folder."""
        if not _is_plain(key):
            raise StorageError(f"{key!r} cannot be a key in a folder")
        path, draft = self.root / key, self.new_draft()
        make_folders(path.parent, self.root)
        lock = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = self.head(key)
            if replaces is not None and replaces != (now.etag if now else ""):
                raise ObjectChangedError(f"{key!r} was written by another process meanwhile")
            with opened_data(data) as source, stored_file(path, draft) as out:
                shutil.copyfileobj(source, out)
            return _described(key, path.stat()).etag
        finally:
            os.close(lock)

    def delete(self, key: str) -> None:
        """See `Objects`."""
        if _is_plain(key) and (self.root / key).is_file():
            (self.root / key).unlink(missing_ok=True)
            sync((self.root / key).parent)

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
        except (IsADirectoryError, NotADirectoryError):
            raise FileNotFoundError(key) from None
        except PermissionError:
            raise StorageError(f"{key!r}: cannot be read; check its permissions") from None
        with file:
            yield file

    def _below(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield the files at any depth of a folder; one that cannot be read hides no other."""
        with suppress(StorageError):
            for name in self.names(folder):
                info, is_folder = self._entry(f"{folder}/{name}", follow=False)
                if info:
                    yield info
                elif is_folder:
                    yield from self._below(f"{folder}/{name}")

    def _entry(self, key: str, *, follow: bool) -> tuple[ObjectInfo | None, bool]:
        """A file inside the root, and whether it is a folder there instead.

        A link to a folder counts only with `follow`, and never one to the root itself.
        """
        path = self.root / key
        try:
            if self.leaves(path):
                return None, False
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                return _described(key, status), False
            other = path.is_symlink() and not (follow and path.resolve() != self.root.resolve())
            return None, stat.S_ISDIR(status.st_mode) and not other
        except OSError:  # removed meanwhile
            return None, False

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
        if not self.root.is_dir():
            raise MissingRootError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )
        path = self.root / folder
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

    def _holds(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.root.resolve())
        except (OSError, RuntimeError):  # a loop of links
            return False


def _is_plain(key: str) -> bool:
    """Whether every part is a visible name."""
    return "\0" not in key and all(part and part[0] != "." for part in key.split("/"))


def _described(key: str, status: os.stat_result) -> ObjectInfo:
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
    return ObjectInfo(key, status.st_size, etag, status.st_mtime)


def _name_in(token: str | None) -> str:
    """The last name on the page before; empty at the beginning."""
    try:
        return os.fsdecode(bytes.fromhex(token or ""))
    except ValueError:
        message = "this token is not from a listing of a folder; start a new listing"
        raise StorageError(message) from None
