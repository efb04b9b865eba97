"""Python's own garbage collector, held back where it can find nothing.

Belongs here: the one context for it, which decorates functions as well. A leaf that every package
may import.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 100_000


@contextmanager
def reduced_python_gc() -> Iterator[None]:
    """Trees of plain values have no cycles; looking for some takes a third of their time."""
    usual = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
