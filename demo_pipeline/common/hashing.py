"""SHA-256 of uploaded files; a process reads a file once, and again only when it has changed.

Belongs here: the cache of digests. Every stage verifies its files by them.
"""

import hashlib
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_MIN_AGE_NS = 2_000_000_000  # writes within one tick of a coarse clock have the same time


class FileDigest(NamedTuple):
    """How many bytes a file has, and their SHA-256 in hex."""

    size: int
    sha256: str


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
    """SHA-256 over `name sha256` lines, sorted by name, in hex.

    Args:
        digests: name and SHA-256 (hex) of each file.
    """
    text = "".join(f"{name} {sha256}\n" for name, sha256 in sorted(digests))
    return hashlib.sha256(text.encode()).hexdigest()
