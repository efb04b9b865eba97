"""Object storage: keys and bytes, as uploads and the store need them.

Belongs here: the protocol and its plain values. A local folder and S3 implement it; its users
decide what a key means.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from demo_pipeline.storage.errors import StorageError

PAGE = 1000  # S3 lists no more at once


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a HEAD shows it.

    Attributes:
        key: relative to the root, `/`-separated, never beginning with `/`.
        size: bytes.
        etag: changes whenever the bytes are replaced; opaque, without quotes.
        modified: epoch seconds by the server's clock; for a multipart upload its start, so it may
            only decide the age of garbage.
    """

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a listing. The order of keys means nothing.

    Attributes:
        objects: on this page.
        prefixes: with a delimiter: the folders on this page, each ending in `/`.
        token: of the next page; None at the end.
    """

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...]
    token: str | None


class ObjectChangedError(StorageError):
    """The object is missing, or is not the expected one."""


class Objects(Protocol):
    """Objects under one root. Every failure is a `StorageError` without credentials in it."""

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        ...

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """Objects whose key begins with `prefix`, at any depth."""
        ...

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """The folders (and objects) directly under `prefix`, which is empty or ends in `/`."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """The object as it is now; None when it does not exist."""
        ...

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """A small object's bytes and description; None when it does not exist."""
        ...

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Download the object with this ETag to `dest`, complete and synced, or not at all.

        Raises:
            ObjectChangedError: it was removed or replaced before or during the download, or its
                length or ETag is not the announced one.
        """
        ...

    def put(
        self,
        key: str,
        data: bytes | Path,
        *,
        if_none_match: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Write an object atomically; readers see the old bytes or the new.

        Args:
            key: of the object.
            data: bytes, or a file to read them from.
            if_none_match: write only when no object has the key.
            if_match: write only when the present object has this ETag.

        Raises:
            ObjectChangedError: the condition does not hold.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""
        ...


def list_all(objects: Objects, prefix: str = "") -> Iterator[ObjectInfo]:
    """Every object whose key begins with `prefix`, page after page, in no order."""
    token: str | None = None
    while True:
        page = objects.list_page(prefix, token)
        yield from page.objects
        token = page.token
        if token is None:
            return
