"""The house rules that a reader relies on: who knows whom, and how long things are."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "demo_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))
MAY_IMPORT = {
    "recording": {"hashing", "settings", "problems", "formats"},
    "formats": {"collecting", "links", "problems"},
    "storage": {"hashing", "links", "settings", "problems"},
    "discovery": {"settings", "problems", "storage"},
    "actions": {"settings", "problems", "recording"},
    "observation": {
        "collecting",
        "links",
        "settings",
        "problems",
        "formats",
        "recording",
        "actions",
    },
    "datasets": {"links", "settings", "problems", "formats", "recording", "actions", "observation"},
    "problems.py": set(),
    "collecting.py": set(),
    "hashing.py": set(),
    "links.py": set(),
    "settings.py": set(),
    "console.py": set(),
    "pipeline.py": {"settings", "problems", "recording", "storage", "datasets"},
}
LONGEST_MODULE, LONGEST_FUNCTION = 300, 50


def imports(path: Path) -> Iterator[str]:
    """Dotted names of the modules that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """Folders and top modules of this package that a file imports."""
    parts = (name.split(".") for name in imports(path))
    places = {part[1] for part in parts if part[0] == "demo_pipeline" and len(part) > 1}
    return {place for place in places if not place.startswith("__")}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def dagster_allowed(path: Path) -> bool:
    return room(path) in {"defs", "definitions.py"}


def test_each_folder_imports_only_what_it_is_given() -> None:
    wrong = {
        str(path.relative_to(PACKAGE)): sorted(strangers)
        for path in MODULES
        if room(path) in MAY_IMPORT
        and (strangers := ours(path) - MAY_IMPORT[room(path)] - {room(path).removesuffix(".py")})
    }
    assert wrong == {}


def test_every_folder_with_a_rule_exists_and_every_folder_but_defs_has_one() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == {name for name in MAY_IMPORT if not name.endswith(".py")} | {"defs"}


def test_only_the_orchestration_layer_knows_dagster() -> None:
    knowing = {path for path in MODULES if any(n.split(".")[0] == "dagster" for n in imports(path))}
    assert knowing
    assert [path for path in knowing if not dagster_allowed(path)] == []


def test_nothing_below_it_imports_the_orchestration_layer() -> None:
    above = {"defs", "definitions.py", "cli.py"}
    below = [path for path in MODULES if room(path) not in above]
    assert [str(path) for path in below if {"defs", "definitions", "cli"} & ours(path)] == []


def test_there_are_two_levels_and_no_more() -> None:
    assert [p for p in MODULES if len(p.relative_to(PACKAGE).parts) > 2] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_opens_with_a_sentence_and_reads_in_one_sitting(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= LONGEST_MODULE
    said = ast.get_docstring(ast.parse(text))
    assert said is not None
    assert said.splitlines()[0].endswith((".", "?"))
    assert "from __future__ import" not in text


def test_no_function_is_longer_than_a_screen() -> None:
    functions = [
        (path, node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert functions
    long = [
        f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"
        for path, node in functions
        if (node.end_lineno or node.lineno) - node.lineno >= LONGEST_FUNCTION
    ]
    assert long == []
