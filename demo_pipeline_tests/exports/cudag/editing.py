"""Reads CUDAG datasets on disk, and changes single values in them."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from demo_pipeline.exports.cudag.validator import validate_cudag

Change = Callable[[Any], Any]
NAME = "calendar--mike--20251203_123456"  # folder name of a dataset


def read_records(path: Path) -> Iterator[Any]:
    """Yields the records of a JSON Lines file, with keys as attributes and lists as tuples."""
    with path.open("rb") as lines:
        yield from (json.loads(line, object_hook=_record) for line in lines)


def read_tests(path: Path) -> Any:
    """Returns the entries of test.json, with keys as attributes and lists as tuples."""
    return json.loads(path.read_text("utf-8"), object_hook=_record)


def _record(value: dict[str, Any]) -> Any:
    if "action" in value:  # the arguments of a call stay a dict, because they differ by action
        return value
    lists = {key: tuple(items) for key, items in value.items() if isinstance(items, list)}
    return SimpleNamespace(**(value | lists))


def copied(source: Path, target: Path) -> Path:
    """Copies a dataset; images become hard links.

    To replace an image, delete its file first, so that the original stays unchanged.
    """

    def place(old: str, new: str) -> None:
        if old.endswith((".png", ".jpg")):
            os.link(old, new)
        else:
            shutil.copy2(old, new)

    return Path(shutil.copytree(source, target, copy_function=place))


def edit_line(root: Path, file: str, number: int, change: Change) -> None:
    """Changes the record in a line of a file.

    `change` either modifies the record and returns None, or returns a new record.
    """
    path = root / file
    lines = path.read_text(encoding="utf-8").splitlines()
    record = json.loads(lines[number - 1])
    lines[number - 1] = json.dumps(change(record) or record)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def edit_test(root: Path, number: int, change: Change) -> None:
    """Changes an entry of test.json, and writes the file with one entry per line.

    `number` counts from 1. For `change`, see `edit_line`.
    """
    path = root / "test" / "test.json"
    entries = json.loads(path.read_text(encoding="utf-8"))
    entries[number - 1] = change(entries[number - 1]) or entries[number - 1]
    text = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    path.write_text(f"[\n{text}\n]\n", encoding="utf-8")


def edit_json(root: Path, file: str, change: Change) -> None:
    """Changes the value of a JSON file; for `change`, see `edit_line`."""
    path = root / file
    value = json.loads(path.read_text(encoding="utf-8"))
    text = json.dumps(change(value) or value, ensure_ascii=False, indent=2)
    path.write_text(text, encoding="utf-8")


def put(*keys: str | int, value: Any) -> Change:
    """Returns a change that sets a value deep inside a record."""

    def change(record: Any) -> None:
        target = record
        for key in keys[:-1]:
            target = target[key]
        target[keys[-1]] = value

    return change


def drop(*keys: str | int) -> Change:
    """Returns a change that removes a key or an item."""

    def change(record: Any) -> None:
        target = record
        for key in keys[:-1]:
            target = target[key]
        del target[keys[-1]]

    return change


def problem_lines(root: Path) -> list[str]:
    """Returns all problems as `location: message`."""
    return [f"{p.location}: {p.message}" for p in validate_cudag(root)]
