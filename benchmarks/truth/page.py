"""The table of README.md under "How right are the labels?"."""

import re
from collections.abc import Mapping
from pathlib import Path

from benchmarks.truth.figures import Figures, markdown_table

README = Path(__file__).resolve().parents[2] / "README.md"
_TABLE = re.compile(
    r"(<!-- written by `make truth` -->\n)(.*?)(<!-- end of the table -->\n)", re.DOTALL
)


def written_table() -> str:
    """The table that README.md has now."""
    match = _TABLE.search(README.read_text("utf-8"))
    if match is None:
        raise ValueError("README.md has no place for the table of `make truth`.")
    return match[2]


def write_table(figures: Mapping[str, Figures]) -> None:
    """Writes the table into README.md."""
    text = README.read_text("utf-8")
    table = markdown_table(figures)
    README.write_text(_TABLE.sub(lambda match: match[1] + table + match[3], text), "utf-8")
