"""Which upload is meant: two hashes, one over a listing and one over the bytes.

Belongs here: the two rules. Whoever can read the files cheaply uses the second; discovery and
buckets, which must not, use the first.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from demo_pipeline.common.hashing import combined_digest, file_digest
from demo_pipeline.storage.objects.object_store import Objects
from demo_pipeline.storage.uploads.upload_listing import UPLOAD_FILES, folder_files


class ListedFile(NamedTuple):
    """A file of an upload as a listing shows it; `name` is relative to the upload's folder."""

    name: str
    etag: str
    size: int


class _HasObjects(Protocol):
    @property
    def objects(self) -> Objects: ...


def listing_fingerprint(files: Iterable[tuple[str, str, int]]) -> str:
    """SHA-256 over the sorted (name, ETag, bytes) of the three files; other names count nothing.

    Args:
        files: `ListedFile`s, or plain triples.

    Returns:
        64 hex digits.
    """
    rows = sorted((name, etag, size) for name, etag, size in files if name in UPLOAD_FILES)
    text = "".join(f"{name} {etag} {size}\n" for name, etag, size in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def upload_listing_fingerprint(uploads: _HasObjects, demonstration: str) -> str | None:
    """Listing fingerprint of what lies there now, local uploads or not.

    Returns:
        None when no folder has this id, or several have.

    Raises:
        StorageError: the uploads cannot be listed.
    """
    names, files = folder_files(uploads.objects, demonstration)
    if len(names) != 1:
        return None
    listed = (ListedFile(name, found.etag, found.size) for name, found in files.items())
    return listing_fingerprint(listed)


def folder_fingerprint(folder: Path) -> str:
    """SHA-256 over `name sha256` lines of the files that are there, by name.

    A recording's manifest has the same over all three as its `fingerprint`.
    """
    present = (name for name in UPLOAD_FILES if (folder / name).is_file())
    return combined_digest((name, file_digest(folder / name).sha256) for name in present)
