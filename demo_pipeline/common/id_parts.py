"""Cutting many things into parts by their ids, so that an added one changes few parts.

Belongs here: where a part ends. What is kept of a part is up to the caller.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

MEAN_SIZE = 16  # an added item costs about two parts
_Item = TypeVar("_Item")


def cut_into_parts(items: Iterable[_Item], ids: Sequence[str]) -> Iterator[list[_Item]]:
    """Cut items into parts of `MEAN_SIZE` on average.

    A part ends with an id whose hash says so. An item that is added or removed therefore changes
    its own part and at most the one after it, however many there are. One part in twenty would
    have more than three times as many items and is cut there, since a part is made in memory.

    Args:
        items: in the order of their ids.
        ids: of the items.
    """
    part: list[_Item] = []
    for item, name in zip(items, ids, strict=True):
        part.append(item)
        ends = hashlib.sha256(name.encode()).digest()[0] < 256 // MEAN_SIZE
        if ends or len(part) == 3 * MEAN_SIZE:
            yield part
            part = []
    if part:
        yield part
