"""Reads faults.json, the list of planted faults, and finds entries that no longer fit the code.

An entry has a line of the package, the faulty line that replaces it, and the test that must fail.
Entries name no files, so that moving code or tests does not affect them.
"""

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "demo_pipeline"
TESTS = ROOT / "demo_pipeline_tests"
LIST = Path(__file__).parent / "faults.json"


@dataclass(frozen=True)
class Fault:
    """A fault to plant in the package.

    Attributes:
        name: a description of the fault.
        find: text that occurs exactly once in the package.
        replace: the faulty text that replaces `find`.
        test: name of the test that must fail with the fault.
    """

    name: str
    find: str
    replace: str
    test: str


def read_faults() -> list[Fault]:
    """Returns all faults in the order of the list."""
    return [Fault(**entry) for entry in json.loads(LIST.read_text("utf-8"))]


@cache
def sources(folder: Path) -> Mapping[Path, str]:
    """Returns the texts of all modules below a folder, by their relative paths."""
    paths = sorted(folder.rglob("*.py"))
    return {path.relative_to(folder): path.read_text("utf-8") for path in paths}


@cache
def ids_of_tests() -> Mapping[str, Sequence[str]]:
    """Returns the pytest node ids of each test function, by the name of the function.

    The node ids are relative to the folder of the tests.
    """
    node_ids: dict[str, list[str]] = {}
    for path, text in sources(TESTS).items():
        if path.name.startswith("test_"):
            for name in _test_names(ast.parse(text).body):
                node_ids.setdefault(name.rpartition("::")[2], []).append(f"{path}::{name}")
    return node_ids


def _test_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{name}" for name in _test_names(node.body))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


def place(fault: Fault) -> Path:
    """Returns the relative path of the module that contains the text to replace.

    Raises:
        LookupError: the text does not occur exactly once in the package.
    """
    counts = {path: text.count(fault.find) for path, text in sources(PACKAGE).items()}
    holding = [path for path, count in counts.items() if count]
    if sum(counts.values()) != 1:
        where = ", ".join(map(str, holding)) or "nowhere"
        raise LookupError(f"{fault.name}: {fault.find!r} must stand once, but stands {where}")
    return holding[0]


def outdated(faults: Sequence[Fault]) -> list[str]:
    """Returns a message for each entry of faults.json that no longer fits the code."""
    lines = []
    for fault in faults:
        try:
            place(fault)
        except LookupError as error:
            lines.append(str(error))
        if fault.test not in ids_of_tests():
            lines.append(f"{fault.name}: there is no test {fault.test}")
        if fault.find == fault.replace:
            lines.append(f"{fault.name}: the line is not changed")
    return lines
