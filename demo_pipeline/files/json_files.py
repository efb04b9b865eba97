"""Reading and writing JSON: files, and text of any depth.

Belongs here: errors that name file and line, and writing that gives the same bytes for the same
value. Each level of a UI tree is two levels of JSON: where `json` reaches the interpreter's
recursion limit, slower code in plain Python, which needs no stack of the system, is used with a
higher one. What the values mean is defined by the formats.
"""

import json
import math
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel

from demo_pipeline.files.system_errors import raise_system_trouble

Location = tuple[str | int, ...]
JSON = Mapping[str, Any] | Sequence[Any] | str | int | float | bool | None

MAX_LOCATED_DEPTH = 8
_ITEMS_AT_ONCE = 256  # of a very long list or object
_MOST_CALLS = 200_000  # two a level, 1 kB each: nobody's tree has so many
_TOKEN = re.compile(
    r'[ \t\n\r]*(?:([{}\[\],:])|("[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")|([-+.\w]+))'
)
_one_at_a_time = threading.RLock()


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
        super().__init__(file, line, message, column)
        self.file = file
        self.line = line
        self.message = message
        self.column = column

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return f"{place}: {self.message}"


@contextmanager
def deeper_calls(limit: int = _MOST_CALLS) -> Iterator[None]:
    """Let functions call themselves this often at least; the default is for plain Python alone."""
    with _one_at_a_time:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, limit))
        try:
            yield
        finally:
            sys.setrecursionlimit(usual)


def _finite(text: str) -> float:
    if math.isfinite(number := float(text)):
        return number
    raise ValueError("Number is too large")


def _constant(_name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_constant)
_DEEP_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_constant)
_DEEP_DECODER.scan_once = py_make_scanner(_DEEP_DECODER)  # type: ignore[attr-defined]


def decode(text: str) -> Any:
    """The value of a JSON text at any depth; of two equal keys the last counts.

    Raises:
        json.JSONDecodeError: the text is not valid JSON, or a number is not finite; the error has
            the position.
        RecursionError: there are more levels than anybody's data have.
    """
    try:
        with deeper_calls():
            return _DEEP_DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # of a number, without its position
        for position, lexeme in _lexemes(text):
            try:
                if lexeme[0] not in '{}[],:"':
                    _DECODER.decode(lexeme)
            except ValueError:
                raise json.JSONDecodeError(str(error), text, position) from None
        raise


def encode(value: Any, *, indent: int | None) -> str:
    """The JSON text of a value, laid out as `json.dumps` does, at any depth; raises as that."""
    pieces: list[str] = []
    colon = ":" if indent is None else ": "

    def write(unexpanded: Any, line: str) -> None:
        item = unexpanded
        if isinstance(item, BaseModel | Mapping):
            item = _expand(item)
        if not (isinstance(item, dict | list | tuple) and item):
            pieces.append(json.dumps(item, ensure_ascii=False, allow_nan=False))
            return
        opening, closing = "{}" if isinstance(item, dict) else "[]"
        inner = f"{line}{' ' * (indent or 0)}"
        before = f"{opening}{inner}"
        for member in item:
            pieces.append(before)
            if isinstance(item, dict):
                pieces.append(f"{json.dumps(member, ensure_ascii=False)}{colon}")
            write(item[member] if isinstance(item, dict) else member, inner)
            before = f",{inner}"
        pieces.append(f"{line}{closing}")

    with deeper_calls():
        write(value, "" if indent is None else "\n")
    return "".join(pieces)


def _lexemes(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, lexeme) for every bracket, comma, colon, string and other scalar."""
    for match in _TOKEN.finditer(text):
        lexeme = match[match.lastindex or 0]
        yield match.end() - len(lexeme), lexeme


def places_in(text: str) -> Callable[[Location], tuple[int | None, int | None]]:
    """What tells the 1-based line and column of each value of valid JSON; in an object, of its key.

    Of two equal keys the last counts; a location that is not there, or is deeper than
    `MAX_LOCATED_DEPTH`, has the place of the nearest value around it. Without text nothing is
    known, and columns only when all of it is on one line.
    """
    places = dict[Location, tuple[int | None, int | None]]()
    in_one_line = "\n" not in text.strip()
    line = 1
    seen = 0
    for location, offset in _offsets(text):
        line += text.count("\n", seen, offset)
        seen = offset
        column = offset - text.rfind("\n", 0, offset) if in_one_line else None
        places[location] = line, column

    def place_of(location: Location) -> tuple[int | None, int | None]:
        around = (location[:end] for end in range(len(location), -1, -1))
        return next((places[one] for one in around if one in places), (None, None))

    return place_of


def _offsets(text: str) -> Iterator[tuple[Location, int]]:
    """Yield the location and the offset of each value, in the order of the text."""
    path: list[Any] = []  # of the next value; its last part is None while a key is expected
    for position, lexeme in _lexemes(text):
        if lexeme in "}]":
            path.pop()
        elif lexeme == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif lexeme != ":":
            is_key = bool(path) and path[-1] is None
            if is_key:
                path[-1] = json.loads(lexeme)
            if len(path) <= MAX_LOCATED_DEPTH and (
                is_key or not isinstance((path or [0])[-1], str)
            ):
                yield tuple(path), position
            if lexeme in "{[":
                path.append(None if lexeme == "{" else 0)


def decode_text(data: bytes, file: str) -> str:
    """UTF-8 text of a file's bytes, without a byte order mark; else raises `JsonFileError`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JsonFileError(file, line, "not UTF-8 text") from None


def parse_json(data: bytes | str, file: str, *, any_depth: bool = True) -> Any:
    """The value of a JSON document; of two equal keys the last counts, a byte order mark not.

    Without `any_depth`, what is nested deeper than Python's own limit is refused in a moment: what
    a stranger's server answers may be millions of brackets.

    Raises:
        JsonFileError: not UTF-8, not JSON, or a number that is not finite; it names `file`.
    """
    text = decode_text(data, file) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    try:
        try:
            return _DECODER.decode(text)
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError) and not any_depth:
                raise
            # Neither error has a position. The slower decoder gives one.
            return decode(text)
    except RecursionError:
        raise JsonFileError(file, None, "nested too deeply") from None
    except json.JSONDecodeError as error:
        column = None if "\n" in text.strip() else error.colno
        message = f"not valid JSON: {error.msg}"
        raise JsonFileError(file, error.lineno, message, column) from None


def load_json(path: Path, file: str | None = None) -> Any:
    """The value of a JSON file, which errors name `file`, else by the last part of `path`.

    Raises:
        JsonFileError: the file cannot be read, or is not JSON.
    """
    name = path.name if file is None else file
    return parse_json(read_bytes(path, name), name)


def read_bytes(path: Path, file: str) -> bytes:
    """A file's bytes. Raises `JsonFileError` when it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise_system_trouble(error)
        raise JsonFileError(file, None, f"cannot be read: {error.strerror}") from None


def json_bytes(value: BaseModel | JSON, *, compact: bool = False) -> bytes:
    """UTF-8 with a final newline; indented by two spaces, or on one line if compact.

    Keys are in the order of declaration. A lone surrogate is written as its escape.

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
        text = encode(value, indent=indent)
    # `backslashreplace` writes a surrogate as \udXXX, which is also JSON's escape.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def dump_json(path: Path, value: BaseModel | JSON, *, compact: bool = False) -> None:
    """Write a value as a JSON file and make its folder; form and errors as of `json_bytes`."""
    data = json_bytes(value, compact=compact)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def dump_long_json(path: Path, value: Mapping[str, JSON], name: str, items: Iterable[Any]) -> None:
    """Write what `dump_json` writes when one member, an empty list or object in `value`, is long.

    Its items, of an object pairs of key and value, are written a few at a time.
    """
    is_list = value[name] == []
    opening, closing = ("[", "]") if is_list else ("{", "}")
    empty = f"\n  {json.dumps(name)}: {opening}".encode()
    head, _, tail = json_bytes(value).partition(empty + closing.encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head + empty)
        parting = b""
        end = b""
        rest = iter(items)
        # Not one by one: the indenting encoder leaves a cycle of closures each time.
        while some := list(islice(rest, _ITEMS_AT_ONCE)):
            lines = json_bytes(some if is_list else dict(some)).splitlines()[1:-1]
            file.write(parting + b"".join(b"\n  " + line for line in lines))
            parting = b","
            end = b"\n  "
        file.write(end + closing.encode() + tail)


def _expand(value: Any) -> Any:
    """One level of a value that `json` cannot encode."""
    if hasattr(value, "members"):  # a model names one level itself, instead of a full dump
        return value.members()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")
