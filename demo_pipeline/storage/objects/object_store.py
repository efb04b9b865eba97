"""Keys and bytes: what uploads and store need of a place, whatever kind of place it is.

Belongs here: the protocol and its plain values. A local folder and S3 implement it; what a key
means is the business of those who use it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from demo_pipeline.storage.errors import StorageError

PAGE = 1000  # S3 gives no more at once


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object as a listing or a HEAD shows it.

    Attributes:
        key: relative to the root, `/`-separated, never beginning with `/`.
        size: bytes.
        etag: changes whenever the bytes are replaced; opaque, without quotes.
        modified: epoch seconds by the other side's clock; of a slow multipart upload its start, so
            nothing may be decided by it but the age of what is to be collected.
    """

    key: str
    size: int
    etag: str
    modified: float


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing. The order of keys means nothing.

    Attributes:
        objects: those in this part.
        prefixes: with a delimiter: the folders in this part, each ending in `/`.
        token: what to give for the next part; None at the end.
    """

    objects: tuple[ObjectInfo, ...]
    prefixes: tuple[str, ...]
    token: str | None


class ObjectChangedError(StorageError):
    """The object is not, or no longer, the one that was asked for."""


class Objects(Protocol):
    """Objects under one root. Every failure is a `StorageError` that shows no credentials."""

    @property
    def url(self) -> str:
        """The root as it was given, without credentials."""
        ...

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """Objects whose key begins with `prefix`, at any depth."""
        ...

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """The folders (and objects) directly under `prefix`, which is empty or ends in `/`."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """The object as it is now; None when there is none."""
        ...

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        """A small object's bytes and what they belong to; None when there is none."""
        ...

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        """Put the object with this ETag at `dest`, whole and synced, or nothing.

        Raises:
            ObjectChangedError: it is gone, was replaced before or during the reading, or its
                length or ETag is not what was announced.
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
        """Write an object as a whole; readers see the old bytes or the new.

        Args:
            key: where.
            data: bytes, or a file to read them from.
            if_none_match: only when there is none.
            if_match: only when the present one has this ETag.

        Raises:
            ObjectChangedError: the condition does not hold.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
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
