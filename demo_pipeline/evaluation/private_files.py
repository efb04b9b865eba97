"""Files that only their owner may read: requests and predictions hold screens and typed text.

Belongs here: creating them. Their mode is 0600 from the first byte on.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from demo_pipeline.common.atomic_write import hidden_name, replace_synced

_OWNER_ONLY = 0o600


@contextmanager
def private_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` at the end unless an error was raised.

    Raises:
        OSError: the disk is full, or the folder cannot be written to; no draft is left.
    """
    draft = path.with_name(hidden_name())
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        replace_synced(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def private_log(path: Path) -> Iterator[BinaryIO]:
    """A file to append whole lines to; a last line without an end is cut off first.

    Raises:
        OSError: the folder cannot be written to.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ONLY)
    with os.fdopen(handle, "r+b") as file:
        os.fchmod(file.fileno(), _OWNER_ONLY)
        file.truncate(_end_of_lines(file))
        file.seek(0, os.SEEK_END)
        yield file


def _end_of_lines(file: BinaryIO, block: int = 2**16) -> int:
    """The number of bytes up to the last line end."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - block)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def readable_by_others(path: Path) -> bool:
    """Whether somebody besides the owner may read a file."""
    return bool(path.stat().st_mode & 0o077)
