"""Lines that an earlier check has found valid, so that a check of a larger file need not read them.

Belongs here: which lines are known, by digest. A line is only known together with the files that it
names: whoever keeps its verdict makes sure that these are the same.
"""

import hashlib

from demo_pipeline.common.digest_table import DigestTable

FACT = 16  # bytes
_NOTHING = bytes(FACT)


class KnownLines:
    """Digests of valid lines, each with what checks between lines need of it: 16 bytes or none."""

    def __init__(self) -> None:
        self._valid, self._found, self._facts = DigestTable(), DigestTable(), bytearray()

    def add(self, digest: bytes, fact: bytes) -> None:
        """Add a line that an earlier check has found valid."""
        self._add(self._valid, digest, fact)

    def add_found(self, digest: bytes, fact: bytes = b"") -> None:
        """Add a line that this check has found valid."""
        self._add(self._found, digest, fact)

    def fact(self, digest: bytes) -> bytes | None:
        """What an earlier check knew of a line; None when it has to be checked."""
        return self._fact(self._valid.get(digest))

    def any_fact(self, digest: bytes) -> bytes | None:
        """What any check knows of a line by now, this one included."""
        known = self.fact(digest)
        return self._fact(self._found.get(digest)) if known is None else known

    def _add(self, table: DigestTable, digest: bytes, fact: bytes) -> None:
        number = len(self._facts) // FACT
        if table.setdefault(digest, number) == number:
            self._facts += fact or _NOTHING

    def _fact(self, number: int | None) -> bytes | None:
        if number is None:
            return None
        fact = bytes(self._facts[FACT * number : FACT * number + FACT])
        return b"" if fact == _NOTHING else fact


def line_digest(line: bytes) -> bytes:
    """16 bytes that stand for a line."""
    return hashlib.blake2b(line.strip(), digest_size=16).digest()


def text_digest(text: str) -> bytes:
    """16 bytes that stand for a text, which may contain lone surrogates."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
