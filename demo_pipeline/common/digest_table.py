"""Digests of very many lines in little memory: a dictionary of them takes five times as much.

Belongs here: digests with a whole number each, and sets of line numbers.
"""

from array import array
from collections.abc import Iterator
from struct import Struct

_PAIR = Struct("<QQ")
_SMALLEST = 1024  # slots


class DigestTable:
    """16-byte digests, each with a whole number from 0, in some 35 bytes each.

    Digests and numbers stand in the order in which they were added; slots name their places.
    """

    __slots__ = ("_keys", "_numbers", "_slots")

    def __init__(self) -> None:
        self._keys = array("Q")  # two of each digest
        self._numbers = array("Q")
        self._slots = array("I", bytes(4 * _SMALLEST))  # places from 1; 0: a free slot

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, digest: bytes) -> bool:
        return self.get(digest) is not None

    def get(self, digest: bytes) -> int | None:
        """The number of a digest; None when it is not in the table."""
        place = self._slots[self._slot(*_PAIR.unpack(digest))]
        return self._numbers[place - 1] if place else None

    def setdefault(self, digest: bytes, number: int) -> int:
        """The number of a digest, which is added with this number when it is new."""
        low, high = _PAIR.unpack(digest)
        slot = self._slot(low, high)
        place = self._slots[slot]
        if place:
            return self._numbers[place - 1]
        self._keys.append(low)
        self._keys.append(high)
        self._numbers.append(number)
        self._slots[slot] = len(self._numbers)
        if 4 * len(self._numbers) > 3 * len(self._slots):
            self._grow()
        return number

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield digests and numbers, in the order in which they were added."""
        keys = iter(self._keys)
        for low, high, number in zip(keys, keys, self._numbers, strict=True):
            yield _PAIR.pack(low, high), number

    def _slot(self, low: int, high: int) -> int:
        """The slot of a digest, or a free one for it."""
        slots, keys = self._slots, self._keys
        last = len(slots) - 1
        slot = low & last
        while place := slots[slot]:
            if keys[2 * place - 2] == low and keys[2 * place - 1] == high:
                break
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        slots = array("I", bytes(8 * len(self._slots)))
        last = len(slots) - 1
        for place in range(1, len(self._numbers) + 1):
            slot = self._keys[2 * place - 2] & last
            while slots[slot]:
                slot = (slot + 1) & last
            slots[slot] = place
        self._slots = slots


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
