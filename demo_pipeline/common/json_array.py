"""A JSON array of objects in a file with one of them a line, read item by item.

Belongs here: recognising the form, which this program writes. Arrays in other forms are read as a
whole, by `json_files`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_pipeline.common.digest_column import DigestColumn
from demo_pipeline.common.json_files import JsonFileError, parse_json
from demo_pipeline.common.known_lines import KnownLines
from demo_pipeline.common.line_index import line_digest


class LineArray:
    """The items of such a file, which are parsed each time they are asked for.

    Args:
        path: the file; `of` has seen that it has the form.
        digests: of every one of `lines`.
    """

    def __init__(self, path: Path, digests: DigestColumn) -> None:
        self._path, self.digests = path, digests

    @classmethod
    def of(cls, path: Path, known: KnownLines | None = None) -> "LineArray | None":
        """The items of a file; None when it has another form, is not JSON or cannot be read.

        Args:
            path: the file.
            known: lines that are JSON.
        """
        try:
            found = cls(path, DigestColumn(b"".join(map(line_digest, _lines(path)))))
            facts = (known or KnownLines()).facts(found.digests)
            for line, fact in zip(found.lines(), facts, strict=True):
                if fact is None:
                    parse_json(line, path.name)
        except (OSError, JsonFileError):
            return None
        return found

    def __len__(self) -> int:
        return len(self.digests)

    def __iter__(self) -> Iterator[Any]:
        return (parse_json(line, self._path.name) for line in self.lines())

    def lines(self) -> Iterator[bytes]:
        """Yield the line of every item, without the comma after it."""
        return _lines(self._path)


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
