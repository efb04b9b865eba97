"""JSON text of any depth, without recursion: an encoder, a decoder, and maps of lines and columns.

Belongs here: the JSON grammar (RFC 8259). json_files.py uses the encoder and decoder when `json`
reaches the interpreter's recursion limit: each level of a UI tree is two levels of JSON.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

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
