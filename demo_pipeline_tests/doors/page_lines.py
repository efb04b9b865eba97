"""Reads the shell lines of the pages, and the marks that say which lines the tests do not run.

A mark is a comment before a block. It applies to the whole block, or only to the lines that begin
with the words after its last colon:

- `<!-- not run: a cluster -->`: the lines are never run, for one of the `REASONS`.
- `<!-- minutes: make test -->`: the lines take minutes. `make doors` runs them, but not the suite.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))),
)
REASONS = (
    "a cluster",
    "an account",
    "a GPU",
    "OSWorld",
    "hours",
    "more than 1 GB",
)
When = Literal["suite", "minutes", "not run"]

_BLOCK = re.compile(
    r"(?P<marks>(?:^ *<!-- [^\n]* -->\n)*)^ *```bash\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!-- (?:minutes|not run: (?P<reason>[^:]+?))(?:: (?P<begin>.+?))? -->")


@dataclass(frozen=True)
class ShellLine:
    """A command of a page. Lines that are continued by a backslash are a single command.

    Attributes:
        page: path of the page in the checkout.
        text: the command as written on the page.
        when: when the command is run.
        reason: why the command is not run; empty if it is run.
    """

    page: str
    text: str
    when: When = "suite"
    reason: str = ""


def lines_of(page: str) -> Iterator[ShellLine]:
    """Yields the shell lines of a page in order."""
    for block in _BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        marks = [_marked(page, line) for line in block["marks"].splitlines()]
        for text in block["text"].replace("\\\n", " ").splitlines():
            line = text.strip()
            chosen = [mark for mark in marks if line.startswith(mark.text)]
            mark = chosen[0] if chosen else ShellLine(page, "")
            yield ShellLine(page, line, mark.when, mark.reason)


def _marked(page: str, comment: str) -> ShellLine:
    """Parses a mark as a `ShellLine`, whose `text` is the beginning of the marked lines."""
    mark = _MARK.fullmatch(comment.strip())
    if mark is None or mark["reason"] not in (None, *REASONS):
        raise ValueError(f"{page}: {comment.strip()} is not a mark of a block of shell lines")
    when: When = "not run" if mark["reason"] else "minutes"
    return ShellLine(page, mark["begin"] or "", when, mark["reason"] or "")
