"""Very many digests that are looked up and compared all at once.

Belongs here: columns of digests of 16 bytes, which NumPy sorts. One digest at a time is looked up
in `digest_table`.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

DIGEST = 16  # bytes
_AT_ONCE = 8192  # digests that are looked up
_KIND = np.dtype(f"S{DIGEST}")  # compares all bytes: only zeros at the end are not told from none

Places = NDArray[np.int64]
"""Positions in a column, from 0; -1: not there."""


class DigestColumn:
    """Digests in the order in which they were added, some 40 bytes each once they are looked up.

    Attributes:
        data: the digests, one after the other.
    """

    __slots__ = ("_order", "_sorted", "data")

    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.data = bytearray(data)
        self._order: NDArray[np.uint32] | None = None
        self._sorted: NDArray[np.bytes_] = np.empty(0, _KIND)

    def __len__(self) -> int:
        return len(self.data) // DIGEST

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self.data), DIGEST):
            yield bytes(self.data[start : start + DIGEST])

    def __getitem__(self, place: int) -> bytes:
        if place >= len(self):
            raise IndexError(place)
        return bytes(self.data[DIGEST * place : DIGEST * place + DIGEST])

    def extend(self, digests: bytes | bytearray) -> None:
        """Add digests, one after the other."""
        self.data += digests
        self._order = None

    def find(self, wanted: "DigestColumn") -> Places:
        """The first place of every wanted digest."""
        order, values = self._sort(), wanted.values()
        if not len(order):
            return np.full(len(values), -1)
        found = np.empty(len(values), np.int64)
        for start in range(0, len(values), _AT_ONCE):
            some = values[start : start + _AT_ONCE]
            near = np.minimum(np.searchsorted(self._sorted, some), len(order) - 1)
            places = np.where(self._sorted[near] == some, order[near].astype(np.int64), -1)
            found[start : start + _AT_ONCE] = places
        return found

    def differing(self, other: "DigestColumn") -> list[int]:
        """The places where the other column has another digest or none."""
        both = min(len(self), len(other))
        places = np.flatnonzero(self.values()[:both] != other.values()[:both]).tolist()
        return [*places, *range(both, len(self))]

    def first_places(self) -> Places:
        """For every digest its first place, which is its own when no earlier one is equal."""
        return self.find(self)

    def has_equals(self) -> bool:
        """Whether two digests are equal."""
        self._sort()
        return bool((self._sorted[1:] == self._sorted[:-1]).any())

    def _sort(self) -> NDArray[np.uint32]:
        """Sort the digests; gives their places in that order, the first of equal ones first."""
        if self._order is None:
            values = self.values()
            self._order = np.argsort(values, kind="stable").astype(np.uint32)
            self._sorted = values[self._order]
        return self._order

    def values(self) -> NDArray[np.bytes_]:
        """The digests as an array, which has to be gone before more are added."""
        return np.frombuffer(self.data, _KIND)
