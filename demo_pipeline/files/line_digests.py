"""Which lines of a file are known: where they begin, and their digests in little memory.

Belongs here: columns of digests of 16 bytes, which NumPy sorts; digests with a whole number each;
sets of line numbers. A line is only known together with the files that it names: whoever keeps its
verdict makes sure that these are the same.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import BinaryIO

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


_LINES_AT_ONCE = 4096


def line_digest(line: bytes) -> bytes:
    """16 bytes that stand for a line."""
    return hashlib.blake2b(line.strip(), digest_size=DIGEST).digest()


@dataclass(slots=True)
class LineIndex:
    """The lines of a file, in 8 bytes each.

    Attributes:
        path: of the file.
        starts: where each line begins, bytes.
        blank: places of blank lines, from 0.
    """

    path: Path
    starts: "array[int]" = field(default_factory=lambda: array("Q"))
    blank: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Number of lines that are not blank."""
        return len(self.starts) - len(self.blank)

    def lines_at(self, places: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yield the lines at places in ascending order, from 0, each with its place."""
        with self.path.open("rb") as file:
            for place in places:
                yield place, self._read(file, place)

    def rows_at(self, numbers: Iterator[int]) -> Iterator[bytes | None]:
        """Yield lines that are not blank by their numbers among these, ascending from 1.

        Of a number that is larger than `rows` None.
        """
        with self.path.open("rb") as file:
            passed = 0
            for number in numbers:
                place = number - 1 + passed
                while passed < len(self.blank) and self.blank[passed] <= place:
                    passed, place = passed + 1, place + 1
                yield self._read(file, place) if place < len(self.starts) else None

    def _read(self, file: BinaryIO, place: int) -> bytes:
        if file.tell() != self.starts[place]:
            file.seek(self.starts[place])
        return file.readline()


def index_lines(path: Path) -> tuple[LineIndex, DigestColumn]:
    """Read a file through: where its lines begin, and the digest of each."""
    index, digests, start = LineIndex(path), DigestColumn(), 0
    some: list[bytes] = []
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                index.blank.append(len(index.starts))
            index.starts.append(start)
            start += len(line)
            some.append(line_digest(line))
            if len(some) == _LINES_AT_ONCE:
                digests.extend(b"".join(some))
                some.clear()
    digests.extend(b"".join(some))
    return index, digests


FACT = 16  # bytes
_NOTHING = bytes(FACT)


class KnownLines:
    """Digests of valid lines, each with what checks between lines need of it: 16 bytes or none."""

    def __init__(self) -> None:
        self._valid, self._valid_facts = DigestColumn(), bytearray()
        self._found, self._found_facts = DigestTable(), bytearray()

    def add(self, digests: bytes, facts: bytes) -> None:
        """Add lines that an earlier check has found valid.

        Args:
            digests: one after the other.
            facts: of each; zeros: none.
        """
        self._valid.extend(digests)
        self._valid_facts += facts

    def add_found(self, digest: bytes, fact: bytes = b"") -> None:
        """Add a line that this check has found valid."""
        number = len(self._found)
        if self._found.setdefault(digest, number) == number:
            self._found_facts += fact or _NOTHING

    def facts(self, lines: DigestColumn) -> Iterator[bytes | None]:
        """What an earlier check knew of each of these lines; None of one that has to be checked."""
        for place in self._valid.find(lines):
            yield None if place < 0 else _fact(self._valid_facts, int(place))

    def sort_out(self, lines: DigestColumn) -> tuple[bytearray, list[int]]:
        """What an earlier check knew of these lines, and which of them have to be checked.

        Returns:
            16 bytes of each line, zeros for none, and the places of the unknown lines, from 0.
        """
        places = self._valid.find(lines)
        known = np.frombuffer(self._valid_facts, np.uint8).reshape(-1, FACT)
        facts = np.zeros((len(places), FACT), np.uint8)
        facts[places >= 0] = known[places[places >= 0]]
        return bytearray(facts), np.flatnonzero(places < 0).tolist()

    def any_facts(self, lines: DigestColumn) -> Iterator[bytes | None]:
        """What any check knows by now of each of these lines, this one included."""
        for digest, known in zip(lines, self.facts(lines), strict=True):
            number = self._found.get(digest) if known is None else None
            yield known if number is None else _fact(self._found_facts, number)


def _fact(facts: bytearray, number: int) -> bytes:
    fact = bytes(facts[FACT * number : FACT * number + FACT])
    return b"" if fact == _NOTHING else fact


def text_digest(text: str) -> bytes:
    """16 bytes that stand for a text, which may contain lone surrogates."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
