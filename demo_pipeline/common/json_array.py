"""A JSON array of objects in a file with one of them a line, read item by item.

Belongs here: recognising the form, which this program writes. Arrays in other forms are read as a
whole, by `json_files`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_pipeline.common.digest_column import DigestColumn
from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.known_lines import line_digest


class LineArray:
    """The items of such a file, which are parsed each time they are asked for.

    Args:
        path: the file; `of` has seen that it has the form.
        count: number of items.
    """

    def __init__(self, path: Path, count: int) -> None:
        self._path, self._count = path, count

    @classmethod
    def of(cls, path: Path) -> "LineArray | None":
        """The items of a file; None when it has another form, is not JSON or cannot be read."""
        try:
            return cls(path, sum(1 for _ in _items(path)))
        except (OSError, JsonFileError):
            return None

    def __len__(self) -> int:
        return self._count

    def __contains__(self, item: object) -> bool:
        return any(item == one for one in self)

    def __iter__(self) -> Iterator[Any]:
        return _items(self._path)

    def digests(self) -> DigestColumn:
        """The digest of every item's line, without the comma after it."""
        return DigestColumn(b"".join(map(line_digest, _lines(self._path))))


def _items(path: Path) -> Iterator[Any]:
    return (parse_json(line, path.name) for line in _lines(path))


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of the items. Raises `JsonFileError` when the file has another form."""
    with path.open("rb") as lines:
        is_array, line = next(lines, b"").strip() == b"[", next(lines, b"").strip()
        more = is_array and line != b"]"
        while more and line.startswith(b"{"):
            more = line.endswith(b",")
            yield line.removesuffix(b",")
            line = next(lines, b"").strip()
        if not is_array or more or line != b"]" or next(lines, b""):
            raise JsonFileError(path.name, None, "is not an array with an object a line")
