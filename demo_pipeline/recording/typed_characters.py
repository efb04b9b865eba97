"""The forms in which recorders log the character that a key typed (`actual_char`).

Belongs here: reading one value. Newer recorders log the character, an empty string, or the debug
print of the `UnicodeInfo` of Rust's rdev crate, escaped as Rust escapes strings. What a key means
is in actions/keyboard.py.
"""

import json
import re
import unicodedata
from dataclasses import dataclass
from typing import Any

MAX_CODE_POINTS = 4  # of one key: a base letter with its marks; longer values are no character
_ACCENTS = frozenset("'\"^~`")  # ASCII accents of dead keys; the next key types both characters
# Control characters, lone surrogates, private use, unassigned, line and paragraph separators.
_NO_TEXT = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
_REPLACEMENT = "\ufffd"  # what decoders write for bytes that they could not read
_DEBUG_PRINT = re.compile(
    r"""\s* (?: Some \s* \( \s* )?
    UnicodeInfo \s* \{ \s*
        name \s* : \s* (?: None | Some \s* \( \s* "(?P<name> (?: [^"\\] | \\. )* )" \s* ,? \s* \) )
        \s* , \s*
        unicode \s* : \s* \[ (?P<unicode> [\d\s,]* ) \] \s* , \s*
        is_dead \s* : \s* (?P<dead> true | false ) \s* ,? \s*
    \} \s* ,? \s* \)? \s*""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_RUST_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f_]{1,8})\}|x([0-7][0-9A-Fa-f])|(.))", re.DOTALL)
_RUST_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class TypedCharacter:
    """What a recorder says that a key typed.

    Attributes:
        text: the character, composed where several code points are one; empty: none is known.
        dead: the key is a dead key, which types nothing until the next key.
        unreadable: the logged value is in no known form. It counts as absent.
    """

    text: str = ""
    dead: bool = False
    unreadable: bool = False


_NOTHING = TypedCharacter()
_DEAD = TypedCharacter(dead=True)
_UNREADABLE = TypedCharacter(unreadable=True)


def read_typed_character(logged: str | None) -> TypedCharacter:
    """The character that `actual_char` logs; never any other part of the value."""
    if not logged or logged.strip() == "None":
        return _NOTHING
    match = _DEBUG_PRINT.fullmatch(logged)
    if match is not None:
        return _of_debug_print(match)
    if logged.lstrip().startswith("{"):
        fields = _json_object(logged)
        if fields is not None:
            return _of_fields(fields)
    if len(logged) > 1 and not _is_one_key(logged):
        return _UNREADABLE
    return _of_text(logged)


def _of_debug_print(match: re.Match[str]) -> TypedCharacter:
    name = match["name"]
    try:
        units = [int(unit) for unit in match["unicode"].split(",") if unit.strip()]
        text = None if name is None else _RUST_ESCAPE.sub(_unescaped, name)
    except (ValueError, OverflowError):
        return _UNREADABLE
    return _of_parts(text, units, dead=match["dead"] == "true")


def _json_object(logged: str) -> dict[str, Any] | None:
    """The object that a recorder wrote instead of its print."""
    try:
        value = json.loads(logged)
    except (ValueError, RecursionError):
        return None
    is_info = isinstance(value, dict) and set(value) == {"name", "unicode", "is_dead"}
    return value if is_info else None


def _of_fields(fields: dict[str, Any]) -> TypedCharacter:
    name, units, dead = fields["name"], fields["unicode"], fields["is_dead"]
    integers = isinstance(units, list) and all(type(unit) is int for unit in units)
    if not isinstance(name, str | None) or not integers or not isinstance(dead, bool):
        return _UNREADABLE
    return _of_parts(name, units, dead=dead)


def _of_parts(name: str | None, units: list[int], *, dead: bool) -> TypedCharacter:
    """The character of the fields of a print; the two that name it must agree."""
    if dead:
        return _DEAD
    try:
        decoded = _decoded(units)
    except (ValueError, OverflowError):
        return _UNREADABLE
    if name and decoded and _composed(name) != _composed(decoded):
        return _UNREADABLE
    text = decoded or name or ""
    return _UNREADABLE if len(text) > MAX_CODE_POINTS else _of_text(text)


def _decoded(units: list[int]) -> str:
    """The text of UTF-16 units; code points above 0xFFFF are accepted as well."""
    data = b"".join(
        unit.to_bytes(2, "little") if 0 <= unit <= 0xFFFF else chr(unit).encode("utf-16-le")
        for unit in units
    )
    return data.decode("utf-16-le")


def _unescaped(match: re.Match[str]) -> str:
    code, byte, other = match.groups()
    if code or byte:
        return chr(int(code or byte, 16))
    if other not in _RUST_CONTROLS:
        raise ValueError("not an escape sequence of Rust")
    return _RUST_CONTROLS[other]


def _is_one_key(text: str) -> bool:
    """Whether one key can have typed these code points; names of keys and words are longer."""
    if not text.isascii():
        return len(text) <= MAX_CODE_POINTS
    if all(unicodedata.category(char) == "Cc" for char in text):
        return True
    return len(text) == 2 and text[0] in _ACCENTS


def _of_text(text: str) -> TypedCharacter:
    if _REPLACEMENT in text or any("\ud800" <= char <= "\udfff" for char in text):
        return _UNREADABLE
    composed = _composed(text)
    return TypedCharacter(composed) if is_typed_text(composed) else _NOTHING


def is_typed_text(text: str) -> bool:
    """Whether every code point of a non-empty text shows as text; control characters do not."""
    return bool(text) and not any(unicodedata.category(char) in _NO_TEXT for char in text)


def _composed(text: str) -> str:
    """One code point stays as it is: NFC replaces a few by others that look the same."""
    return text if len(text) < 2 else unicodedata.normalize("NFC", text)
