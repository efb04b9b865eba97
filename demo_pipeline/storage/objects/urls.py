"""Roots of uploads and store: a path, a `file://` URL or an `s3://` URL.

Belongs here: parsing them. No message repeats a URL, which may carry credentials.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from demo_pipeline.storage.errors import StorageError

_S3 = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


@dataclass(frozen=True, slots=True)
class Bucket:
    """An S3 root.

    Attributes:
        name: of the bucket.
        prefix: of every key: empty, or ending in `/`.
    """

    name: str
    prefix: str

    @property
    def url(self) -> str:
        """`s3://bucket/prefix`, without a final slash."""
        return f"{_S3}{self.name}/{self.prefix}".rstrip("/")


def is_bucket(url: str) -> bool:
    """Whether a root is on S3."""
    return url.strip().lower().startswith(_S3)


def bucket_of(url: str) -> Bucket:
    """The bucket and the prefix of an `s3://` URL; the prefix is not decoded.

    Raises:
        StorageError: it carries credentials, or has no bucket.
    """
    name, _, prefix = url.strip()[len(_S3) :].partition("/")
    if "@" in name:
        raise StorageError(
            "the s3:// URL has credentials in it; remove them, and set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) instead"
        )
    if not is_bucket(url) or not _BUCKET.fullmatch(name):
        raise StorageError("an s3:// URL names a bucket and a prefix, e.g. s3://bucket/recordings")
    inside = prefix.strip("/")
    return Bucket(name, f"{inside}/" if inside else "")


def local_path(url: str) -> Path:
    """The folder of a path or `file://` URL, absolute; it need not exist.

    Raises:
        StorageError: the root is not local.
    """
    if not url.strip():
        raise StorageError("the root is empty; give a path, a file:// URL or an s3:// URL")
    if "://" not in url:
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme == "s3":
        raise StorageError(
            "an s3:// root cannot be used here; give a path or a file:// URL, "
            "for example a local copy made with `aws s3 sync`"
        )
    if parts.scheme != "file":
        raise StorageError(
            f"{parts.scheme}:// roots are not supported; give a path, a file:// URL or an s3:// URL"
        )
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError("a file:// URL names a folder on this machine, e.g. file:///data/store")
    return Path(unquote(parts.path)).absolute()
