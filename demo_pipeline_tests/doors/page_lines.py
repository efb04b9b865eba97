"""The shell lines of the pages, with the marks in their sources that say which are not run.

A comment before a block marks it, or only the line that begins with the words after a last colon:

- `<!-- not run: a cluster -->`: nothing runs it, for one of the `REASONS`;
- `<!-- minutes: make test -->`: it takes minutes; `make doors` runs it, and the suite does not.
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
    "a foreign bucket",
    "a GPU",
    "OSWorld",
    "hours",
    "more than 1 GB",
    "removes data",
    "servers for several people",
)
When = Literal["suite", "minutes", "not run"]

_BLOCK = re.compile(
    r"(?P<marks>(?:^ *<!-- [^\n]* -->\n)*)^ *```bash\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!-- (?:minutes|not run: (?P<reason>[^:]+?))(?:: (?P<begin>.+?))? -->")


@dataclass(frozen=True)
class ShellLine:
    """A command of a page; continued lines are one.

    Attributes:
        page: its path below the checkout.
        text: as it stands there.
        when: where it is run.
        reason: of a line that is not run.
    """

    page: str
    text: str
    when: When = "suite"
    reason: str = ""


def lines_of(page: str) -> Iterator[ShellLine]:
    """The shell lines of a page, in their order."""
    for block in _BLOCK.finditer((ROOT / page).read_text(encoding="utf-8")):
        marks = [_marked(page, line) for line in block["marks"].splitlines()]
        for text in block["text"].replace("\\\n", " ").splitlines():
            line = text.strip()
            chosen = [mark for mark in marks if line.startswith(mark.text)]
            mark = chosen[0] if chosen else ShellLine(page, "")
            yield ShellLine(page, line, mark.when, mark.reason)


def _marked(page: str, comment: str) -> ShellLine:
    """The mark as a line: its text is how the marked lines begin."""
    mark = _MARK.fullmatch(comment.strip())
    if mark is None or mark["reason"] not in (None, *REASONS):
        raise ValueError(f"{page}: {comment.strip()} is not a mark of a block of shell lines")
    when: When = "not run" if mark["reason"] else "minutes"
    return ShellLine(page, mark["begin"] or "", when, mark["reason"] or "")
