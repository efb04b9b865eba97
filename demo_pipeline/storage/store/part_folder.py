"""The folder of a store in which builds keep intermediate parts for the next build.

Belongs here: keeping bytes by key, finding damage, removing what was not used for long, and that
one build at a time works with them. The folder may be removed at any time; then the next build
makes every part anew.
"""

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.layout import StoreLayout

_DIGEST = 32  # bytes of SHA-256 before the data
_TOUCH_SECONDS = 3600.0
_LOG = logging.getLogger(__package__)


class PartFolder:
    """Parts by key: the hex digest of everything that a part depends on.

    Args:
        layout: of the local store, or of a bucket's cache.
        disk: its file-system calls.
    """

    def __init__(self, layout: StoreLayout, disk: Disk) -> None:
        self._layout, self._disk = layout, disk
        self._parts = str(layout.parts)

    def read(self, key: str) -> bytes | None:
        """The bytes that were kept under the key; None when they are gone or damaged.

        A damaged part is removed.
        """
        path = self._path(key)
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - thousands of parts
                written = os.fstat(file.fileno()).st_mtime
                digest, data = file.read(_DIGEST), file.read()
        except OSError:
            return None
        with suppress(OSError):
            if time.time() - written > _TOUCH_SECONDS:
                os.utime(path)
        if hashlib.sha256(data).digest() == digest:
            return data
        with suppress(OSError):
            Path(path).unlink(missing_ok=True)
        return None

    def has(self, key: str) -> bool:
        """Whether something is kept under the key; it may be damaged."""
        return os.path.isfile(self._path(key))  # noqa: PTH113 - thousands of parts

    def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, atomically; not when the folder cannot be written to."""
        path, draft = Path(self._path(key)), self._layout.draft()
        try:
            self._disk.make_folders(draft.parent)
            self._disk.make_folders(path.parent)
            # Not synced: a part that a power cut tears is found by its hash.
            with draft.open("wb") as file:
                file.write(hashlib.sha256(data).digest())
                file.write(data)
            draft.replace(path)
        except OSError as error:
            _LOG.debug("a part is not kept: %s", type(error).__name__)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def collect(self, before: float) -> None:
        """Remove the parts that were last used before a time, epoch seconds."""
        for path in self._layout.parts.glob("*/*"):
            with suppress(FileNotFoundError):  # another process removes it, too
                if path.stat().st_mtime < before:
                    path.unlink()

    @contextmanager
    def one_build(self, name: str) -> Iterator[float]:
        """Wait until no other process of this machine builds `name`; gives the seconds waited.

        The system ends it with its process, however that ends.
        """
        start = time.monotonic()
        with self._disk.lock(self._layout.lock(f"build.{name}")):
            yield time.monotonic() - start

    def _path(self, key: str) -> str:
        return f"{self._parts}/{key[:2]}/{key}"
