"""Computes a hash of the code that a stage runs, with everything it uses inside the package.

The search starts at the functions of a stage (build and checks) and follows the module-level names
that they use: functions, classes and constants. It also follows names in annotations, because the
class of an object whose methods are called may be named only there. Docstrings, comments, line
numbers and the module of a definition do not count. Data files that the code names do count.

Three things are left out: settings.py, whose values are in the settings hash of every output; the
package's own version; and the layers above the pipeline (Dagster, the command line and the API for
notebooks), which no stage calls.
"""

import ast
import dataclasses
import functools
import hashlib
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "demo_pipeline"
LEFT_OUT = {"demo_pipeline", "demo_pipeline.settings"}
ABOVE = (
    "demo_pipeline.api",
    "demo_pipeline.defs",
    "demo_pipeline.cli",
    "demo_pipeline.definitions",
)
# Fields of syntax nodes that do not change the hash.
WITHOUT_EFFECT = {"ctx", "kind", "type_comment", "type_params"}
Reference = tuple[str, str]  # module, and a name in it; an empty name means the module itself


class _Module:
    """The parsed source of a module: its definitions, its imports and its other statements."""

    def __init__(self, name: str, source: str | bytes) -> None:
        self.name = name
        self.tree = ast.parse(source)
        self.definitions: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Reference] = {}
        self.effects: list[ast.stmt] = []
        self._readings: dict[ast.AST, tuple[str, set[str], list[Reference]]] = {}
        for statement in self.tree.body:
            self._add(statement)

    def _add(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self.imports.update(_bindings(statement))
        elif names := list(_defined(statement)):
            for name in names:
                self.definitions.setdefault(name, []).append(statement)
        elif not _is_docstring(statement):
            self.effects.append(statement)

    def reading(self, node: ast.AST) -> tuple[str, set[str], list[Reference]]:
        """Returns the text of a definition, its string constants, and the names that it uses.

        The result is cached, because many stages share a definition.
        """
        if node not in self._readings:
            targets = list(dict.fromkeys(_references(self, node)))
            self._readings[node] = (_plain(node, self.imports), _texts_in(node), targets)
        return self._readings[node]

    def at_line(self, line: int) -> list[ast.AST]:
        """Returns the lambdas that begin on a line."""
        nodes = ast.walk(self.tree)
        return [node for node in nodes if isinstance(node, ast.Lambda) and node.lineno == line]


class CodeClosure:
    """Collects all definitions that some functions use, for a hash over their texts.

    Args:
        functions: the functions of a stage: its build function and its checks.
        changed: source that replaces a module's file, by name of the module.
    """

    def __init__(
        self, functions: Iterable[Callable[..., Any]], changed: Mapping[str, str] | None = None
    ) -> None:
        self._changed = {name: _Module(name, text) for name, text in (changed or {}).items()}
        self._reached: set[Reference] = set()
        self._texts: set[str] = set()
        for function in functions:
            self._follow(function)

    def digest(self) -> str:
        """Returns the SHA-256 over the definitions, values, external imports and data files."""
        return hashlib.sha256("\n".join(sorted(self._texts)).encode()).hexdigest()

    def modules(self) -> set[str]:
        """Returns the names of the modules that contain the definitions."""
        return {module for module, _ in self._reached}

    def _follow(self, value: Any) -> None:
        """Adds everything that is needed for calling or reading a value."""
        if isinstance(value, functools.partial):
            return self._follow_all([value.func, *value.args, *value.keywords.values()])
        if isinstance(value, types.MethodType):
            return self._follow_all([value.__func__, value.__self__])
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._reach(value.__module__, value.__qualname__.partition(".")[0])
        if isinstance(value, Mapping):
            return self._follow_all([*value.keys(), *value.values()])
        if isinstance(value, list | tuple | set | frozenset):
            return self._follow_all(value)
        if dataclasses.is_dataclass(value):
            fields = dataclasses.fields(value)
            return self._follow_all([type(value), *(getattr(value, f.name) for f in fields)])
        if value is None or isinstance(value, bool | int | float | str | bytes):
            self._texts.add(f"value {value!r}")
            return None
        return self._follow(type(value))

    def _follow_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._follow(value)

    def _function(self, function: types.FunctionType) -> None:
        outermost = function.__qualname__.partition(".")[0]
        module = self._module(function.__module__)
        if module and outermost == "<lambda>":
            for node in module.at_line(function.__code__.co_firstlineno):
                self._read(module, node)
        else:
            self._reach(function.__module__, outermost)
        for cell in function.__closure__ or ():
            self._follow(cell.cell_contents)
        self._follow_all(function.__defaults__ or ())

    def _reach(self, module_name: str, name: str) -> None:
        """Adds a module-level name and everything that its definition uses."""
        module = self._module(module_name)
        assert not module_name.startswith(ABOVE), f"a stage runs code of {module_name}"
        if module is None:
            self._texts.add(f"import {module_name}.{name}")
        elif module_name not in LEFT_OUT and (module_name, name) not in self._reached:
            self._reached.add((module_name, name))
            self._definition(module, name)

    def _definition(self, module: _Module, name: str) -> None:
        if name in module.imports and name not in module.definitions:
            self._reach(*module.imports[name])
            return
        statements = module.definitions.get(name, [])
        if not name:  # a reference to the whole module
            statements = [*itertools.chain.from_iterable(module.definitions.values())]
        for statement in [*statements, *module.effects]:
            self._read(module, statement)

    def _read(self, module: _Module, node: ast.AST) -> None:
        text, words, targets = module.reading(node)
        self._texts.add(text)
        for name in words & set(_data_files()):
            data = _data_files()[name].read_bytes()
            self._texts.add(f"file {name} {hashlib.sha256(data).hexdigest()}")
        for target in targets:
            self._reach(*target)

    def _module(self, name: str) -> _Module | None:
        return self._changed.get(name) or _module(name)


@cache
def _module(name: str) -> _Module | None:
    """Returns a module of the package, or None for a module of another package."""
    if name.partition(".")[0] != "demo_pipeline":
        return None
    stem = PACKAGE.parent.joinpath(*name.split("."))
    file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return _Module(name, file.read_bytes()) if file.is_file() else None


@cache
def _data_files() -> dict[str, Path]:
    files = PACKAGE.rglob("*.json")
    return {path.name: path for path in files}


def _bindings(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Reference]]:
    """Yields each name that an import binds, with the thing that it refers to."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or whole, (whole, "")
        elif _module(f"{statement.module}.{alias.name}"):
            yield alias.asname or alias.name, (f"{statement.module}.{alias.name}", "")
        else:
            yield alias.asname or alias.name, (str(statement.module), alias.name)


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _references(module: _Module, node: ast.AST) -> Iterator[Reference]:
    """Yields the module-level names that a definition uses, wherever they are defined."""
    yield from _used(module, node, frozenset())


def _used(module: _Module, node: ast.AST, local: frozenset[str]) -> Iterator[Reference]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for _, target in _bindings(node):
            yield target
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        local = local | _locals(node)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        imported = module.imports.get(node.value.id)
        if imported and not imported[1] and node.value.id not in local:
            yield imported[0], node.attr
            return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in local:
        if node.id in module.definitions:
            yield module.name, node.id
        elif node.id in module.imports:
            yield module.imports[node.id]
    for child in ast.iter_child_nodes(node):
        yield from _used(module, child, local)


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Returns the parameters and assigned names of a function, without names that it imports."""
    nodes = list(ast.walk(function))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset(stored | {node.arg for node in nodes if isinstance(node, ast.arg)})


def _texts_in(node: ast.AST) -> set[str]:
    constants = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _plain(value: Any, imports: Mapping[str, Reference]) -> str:
    """Returns a syntax node as text that is the same in every version of Python.

    Docstrings are left out. Modules of the package are left out in `module.name` and in the imports
    of a function, so that moving a definition to another module does not change the text.
    """
    if isinstance(value, list):
        plain = (_plain(entry, imports) for entry in value if not _is_docstring(entry))
        return f"[{', '.join(plain)}]"
    if not isinstance(value, ast.AST):
        return repr(value)
    if isinstance(value, ast.Attribute) and _is_our_module(value.value, imports):
        return f"Name(id={value.attr!r})"
    left_out = set(WITHOUT_EFFECT)
    if isinstance(value, ast.ImportFrom) and _is_ours(str(value.module)):
        left_out.add("module")
    fields = [
        f"{name}={_plain(field, imports)}"
        for name, field in ast.iter_fields(value)
        if name not in left_out and field not in (None, [])
    ]
    return f"{type(value).__name__}({', '.join(fields)})"


def _is_our_module(node: ast.expr, imports: Mapping[str, Reference]) -> bool:
    module, name = imports.get(node.id, ("", "")) if isinstance(node, ast.Name) else ("", "")
    return not name and _is_ours(module)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE.name
