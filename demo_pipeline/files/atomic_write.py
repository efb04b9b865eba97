"""Files that appear complete or not at all: atomic writes, hard links, SHA-256.

Belongs here: the one way to write a file atomically, a link to an immutable file, and digests.
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
"""Device and inode: equal for all names of one file while the file exists."""
_MANY = 1000  # files
_MIN_AGE_NS = 2_000_000_000  # writes within one tick of a coarse clock have the same time


class FileDigest(NamedTuple):
    """How many bytes a file has, and their SHA-256 in hex."""

    size: int
    sha256: str


def link_or_copy(source: Path, destination: Path) -> None:
    """Make `destination` a hard link to `source`; a copy where the file system refuses a link.

    Only for files that never change. If `source` is a symbolic link, its target is linked.
    """
    try:
        os.link(source.resolve() if source.is_symlink() else source, destination)
    except OSError:
        shutil.copyfile(source, destination)


def file_id(path: Path) -> FileId | None:
    """The identity of the file at `path`, symbolic links followed; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` at the end unless an error was raised.

    Raises:
        OSError: the disk is full, or the folder cannot be written to; no draft is left.
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
    """Move `source` over `target` in one step and sync the folder of `target`.

    A file or link is replaced; a folder only when it is empty.
    """
    source.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Force a file's bytes, or a folder's list of names, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(folder: Path, files: Sequence[Path]) -> None:
    """Sync files, then a folder with those below it, deepest first; very many by one call."""
    if len(files) > _MANY and sys.platform == "linux":  # elsewhere `os.sync` does not wait
        os.sync()
        return
    for path in (*files, *(Path(place[0]) for place in os.walk(folder, topdown=False))):
        sync(path)


def file_digest(path: Path) -> FileDigest:
    """Size and SHA-256 of a file.

    A file is not read again while its inode, its size, and the times of its last write and of its
    last change are the same; no program can set the last of them. What was written within two
    seconds is always read. Not for finding damage of the disk, which changes none of these.
    """
    status = path.stat()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    identity = (status.st_dev, status.st_ino, status.st_size, *times)
    is_old = time.time_ns() - status.st_ctime_ns > _MIN_AGE_NS
    return _cached_digest(path, identity) if is_old else read_digest(path)


@lru_cache(maxsize=64)
def _cached_digest(path: Path, _identity: tuple[int, ...]) -> FileDigest:
    return read_digest(path)


def read_digest(path: Path) -> FileDigest:
    """Size and SHA-256 of a file, which is always read: for finding damaged bytes."""
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileDigest(stream.tell(), sha256)


def combined_digest(digests: Iterable[tuple[str, str]]) -> str:
    """SHA-256, in hex, over `name sha256` lines of files, sorted by name."""
    text = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(digests))
    return hashlib.sha256(text.encode()).hexdigest()
