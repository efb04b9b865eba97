"""Tests of mapping role names in the spelling of recorders."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from demo_pipeline.desktopd.models import Role
from demo_pipeline.observation.trees.step_tree import canonical_role

TABLES = json.loads(
    Path(str(files("demo_pipeline.observation.trees") / "roles.json")).read_text("utf-8")
)
PLATFORMS = {"uia": "windows", "ax": "macos", "atspi": "linux"}


def spellings(name: str) -> set[str]:
    words = name.replace("-", " ").replace("_", " ")
    plain = {name, words, words.replace(" ", "-"), words.replace(" ", "_"), words.replace(" ", "")}
    result = plain | {f"{text}Control" for text in plain}
    for text in plain:
        result |= {text.upper(), text.title()}
        if not name.startswith("AX"):
            result.add(f"AX{text}")
    return result


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_name_is_found_under_every_spelling(table: str) -> None:
    assert len(TABLES[table]) > 30
    for name, role in TABLES[table].items():
        assert role in {member.value for member in Role}
        for spelling in spellings(name):
            assert canonical_role(spelling, PLATFORMS[table]) == role, spelling


def test_the_platforms_own_table_comes_first_and_others_help_out() -> None:
    assert canonical_role("AXTextField", "windows") == "textfield"
    assert canonical_role("push button", "windows") == "button"
    assert canonical_role("Edit", "amiga") == "textfield"


@pytest.mark.parametrize("name", ["", "  ", "AX", "control", "Gizmo", "\u00e9t\u00e9", "x" * 5000])
def test_a_name_in_no_table_has_no_role(name: str) -> None:
    assert canonical_role(name, "windows") is None
