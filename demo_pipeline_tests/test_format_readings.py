"""Tests the pages' tables of deviations from the format documents.

Each deviation needs a reason and the names of the tests that show it.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGES = TESTS.parent / "docs" / "reference"
MOST_IN_PART = 3
_SECTIONS = {
    "input-formats.md": "## Where we read the documents otherwise",
    "output-formats.md": "## Where we write the documents otherwise",
}


def rows(page: str) -> list[list[str]]:
    """Returns the rows of the tables in the section of a page, without their headings."""
    text = (PAGES / page).read_text(encoding="utf-8")
    _, heading, section = text.partition(f"{_SECTIONS[page]}\n")
    assert heading, f"{page} has no section {_SECTIONS[page]}"
    lines = [line for line in section.splitlines() if line.startswith("|")]
    entries = [line for line in lines if not line.startswith(("| --- ", "| statement "))]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in entries]


@cache
def defined_tests() -> frozenset[str]:
    """Returns the names of all test functions."""
    names = set()
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.add(node.name)
    return frozenset(names)


@pytest.mark.parametrize("page", _SECTIONS)
def test_each_reading_has_a_reason_and_names_tests_that_exist(page):
    table = rows(page)
    assert len(table) > 30
    for cells in table:
        assert len(cells) == 4, cells
        assert all(cells), cells
        named = re.findall(r"`(\w+)`", cells[-1])
        assert named, f"no test in {cells}"
        missing = set(named) - defined_tests()
        assert not missing, f"{page}: the tests {missing} of {cells[0]!r} do not exist"


def test_at_most_three_statements_hold_in_part_only():
    marked = [cells for page in _SECTIONS for cells in rows(page) if "**in part**" in cells[1]]
    assert len(marked) <= MOST_IN_PART
    assert all(len(cells[2]) > 20 for cells in marked)  # each row gives a reason
