"""Bytes on their way to S3: with a digest, and in parts.

Belongs here: what a put sends. The calls are made in s3_objects.py.
"""

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_pipeline.storage.errors import StorageError


def body_arguments(data: bytes) -> dict[str, Any]:
    """The arguments of a put of these bytes; S3 refuses other bytes than those of the digest."""
    digest = hashlib.md5(data, usedforsecurity=False).digest()
    return {"Body": data, "ContentMD5": b64encode(digest).decode()}


def parts_of(data: bytes | Path, size: int) -> Iterator[bytes]:
    """Parts of `size` bytes, the last one shorter."""
    if isinstance(data, bytes):
        yield from (data[start : start + size] for start in range(0, len(data), size))
        return
    try:
        with data.open("rb") as file:
            while part := file.read(size):
                yield part
    except OSError as error:
        raise StorageError(f"{data.name}: could not be read: {type(error).__name__}") from None


def size_of(path: Path) -> int:
    """Bytes of a file.

    Raises:
        StorageError: it cannot be read.
    """
    try:
        return path.stat().st_size
    except OSError as error:
        raise StorageError(f"{path.name}: could not be read: {type(error).__name__}") from None


def joint_etag(etags: list[str]) -> str:
    """The ETag of an object that was written in parts: the MD5 over the parts' digests."""
    plain = [etag.strip('"') for etag in etags]
    try:
        digests = b"".join(map(bytes.fromhex, plain))
    except ValueError:  # a server with ETags of its own
        return ""
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(plain)}"
