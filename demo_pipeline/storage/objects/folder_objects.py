"""Objects in a local folder, with the same guarantees as a bucket.

Belongs here: listing, reading and writing keys under one root. Hidden names, and links that lead
outside the root, are ignored; a listing of objects follows links to folders directly under the root
alone.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.folder_walk import FolderEntry, files_after, list_folder
from demo_pipeline.storage.objects.object_store import PAGE, ObjectChangedError, ObjectInfo, Page
from demo_pipeline.storage.store.disk import Disk, stored_file

_CHUNK = 2**20  # bytes


@dataclass(frozen=True, slots=True)
class FolderObjects:
    """See `Objects`. Keys are listed in the order of their parts, and a token does not expire.

    Args:
        root: the folder; listing requires it, and the first `put` creates it.
    """

    root: Path

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self.root)

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """See `Objects`.

        Raises:
            StorageError: the root does not exist, or a folder in it cannot be read.
        """
        self._require_root()
        folder, _, start = prefix.rpartition("/")
        if folder and not _is_plain(folder):
            return Page((), (), None)
        entries = list(islice(files_after(self.root, folder, start, _after(token)), limit + 1))
        objects = tuple(_info(entry) for entry in entries[:limit])
        return Page(objects, (), _token(entries[limit - 1]) if len(entries) > limit else None)

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """See `Objects`. Raises as `list_page`."""
        self._require_root()
        folder = prefix.rstrip("/")
        if folder and not _is_plain(folder):
            return Page((), (), None)
        after = _after(token)
        following = (entry for entry in list_folder(self.root, folder) if entry.parts > after)
        entries = list(islice(following, limit + 1))
        objects = tuple(_info(entry) for entry in entries[:limit] if not entry.is_folder)
        prefixes = tuple(f"{entry.key}/" for entry in entries[:limit] if entry.is_folder)
        return Page(objects, prefixes, _token(entries[limit - 1]) if len(entries) > limit else None)

    def head(self, key: str) -> ObjectInfo | None:
        """See `Objects`."""
        try:
            with self._opened(key) as file:
                return _described(key, os.fstat(file.fileno()))
        except FileNotFoundError:
            return None

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """See `Objects`."""
        try:
            with self._opened(key) as file:
                data = file.read()
                return data, _described(key, os.fstat(file.fileno()))
        except FileNotFoundError:
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
        """See `Objects`.

        Raises:
            StorageError: the key is hidden, has empty parts or `..`, or is a folder.
        """
        if not _is_plain(key):
            raise StorageError(f"{key!r} cannot be a key in a folder")
        path = self.root / key
        Disk().make_folders(path.parent)
        with self._locked():
            now = self.head(key)
            if (if_none_match and now) or (if_match and (now is None or now.etag != if_match)):
                raise ObjectChangedError(f"{key!r} was written by another process meanwhile")
            with stored_file(path) as out:
                for chunk in [data] if isinstance(data, bytes) else _read(data):
                    out.write(chunk)
            return _described(key, path.stat())

    def delete(self, key: str) -> None:
        """See `Objects`."""
        if _is_plain(key) and (self.root / key).is_file():
            Disk().unlink(self.root / key)

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
            inside = _is_plain(key) and path.resolve().is_relative_to(self.root.resolve())
            if not inside or not path.is_file():
                raise FileNotFoundError(key)
            file = path.open("rb")
        except (IsADirectoryError, NotADirectoryError, RuntimeError):  # or a loop of links
            raise FileNotFoundError(key) from None
        except PermissionError:
            raise StorageError(f"{key!r}: cannot be read; check its permissions") from None
        with file:
            yield file

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the root against other writers."""
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _require_root(self) -> None:
        if not self.root.is_dir():
            raise StorageError(
                f"{self.root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            )


def _read(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as error:
        raise StorageError(f"{path.name}: could not be read: {type(error).__name__}") from None


def _is_plain(key: str) -> bool:
    """Whether every part is a visible name."""
    return "\0" not in key and all(part and part[0] != "." for part in key.split("/"))


def _info(entry: FolderEntry) -> ObjectInfo:
    return _described(entry.key, entry.status)


def _described(key: str, status: os.stat_result) -> ObjectInfo:
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    etag = f"{status.st_ino:x}-{status.st_mtime_ns:x}-{size:x}"
    return ObjectInfo(key, size, etag, status.st_mtime)


def _token(last: FolderEntry) -> str:
    return os.fsencode(last.key).hex()


def _after(token: str | None) -> tuple[str, ...]:
    """The parts of the last key on the page before; empty at the beginning."""
    if token is None:
        return ()
    try:
        return tuple(os.fsdecode(bytes.fromhex(token)).split("/"))
    except ValueError:
        raise StorageError(
            "this token is not from a listing of a folder; start a new listing"
        ) from None
