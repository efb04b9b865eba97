"""Tests, with a Markdown parser, that readers see texts of recordings as plain text."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from demo_pipeline.files.shown_text import (
    counted,
    markdown_table,
    markdown_text,
    plain_characters,
    plain_line,
)

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
PLAIN = {"text", "text_special", "inline", "paragraph_open", "paragraph_close"}
_SIGNS = "<>![]()|`*_~#-+=&:/\\.1x @$\n\t\u202e\x1b"


def tokens(text: str) -> Iterator[Token]:
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or ()


@example("<script>alert(1)</script>")
@example("![i](http://host/i.png)")
@example("- a\n\n    code")
@example("1. x")
@example("__init__ snake_case _x_")
@example("&lt;b&gt; &amp; &#60;")
@given(st.text(st.sampled_from(_SIGNS) | st.characters(), max_size=30))
def test_markdown_shows_exactly_the_text(text):
    parsed = list(tokens(markdown_text(text)))
    assert {token.type for token in parsed} <= PLAIN
    visible_text = "".join(token.content for token in parsed if token.type.startswith("text"))
    assert visible_text.split() == plain_line(text).split()


@given(st.text(st.sampled_from(_SIGNS), max_size=20))
def test_a_cell_of_a_table_shows_exactly_the_text(text):
    parsed = list(tokens(markdown_table(("a", "b"), [(markdown_text(text), 1)])))
    assert sum(token.type == "td_open" for token in parsed) == 2
    cells = [token for token in parsed if token.type == "inline"]
    visible_text = "".join(child.content for child in cells[2].children or ())
    assert visible_text.split() == plain_line(text).split()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\r\nb\x0bc\u2028d", "a b c d"),
        ("\x1b[31mred\x9b0m\x07", r"\u001b[31mred\u009b0m\u0007"),
        ("x\u202egnp.\u2066y\ufeff\ud800", r"x\u202egnp.\u2066y\ufeff\ud800"),
        ("\U000e0041", r"\udb40\udc41"),
        ("né 日本 👩\u200d💻 C:\\x", "né 日本 👩\u200d💻 C:\\x"),
    ],
)
def test_a_line_has_no_control_characters(text, line):
    assert plain_line(text) == line


@given(st.text(st.characters(codec="utf-8")))
def test_a_json_text_stays_the_same(text):
    written = json.dumps({text: text}, indent=2, ensure_ascii=False)
    assert json.loads(plain_characters(written)) == {text: text}


def test_one_thing_is_counted_in_the_singular():
    assert [counted(1, things) for things in ("steps", "trajectories")] == [
        "1 step",
        "1 trajectory",
    ]
    assert [counted(2, things) for things in ("steps", "trajectories")] == [
        "2 steps",
        "2 trajectories",
    ]
