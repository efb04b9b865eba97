"""What can be wrong with a demonstration or a dataset, said so that a person can act on it.

Belongs here: the one type for a finding and the one exception that carries it. A leaf that every
package may import.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """An `error` makes the thing invalid; a `warning` is worth knowing and stops nothing."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `message` never carries what a person typed.

    Attributes:
        code: short stable name of the kind of problem, e.g. `missing_file`.
        file: path relative to the thing examined, e.g. `meta.json`, `train.jsonl`.
        message: what is wrong, with expected and actual where both exist.
        line: 1-based line number in `file`, where lines matter.
        frame: 0-based frame number in presentation order, for videos.
        remedy: what to do about it.
        severity: `error` or `warning`.
        demonstration: id of the demonstration, when the finding belongs to one.
        byte: 0-based offset in `file`, where it is known.
    """

    code: str
    file: str
    message: str
    line: int | None = None
    frame: int | None = None
    remedy: str = ""
    severity: Severity = Severity.ERROR
    demonstration: str = ""
    byte: int | None = None

    @property
    def location(self) -> str:
        """`file`, `file:line` or `file@frame`."""
        if self.line is not None:
            return f"{self.file}:{self.line}"
        if self.frame is not None:
            return f"{self.file}@{self.frame}"
        return self.file

    def __str__(self) -> str:
        who = f"{self.demonstration}: " if self.demonstration else ""
        todo = f" ({self.remedy})" if self.remedy else ""
        return f"{who}{self.location}: {self.message}{todo}"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, every key present."""
        return asdict(self)


class DemonstrationError(Exception):
    """One demonstration cannot go on. Carries the problems; costs nobody else anything."""

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems,))


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """The findings that make a thing invalid."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]
