"""Reads and applies the damages in `likely.json`, which are likely to happen in practice.

`likely.json` lists the damages of each asset. `what` says what happened. `file` is the path of the
file or a pattern. `do` is an operation with its arguments. A place in a file is written as a path
such as `0/files/2`, which consists of row numbers, keys and indexes in lists. In an object without
the key `n`, the number `n` stands for the key at this position.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class LikelyDamage:
    """A damage to an output.

    Attributes:
        asset: name of the asset.
        what: description of the damage.
        file: path below the folder of the output, or a pattern that matches one path.
        do: the operation and its arguments.
        unseen: reason why no check can notice the damage. Empty if a check must notice the damage.
    """

    asset: str
    what: str
    file: str
    do: tuple[Any, ...]
    unseen: str = ""

    @property
    def name(self) -> str:
        return f"{self.asset}: {self.what}"

    def apply(self, folder: Path) -> None:
        """Applies the damage to a copy of the output whose files are hard links."""
        operation, *arguments = self.do
        path = folder / self.file
        if "*" in self.file:
            [path] = folder.glob(self.file)
        if operation in _OF_FILES:
            _OF_FILES[operation](path, *arguments)
        else:
            _change_values(path, _OF_VALUES[operation], *arguments)


def likely_damages() -> list[LikelyDamage]:
    document = json.loads(Path(__file__).with_name("likely.json").read_bytes())
    damages = []
    for asset, listed in document.items():
        for entry in listed:
            entry["do"] = tuple(entry["do"])
            damages.append(LikelyDamage(asset, **entry))
    return damages


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _replace(path: Path, data: bytes) -> None:
    """Replaces a hard link by a new file."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _truncate(path: Path) -> None:
    data = path.read_bytes()
    _replace(path, data[: len(data) // 2])


def _copy_of(path: Path, other: str) -> None:
    """Writes a new file with the content of another file of the output."""
    assert not path.exists()
    _replace(path, (_output_of(path, other) / other).read_bytes())


def _replace_by(path: Path, other: str) -> None:
    assert path.exists()
    _replace(path, (_output_of(path, other) / other).read_bytes())


def _output_of(path: Path, other: str) -> Path:
    """Returns the nearest folder above `path` that contains the file `other`."""
    return next(folder for folder in path.parents if (folder / other).is_file())


def _link_to(path: Path, other: str) -> None:
    target = (_output_of_folder(path, other) / other).resolve()
    _remove(path)
    path.symlink_to(target)


def _output_of_folder(path: Path, other: str) -> Path:
    return next(folder for folder in path.parents if (folder / other).is_dir())


def _repaint(path: Path, paint: Callable[[Any], Any]) -> None:
    pixels = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    painted = np.ascontiguousarray(paint(pixels))
    _replace(path, cv2.imencode(path.suffix, painted)[1].tobytes())


def _drop_column(path: Path, column: str) -> None:
    table = pq.read_table(path).drop_columns([column])
    path.unlink()
    pq.write_table(table, path)


def _text_column(path: Path, column: str) -> None:
    """Converts a column of numbers to text."""
    table = pq.read_table(path)
    texts = pa.array([str(value) for value in table[column].to_pylist()], pa.string())
    path.unlink()
    pq.write_table(table.set_column(table.column_names.index(column), column, texts), path)


def _append_from(path: Path, other: str, line: str) -> None:
    lines = path.with_name(other).read_bytes().splitlines(keepends=True)
    _replace(path, path.read_bytes() + lines[int(line)])


_OF_FILES: Mapping[str, Callable[..., None]] = {
    "remove": _remove,
    "truncate": _truncate,
    "empty": lambda path: _replace(path, b""),
    "write": lambda path, text: _replace(path, text.encode()),
    "copy of": _copy_of,
    "replace by": _replace_by,
    "link to": _link_to,
    "halve": lambda path: _repaint(path, lambda pixels: pixels[::2, ::2]),
    "black": lambda path: _repaint(path, np.zeros_like),
    "cut rows": lambda path: _repaint(path, lambda pixels: pixels[: len(pixels) * 2 // 3]),
    "drop column": _drop_column,
    "text column": _text_column,
    "append from": _append_from,
}


def _change_values(path: Path, change: Callable[..., None], *arguments: Any) -> None:
    """Changes values in a Parquet, JSON Lines or JSON file, and writes the file again."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        rows = table.to_pylist()
        change(rows, *arguments)
        path.unlink()
        pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    elif path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        change(lines, *arguments)
        _replace(path, "".join(json.dumps(line) + "\n" for line in lines).encode())
    else:
        document = json.loads(path.read_bytes())
        change(document, *arguments)
        _replace(path, json.dumps(document, indent=2).encode())


def _holder(document: Any, place: str) -> tuple[Any, Any]:
    """Returns the object or list that contains a place, and the key or index of the place."""
    holder = document
    last: Any = ""
    for step in place.split("/"):
        if last != "":
            holder = holder[last]
        last = _key(holder, step)
    return holder, last


def _key(holder: Any, step: str) -> Any:
    if isinstance(holder, list):
        return int(step)
    if step.isdecimal() and step not in holder:
        return list(holder)[int(step)]
    return step


def _set(document: Any, place: str, value: Any) -> None:
    holder, key = _holder(document, place)
    assert holder[key] != value
    holder[key] = value


def _add(document: Any, place: str, number: float) -> None:
    holder, key = _holder(document, place)
    holder[key] += number


def _delete(document: Any, place: str) -> None:
    holder, key = _holder(document, place)
    del holder[key]


def _double(document: Any, place: str) -> None:
    rows, number = _holder(document, place)
    rows.insert(number, rows[number])


def _swap(document: Any, place: str, other: str) -> None:
    holder, key = _holder(document, place)
    other_holder, other_key = _holder(document, other)
    value = holder[key]
    assert value != other_holder[other_key]
    holder[key] = other_holder[other_key]
    other_holder[other_key] = value


def _copy(document: Any, place: str, target: str) -> None:
    holder, key = _holder(document, place)
    _set(document, target, holder[key])


_OF_VALUES: Mapping[str, Callable[..., None]] = {
    "set": _set,
    "add": _add,
    "delete": _delete,
    "double": _double,
    "swap": _swap,
    "copy": _copy,
}
