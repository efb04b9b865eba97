"""Roots of uploads and store: a path, a `file://` URL or an `s3://` URL.

Belongs here: parsing them. No message repeats a URL, which may carry credentials.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from demo_pipeline.storage.errors import StorageError

_S3 = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_SCHEMES = frozenset({"http", "https", "ftp", "gs", "gcs", "az", "abfs", "hdfs", "sftp", "ssh"})


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
        StorageError: it carries credentials, a query or a fragment, or has no bucket.
    """
    _refuse_query(url, "s3://")
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
    if url.strip().lower().startswith(_S3.rstrip("/")) and not is_bucket(url):
        raise StorageError("an s3:// URL has two slashes after the colon")
    if "://" not in url:
        return Path(url).expanduser().absolute()
    parts = _parts(url)
    if parts.scheme == "s3":
        raise StorageError(
            "an s3:// root cannot be used here; give a path or a file:// URL, "
            "for example a local copy made with `aws s3 sync`"
        )
    if parts.scheme != "file":
        named = f"{parts.scheme}:// roots" if parts.scheme in _SCHEMES else "roots of this kind"
        raise StorageError(f"{named} are not supported; give a path, a file:// URL or an s3:// URL")
    _refuse_query(url, "file://")
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError("a file:// URL names a folder on this machine, e.g. file:///data/store")
    return Path(unquote(parts.path)).absolute()


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:  # e.g. a bracket that is not closed; its message quotes the URL
        raise StorageError(
            "the root is not a URL; give a path, a file:// or an s3:// URL"
        ) from None


def _refuse_query(url: str, scheme: str) -> None:
    """A query often carries a token, and a signed URL is no root."""
    if "?" in url or "#" in url:
        raise StorageError(
            f"the {scheme} URL has a query or a fragment (`?` or `#`), which a root cannot have; "
            "remove it, and set credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
