"""Escapes text from recordings, file names and errors before it is shown to people.

The text must not act as markup or as a control code of the terminal. Use `plain_line` for
terminals, logs and tables, and `markdown_text` for Markdown.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

# Special tokens of language models, such as `<|im_start|>` and `</think>`.
MARKER = re.compile(
    r"<\|[^<>|\s]+\|>"
    r"|</?(?:image|video|audio|img|tools?|tool_calls?|tool_response|think|box|ref|quad|im_start"
    r"|im_end|s)>",
    re.IGNORECASE,
)


# Characters that end a line or move the cursor.
_SPACES = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]+")
# Control characters, and characters without a glyph: direction marks, byte order marks, tags and
# surrogates. The joiners U+200C and U+200D are allowed, because some scripts and emoji need them.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# Characters that CommonMark, GitHub or the Hugging Face Hub treat as markup anywhere in a line.
# The colon in `://`, the dot in `www.` and `@` are included, because addresses become links.
# Underscores inside words are not markup.
_MARKUP = re.compile(
    r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|:(?=//)|(?<=\bwww)\.|(?<=\w)@(?=\w)",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"\A(\d*)([-+>#=.)])")  # the start of a list, a quotation or a heading


def plain_line(text: str) -> str:
    r"""Returns a text on one line, with escapes such as `\u001b` for invisible characters."""
    return plain_characters(_SPACES.sub(" ", text))


def counted(number: int, things: str) -> str:
    """Returns a number with its noun, such as `2 steps`, `1 step` or `1 trajectory`.

    Args:
        things: the noun in the plural.
    """
    if number != 1:
        return f"{number} {things}"
    if things.endswith("ies"):
        return f"1 {things[:-3]}y"
    return f"1 {things.removesuffix('s')}"


def plain_characters(text: str) -> str:
    """Returns a text with escapes for invisible characters; newlines stay.

    The escapes are those of JSON, so they do not change the value of a JSON text.
    """
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    if match[0] == "\n":
        return "\n"
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def plain_values(value: Any) -> Any:
    """Applies `plain_line` to all strings of a JSON value, including keys of objects."""
    if isinstance(value, str):
        return plain_line(value)
    if isinstance(value, dict):
        return {plain_line(str(key)): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    return value


def markdown_text(text: str) -> str:
    """Escapes a text so that Markdown displays the same characters; returns a single line.

    The result can be used in a paragraph, a list or a table cell, but not between backticks.
    """
    return _BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", plain_line(text).strip()))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table in Markdown.

    Cells may contain Markdown. Escape text that is not Markdown with `markdown_text` first.
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def escape_markers(text: str) -> tuple[str, int]:
    """Replaces the angle brackets of special tokens with square ones.

    Returns the text and the number of special tokens in it.
    """
    return MARKER.subn(_in_square_brackets, text)


def _in_square_brackets(marker: re.Match[str]) -> str:
    return f"[{marker.group()[1:-1]}]"


def replace_surrogates(text: str) -> str:
    """Replaces lone surrogates, which cannot be encoded in UTF-8, with question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
