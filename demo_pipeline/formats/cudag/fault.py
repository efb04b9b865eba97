"""The type for a broken rule of a CUDAG dataset, and the scope of a rule."""

from dataclasses import dataclass
from enum import Enum, auto

from demo_pipeline.common.json_files import JsonFileError
from demo_pipeline.problems import Problem, Severity


class Scope(Enum):
    """Which datasets a rule applies to, and how severe breaking it is.

    Attributes:
        FORMAT: a rule of the CUDAG document: an error in every dataset.
        SHARED: a rule of this pipeline: an error in its own datasets, a warning in others.
        OURS: a rule of this pipeline: an error in its own datasets, not checked in others.
        NOTE: a warning in every dataset.
    """

    FORMAT = auto()
    SHARED = auto()
    OURS = auto()
    NOTE = auto()


@dataclass(frozen=True, slots=True)
class CudagFault:
    """One broken rule, without the file and line, which the caller knows."""

    code: str
    message: str
    remedy: str = ""
    scope: Scope = Scope.FORMAT
    column: int | None = None

    def problem(self, file: str, line: int | None, *, ours: bool) -> Problem | None:
        """The problem at a file and line; None if the rule does not apply (see `Scope`).

        Args:
            file: the file name in the problem.
            line: 1-based line, if known.
            ours: whether this pipeline made the dataset.
        """
        if self.scope is Scope.OURS and not ours:
            return None
        is_warning = self.scope is Scope.NOTE or (self.scope is Scope.SHARED and not ours)
        severity = Severity.WARNING if is_warning else Severity.ERROR
        return Problem(
            self.code,
            file,
            self.message,
            line,
            remedy=self.remedy,
            severity=severity,
            column=self.column,
        )


def json_fault(error: JsonFileError, scope: Scope = Scope.FORMAT) -> CudagFault:
    """The fault of a text that is not JSON."""
    return CudagFault("invalid_json", error.message, scope=scope, column=error.column)


LocatedFault = tuple[str, int | None, CudagFault]
"""File name, line and fault."""


def printable(text: str) -> str:
    """A name or path for a message: at most 120 characters on one line, escaped where needed."""
    safe = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:120])
    return "".join(safe)
