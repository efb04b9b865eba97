"""Writes files atomically, creates hard links, and computes SHA-256 digests.

A file that is written atomically appears complete or not at all.
"""

import hashlib
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

FileId = tuple[int, int]
"""Device and inode; equal for all names of the same file while the file exists."""
_MANY = 1000  # if more than 1000 files must be synced, one call of `os.sync` syncs them all
# Minimum age of a file whose digest is cached, nanoseconds. A younger file may change again without
# a new modification time, because some file systems store coarse times.
_MIN_AGE_NS = 2_000_000_000


class FileDigest(NamedTuple):
    """The size of a file in bytes, and its SHA-256 in hex."""

    size: int
    sha256: str


def link_or_copy(source: Path, destination: Path) -> None:
    """Makes `destination` a hard link to `source`, or a copy if the file system refuses links.

    Use it only for files that never change. If `source` is a symbolic link, its target is linked.
    """
    try:
        if source.is_symlink():
            source = source.resolve()
        os.link(source, destination)
    except OSError:
        shutil.copyfile(source, destination)


def file_id(path: Path) -> FileId | None:
    """Returns the identity of a file, following symbolic links; None if the file is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file, and moves it to `path` if the block ends without error.

    Readers of `path` see the earlier file or the complete new one. After an error, the temporary
    file is deleted.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    draft = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace_synced(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def replace_synced(source: Path, target: Path) -> None:
    """Moves `source` to `target` in one step and syncs the folder of `target`.

    An existing file, link or empty folder at `target` is replaced.
    """
    source.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Forces the bytes of a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path, files: Sequence[Path]) -> None:
    """Syncs files, then a folder and all folders below it, the deepest first."""
    # On systems other than Linux, `os.sync` may return before the data are on the disk.
    if len(files) > _MANY and sys.platform == "linux":
        os.sync()
        return
    for file in files:
        sync(file)
    for path, _, _ in os.walk(folder, topdown=False):
        sync(Path(path))


def file_digest(path: Path) -> FileDigest:
    """Returns the size and SHA-256 of a file, from a cache if the file is unchanged.

    A file counts as unchanged while its inode, size, modification time and change time (`st_ctime`,
    which no program can set) stay the same. A file that changed within the last two seconds is
    always read. A disk error changes none of these properties; use `read_digest` to detect damage.
    """
    status = path.stat()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    identity = (status.st_dev, status.st_ino, status.st_size, *times)
    if time.time_ns() - status.st_ctime_ns > _MIN_AGE_NS:
        return _cached_digest(path, identity)
    return read_digest(path)


@lru_cache(maxsize=64)
def _cached_digest(path: Path, _identity: tuple[int, ...]) -> FileDigest:
    return read_digest(path)


def read_digest(path: Path) -> FileDigest:
    """Reads a file and returns its size and SHA-256."""
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileDigest(stream.tell(), sha256)


def combined_digest(digests: Iterable[tuple[str, str]]) -> str:
    """Returns one SHA-256, in hex, for several files.

    The hashed text has a line `name sha256` for each file, sorted by name.

    Args:
        digests: pairs of a name and the SHA-256 of the file.
    """
    text = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(digests))
    return hashlib.sha256(text.encode()).hexdigest()
