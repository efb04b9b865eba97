"""The list of planted faults: a line of a rule, what to write in its place, the test that fails.

Belongs here: reading faults.json, and saying which entries no longer fit the code. An entry names
no file of the package and none of the tests, so that moving either changes nothing.
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
    """`find` stands once in the package; with `replace` in its place the test `test` fails."""

    name: str
    find: str
    replace: str
    test: str


def read_faults() -> list[Fault]:
    """Every fault, in the order of the list."""
    return [Fault(**entry) for entry in json.loads(LIST.read_text("utf-8"))]


@cache
def sources(folder: Path) -> Mapping[Path, str]:
    """Path below the folder → text of each of its modules."""
    paths = sorted(folder.rglob("*.py"))
    return {path.relative_to(folder): path.read_text("utf-8") for path in paths}


@cache
def ids_of_tests() -> Mapping[str, Sequence[str]]:
    """Name of a test function → its node ids, below the folder of the tests."""
    found: dict[str, list[str]] = {}
    for path, text in sources(TESTS).items():
        if path.name.startswith("test_"):
            for name in _test_names(ast.parse(text).body):
                found.setdefault(name.rpartition("::")[2], []).append(f"{path}::{name}")
    return found


def _test_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{name}" for name in _test_names(node.body))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


def place(fault: Fault) -> Path:
    """The module that holds the line, below the package; LookupError unless it is the only one."""
    found = {path: text.count(fault.find) for path, text in sources(PACKAGE).items()}
    holding = [path for path, count in found.items() if count]
    if sum(found.values()) != 1:
        where = ", ".join(map(str, holding)) or "nowhere"
        raise LookupError(f"{fault.name}: {fault.find!r} must stand once, but stands {where}")
    return holding[0]


def outdated(faults: Sequence[Fault]) -> list[str]:
    """What no longer fits the code, a line for each: renew these entries of faults.json."""
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
