"""Parts of exports that builds keep for the next build.

Belongs here: everything about them but `Staging.find_earlier`.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from demo_pipeline.store.folder import Folder, remove_old

_DIGEST = 32  # bytes of SHA-256 before the data of a part
_TOUCH_SECONDS = 3600.0


class PartFolder:
    """Parts by key: the hex digest of everything that a part depends on.

    The folder may be removed at any time; then the next build makes every part anew.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def read(self, key: str) -> bytes | None:
        """The bytes that were kept under the key; None when they are gone or damaged."""
        path = self._path(key)
        with suppress(OSError):
            data = path.read_bytes()
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
            if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
                return data[_DIGEST:]
            path.unlink(missing_ok=True)
        return None

    def has(self, key: str) -> bool:
        """Whether something is kept under the key; it may be damaged."""
        return self._path(key).is_file()

    def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, atomically; not when the folder cannot be written to."""
        path = self._path(key)
        with suppress(OSError):
            self._folder.make(path.parent)
            draft = self._folder.draft()
            # Not synced: a part that a power cut tears is found by its hash.
            draft.write_bytes(hashlib.sha256(data).digest() + data)
            draft.replace(path)

    def collect(self, before: float) -> None:
        """Remove the parts that were last used before a time, epoch seconds."""
        remove_old((self._folder.root / ".parts").glob("*/*"), before)

    @contextmanager
    def one_build(self, name: str) -> Iterator[float]:
        """Wait until no other process of this machine builds `name`; gives the seconds waited."""
        start = time.monotonic()
        with self._folder.locked(f"build.{name}"):
            yield time.monotonic() - start

    def _path(self, key: str) -> Path:
        return self._folder.root / ".parts" / key[:2] / key
