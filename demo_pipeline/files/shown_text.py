"""Escaping text of recordings, file names and errors, so that it is never markup or a control code.

Lines of a terminal, a log or a table have an escape of their own, and Markdown has another. Data
keeps its text unchanged.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

MARKER = re.compile(
    r"<\|[^<>|\s]+\|>"
    r"|</?(?:image|video|audio|img|tools?|tool_calls?|tool_response|think|box|ref|quad|im_start"
    r"|im_end|s)>",
    re.IGNORECASE,
)


# `_SPACES` end a line or move the cursor. `_UNSEEN` are control characters and characters without a
# glyph: direction marks, byte order marks, tags and surrogates. The joiners U+200C and U+200D are
# kept, because scripts and emoji need them.
_SPACES = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]+")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# CommonMark, GitHub and the Hub read these as markup anywhere in a line. Addresses become links.
# Underscores inside words are not markup.
_MARKUP = re.compile(
    r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|:(?=//)|(?<=\bwww)\.|(?<=\w)@(?=\w)",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"\A(\d*)([-+>#=.)])")  # the start of a list, a quotation or a heading


def plain_line(text: str) -> str:
    r"""The text on a single line, with escapes for invisible characters: `\u001b`, `\u202e`."""
    return plain_characters(_SPACES.sub(" ", text))


def counted(number: int, things: str) -> str:
    """A number and a noun: `2 steps`, `1 step` or `1 trajectory`; `things` is the plural."""
    if number != 1:
        return f"{number} {things}"
    if things.endswith("ies"):
        return f"1 {things[:-3]}y"
    return f"1 {things.removesuffix('s')}"


def plain_characters(text: str) -> str:
    """Like `plain_line`, but with the line ends. A JSON text keeps its meaning."""
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    if match[0] == "\n":
        return "\n"
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def plain_values(value: Any) -> Any:
    """A JSON value with `plain_line` applied to all strings, including keys."""
    if isinstance(value, str):
        return plain_line(value)
    if isinstance(value, dict):
        return {plain_line(str(key)): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    return value


def markdown_text(text: str) -> str:
    """Markdown on a single line that shows exactly this text: nothing in it is markup.

    Use it in a paragraph, a list or the cell of a table, but not between backticks.
    """
    return _BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", plain_line(text).strip()))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown. The cells must be Markdown; convert other text by `markdown_text`."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def escape_markers(text: str) -> tuple[str, int]:
    """The text with square brackets instead of the angle brackets of markers, and their number."""
    return MARKER.subn(_in_square_brackets, text)


def _in_square_brackets(marker: re.Match[str]) -> str:
    return f"[{marker.group()[1:-1]}]"


def replace_surrogates(text: str) -> str:
    """Text that UTF-8 can encode. Lone surrogates cannot be encoded in UTF-8 and become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")
