"""A file that appears under its name whole and synced, or not at all.

Belongs here: the one way in which bytes from elsewhere become a local file.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.store.disk import Disk


@contextmanager
def whole_file(dest: Path) -> Iterator[BinaryIO]:
    """A hidden file beside `dest` to write into; it takes the name when nothing went wrong.

    Raises:
        StorageError: the disk is full, or the folder cannot be written to.
    """
    draft = dest.with_name(f".{secrets.token_hex(8)}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Disk().replace(draft, dest)
    except OSError as error:
        raise StorageError(f"{dest.name}: could not be written: {_reason(error)}") from None
    finally:
        draft.unlink(missing_ok=True)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else type(error).__name__
