"""Reading and writing JSON: files, and text of any depth.

Belongs here: errors that name file and line, and writing that gives the same bytes for the same
value. Where `json` reaches the interpreter's recursion limit (each level of a UI tree is two levels
of JSON), an encoder and a decoder without recursion are used (RFC 8259). What the values mean is
defined by the formats.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from pydantic import BaseModel

from demo_pipeline.files.system_errors import raise_system_trouble

Location = tuple[str | int, ...]

MAX_LOCATED_DEPTH = 8

_TOKEN = re.compile(
    r'[ \t\n\r]*(?:([{}\[\],:])|("[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*")|([-+.\w]+))'
)
_BLANK = re.compile(r"[ \t\n\r]*")

# The kinds of lexeme that may come next: punctuation, `"` (a string) or `0` (any other scalar).
_VALUE = '{["0'
_KEY, _FIRST_KEY = '"', '"}'
_AFTER_ITEM, _AFTER_MEMBER = ",]", ",}"
_FIRST = {"{": _FIRST_KEY, "[": _VALUE + "]"}
_EMPTY: dict[str, Callable[[], Any]] = {"{": dict, "[": list}


def lexemes(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, lexeme) for every bracket, comma, colon, string and other scalar.

    Raises:
        json.JSONDecodeError: at the first character that begins no lexeme.
    """
    position = 0
    end = len(text)
    while match := _TOKEN.match(text, position):
        lexeme = match[match.lastindex or 0]
        position = match.end()
        yield position - len(lexeme), lexeme
    blank = _BLANK.match(text, position)
    position = blank.end() if blank else position
    if position != end:
        raise json.JSONDecodeError("Expecting value", text, position)


def decode(text: str, scalar: Callable[[str], Any] = json.loads) -> Any:
    """The value of a JSON text, as `json.loads` returns it, at any depth.

    Args:
        text: one JSON document.
        scalar: turns a string, number or literal into its value; a `ValueError` rejects it.

    Raises:
        json.JSONDecodeError: the text is not valid JSON; the error has the position.
    """
    opened: list[Any] = []
    root: Any = None
    key = ""
    allowed = _VALUE
    for position, lexeme in lexemes(text):
        kind = lexeme if lexeme in "{}[],:" else '"' if lexeme[0] == '"' else "0"
        if kind not in allowed:
            raise json.JSONDecodeError("Unexpected token", text, position)
        if kind == ":":
            allowed = _VALUE
        elif kind == ",":
            allowed = _KEY if isinstance(opened[-1], dict) else _VALUE
        elif kind in "}]":
            opened.pop()
            allowed = _after(opened)
        elif allowed in (_KEY, _FIRST_KEY):
            key = _scalar(lexeme, position, text, scalar)
            allowed = ":"
        else:
            opening = kind in "{["
            value = _EMPTY[kind]() if opening else _scalar(lexeme, position, text, scalar)
            if opened:
                _attach(opened[-1], key, value)
            else:
                root = value
            if opening:
                opened.append(value)
            allowed = _FIRST[kind] if opening else _after(opened)
    if allowed:
        raise json.JSONDecodeError("Unexpected end", text, len(text))
    return root


def _after(opened: list[Any]) -> str:
    if not opened:
        return ""
    return _AFTER_MEMBER if isinstance(opened[-1], dict) else _AFTER_ITEM


def _attach(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    else:
        container.append(value)


def _scalar(lexeme: str, position: int, text: str, scalar: Callable[[str], Any]) -> Any:
    try:
        return scalar(lexeme)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(error.msg, text, position) from None
    except ValueError as error:
        raise json.JSONDecodeError(str(error), text, position) from None


def encode(value: Any, expand: Callable[[Any], Any], *, indent: int | None) -> str:
    """The JSON text of a value, laid out as `json.dumps` does, at any depth.

    Args:
        value: objects with text keys, lists, tuples, scalars, and all that `expand` accepts.
        expand: turns one level of a value into JSON types; returns JSON values as they are.
        indent: spaces per level; None: one line without spaces.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value has no JSON form.
    """
    pieces: list[str] = []
    stack: list[tuple[Iterator[tuple[str, Any]], str]] = [(iter([("", value)]), "")]
    while stack:
        entry = next(stack[-1][0], None)
        if entry is None:
            pieces.append(stack.pop()[1])
            continue
        child = expand(entry[1])
        pieces.append(entry[0])
        if isinstance(child, dict | list | tuple) and child:
            opening, closing = "{}" if isinstance(child, dict) else "[]"
            pieces.append(opening)
            stack.append(
                (_members(child, len(stack), indent), _line(len(stack) - 1, indent) + closing)
            )
        else:
            pieces.append(json.dumps(child, ensure_ascii=False, allow_nan=False))
    return "".join(pieces)


def _line(depth: int, indent: int | None) -> str:
    return "" if indent is None else "\n" + " " * (indent * depth)


def _members(value: Any, depth: int, indent: int | None) -> Iterator[tuple[str, Any]]:
    """Yield (text before the member, member)."""
    before = _line(depth, indent)
    colon = ":" if indent is None else ": "
    if isinstance(value, dict):
        for key, member in value.items():
            yield before + json.dumps(key, ensure_ascii=False) + colon, member
            before = "," + _line(depth, indent)
    else:
        for member in value:
            yield before, member
            before = "," + _line(depth, indent)


def is_one_line(text: str) -> bool:
    """Whether a JSON text is on one line, so that the line does not say a place in it."""
    return "\n" not in text.strip()


def line_numbers(text: str) -> dict[Location, int]:
    """The 1-based line of each value, by its location; in an object, the line of its key.

    Args:
        text: valid JSON. Of two equal keys the last counts, as for the value. Values deeper than
            `MAX_LOCATED_DEPTH` are left out.
    """
    lines: dict[Location, int] = {}
    line, seen = 1, 0
    for location, offset in _offsets(text):
        line += text.count("\n", seen, offset)
        seen = offset
        lines[location] = line
    return lines


def column_numbers(text: str) -> dict[Location, int]:
    """The 1-based column of each value of a text that is on one line; empty for any other text.

    Args:
        text: as for `line_numbers`.
    """
    if not is_one_line(text):
        return {}
    start = text.rfind("\n", 0, len(text) - len(text.lstrip())) + 1
    return {location: offset - start + 1 for location, offset in _offsets(text)}


def _offsets(text: str) -> Iterator[tuple[Location, int]]:
    """Yield the location and the offset of each value, in the order of the text."""
    path: list[Any] = []  # of the next value; its last part is None while a key is expected
    for position, lexeme in lexemes(text):
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


def parse_json(data: bytes | str, file: str, *, any_depth: bool = True) -> Any:
    """The value of a JSON document; of two equal keys the last counts.

    Args:
        data: the whole file; a byte order mark is skipped.
        file: the name that errors contain.
        any_depth: False refuses what is nested deeper than Python's own limit, in a moment: what a
            stranger's server answers may be millions of brackets.

    Raises:
        JsonFileError: not UTF-8, not JSON, or a number that is not finite.
    """
    text = decode_text(data, file) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    try:
        try:
            return _DECODER.decode(text)
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError) and not any_depth:
                raise JsonFileError(file, None, "nested too deeply") from None
            # Neither error has a position. The slower decoder gives one, and has no depth limit.
            return decode(text, _DECODER.decode)
    except json.JSONDecodeError as error:
        column = error.colno if is_one_line(text) else None
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
        text = encode(value, _expand_or_keep, indent=indent)
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
