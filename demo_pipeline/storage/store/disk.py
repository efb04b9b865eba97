"""File-system calls of the local store: durable writes, atomic moves and locks.

Belongs here: the calls, each announced to a hook before it happens, so that a test can end the
process at any of them. What is written is decided by the store.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from demo_pipeline.files.atomic_write import (
    Hook,
    atomic_file,
    no_hook,
    private_mode,
    replace_synced,
    sync,
    sync_file_system,
    synced_file,
)
from demo_pipeline.storage.errors import StorageError

_MANY = 1000  # calls that are replaced by one for the file system


class Disk:
    """File-system calls of one store.

    Args:
        hook: called with the call's name and its path before each step.
        root: the store's folder, which only its owner may enter when it is made here.
    """

    def __init__(self, hook: Hook = no_hook, root: Path | None = None) -> None:
        self._hook, self._root = hook, root

    def make_folders(self, path: Path) -> None:
        """Create `path` and its missing parents, each recorded in the folder above it."""
        missing: list[Path] = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            self._hook("mkdir", folder)
            mode = private_mode(folder.parent) if folder == self._root else 0o777
            folder.mkdir(mode, exist_ok=True)
            self.sync(folder.parent)

    def write(self, path: Path, chunks: Iterable[bytes]) -> str:
        """Write a new file that nobody reads yet, and sync it; returns its SHA-256 in hex."""
        digest = hashlib.sha256()
        with synced_file(path, self._hook) as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()

    def write_atomically(self, path: Path, data: bytes, draft: Path) -> None:
        """Write or replace a file; `draft` is where its bytes are written before."""
        self.make_folders(draft.parent)
        self.make_folders(path.parent)
        with atomic_file(path, draft=draft, hook=self._hook) as file:
            file.write(data)

    def sync(self, path: Path) -> None:
        """Force a file's bytes, or a folder's list of names, to the disk."""
        sync(path, self._hook)

    def sync_tree(self, path: Path) -> None:
        """Sync every folder and regular file under `path`, deepest first."""
        for folder, _, files in os.walk(path, topdown=False):
            for name in sorted(files):
                file = Path(folder, name)
                if not file.is_symlink():
                    self.sync(file)
            self.sync(Path(folder))

    def sync_staged(self, path: Path, content: str, files: Sequence[str], folders: int) -> None:
        """Sync some files of a staged directory, and all of its folders.

        Args:
            path: the directory.
            content: name of the folder in it that `files` are relative to.
            files: those that were not synced before.
            folders: number of folders; when there are very many, the whole file system is synced
                in one call instead.
        """
        if len(files) + folders > _MANY and sync_file_system(path, self._hook):
            return
        for name in sorted(files):
            self.sync(path / content / name)
        for folder, _, _ in os.walk(path, topdown=False):
            self.sync(Path(folder))

    def replace(self, source: Path, target: Path) -> None:
        """Move `source` over `target` in one step and record it in the folder it went to.

        A file or link is replaced; a folder only when it is empty.
        """
        replace_synced(source, target, self._hook)

    def link(self, path: Path, target: str) -> None:
        """Make the symlink `path`."""
        self._hook("symlink", path)
        path.symlink_to(target)

    def touch(self, path: Path) -> None:
        """Set the modification time of `path` to now; garbage collection reads it."""
        self._hook("touch", path)
        os.utime(path)

    def unlink(self, path: Path) -> None:
        """Remove a file or link, if it exists."""
        self._hook("unlink", path)
        path.unlink(missing_ok=True)
        self.sync(path.parent)

    def remove_tree(self, path: Path) -> None:
        """Remove a folder that nobody reads, if it exists."""
        self._hook("rmtree", path)
        with suppress(FileNotFoundError):  # another process removes it, too
            shutil.rmtree(path)

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Wait for the lock file `path` and lock it; the end of the process unlocks it, too."""
        self.make_folders(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @contextmanager
    def mark_in_use(self, folder: Path) -> Iterator[None]:
        """Mark a folder as in use while the context is open, even if it is renamed meanwhile."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def is_in_use(self, folder: Path) -> bool:
        """Whether a living process marked `folder` as in use; True when that is unknown."""
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(handle)


@contextmanager
def stored_file(path: Path) -> Iterator[BinaryIO]:
    """`atomic_file`, for bytes that come from elsewhere.

    Raises:
        StorageError: the disk is full, or the folder cannot be written to.
    """
    try:
        with atomic_file(path) as file:
            yield file
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StorageError(f"{path.name}: could not be written: {reason}") from None
