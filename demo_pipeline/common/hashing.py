"""SHA-256 of uploaded files, which every stage proves again: read once while nothing changes them.

Belongs here: remembering, in this process, what a file was when it was read.
"""

import hashlib
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_SETTLED_NS = 2_000_000_000  # two writes within one tick of a coarse clock look like one


class FileDigest(NamedTuple):
    """How many bytes a file has, and their SHA-256 in hex."""

    size: int
    sha256: str


def file_digest(path: Path) -> FileDigest:
    """Size and SHA-256 of a file.

    A file is not read again while its inode, its size, and the times of its last write and of its
    last change are the same; no program can set the last of them. What was written within two
    seconds is always read. Not for finding damage of the disk: that shows in none of these.
    """
    found = path.stat()
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    settled = time.time_ns() - found.st_ctime_ns > _SETTLED_NS
    return _remembered(path, identity) if settled else _read(path)


@lru_cache(maxsize=64)
def _remembered(path: Path, _identity: tuple[int, ...]) -> FileDigest:
    return _read(path)


def _read(path: Path) -> FileDigest:
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileDigest(stream.tell(), sha256)
