"""Reading and writing JSON files.

Belongs here: errors that name file and line, and writing that gives the same bytes for the same
value. Not here: what the values mean; the modules in formats/ define that.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from pydantic import BaseModel

from demo_pipeline.common import deep_json
from demo_pipeline.common.system_errors import raise_system_trouble

_ITEMS_AT_ONCE = 256  # of a very long list or object
JSON = Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None


@runtime_checkable
class HasMembers(Protocol):
    """A model that is written as the members it names, one level, instead of a full dump."""

    def members(self) -> dict[str, Any]:
        """Key → value, in the order of the file."""


class JsonFileError(ValueError):
    """A file cannot be read as JSON.

    Attributes:
        file: the name given by the reader.
        line: 1-based line; None when unknown.
        message: what is wrong; it never quotes the content.
        column: 1-based character of a text that is on one line; None when unknown.
    """

    def __init__(
        self, file: str, line: int | None, message: str, column: int | None = None
    ) -> None:
        self.file, self.line, self.message, self.column = file, line, message, column
        place = ":".join(str(part) for part in (file, line, column) if part)
        super().__init__(f"{place}: {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.file, self.line, self.message, self.column))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("Number is too large")
    return number


def _constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_constant)


def decode_text(data: bytes, file: str) -> str:
    """UTF-8 text of a file's bytes, without a byte order mark.

    Raises:
        JsonFileError: the bytes are not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JsonFileError(file, line, "not UTF-8 text") from None


def parse_json(data: bytes | str, file: str) -> Any:
    """The value of a JSON document, of any depth; of two equal keys the last counts.

    Args:
        data: the whole file; a byte order mark is skipped.
        file: the name that errors contain.

    Raises:
        JsonFileError: not UTF-8, not JSON, or a number that is not finite.
    """
    text = decode_text(data, file) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    try:
        try:
            return _DECODER.decode(text)
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError):
            # Neither error has a position. The slower decoder gives one, and has no depth limit.
            return deep_json.decode(text, _DECODER.decode)
    except json.JSONDecodeError as error:
        column = error.colno if deep_json.is_one_line(text) else None
        message = f"not valid JSON: {error.msg}"
        raise JsonFileError(file, error.lineno, message, column) from None


def load_json(path: Path, file: str | None = None) -> Any:
    """The value of a JSON file; see `parse_json`.

    Args:
        path: the file.
        file: the name that errors contain; default: the last part of `path`.

    Raises:
        JsonFileError: the file cannot be read, or is not JSON.
    """
    name = path.name if file is None else file
    return parse_json(read_bytes(path, name), name)


def read_bytes(path: Path, file: str) -> bytes:
    """A file's bytes.

    Raises:
        JsonFileError: the file is missing or cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise_system_trouble(error)
        raise JsonFileError(file, None, f"cannot be read: {error.strerror}") from None


def json_bytes(value: BaseModel | JSON, *, compact: bool = False) -> bytes:
    """The bytes `dump_json` writes.

    UTF-8 with a final newline; keys in the order of declaration; indented by two spaces, or on one
    line if compact. A lone surrogate, which UTF-8 cannot encode, is written as its escape.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value has no JSON form.
    """
    indent = None if compact else 2
    separators = (",", ":") if compact else (",", ": ")
    try:
        text = json.dumps(
            value,
            default=_expand,
            ensure_ascii=False,
            allow_nan=False,
            indent=indent,
            separators=separators,
        )
    except RecursionError:
        text = deep_json.encode(value, _expand_or_keep, indent=indent)
    # `backslashreplace` writes a surrogate as \udXXX, which is also JSON's escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def dump_json(path: Path, value: BaseModel | JSON, *, compact: bool = False) -> None:
    """Write a value as a JSON file and make its folder; form and errors as of `json_bytes`."""
    data = json_bytes(value, compact=compact)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def dump_long_json(path: Path, value: Mapping[str, JSON], name: str, items: Iterable[Any]) -> None:
    """Write what `dump_json` writes when one member is very long, a few items of it in memory.

    Args:
        path: the file.
        value: the object; the long member is an empty list or object in it.
        name: of the long member.
        items: of the list; of an object pairs of key and value.
    """
    is_list = value[name] == []
    opening, closing = ("[", "]") if is_list else ("{", "}")
    empty = f"\n  {json.dumps(name)}: {opening}".encode()
    head, _, tail = json_bytes(value).partition(empty + closing.encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head + empty)
        parting, end = b"", b""
        rest = iter(items)
        # Not one by one: the indenting encoder leaves a cycle of closures each time.
        while some := list(islice(rest, _ITEMS_AT_ONCE)):
            lines = json_bytes(some if is_list else dict(some)).splitlines()[1:-1]
            file.write(parting + b"".join(b"\n  " + line for line in lines))
            parting, end = b",", b"\n  "
        file.write(end + closing.encode() + tail)


def _expand_or_keep(value: Any) -> Any:
    return _expand(value) if isinstance(value, BaseModel | Mapping) else value


def _expand(value: Any) -> Any:
    """One level of a value that `json` cannot encode."""
    if isinstance(value, HasMembers):
        return value.members()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")
