"""A broken rule of a CUDAG dataset, before it is known in which file and line.

Belongs here: the type that the checks of a record yield, and how foreign names get into messages.
"""

from dataclasses import dataclass
from enum import Enum, auto

from demo_pipeline.problems import Problem, Severity


class Scope(Enum):
    """Whose rule it is. An error is: `SEED` always, the others only in a dataset of ours.

    In datasets by others a broken `SHARED` rule is a warning and an `OURS` rule does not exist. A
    `NOTE` is a warning in both.
    """

    SEED = auto()
    SHARED = auto()
    OURS = auto()
    NOTE = auto()


@dataclass(frozen=True, slots=True)
class CudagFault:
    """One broken rule; the caller knows the file and the line."""

    code: str
    message: str
    remedy: str = ""
    scope: Scope = Scope.SEED

    def problem(self, file: str, line: int | None, *, ours: bool) -> Problem | None:
        """The finding at its place, or None where the rule does not hold (see `Scope`)."""
        if self.scope is Scope.OURS and not ours:
            return None
        mild = self.scope is Scope.NOTE or (self.scope is Scope.SHARED and not ours)
        severity = Severity.WARNING if mild else Severity.ERROR
        return Problem(self.code, file, self.message, line, remedy=self.remedy, severity=severity)


def shown(text: str) -> str:
    """A name or a path for a message: one line, at most 120 characters, printable anywhere."""
    safe = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:120])
    return "".join(safe)
