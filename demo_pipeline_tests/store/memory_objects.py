"""Objects in memory that behave as in S3, with a chosen clock and order of keys."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.store.objects import PAGE, ObjectChangedError, ObjectInfo, Page

START = 1_000_000.0  # epoch seconds


@dataclass(frozen=True)
class Stored:
    data: bytes
    info: ObjectInfo


class MemoryObjects:
    """`Objects` over a dictionary; safe between threads.

    Args:
        clock: epoch seconds, for `modified`.
        page: most entries of a page.
        shuffle: a seed for the order of listings; None: by key, as AWS does.
        url: what it says of itself.
    """

    def __init__(
        self,
        clock: Callable[[], float] = lambda: START,
        shuffle: int | None = None,
        url: str = "s3://memory",
        page: int = PAGE,
    ) -> None:
        self.url = url
        self._page = page
        self.stored: dict[str, Stored] = {}
        self._clock, self._shuffle = clock, shuffle
        self._lock = threading.Lock()
        self._etags = 0

    def list_page(self, prefix: str = "", token: str | None = None, *, deep: bool = True) -> Page:
        assert deep or prefix == "" or prefix.endswith("/")
        with self._lock:
            found = {key: each.info for key, each in self.stored.items() if key.startswith(prefix)}
        names, following = self._cut(
            set(found) if deep else {_child(key, prefix) for key in found}, token
        )
        objects = tuple(found[name] for name in names if deep or not name.endswith("/"))
        folders = () if deep else tuple(name for name in names if name.endswith("/"))
        return Page(objects, folders, following)

    def head(self, key: str) -> ObjectInfo | None:
        with self._lock:
            stored = self.stored.get(key)
        return stored.info if stored else None

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        with self._lock:
            stored = self.stored.get(key)
        return (stored.data, stored.info) if stored else None

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        with self._lock:
            stored = self.stored.get(key)
        if stored is None or stored.info.etag != etag:
            raise ObjectChangedError(f"{self.url}/{key}: is gone or was replaced; try again")
        draft = dest.with_name(f".{dest.name}.draft")
        draft.write_bytes(stored.data)
        draft.replace(dest)

    def put(self, key: str, data: bytes | Path, *, replaces: str | None = None) -> str:
        read = data.read_bytes() if isinstance(data, Path) else data
        with self._lock:
            present = self.stored.get(key)
            if replaces is not None and replaces != (present.info.etag if present else ""):
                raise ObjectChangedError(f"{self.url}/{key}: was written meanwhile")
            return self._place(key, read, self._clock()).etag

    def delete(self, key: str) -> None:
        with self._lock:
            self.stored.pop(key, None)

    def place(self, key: str, data: bytes, modified: float | None = None) -> ObjectInfo:
        """An object written by another process, perhaps with an old modification time."""
        with self._lock:
            return self._place(key, data, self._clock() if modified is None else modified)

    def age(self, modified: float) -> None:
        """Set the modification time of every object."""
        with self._lock:
            for key, each in list(self.stored.items()):
                info = ObjectInfo(key, each.info.size, each.info.etag, modified)
                self.stored[key] = Stored(each.data, info)

    def _place(self, key: str, data: bytes, modified: float) -> ObjectInfo:
        assert key, "an object has a key"
        assert not key.startswith("/"), "keys are relative"
        self._etags += 1
        info = ObjectInfo(key, len(data), f"etag-{self._etags}", modified)
        self.stored[key] = Stored(data, info)
        return info

    def _cut(self, names: set[str], token: str | None) -> tuple[list[str], str | None]:
        """A page of the names after the token, and the next token."""
        ordered = sorted(names, key=self._rank)
        if token is not None:
            ordered = [name for name in ordered if self._rank(name) > self._rank(token)]
        part = ordered[: self._page]
        return part, part[-1] if len(ordered) > len(part) else None

    def _rank(self, name: str) -> str:
        if self._shuffle is None:
            return name
        return hashlib.sha256(f"{self._shuffle} {name}".encode()).hexdigest()


def _child(key: str, prefix: str) -> str:
    """The folder (ending in `/`) or the object directly under `prefix` that leads to `key`."""
    name, slash, _ = key.removeprefix(prefix).partition("/")
    return f"{prefix}{name}{slash}"


def keys(objects: MemoryObjects) -> Iterator[str]:
    """Keys of all objects, sorted."""
    yield from sorted(objects.stored)
