"""The folder of a store in which builds keep intermediate parts for the next build.

Belongs here: keeping bytes by key, finding damage, and removing what was not used for long. The
folder may be removed at any time; then the next build makes every part anew.
"""

import hashlib
import os
import time
from pathlib import Path

from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.layout import StoreLayout

_DIGEST = 32  # bytes of SHA-256 before the data
_TOUCH_SECONDS = 3600.0


class PartFolder:
    """Parts by key: the hex digest of everything that a part depends on.

    Args:
        layout: of the local store, or of a bucket's cache.
        disk: its file-system calls.
    """

    def __init__(self, layout: StoreLayout, disk: Disk) -> None:
        self._layout, self._disk = layout, disk

    def read(self, key: str) -> bytes | None:
        """The bytes that were kept under the key; None when they are gone or damaged.

        A damaged part is removed.
        """
        path = self._path(key)
        try:
            stored = path.read_bytes()
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
        except FileNotFoundError:
            return None
        data = stored[_DIGEST:]
        if hashlib.sha256(data).digest() == stored[:_DIGEST]:
            return data
        path.unlink(missing_ok=True)
        return None

    def has(self, key: str) -> bool:
        """Whether something is kept under the key; it may be damaged."""
        return self._path(key).is_file()

    def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, atomically."""
        path = self._path(key)
        draft = self._layout.draft()
        self._disk.make_folders(draft.parent)
        self._disk.make_folders(path.parent)
        try:
            # Not synced: a part that a power cut tears is found by its hash.
            draft.write_bytes(hashlib.sha256(data).digest() + data)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    def collect(self, before: float) -> None:
        """Remove the parts that were last used before a time, epoch seconds."""
        for path in self._layout.parts.glob("*/*"):
            if path.stat().st_mtime < before:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._layout.parts / key[:2] / key
