"""How Arrow starts in a process: without pandas, which it would import at its first array.

Belongs here: the one way round that import. It costs 0.2-0.4 CPU s and 40 MB a process, and no
table of this package is made from pandas objects.
"""

import sys
from importlib.machinery import ModuleSpec
from typing import Any

import pyarrow as pa


class _NoPandas:
    """An import hook that finds no pandas."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def start_without_pandas() -> None:
    """Make Arrow's first array while pandas cannot be found, unless it is imported already.

    Arrow looks for pandas once, to recognise its objects in lists. What converts to pandas looks
    again and finds it.
    """
    if "pandas" in sys.modules:
        return
    hook = _NoPandas()
    sys.meta_path.insert(0, hook)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hook)
