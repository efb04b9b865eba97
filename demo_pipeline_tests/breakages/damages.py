"""Defines small damages to the files of any output: values, rows, images and whole files.

Each damage is applied to a copy of the output. The files of the copy are hard links, so a damage
replaces files instead of changing them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Damage = Callable[[Path], None]
Keys = tuple[str | int, ...]
_PICTURES = {".png", ".jpg"}


def damages_of(folder: Path) -> Mapping[str, Damage]:
    """Returns name → damage for an output.

    Each value is changed in the first file of each kind. One more damage adds a file that does not
    belong to the output.
    """
    damages: dict[str, Damage] = {"notes.txt: too many": _write_damage("notes.txt", b"left over")}
    for file in _first_of_each_name(folder):
        for what, damage in _of_file(folder, file):
            damages[f"{file}: {what}"] = damage
    return damages


def _first_of_each_name(folder: Path) -> list[str]:
    """Returns the first file of each kind. Names of a kind differ only in digits and hashes."""
    files: dict[str, str] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        pattern = re.sub(r"[0-9a-f]{64}|\d+", "0", path.name)
        files.setdefault(pattern, str(path.relative_to(folder)))
    return list(files.values())


def _of_file(folder: Path, file: str) -> Iterator[tuple[str, Damage]]:
    path = folder / file
    data = path.read_bytes()
    yield "gone", lambda copy: (copy / file).unlink()
    yield "cut off", _write_damage(file, data[: len(data) // 2])
    if path.suffix in _PICTURES:
        yield "black", _write_damage(file, _repainted(data, path.suffix, np.zeros_like))
        half = _repainted(data, path.suffix, lambda pixels: pixels[::2, ::2])
        yield "half the size", _write_damage(file, half)
        for other in sorted(path.parent.rglob(f"*{path.suffix}")):
            if other.is_file() and other.read_bytes() != data:
                yield "another picture", _write_damage(file, other.read_bytes())
                break
    elif path.suffix == ".parquet":
        yield from _of_table(file, pq.read_table(path))
    elif path.suffix == ".jsonl":
        lines = [json.loads(line) for line in data.splitlines()]
        yield from _of_rows(lines, lambda new: _write_damage(file, _as_lines(new)))
    elif path.suffix == ".json":
        document = json.loads(data)
        for keys in _leaves(document):
            yield f"another {_dotted(keys)}", _write_damage(file, _as_json(_with(document, keys)))


def _of_table(file: str, table: pa.Table) -> Iterator[tuple[str, Damage]]:
    def written(changed: pa.Table) -> Damage:
        def damage(copy: Path) -> None:
            (copy / file).unlink()
            pq.write_table(changed, copy / file)

        return damage

    for name in table.column_names[:1]:
        yield f"no {name}", written(table.drop_columns([name]))
        place = table.column_names.index(name)
        texts = pa.array([f"{value}" for value in table[name].to_pylist()], pa.large_string())
        yield f"{name} of another type", written(table.set_column(place, name, texts))
    yield from _of_rows(
        table.to_pylist(), lambda rows: written(pa.Table.from_pylist(rows, schema=table.schema))
    )


def _of_rows(
    rows: Sequence[Any], damage: Callable[[Sequence[Any]], Damage]
) -> Iterator[tuple[str, Damage]]:
    """Yields damages to rows or lines: a row is missing, repeated, swapped or changed."""
    if not rows:
        return
    yield "one less", damage(rows[1:])
    yield "one twice", damage([rows[0], *rows])
    if len(rows) > 1 and rows[0] != rows[1]:
        yield "exchanged", damage([rows[1], rows[0], *rows[2:]])
    done: set[str] = set()
    for number, row in enumerate(rows):
        for keys in _leaves(row):
            name = _dotted(keys)
            if name not in done:
                done.add(name)
                changed = [*rows[:number], _with(row, keys), *rows[number + 1 :]]
                yield f"another {name}", damage(changed)


def _leaves(value: Any, above: Keys = ()) -> Iterator[Keys]:
    """Yields the keys that lead to each value in nested JSON.

    Only the first item of a list of lists or objects is visited. Null and empty lists are left out.
    """
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from _leaves(inside, (*above, key))
    elif isinstance(value, list) and value and isinstance(value[0], list | dict):
        yield from _leaves(value[0], (*above, 0))
    elif value not in (None, []) and above:
        yield above


def _dotted(keys: Keys) -> str:
    return ".".join(key for key in keys if isinstance(key, str))


def _with(value: Any, keys: Keys) -> Any:
    """Returns a copy of nested JSON in which the value at the keys is different."""
    if not keys:
        return _other(value)
    copy: Any = {**value} if isinstance(value, dict) else [*value]
    copy[keys[0]] = _with(value[keys[0]], keys[1:])
    return copy


def _other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value} rotten"
        case bytes():
            return value[: len(value) // 2]
        case datetime():
            return value + timedelta(seconds=1)
        case list():
            return value[1:]
        case _:
            raise TypeError(type(value))


def _repainted(data: bytes, suffix: str, paint: Callable[[Any], Any]) -> bytes:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    return cv2.imencode(suffix, np.ascontiguousarray(paint(pixels)))[1].tobytes()


def _as_json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def _as_lines(values: Sequence[Any]) -> bytes:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values).encode()


def _write_damage(file: str, data: bytes) -> Damage:
    def damage(copy: Path) -> None:
        (copy / file).unlink(missing_ok=True)
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        (copy / file).write_bytes(data)

    return damage
