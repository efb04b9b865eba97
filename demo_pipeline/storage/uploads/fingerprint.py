"""Fingerprints of an upload: one over its listing and one over its bytes.

Belongs here: both rules. Discovery and buckets, which must not download files, use the fingerprint
of the listing; local uploads use that of the bytes.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.storage.objects.object_store import Objects
from demo_pipeline.storage.uploads.upload_listing import folder_files


class ListedFile(NamedTuple):
    """A file of an upload as a listing shows it; `name` is relative to the upload's folder."""

    name: str
    etag: str
    size: int


class _HasObjects(Protocol):
    @property
    def objects(self) -> Objects: ...


def listing_fingerprint(files: Iterable[tuple[str, str, int]]) -> str:
    """SHA-256 over the sorted (name, ETag, bytes) of the three files; other files do not count.

    Args:
        files: `ListedFile`s, or plain (name, ETag, bytes).

    Returns:
        64 hex digits.
    """
    rows = sorted((name, etag, size) for name, etag, size in files if name in RECORDING_FILES)
    text = "".join(f"{name} {etag} {size}\n" for name, etag, size in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def upload_listing_fingerprint(uploads: _HasObjects, demonstration: str) -> str | None:
    """Listing fingerprint of the present upload, in a local folder or a bucket.

    Returns:
        None unless exactly one folder has this id.

    Raises:
        StorageError: the uploads cannot be listed.
    """
    names, files = folder_files(uploads.objects, demonstration)
    if len(names) != 1:
        return None
    listed = (ListedFile(name, info.etag, info.size) for name, info in files.items())
    return listing_fingerprint(listed)


def folder_fingerprint(folder: Path) -> str:
    """SHA-256 over `name sha256` lines of the three files, as far as they exist, by name.

    For a complete upload it equals the `fingerprint` of the recording's manifest.
    """
    present = (name for name in RECORDING_FILES if (folder / name).is_file())
    return combined_digest((name, file_digest(folder / name).sha256) for name in present)
