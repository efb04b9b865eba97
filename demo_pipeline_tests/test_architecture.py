"""Tests the rules of the architecture: allowed imports, unique names, and limits of length."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "demo_pipeline"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOT_FILES = {"__init__.py", "settings.py", "problems.py", "stage.py", "api.py", "definitions.py"}
LEAVES = {"settings", "problems", "stage"}
BELOW = LEAVES | {"files"}
SUBJECTS = (  # each package may import the packages before it
    *("desktopd", "recording", "osworld", "actions", "observation"),
    *("trajectories", "privacy", "review", "annotations", "datasets", "exports", "evaluation"),
)
MAY_IMPORT: dict[str, set[str]] = {
    "settings": set(),
    "problems": set(),
    "stage": {"files", "problems", "settings"},
    "files": {"problems"},
    "store": BELOW,
}
MAY_IMPORT |= {name: BELOW | set(SUBJECTS[:place]) for place, name in enumerate(SUBJECTS)}
MAY_IMPORT["review"] |= {"store"}
MAY_IMPORT["annotations"] |= {"store"}
MAY_IMPORT["privacy"] |= {"store"}
MAY_IMPORT["datasets"] |= {"store"}
MAY_IMPORT["exports"] |= {"store"}
MAY_IMPORT["importers"] = BELOW | {"desktopd", "osworld", "recording", "trajectories"}
MAY_IMPORT["importers"] |= {"observation"}
MAY_IMPORT["runs"] = BELOW | (set(MAY_IMPORT) - LEAVES)
MAY_IMPORT["defs"] = MAY_IMPORT["runs"] | {"runs"}
MAY_IMPORT["reports"] = MAY_IMPORT["runs"] | {"runs"}
MAY_IMPORT["api"] = MAY_IMPORT["reports"] | {"reports"}
MAY_IMPORT["cli"] = MAY_IMPORT["defs"] | {"defs", "reports"}
MAY_IMPORT["definitions"] = MAY_IMPORT["cli"] - {"cli"}
THREE_LEVELS = {"exports", "observation"}
FORMATS = {"desktopd", "cudag"}  # packages whose modules may have the same names
LONGEST_MODULE = 800
LONGEST_FUNCTION = 60


@cache
def parsed(path: Path) -> ast.Module:
    """Returns the syntax tree of a module."""
    return ast.parse(path.read_bytes())


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Returns the dotted names of the modules that a file imports, also inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """Returns the folders and top-level modules of this package that a file imports."""
    parts = (name.split(".") for name in imports(path))
    places = {part[1] for part in parts if part[0] == "demo_pipeline" and len(part) > 1}
    return {place for place in places if not place.startswith("__")}


def layer(path: Path) -> str:
    """Returns the folder or top-level module of a file, or `__init__` for the package itself."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def public_names(path: Path) -> Iterator[str]:
    """Yields the public functions, classes and constants that a module defines."""
    for node in parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def test_the_package_root_holds_six_files():
    assert {path.name for path in PACKAGE.glob("*.py")} == ROOT_FILES


def test_every_module_is_under_a_layer_rule_and_follows_it():
    modules = [path for path in MODULES if path != PACKAGE / "__init__.py"]
    assert {layer(path) for path in modules} == set(MAY_IMPORT)
    wrong = {
        str(path.relative_to(PACKAGE)): sorted(strangers)
        for path in modules
        if (strangers := ours(path) - MAY_IMPORT[layer(path)] - {layer(path)})
    }
    assert wrong == {}


def test_the_layers_form_no_cycle():
    for name, below in MAY_IMPORT.items():
        assert all(name not in MAY_IMPORT[other] for other in below), name


def test_only_the_orchestration_layer_knows_dagster():
    knowing = {path for path in MODULES if any(n.split(".")[0] == "dagster" for n in imports(path))}
    assert knowing
    assert {layer(path) for path in knowing} <= {"defs", "definitions"}


def test_there_are_two_levels_and_a_third_only_in_the_large_packages():
    depths = {path: len(path.relative_to(PACKAGE).parts) for path in MODULES}
    deep = [path for path, depth in depths.items() if depth > 2 + (layer(path) in THREE_LEVELS)]
    assert deep == []


def test_a_public_name_is_defined_in_one_module():
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for name in set(public_names(path)) - {"FORM"}:  # each export defines its own
            places.setdefault(name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_a_module_name_repeats_only_where_two_formats_have_the_same_part():
    places: dict[str, list[Path]] = {}
    for path in MODULES:
        if path.name != "__init__.py":
            places.setdefault(path.stem, []).append(path)
    twice = [
        [str(path.relative_to(PACKAGE)) for path in paths]
        for paths in places.values()
        if len(paths) > 1 and any(path.parent.name not in FORMATS for path in paths)
    ]
    assert twice == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_opens_with_a_sentence_and_reads_in_one_sitting(path):
    text = path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= LONGEST_MODULE
    docstring = ast.get_docstring(parsed(path))
    assert docstring is not None
    assert docstring.splitlines()[0].endswith((".", "?"))
    assert "from __future__ import" not in text


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Returns the number of lines of a function without its signature and docstring."""
    documented = ast.get_docstring(function, clean=False) is not None
    first = function.body[documented] if len(function.body) > documented else function.body[0]
    return (function.end_lineno or first.lineno) - first.lineno + 1


def test_no_function_is_longer_than_a_screen():
    functions = 0
    long = []
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions += 1
                if lines_of_code(node) > LONGEST_FUNCTION:
                    long.append(f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}")
    assert functions
    assert long == []
