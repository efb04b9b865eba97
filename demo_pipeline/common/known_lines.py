"""Lines that an earlier check has found valid, so that a check of a larger file need not read them.

Belongs here: which lines are known, by digest. A line is only known together with the files that it
names: whoever keeps its verdict makes sure that these are the same.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from demo_pipeline.common.digest_column import DigestColumn
from demo_pipeline.common.digest_table import DigestTable

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
