"""Lines that an earlier check has found valid, so that a check of a larger file need not read them.

Belongs here: which lines are known, by digest. A line is only known together with the files that it
names: whoever keeps its verdict makes sure that these are the same.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class KnownLines:
    """Digests of valid lines, each with what checks between lines need of it.

    Attributes:
        valid: found valid before; digest → the line's id, or empty.
        found: found valid by this check.
    """

    valid: Mapping[bytes, str] = field(default_factory=dict)
    found: dict[bytes, str] = field(default_factory=dict)

    def fact(self, digest: bytes) -> str | None:
        """What is known of a line; None when it has to be checked."""
        return self.valid.get(digest)

    @property
    def all(self) -> Mapping[bytes, str]:
        """Every line that is known by now."""
        return {**self.valid, **self.found}


def line_digest(line: bytes) -> bytes:
    """16 bytes that stand for a line."""
    return hashlib.blake2b(line.strip(), digest_size=16).digest()
