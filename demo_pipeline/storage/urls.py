"""What a root may be written as: a path or a `file://` URL.

Belongs here: the reading of roots, the same for uploads and for the store.
"""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from demo_pipeline.storage.errors import StorageError


def local_path(url: str) -> Path:
    """The folder that `url` names, absolute; it need not exist.

    Raises:
        StorageError: for any root that is not local. Its message never repeats the URL, which may
            carry credentials.
    """
    if not url.strip():
        raise StorageError("an empty root; give a path or a file:// URL")
    if "://" not in url:
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme == "s3":
        raise StorageError(
            "s3:// roots are not available in this version; give a path or a file:// URL, "
            "for example a local copy made with `aws s3 sync`"
        )
    if parts.scheme != "file":
        raise StorageError(f"{parts.scheme}:// roots are not known; give a path or a file:// URL")
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise StorageError("a file:// URL names a folder of this machine, e.g. file:///data/store")
    return Path(unquote(parts.path)).absolute()
