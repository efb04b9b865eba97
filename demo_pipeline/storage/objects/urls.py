"""What a root may be written as: a path, a `file://` URL or an `s3://` URL.

Belongs here: the reading of roots, the same for uploads and for the store. No message repeats a
URL, which may carry credentials.
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
        """`s3://bucket/prefix`, as short as it can be written."""
        return f"{_S3}{self.name}/{self.prefix}".rstrip("/")


def is_bucket(url: str) -> bool:
    """Whether a root is on S3."""
    return url.strip().lower().startswith(_S3)


def bucket_of(url: str) -> Bucket:
    """The bucket and the prefix that an `s3://` URL names; the prefix is taken as it stands.

    Raises:
        StorageError: it carries credentials, or names no bucket.
    """
    name, _, prefix = url.strip()[len(_S3) :].partition("/")
    if "@" in name:
        raise StorageError(
            "an s3:// URL with credentials in it; take them out, and set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) instead"
        )
    if not is_bucket(url) or not _BUCKET.fullmatch(name):
        raise StorageError("an s3:// URL names a bucket and a prefix, e.g. s3://bucket/recordings")
    inside = prefix.strip("/")
    return Bucket(name, f"{inside}/" if inside else "")


def local_path(url: str) -> Path:
    """The folder that `url` names, absolute; it need not exist.

    Raises:
        StorageError: for any root that is not local.
    """
    if not url.strip():
        raise StorageError("an empty root; give a path, a file:// URL or an s3:// URL")
    if "://" not in url:
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme == "s3":
        raise StorageError(
            "an s3:// root where only a local folder will do; give a path or a file:// URL, "
            "for example a local copy made with `aws s3 sync`"
        )
    if parts.scheme != "file":
        raise StorageError(
            f"{parts.scheme}:// roots are not known; give a path, a file:// URL or an s3:// URL"
        )
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError("a file:// URL names a folder of this machine, e.g. file:///data/store")
    return Path(unquote(parts.path)).absolute()
