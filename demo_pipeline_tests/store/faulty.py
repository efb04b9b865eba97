"""Objects that fail at the n-th call: before it, after its effect, halfway, or silently."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.objects import ObjectInfo, Objects, Page

Kind = Literal["before", "after", "cut", "swap"]
T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th call (1-based) of those that are counted.

    `before` and `after`: it raises `StorageError` without or with its effect; with `dies`, so does
    every later call. `cut`: a fetch leaves the first half of the bytes and says nothing. `swap`:
    another process replaces the object just before.
    """

    call: int
    kind: Kind
    dies: bool = False
    swapped: bytes = b"foreign bytes"


class FaultyObjects:
    """`Objects` over others.

    Args:
        inner: what does the work.
        faults: what goes wrong, and when.
        methods: names of the methods that are counted; empty: all.
    """

    def __init__(self, inner: Objects, *faults: Fault, methods: frozenset[str] = frozenset()):
        self.inner, self.methods = inner, methods
        self.calls: list[tuple[str, str]] = []
        self._faults = {fault.call: fault for fault in faults}
        self._dead = False
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self.inner.url

    def list_page(self, prefix: str = "", token: str | None = None, *, deep: bool = True) -> Page:
        fault = self._begin("list_page", prefix)
        return self._end(fault, self.inner.list_page(prefix, token, deep=deep))

    def head(self, key: str) -> ObjectInfo | None:
        fault = self._begin("head", key)
        return self._end(fault, self.inner.head(key))

    def read(self, key: str) -> tuple[bytes, ObjectInfo] | None:
        fault = self._begin("read", key)
        return self._end(fault, self.inner.read(key))

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        fault = self._begin("fetch", key)
        self.inner.fetch(key, etag, dest)
        if fault and fault.kind == "cut":
            dest.write_bytes(dest.read_bytes()[: dest.stat().st_size // 2])
        self._end(fault, None)

    def put(self, key: str, data: bytes | Path, *, replaces: str | None = None) -> str:
        fault = self._begin("put", key)
        return self._end(fault, self.inner.put(key, data, replaces=replaces))

    def delete(self, key: str) -> None:
        fault = self._begin("delete", key)
        self.inner.delete(key)
        self._end(fault, None)

    def _begin(self, method: str, key: str) -> Fault | None:
        with self._lock:
            if self._dead:
                raise StorageError("the process is dead")
            if self.methods and method not in self.methods:
                return None
            self.calls.append((method, key))
            fault = self._faults.get(len(self.calls))
            self._dead = fault is not None and fault.dies and fault.kind == "before"
        if fault and fault.kind == "before":
            raise StorageError(f"{key}: the connection broke at {method}")
        if fault and fault.kind == "swap":
            self.inner.put(key, fault.swapped)
        return fault

    def _end(self, fault: Fault | None, result: T) -> T:
        if fault and fault.kind == "after":
            with self._lock:
                self._dead = fault.dies
            raise StorageError("the connection broke before the answer came")
        return result
