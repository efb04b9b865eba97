"""JSON text of any depth, without recursion: an encoder, a decoder and a map of line numbers.

Belongs here: what `jsonfile` falls back on when `json` reaches the interpreter's recursion limit
(a window's tree nests two JSON levels for each of its own), and what says on which line a value
stands. Grammar only (RFC 8259); files and errors are `jsonfile`'s.
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

# What may come next: the kinds of lexeme allowed, each a mark, `"` (a string) or `0` (the rest).
_VALUE = '{["0'
_KEY, _FIRST_KEY = '"', '"}'
_AFTER_ITEM, _AFTER_MEMBER = ",]", ",}"
_FIRST = {"{": _FIRST_KEY, "[": _VALUE + "]"}
_EMPTY: dict[str, Callable[[], Any]] = {"{": dict, "[": list}


def lexemes(text: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, lexeme) for every bracket, mark, string and other scalar.

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
    """The value of a JSON text; the same as `json.loads`, at any depth.

    Args:
        text: one JSON document.
        scalar: turns a string, number or literal into its value; a `ValueError` rejects it.

    Raises:
        json.JSONDecodeError: the text is no JSON; it carries the position.
    """
    opened: list[Any] = []
    root: Any = None
    key = ""
    allowed = _VALUE
    for position, lexeme in lexemes(text):
        kind = lexeme if lexeme in "{}[],:" else '"' if lexeme[0] == '"' else "0"
        if kind not in allowed:
            raise json.JSONDecodeError("Unexpected lexeme", text, position)
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
        value: objects with text keys, lists, tuples, scalars, and whatever `expand` knows.
        expand: turns a value that is no JSON into one level of JSON; others come back as they are.
        indent: spaces a level, or None for one line without spaces.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value is no JSON.
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
    """Yield (what stands before the member, member)."""
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


def line_numbers(text: str) -> dict[Location, int]:
    """The 1-based line of each value (of its key, in an object), by its location.

    `text` is valid JSON; of two equal keys the last counts, as it does for the value. Values deeper
    than `MAX_LOCATED_DEPTH` are left out.
    """
    lines: dict[Location, int] = {}
    path: list[Any] = []  # of the value that comes next; None where a key comes first
    line, seen = 1, 0
    for position, lexeme in lexemes(text):
        line += text.count("\n", seen, position)
        seen = position
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
                lines[tuple(path)] = line
            if lexeme in "{[":
                path.append(None if lexeme == "{" else 0)
    return lines
