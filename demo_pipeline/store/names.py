"""Checks the names of outputs and documents, and parses the roots of stores and uploads.

A root is a path or a URL. Messages never repeat a URL, because it may contain credentials.
"""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from demo_pipeline.store.errors import StorageError

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Endings that ids must not have. Windows and SMB shares drop a dot at the end of a name. In older
# stores, `.json` and `.lock` were appended to ids.
_RESERVED_ENDINGS = (".", ".json", ".lock")
_DOCUMENT_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_S3 = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
VERSIONS = "versions/"
POINTERS = "pointers/"
OWN_FOLDERS = (VERSIONS, POINTERS, "retired/")
"""Folders of a bucket that must not contain documents.

Only earlier versions of the package wrote `retired/`.
"""


def is_safe_id(text: str) -> bool:
    """Returns whether a text can be a demonstration's id, or a part of an output's name.

    A safe id matches `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`, does not contain `..` and does not end in
    `.`, `.json` or `.lock`.
    """
    allowed = _SAFE.fullmatch(text) is not None and ".." not in text
    return allowed and not text.lower().endswith(_RESERVED_ENDINGS)


def is_output(name: str) -> bool:
    """Returns whether a text can be the name of an output, that is, safe ids joined by `/`."""
    return all(map(is_safe_id, name.split("/")))


def require_output(output: str) -> None:
    """Raises `StorageError` if a text cannot be the name of an output."""
    if not is_output(output):
        raise StorageError(f"{output!r} cannot be the name of an output; join safe ids by `/`")


def is_document(key: str) -> bool:
    """Returns whether a text can be the key of a document: a visible file in a visible folder."""
    parts = key.split("/")
    return len(parts) > 1 and ".." not in key and all(map(_DOCUMENT_PART.fullmatch, parts))


def require_document(key: str) -> str:
    """Returns `key`. Raises `StorageError` if it cannot be the key of a document."""
    if not is_document(key) or key.startswith(OWN_FOLDERS):
        raise StorageError(
            f"{key!r} cannot be the key of a document; use e.g. `quarantine/<id>.json`"
        )
    return key


def is_bucket(url: str) -> bool:
    """Returns whether the root of a store or of uploads is an `s3://` URL."""
    return url.strip().lower().startswith(_S3)


def bucket_of(url: str) -> tuple[str, str]:
    """Returns the bucket and the key prefix of an `s3://` URL.

    The prefix is empty or ends in `/`. It is not decoded: `%20` stays `%20`.

    Raises:
        StorageError: the URL contains credentials, a query or a fragment, or names no bucket.
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
    return name, f"{inside}/" if inside else ""


def local_path(url: str) -> Path:
    """Returns the absolute path for a path or a `file://` URL. The folder need not exist.

    Raises:
        StorageError: the root is not a local folder.
    """
    text = url.strip()
    if not text:
        raise StorageError("the root is empty; give a path, a file:// URL or an s3:// URL")
    if is_bucket(text):
        raise StorageError(
            "an s3:// root cannot be used here; give a path or a file:// URL, "
            "for example a local copy made with `aws s3 sync`"
        )
    if text.lower().startswith("s3:"):
        raise StorageError("an s3:// URL has two slashes after the colon")
    if "://" not in url:
        return Path(url).expanduser().absolute()
    try:
        parts = urlsplit(url)
    except ValueError:  # e.g. an unclosed bracket; the message would quote the URL
        parts = urlsplit("unknown://")
    if parts.scheme != "file":
        raise StorageError("such a root is not supported; give a path, a file:// or an s3:// URL")
    _refuse_query(url, "file://")
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError("a file:// URL names a folder on this machine, e.g. file:///data/store")
    return Path(unquote(parts.path)).absolute()


def _refuse_query(url: str, scheme: str) -> None:
    """Raises `StorageError` for a URL with a query, which often contains a token."""
    if "?" in url or "#" in url:
        raise StorageError(
            f"the {scheme} URL has a query or a fragment (`?` or `#`), which a root cannot have; "
            "remove it, and set credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
