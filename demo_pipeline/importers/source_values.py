"""Reads values from files of other tools: JSON of unknown content, numbers, texts and times.

Each function has a defined result for values of another type, because the files are untrusted.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path, PureWindowsPath
from typing import Any

from demo_pipeline.files.json_files import JsonFileError, load_json

_YEAR_3000_MS = 32_503_680_000_000  # epoch milliseconds; later times are rejected
_LONGEST_NAME = 255  # maximum length of a file name in usual file systems, bytes
_LARGEST = 1e20  # larger numbers are rejected; the year 3000 is 3e19 in epoch nanoseconds


class UnreadableSourceError(Exception):
    """Raised if a recording of another tool cannot be imported.

    The message names the file and the reason.
    """


def json_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that contains an object.

    Raises:
        UnreadableSourceError: the file cannot be read, or contains no JSON object.
    """
    try:
        value = load_json(path)
    except JsonFileError as error:
        raise UnreadableSourceError(f"{path}: {error.message}") from None
    if not isinstance(value, dict):
        raise UnreadableSourceError(f"{path}: expected a JSON object")
    return value


def json_members(data: bytes) -> dict[str, Any] | None:
    """Parses a JSON object; returns None if the bytes are anything else."""
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_lines(
    path: Path, damaged: list[str], *, comment: bytes | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the objects of a JSON Lines file; skips lines that begin with `comment`.

    After the last line, one sentence about all lines without a JSON object is added to `damaged`.
    """
    unreadable = 0
    first = 0
    with path.open("rb") as stream:
        for line_number, line in enumerate(stream, 1):
            if not line.strip() or (comment is not None and line.startswith(comment)):
                continue
            if (value := json_members(line)) is not None:
                yield value
            else:
                unreadable = unreadable + 1
                first = first or line_number
    if unreadable:
        lines = "1 line is" if unreadable == 1 else f"{unreadable} lines are"
        damaged.append(f"{path.name}:{first}: {lines} not readable; the others were read")


def as_object(value: Any) -> dict[str, Any]:
    """Returns the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Returns the value if it is a JSON list, else an empty list."""
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """Returns a number as a float; None for other types, NaN, infinity and 1e20 or more."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not abs(value) < _LARGEST:
        return None
    return float(value)


def numbers(values: Iterable[Any]) -> list[float]:
    """Returns the values as floats, or an empty list if `number` rejects one of them."""
    finite = list[float]()
    for value in values:
        if (size := number(value)) is None:
            return []
        finite.append(size)
    return finite


def screen_size(width: Any, height: Any) -> tuple[int, int] | None:
    """Returns (width, height) in whole pixels; None unless both are numbers above 0."""
    sides = numbers((width, height))
    if not sides or min(sides) <= 0:
        return None
    return round(sides[0]), round(sides[1])


def moment(milliseconds: float, where: Path) -> datetime:
    """Converts epoch milliseconds to a time in UTC.

    Raises:
        UnreadableSourceError: the time is not in the years 1970 to 2999.
    """
    if not 0 <= milliseconds < _YEAR_3000_MS:
        raise UnreadableSourceError(f"{where}: the time of the recording is not in 1970 to 2999")
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def zoneless_time(value: Any, form: str) -> datetime | None:
    """Parses a time without a time zone, and returns it as UTC.

    Args:
        form: the format, as for `datetime.strptime`.

    Returns:
        The time; None if the value is not a text in this format.
    """
    try:
        return datetime.strptime(plain_text(value), form).replace(tzinfo=UTC)
    except ValueError:
        return None


def file_name(value: Any) -> str:
    """Returns the file name in a path of any operating system; empty if the name is invalid."""
    name = PureWindowsPath(plain_text(value)).name
    try:
        is_possible = "\0" not in name and len(name.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        is_possible = False
    if not is_possible:
        return ""
    return name


def plain_text(value: Any) -> str:
    """Returns a text without leading and trailing white space; empty if the value is not a text."""
    return value.strip() if isinstance(value, str) else ""
