"""Small damages to files: of a table, of JSON, of a picture, of a folder.

Belongs here: functions that return a damage, which changes a folder of hard links. A file is named
by a pattern below the folder, of whose matches the first is damaged. A row or a line is numbered
from 0. A new value is a value, or a function of the old one.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Damage = Callable[[Path], None]
Rows = list[Any]


def _found(folder: Path, pattern: str) -> Path:
    return min(folder.glob(pattern))


def _write(path: Path, data: bytes) -> None:
    """Replace a file, never what it is a hard link to."""
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _changed(old: Any, new: Any) -> Any:
    value = new(old) if callable(new) else new
    assert value != old, f"no damage: it is {old!r}"
    return value


def _put(value: Any, keys: Sequence[str], new: Any) -> None:
    """Change a member of nested JSON in place; the keys are names and numbers."""
    above: list[Any]
    last: Any
    *above, last = (int(key) if key.isdigit() else key for key in keys)
    for key in above:
        value = value[key]
    old = value[last] if isinstance(value, list) else value.get(last)
    value[last] = _changed(old, new)


def _at(rows: Rows, row: Any) -> int:
    """The number of a row: given, or the first that a function accepts."""
    return next(n for n, one in enumerate(rows) if row(one)) if callable(row) else row


# Tables


def table(file: str, edit: Callable[[Rows], Rows | None]) -> Damage:
    """Change the rows of a table, in place or by what `edit` returns."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        written = pq.read_table(path)
        rows = written.to_pylist()
        rows = edit(rows) or rows
        path.unlink()
        pq.write_table(pa.Table.from_pylist(rows, schema=written.schema), path)

    return damage


def cell(file: str, column: str, new: Any, row: Any = 0) -> Damage:
    """Change a value; `column` may lead into nested values, or JSON text: `messages:0.role`."""
    name, _, inside = column.partition(":")

    def edit(rows: Rows) -> None:
        chosen = rows[_at(rows, row)]
        if inside:
            value = json.loads(chosen[name])
            _put(value, inside.split("."), new)
            chosen[name] = json.dumps(value, ensure_ascii=False)
        else:
            _put(chosen, name.split("."), new)

    return table(file, edit)


def whole_column(file: str, column: str, new: Any) -> Damage:
    """Change every value of a column."""
    return table(file, lambda rows: [row | {column: new} for row in rows])


def null(file: str, column: str, row: int = 0) -> Damage:
    """Null in a column that must not have one."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        written = pq.read_table(path)
        place = written.schema.get_field_index(column)
        values = written[column].to_pylist()
        values[row] = None
        kind = written.schema.field(column).type
        path.unlink()
        pq.write_table(written.set_column(place, column, pa.array(values, kind)), path)

    return damage


def retyped(file: str, column: str) -> Damage:
    """A column as text."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        written = pq.read_table(path)
        place = written.schema.get_field_index(column)
        texts = pa.array([None if v is None else str(v) for v in written[column].to_pylist()])
        path.unlink()
        pq.write_table(written.set_column(place, column, texts), path)

    return damage


def without_column(file: str, column: str) -> Damage:
    """A column that is gone."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        written = pq.read_table(path)
        path.unlink()
        pq.write_table(written.drop_columns([column]), path)

    return damage


def drop(file: str, row: int = 0) -> Damage:
    """A row, line or entry that is gone."""
    return _rows(file, lambda rows: rows[:row] + rows[row:][1:])


def repeat(file: str, row: int = 0) -> Damage:
    """A row, line or entry that is there twice."""
    return _rows(file, lambda rows: [*rows[: row + 1], *rows[row:]])


def swap(file: str, row: int = 0, other: int = 1) -> Damage:
    """Two rows, lines or entries in each other's place."""

    def edit(rows: Rows) -> Rows:
        rows = [*rows]
        rows[row], rows[other] = rows[other], rows[row]
        return rows

    return _rows(file, edit)


def exchange(file: str, column: str, row: int = 0, other: int = 1) -> Damage:
    """The values of two rows or lines in each other's place."""

    def edit(rows: Rows) -> Rows:
        rows[row][column], rows[other][column] = rows[other][column], rows[row][column]
        return rows

    return _rows(file, edit)


def emptied(file: str) -> Damage:
    """No row, line or entry."""
    return _rows(file, lambda rows: rows[:0])


def _rows(file: str, edit: Callable[[Rows], Rows]) -> Damage:
    if file.endswith(".parquet"):

        def damage(folder: Path) -> None:
            path = _found(folder, file)
            written = pq.read_table(path)
            rows = edit(written.to_pylist())
            path.unlink()
            pq.write_table(pa.Table.from_pylist(rows, schema=written.schema), path)

        return damage
    return lines(file, edit) if file.endswith(".jsonl") else document(file, edit)


# JSON


def document(file: str, edit: Callable[[Any], Any]) -> Damage:
    """Change a JSON document, in place or by what `edit` returns."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        value = json.loads(path.read_bytes())
        changed = edit(value)
        value = value if changed is None else changed
        _write(path, json.dumps(value, indent=2, ensure_ascii=False).encode())

    return damage


def put(file: str, keys: str, new: Any) -> Damage:
    """Change a member of a JSON document; `keys` as in `trajectories.0.success`."""
    return document(file, lambda value: _put(value, keys.split("."), new))


def without(file: str, keys: str) -> Damage:
    """A member of a JSON document that is gone."""

    def edit(value: Any) -> None:
        *above, last = keys.split(".")
        inside = value
        for key in above:
            inside = inside[int(key) if key.isdigit() else key]
        inside.pop(int(last) if last.isdigit() else last)

    return document(file, edit)


def lines(file: str, edit: Callable[[Rows], Rows | None]) -> Damage:
    """Change the values of JSON Lines."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        values = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        changed = edit(values)
        values = values if changed is None else changed
        _write(path, "".join(json.dumps(v, ensure_ascii=False) + "\n" for v in values).encode())

    return damage


def line(file: str, keys: str, new: Any, row: Any = 0) -> Damage:
    """Change a member of a line of JSON Lines."""
    return lines(file, lambda values: _put(values[_at(values, row)], keys.split("."), new))


# Files


def remove(file: str) -> Damage:
    """A file that is gone."""
    return lambda folder: _found(folder, file).unlink()


def add(file: str, data: bytes = b"left over") -> Damage:
    """A file too many."""
    return lambda folder: _write(folder / file, data)


def cut(file: str, share: float = 0.5) -> Damage:
    """The first part of a file."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        data = path.read_bytes()
        _write(path, data[: int(len(data) * share)])

    return damage


def appended(file: str, data: bytes) -> Damage:
    """A file with more at its end."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        _write(path, path.read_bytes() + data)

    return damage


def replaced_by(file: str, data: bytes) -> Damage:
    """A file with another content."""
    return lambda folder: _write(_found(folder, file), data)


def replaced(file: str, old: str, new: str) -> Damage:
    """A text file with other words."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        text = path.read_text("utf-8")
        assert old in text
        _write(path, text.replace(old, new, 1).encode())

    return damage


def exchange_files(file: str, other: str) -> Damage:
    """Two files under each other's name."""

    def damage(folder: Path) -> None:
        one, two = _found(folder, file), _found(folder, other)
        assert one.is_dir() or one.read_bytes() != two.read_bytes()
        spare = folder / "spare"
        for source, target in ((one, spare), (two, one), (spare, two)):
            os.replace(source, target)  # noqa: PTH105 - also for links to folders

    return damage


def black(file: str) -> Damage:
    """A picture of the same size and kind, all black."""
    return repainted(file, np.zeros_like)


def spot(file: str) -> Damage:
    """A picture with a grey spot."""

    def paint(pixels: Any) -> Any:
        pixels[:20, :20] = 127
        return pixels

    return repainted(file, paint)


def smaller(file: str) -> Damage:
    """A picture of half the size."""
    return repainted(file, lambda pixels: pixels[::2, ::2])


def as_png(file: str) -> Damage:
    """A picture of another kind."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        pixels = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        _write(path, cv2.imencode(".png", pixels)[1].tobytes())

    return damage


def repainted(file: str, paint: Callable[[Any], Any]) -> Damage:
    """A picture with other pixels; `paint` gets and returns (height, width, 3)."""

    def damage(folder: Path) -> None:
        path = _found(folder, file)
        pixels = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        _, data = cv2.imencode(path.suffix, np.ascontiguousarray(paint(pixels)))
        _write(path, data.tobytes())

    return damage
