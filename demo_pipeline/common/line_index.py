"""Where the lines of a file begin, so that some of them can be read again at once.

Belongs here: reading through a file of lines, once. Which lines are known is in `known_lines`.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from demo_pipeline.common.digest_column import DIGEST, DigestColumn

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
