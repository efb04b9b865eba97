"""Tests of reading the typed character in every format in which recorders log it."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo_pipeline.recording.key_names import TypedCharacter, read_typed_character


def debug_print(name: str | None, units: list[int], *, dead: bool = False) -> str:
    """Returns the text that Rust's `{:?}` prints for a `UnicodeInfo`.

    `name` must already be escaped as Rust escapes strings.
    """
    printed_name = "None" if name is None else f'Some("{name}")'
    return f"UnicodeInfo {{ name: {printed_name}, unicode: {units}, is_dead: {str(dead).lower()} }}"


def rust_escaped(text: str) -> str:
    """Escapes a text as Rust's Debug does."""
    simple = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}
    escaped = ""
    for char in text:
        if char in simple:
            escaped += simple[char]
        elif char.isprintable():
            escaped += char
        else:
            escaped += f"\\u{{{ord(char):x}}}"
    return escaped


def utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le")
    return [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]


PRETTY = """Some(
    UnicodeInfo {
        name: Some(
            "c",
        ),
        unicode: [
            99,
        ],
        is_dead: false,
    },
)"""


@pytest.mark.parametrize(
    ("logged", "text"),
    [
        ("c", "c"),
        (" ", " "),
        ("é", "é"),
        ("e\u0301", "é"),
        ("👍", "👍"),
        ("'s", "'s"),
        ("\u00a0", "\u00a0"),
        (debug_print("c", [99]), "c"),
        (f"Some({debug_print('c', [99])})", "c"),
        (PRETTY, "c"),
        (debug_print('\\"', [34]), '"'),
        (debug_print("\\\\", [92]), "\\"),
        (debug_print("'", [39]), "'"),
        (debug_print("{", [123]), "{"),
        (debug_print(None, [233]), "é"),
        (debug_print("ñ", []), "ñ"),
        (debug_print("e\\u{301}", [101, 769]), "é"),
        (debug_print("👍", [0xD83D, 0xDC4D]), "👍"),
        (debug_print("👍", [0x1F44D]), "👍"),
        ('{"name": "c", "unicode": [99], "is_dead": false}', "c"),
    ],
)
def test_every_form_of_a_character_is_read(logged, text):
    assert read_typed_character(logged) == TypedCharacter(text)


@pytest.mark.parametrize(
    "logged",
    [
        None,
        "",
        "None",
        "\r",
        "\r\n",
        "\x1b",
        "\uf700",
        debug_print(None, []),
        debug_print("\\r", [13]),
        debug_print("\\u{3}", [3]),
        debug_print("\\u{8}", [8]),
        debug_print("\\0", [0]),
        debug_print("\\u{f700}", [0xF700]),
    ],
)
def test_no_character_and_control_characters_are_no_text(logged):
    assert read_typed_character(logged) == TypedCharacter()


@pytest.mark.parametrize("name", [None, "\u00b4", "^", "\\u{301}"])
def test_a_dead_key_types_nothing(name):
    logged = debug_print(name, [180], dead=True)
    assert read_typed_character(logged) == TypedCharacter(dead=True)


@pytest.mark.parametrize(
    "logged",
    [
        debug_print("c", [99])[:-1],
        debug_print("c", [99]) + " }",
        debug_print("c", [99]).replace("UnicodeInfo", "KeyInfo"),
        debug_print("a", [99]),
        debug_print("\\q", [99]),
        debug_print("\\u{110000}", []),
        debug_print("\\u{ffffffff}", []),
        debug_print("c", [99] * 9),
        debug_print(None, [2**40]),
        debug_print(None, [0x110000]),
        debug_print(None, [99]).replace("99", "9" * 5000),
        debug_print("a word", []),
        "Unicode",
        "Tab",
        "Up",
        "F1",
        "hello",
        "ab",
        "é" * 5,
        "\ufffd",
        "[99]",
        '{"name": 5, "unicode": [99], "is_dead": false}',
        '{"name": "c", "unicode": ["c"], "is_dead": false}',
        '{"name": "c"}',
    ],
)
def test_an_unreadable_character_counts_as_absent(logged):
    assert read_typed_character(logged) == TypedCharacter(unreadable=True)


@given(st.text(min_size=1, max_size=4))
def test_the_three_formats_of_a_typed_text_agree(text):
    printed = read_typed_character(debug_print(rust_escaped(text), utf16(text)))
    info = {"name": text, "unicode": utf16(text), "is_dead": False}
    assert read_typed_character(json.dumps(info)) == printed
    composed = unicodedata.normalize("NFC", text)  # keyboards type composed characters
    assert printed.text in {"", text, composed} or len(printed.text) < len(text)
    if len(text) == 1:
        assert read_typed_character(text) == printed


@given(st.text(max_size=60) | st.text('UnicodeInfo{}name:Some()"\\u,[]09 is_dead', max_size=60))
def test_the_syntax_of_a_debug_print_is_never_typed_text(logged):
    assert "U" not in read_typed_character("UnicodeInfo {" + logged).text
