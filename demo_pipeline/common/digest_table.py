"""Digests of very many lines in little memory: a dictionary of them takes five times as much.

Belongs here: digests with a whole number each, and sets of line numbers.
"""

from array import array
from collections.abc import Iterator
from struct import Struct

_PAIR = Struct("<QQ")
_SMALLEST = 1024  # slots


class DigestTable:
    """16-byte digests, each with a whole number from 0, in some 40 bytes each."""

    __slots__ = ("_count", "_keys", "_numbers")

    def __init__(self) -> None:
        self._count = 0
        self._keys = array("Q", bytes(16 * _SMALLEST))
        self._numbers = array("Q", bytes(8 * _SMALLEST))  # plus 1; 0: a free slot

    def __len__(self) -> int:
        return self._count

    def __contains__(self, digest: bytes) -> bool:
        return self.get(digest) is not None

    def get(self, digest: bytes) -> int | None:
        """The number of a digest; None when it is not in the table."""
        low, high = _PAIR.unpack(digest)
        found = self._numbers[self._slot(low, high)]
        return found - 1 if found else None

    def setdefault(self, digest: bytes, number: int) -> int:
        """The number of a digest, which is added with this number when it is new."""
        low, high = _PAIR.unpack(digest)
        slot = self._slot(low, high)
        found = self._numbers[slot]
        if found:
            return found - 1
        self._keys[2 * slot], self._keys[2 * slot + 1] = low, high
        self._numbers[slot] = number + 1
        self._count += 1
        if 4 * self._count > 3 * len(self._numbers):
            self._grow()
        return number

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield digests and numbers, in no order."""
        for slot, number in enumerate(self._numbers):
            if number:
                yield _PAIR.pack(self._keys[2 * slot], self._keys[2 * slot + 1]), number - 1

    def _slot(self, low: int, high: int) -> int:
        """The slot of a digest, or a free one for it."""
        numbers, keys = self._numbers, self._keys
        last = len(numbers) - 1
        slot = low & last
        while numbers[slot] and (keys[2 * slot] != low or keys[2 * slot + 1] != high):
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        numbers, keys = self._numbers, self._keys
        self._numbers = array("Q", bytes(16 * len(numbers)))
        self._keys = array("Q", bytes(32 * len(numbers)))
        for number, low, high in zip(numbers, keys[::2], keys[1::2], strict=True):
            if number:
                slot = self._slot(low, high)
                self._keys[2 * slot], self._keys[2 * slot + 1] = low, high
                self._numbers[slot] = number


class LineNumbers:
    """A set of whole numbers from 0 that are not very large, in a byte each."""

    __slots__ = ("_flags",)

    def __init__(self) -> None:
        self._flags = bytearray()

    def add(self, number: int) -> None:
        """Add a number."""
        missing = number + 1 - len(self._flags)
        if missing > 0:
            self._flags += bytes(missing)
        self._flags[number] = 1

    def within(self, numbers: range) -> list[int]:
        """Those of successive numbers that are in the set."""
        flags = self._flags[numbers.start : numbers.stop]
        return [numbers[place] for place, flag in enumerate(flags) if flag] if any(flags) else []
