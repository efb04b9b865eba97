"""Finds the calls in a Python program in the order of their execution, without executing them.

The program is untrusted. Literals, arithmetic, assignments of variables and loops over `range` are
allowed. Imports, `pass` and assignments to attributes are ignored. Any other statement is an error.
"""

import ast
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_MOST_CHARACTERS = 100_000  # longer programs are rejected
# Maximum number of executed statements. Only loops can exceed this number, because a program of
# `_MOST_CHARACTERS` contains fewer statements.
_MOST_STATEMENTS = 100_000
_OPERATORS: Mapping[type[ast.operator], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


class UnreadCodeError(Exception):
    """Raised if code cannot be read; the message contains the reason without quoting the code."""


class NotPythonError(UnreadCodeError):
    """Raised if code is not valid Python, so it cannot have had any effect."""


class PythonProgram:
    """A parsed program, whose calls can be iterated.

    Raises:
        NotPythonError: the code is not Python.
        UnreadCodeError: the code is too long.
    """

    def __init__(self, code: str) -> None:
        if len(code) > _MOST_CHARACTERS:
            raise UnreadCodeError("the code is too long")
        self._variables: dict[str, Any] = {}
        self._statements_done = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise NotPythonError("the code is not Python") from None

    def calls(self) -> Iterator[ast.Call]:
        """Yields the calls in order of execution.

        Evaluate the arguments of a call with `value` before you request the next call, because
        later statements may change the variables.

        Raises:
            UnreadCodeError: the program contains a statement that is not allowed, or executes too
                many statements.
        """
        return self._calls(self._tree.body)

    def _calls(self, body: Iterable[ast.stmt]) -> Iterator[ast.Call]:
        for statement in body:
            self._statements_done += 1
            if self._statements_done > _MOST_STATEMENTS:
                raise UnreadCodeError("the code does too much")
            match statement:
                case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(ast.Constant()):
                    continue
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._variables[name] = self.value(value)
                case ast.Assign(targets=[ast.Attribute()]):  # such as pyautogui.FAILSAFE = False
                    continue
                case ast.Expr(ast.Call() as call):
                    yield call
                case ast.For(
                    target=ast.Name(id=name),
                    iter=ast.Call(func=ast.Name(id="range"), args=bounds),
                    body=inner,
                    orelse=[],
                ):
                    for turn in range(*(int(self.value(bound)) for bound in bounds)):
                        self._variables[name] = turn
                        yield from self._calls(inner)
                case _:
                    raise UnreadCodeError("the code has a statement that is not read")

    def value(self, node: ast.expr) -> Any:
        """Returns the value of a literal, a variable, or an arithmetic expression.

        Raises:
            UnreadCodeError, ValueError: the expression is of another kind.
        """
        match node:
            case ast.Name(id=name) if name in self._variables:
                return self._variables[name]
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                first = self.value(left)
                second = self.value(right)
                if isinstance(first, int | float) and isinstance(second, int | float):
                    return _OPERATORS[type(sign)](first, second)
                if isinstance(first, str) and isinstance(second, str):
                    return first + second
            case ast.Call(func=ast.Name(id="int" | "round"), args=[inner], keywords=[]):
                return round(float(self.value(inner)))
            case _:
                return ast.literal_eval(node)
        raise UnreadCodeError("the code has a value that is not a literal")
