"""Text of recordings, file names and errors as people read it: never markup or a control sequence.

Belongs here: the one escape for lines of a terminal, a log or a table, and the one for Markdown.
Data keeps its text as it is.
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


# White space that ends a line or moves the cursor, control characters, and the characters without a
# glyph: those that turn the direction of writing, byte order marks, tags, surrogates. The joiners
# U+200C and U+200D stay, since scripts and emoji need them.
_SPACES = re.compile("[\t-\r\x1c-\x1f\x85\u2028\u2029]+")
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
# Whatever CommonMark, GitHub and the Hub read as markup anywhere in a line: also addresses, which
# become links by themselves. Underscores inside words are not markup.
_MARKUP = re.compile(
    r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|:(?=//)|(?<=\bwww)\.|(?<=\w)@(?=\w)",
    re.IGNORECASE,
)
_BLOCK = re.compile(r"\A(\d*)([-+>#=.)])")  # what begins a list, a quotation or a heading


def plain_line(text: str) -> str:
    r"""The text in one line, with what is not to be seen as an escape: `\u001b`, `\u202e`."""
    return plain_characters(_SPACES.sub(" ", text))


def counted(number: int, things: str) -> str:
    """`2 steps`, `1 step` or `1 trajectory`: a number, and what it counts, named in the plural."""
    if number == 1:
        things = f"{things[:-3]}y" if things.endswith("ies") else things.removesuffix("s")
    return f"{number} {things}"


def plain_characters(text: str) -> str:
    """The same with its line ends; a JSON text stays the same JSON."""
    return _UNSEEN.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    if match[0] == "\n":
        return "\n"
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def plain_values(value: Any) -> Any:
    """A JSON value with `plain_line` of all its texts, keys included."""
    if isinstance(value, str):
        return plain_line(value)
    if isinstance(value, dict):
        return {plain_line(str(key)): plain_values(item) for key, item in value.items()}
    return [plain_values(item) for item in value] if isinstance(value, list | tuple) else value


def markdown_text(text: str) -> str:
    """The text in one line of Markdown that shows exactly it: nothing in it is markup.

    It may stand in a paragraph, a list or a table's cell, but not between backticks.
    """
    return _BLOCK.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", plain_line(text).strip()))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown. Its cells are Markdown: `markdown_text` makes that of other text."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def escape_markers(text: str) -> tuple[str, int]:
    """Text whose markers have square instead of angle brackets, and the number of markers."""
    return MARKER.subn(lambda found: f"[{found.group()[1:-1]}]", text)


def replace_surrogates(text: str) -> str:
    """Text that UTF-8 can encode: lone surrogates, which no trainer can read, become "?"."""
    return text.encode("utf-8", "replace").decode("utf-8")
