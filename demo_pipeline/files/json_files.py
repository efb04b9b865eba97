"""Reads and writes JSON files and JSON text.

Errors name file and line. Equal values become equal bytes. For UI trees that are nested more deeply
than `json` allows, a slower decoder or encoder in plain Python is used with a higher recursion
limit. This is safe, because calls in plain Python do not use the C stack.
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

MAX_LOCATED_DEPTH = 8  # levels of JSON; `places_in` does not locate deeper values
_ITEMS_AT_ONCE = 256  # items of a very long list or object that are encoded together
# Recursion limit for deep documents. A level of JSON takes two calls of about 1 kB each. No real UI
# tree reaches the limit.
_MOST_CALLS = 200_000
_TOKEN = re.compile(
    r'[ \t\n\r]*(?:([{}\[\],:])|("[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")|([-+.\w]+))'
)
_recursion_lock = threading.RLock()


class JsonFileError(ValueError):
    """Raised if a file cannot be read as JSON.

    Attributes:
        line: the number of the line, from 1; None if unknown.
        message: the reason; never quotes the content.
        column: the character in the line, from 1; None unless the text is a single line.
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
    """Raises the recursion limit of Python inside the `with` block.

    The default of `limit` is safe only for recursion in plain Python. Calls through C code would
    overflow the C stack at this depth.
    """
    with _recursion_lock:
        usual_limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual_limit, limit))
        try:
            yield
        finally:
            sys.setrecursionlimit(usual_limit)


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
    """Returns the value of a JSON text of any depth. If a key occurs twice, the last one counts.

    Raises:
        json.JSONDecodeError: the text is not valid JSON, or a number is not finite.
        RecursionError: the text is nested more deeply than `_MOST_CALLS` allows.
    """
    try:
        with deeper_calls():
            return _DEEP_DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number is wrong; find its position
        for position, lexeme in _lexemes(text):
            try:
                if lexeme[0] not in '{}[],:"':
                    _DECODER.decode(lexeme)
            except ValueError:
                raise json.JSONDecodeError(str(error), text, position) from None
        raise


def encode(value: Any, *, indent: int | None) -> str:
    """Returns a value of any depth as JSON text.

    Args:
        indent: spaces per level. If it is None, the text is a single line without spaces.
    """
    pieces: list[str] = []
    colon = ": "
    first_line = "\n"
    if indent is None:
        colon = ":"
        first_line = ""

    def write(item: Any, line: str) -> None:
        """Adds the JSON text of a value to `pieces`.

        Args:
            line: the line break and the indent before the value's closing bracket.
        """
        if isinstance(item, BaseModel | Mapping):
            item = _expand(item)
        if not (isinstance(item, dict | list | tuple) and item):
            pieces.append(json.dumps(item, ensure_ascii=False, allow_nan=False))
            return
        inner_line = f"{line}{' ' * (indent or 0)}"
        if isinstance(item, dict):
            separator = f"{{{inner_line}"
            for key, member in item.items():
                pieces.append(f"{separator}{json.dumps(key, ensure_ascii=False)}{colon}")
                write(member, inner_line)
                separator = f",{inner_line}"
            pieces.append(f"{line}}}")
        else:
            separator = f"[{inner_line}"
            for member in item:
                pieces.append(separator)
                write(member, inner_line)
                separator = f",{inner_line}"
            pieces.append(f"{line}]")

    with deeper_calls():
        write(value, first_line)
    return "".join(pieces)


def _lexemes(text: str) -> Iterator[tuple[int, str]]:
    """Yields the offset and the text of every bracket, comma, colon, string and other scalar."""
    for match in _TOKEN.finditer(text):
        lexeme = match[match.lastindex or 0]
        yield match.end() - len(lexeme), lexeme


def places_in(text: str) -> Callable[[Location], tuple[int | None, int | None]]:
    """Returns a function that converts the location of a JSON value to its line and column.

    Lines and columns count from 1. Columns are None unless the whole text is a single line. Both
    are None if the text is empty. A member of an object has the position of its key; if a key
    occurs twice, the last one counts. A location that does not exist, or is deeper than
    `MAX_LOCATED_DEPTH`, has the position of the innermost known value around it.
    """
    places: dict[Location, tuple[int | None, int | None]] = {}
    is_on_one_line = "\n" not in text.strip()
    line = 1
    last_offset = 0
    for location, offset in _offsets(text):
        line += text.count("\n", last_offset, offset)
        last_offset = offset
        column = None
        if is_on_one_line:
            column = offset - text.rfind("\n", 0, offset)
        places[location] = (line, column)

    def place_of(location: Location) -> tuple[int | None, int | None]:
        for end in range(len(location), -1, -1):
            if location[:end] in places:
                return places[location[:end]]
        return None, None

    return place_of


def _offsets(text: str) -> Iterator[tuple[Location, int]]:
    """Yields the location and the offset of each value, in the order of the text."""
    path: list[Any] = []  # the location of the next value; ends with None if a key comes next
    for position, lexeme in _lexemes(text):
        if lexeme in "}]":
            path.pop()
        elif lexeme == ",":
            if isinstance(path[-1], int):
                path[-1] += 1
            else:
                path[-1] = None
        elif lexeme != ":":
            is_key = bool(path) and path[-1] is None
            if is_key:
                path[-1] = json.loads(lexeme)
            # The location of a member of an object was yielded with its key.
            is_member = bool(path) and isinstance(path[-1], str)
            if len(path) <= MAX_LOCATED_DEPTH and (is_key or not is_member):
                yield tuple(path), position
            if lexeme == "{":
                path.append(None)
            elif lexeme == "[":
                path.append(0)


def decode_text(data: bytes, file: str) -> str:
    """Returns the UTF-8 text of a file, without a byte order mark. Raises `JsonFileError`."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise JsonFileError(file, line, "not UTF-8 text") from None


def parse_json(data: bytes | str, file: str, *, any_depth: bool = True) -> Any:
    """Returns the value of a JSON document. If a key occurs twice, the last one counts.

    Args:
        data: the document; a byte order mark is ignored.
        any_depth: pass False for untrusted answers of servers, which could be millions of brackets.
            A document deeper than the usual recursion limit is then rejected.

    Raises:
        JsonFileError: the document is not UTF-8, not JSON, too deep, or has a number that is not
            finite.
    """
    if isinstance(data, bytes):
        text = decode_text(data, file)
    else:
        text = data.removeprefix("\ufeff")
    try:
        try:
            return _DECODER.decode(text)
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError) and not any_depth:
                raise
            # The slower decoder reads deep documents, and finds the position of an invalid number.
            return decode(text)
    except RecursionError:
        raise JsonFileError(file, None, "nested too deeply") from None
    except json.JSONDecodeError as error:
        column = None if "\n" in text.strip() else error.colno
        message = f"not valid JSON: {error.msg}"
        raise JsonFileError(file, error.lineno, message, column) from None


def load_json(path: Path, file: str | None = None) -> Any:
    """Returns the value of a JSON file.

    Args:
        file: the name of the file in errors; by default the last part of `path`.

    Raises:
        JsonFileError: the file cannot be read, or is not JSON.
    """
    name = path.name if file is None else file
    return parse_json(read_bytes(path, name), name)


def read_bytes(path: Path, file: str) -> bytes:
    """Returns the bytes of a file. Raises `JsonFileError` if it is missing or cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise_system_trouble(error)
        raise JsonFileError(file, None, f"cannot be read: {error.strerror}") from None


def json_bytes(value: BaseModel | JSON, *, compact: bool = False) -> bytes:
    r"""Returns a value as JSON in UTF-8 with a final newline.

    Keys keep their order; the keys of models are in the order of declaration. A lone surrogate is
    written as an escape such as `\ud800`.

    Args:
        compact: writes a single line instead of indenting each level by two spaces.

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
    # `backslashreplace` writes a surrogate as \udXXX, which JSON reads as the same surrogate.
    return text.encode("utf-8", "backslashreplace") + b"\n"


def dump_json(path: Path, value: BaseModel | JSON, *, compact: bool = False) -> None:
    """Writes a value to a JSON file, formatted by `json_bytes`; creates the folder if necessary."""
    data = json_bytes(value, compact=compact)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def dump_long_json(path: Path, value: Mapping[str, JSON], name: str, items: Iterable[Any]) -> None:
    """Writes a JSON object to a file without holding its longest member in memory.

    The bytes are those that `dump_json` would write.

    Args:
        value: the object to write, with an empty list or object in place of the longest member.
        name: the key of the longest member.
        items: the items of the longest member; pairs of key and value if it is an object.
    """
    is_list = value[name] == []
    brackets = b"[]" if is_list else b"{}"
    member = f"\n  {json.dumps(name)}: ".encode()
    head, _, tail = json_bytes(value).partition(member + brackets)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head + member + brackets[:1])
        separator = b""
        end = b""
        unwritten = iter(items)
        # Many items are encoded per call, because each call of the indenting encoder leaves a
        # reference cycle.
        while group := list(islice(unwritten, _ITEMS_AT_ONCE)):
            lines = json_bytes(group if is_list else dict(group)).splitlines()[1:-1]
            file.write(separator + b"".join(b"\n  " + line for line in lines))
            separator = b","
            end = b"\n  "
        file.write(end + brackets[1:] + tail)


def _expand(value: Any) -> Any:
    """Converts a model or mapping, which `json` cannot encode, to a dict."""
    if hasattr(value, "members"):  # a `Document`; nested models are converted by later calls
        return value.members()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")
