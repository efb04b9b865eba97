"""Files and folders that appear under their name complete and synced, or not at all.

Belongs here: the one way to write a file atomically. Every call is announced to a hook before it
happens, so that a test can end the process at any of them.
"""

import ctypes
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

Hook = Callable[[str, Path], None]
"""Gets the name of a file-system call and its path just before the call."""


def no_hook(_call: str, _path: Path) -> None:
    """The hook that does nothing."""


def private_mode(parent: Path) -> int:
    """The mode of a new folder of recordings or runs: for its owner, never for everybody.

    Where the folder above it is writable for its group, several people share it: then the group may
    use it, too. What lies in such a folder has the modes that the process's umask gives.
    """
    return 0o770 if parent.stat().st_mode & stat.S_IWGRP else 0o700


def hidden_name() -> str:
    """A new name for a draft; the leading dot hides it from listings."""
    return f".{secrets.token_hex(8)}"


@contextmanager
def atomic_file(
    path: Path, *, draft: Path | None = None, hook: Hook = no_hook
) -> Iterator[BinaryIO]:
    """A file to write into, which takes the name `path` at the end unless an error was raised.

    Args:
        path: the file's name; an existing file is replaced.
        draft: where the bytes are written, on the same file system; default: a hidden file beside
            `path`. Its folder must exist.
        hook: see `Hook`.

    Raises:
        OSError: the disk is full, or a folder cannot be written to; no draft is left.
    """
    draft = draft or path.with_name(hidden_name())
    try:
        with synced_file(draft, hook) as file:
            yield file
        replace_synced(draft, path, hook)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def synced_file(path: Path, hook: Hook = no_hook) -> Iterator[BinaryIO]:
    """A new file to write into, synced at the end. Raises `FileExistsError` for an old one."""
    hook("create", path)
    with path.open("xb") as file:
        hook("write", path)
        yield file
        file.flush()
        hook("fsync", path)
        os.fsync(file.fileno())


def replace_synced(source: Path, target: Path, hook: Hook = no_hook) -> None:
    """Move `source` over `target` in one step and sync the folder of `target`.

    A file or link is replaced; a folder only when it is empty.
    """
    hook("rename", target)
    source.replace(target)
    sync(target.parent, hook)


def sync(path: Path, hook: Hook = no_hook) -> None:
    """Force a file's bytes, or a folder's list of names, to the disk."""
    hook("fsync", path)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file_system(path: Path, hook: Hook = no_hook) -> bool:
    """Force everything on the file system of `path` to the disk, by one call.

    Returns:
        False where the system has no such call; nothing is synced then.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    hook("fsync", path)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        if call(handle) != 0:
            raise OSError(ctypes.get_errno(), "the file system cannot be synced")
    finally:
        os.close(handle)
    return True
