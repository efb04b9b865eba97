"""A fast bucket for simulations: what discovery calls, with short, unordered pages."""

import zlib
from collections.abc import Callable

from demo_pipeline.runs.discovery_table import ObservedFile
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import ObjectInfo, Page

PAGE = 1000


class Bucket:
    """Objects by folder and file. Pages go on after the last key of the one before, in an order
    that each listing chooses, over what is there by then: nothing is a snapshot.

    Args:
        page: most entries of a page.
        before: called before each request, with its name; may raise.
        now: epoch seconds.
        token_seconds: after which a token is refused.
    """

    url = "s3://simulated"

    def __init__(
        self,
        page: int = PAGE,
        before: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = lambda: 0.0,
        token_seconds: float = float("inf"),
    ) -> None:
        self.folders: dict[str, dict[str, ObjectInfo]] = {}
        self._page, self._before, self._now, self._token_seconds = page, before, now, token_seconds
        self._orders: dict[int, list[tuple[int, str]]] = {}
        self._listings = 0

    def place(self, name: str, file: str, etag: str, size: int = 1, modified: float = 0.0) -> None:
        info = ObjectInfo(f"{name}/{file}", size, etag, modified)
        self.folders.setdefault(name, {})[file] = info
        self._orders.clear()

    def remove(self, name: str, file: str) -> None:
        files = self.folders.get(name, {})
        files.pop(file, None)
        if not files:
            self.folders.pop(name, None)
        self._orders.clear()

    def files(self, name: str) -> tuple[ObservedFile, ...]:
        return tuple(
            sorted(
                ObservedFile(file, one.etag, one.size, one.modified)
                for file, one in self.folders.get(name, {}).items()
            )
        )

    def list_page(self, prefix: str = "", token: str | None = None, *, deep: bool = True) -> Page:
        assert deep
        assert not prefix
        self._before("list_page")
        keys, following = self._cut(token)
        return Page(tuple(self._info(key) for key in keys), (), following)

    def _info(self, key: str) -> ObjectInfo:
        name, _, file = key.partition("/")
        return self.folders[name][file]

    def _cut(self, token: str | None) -> tuple[list[str], str | None]:
        if token is None:
            self._listings += 1
            order, last = self._listings % 7, (-1, "")
        else:
            issued, chosen, rank, key = token.split(" ", 3)
            if self._now() - float(issued) > self._token_seconds:
                raise StorageError("the continuation token has expired")
            order, last = int(chosen), (int(rank), key)
        ranked = self._ranked(order)
        following = [each for each in ranked if each > last] if token else ranked
        part = following[: self._page]
        if len(part) == len(following):
            return [key for _, key in part], None
        return [key for _, key in part], f"{self._now()} {order} {part[-1][0]} {part[-1][1]}"

    def _ranked(self, order: int) -> list[tuple[int, str]]:
        if order not in self._orders:
            keys = [info.key for files in self.folders.values() for info in files.values()]
            self._orders[order] = sorted((zlib.crc32(key.encode(), order), key) for key in keys)
        return self._orders[order]
