"""Problems of demonstrations and datasets, and the exception that carries them.

Every package may import this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

_INT64_END = 2**63  # numbers in a problem are stored as int64, so they must be smaller


class Severity(StrEnum):
    """How severe a problem is. An error makes the examined data invalid, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault in a file, and what a person can do about it.

    Attributes:
        code: short stable name of the kind of problem, e.g. `missing_file`.
        file: path relative to the examined folder, e.g. `meta.json`, `train.jsonl`.
        message: what is wrong, with the expected and the actual value where both exist. It never
            contains typed text.
        line: 1-based line number in a text file; None if unknown.
        frame: 0-based frame number in presentation order in a video; None if unknown.
        remedy: what a person can do about the problem.
        severity: `error` or `warning`.
        demonstration: id of the demonstration; empty if the problem concerns several or none.
        byte: 0-based offset in `file`; None if unknown.
        column: 1-based position in a JSON file of a single line; None for other files.
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
    column: int | None = None

    @property
    def location(self) -> str:
        """Where the problem is: `file`, `file:line`, `file:line:column` or `file@frame`."""
        if self.line is not None:
            column = "" if self.column is None else f":{self.column}"
            return f"{self.file}:{self.line}{column}"
        if self.frame is not None:
            return f"{self.file}@{self.frame}"
        return self.file

    def __str__(self) -> str:
        who = f"{self.demonstration}: " if self.demonstration else ""
        place = "" if self.location == "." else f"{self.location}: "
        todo = f" ({self.remedy})" if self.remedy else ""
        return f"{who}{place}{self.message}{todo}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields of the problem as a JSON object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, object], *, demonstration: str | None = None) -> Self:
        """Creates a problem from the result of `as_dict`.

        Unknown keys are ignored, so that results of other versions are accepted. If a value is
        missing or invalid, a text becomes empty, a number becomes None, and the severity becomes
        `error`.

        Args:
            demonstration: id of the demonstration. If None, the id in `values` is used.
        """
        return cls(
            _text(values, "code"),
            _text(values, "file"),
            _text(values, "message"),
            line=_number(values, "line"),
            frame=_number(values, "frame"),
            remedy=_text(values, "remedy"),
            severity=_severity(values.get("severity")),
            demonstration=(
                _text(values, "demonstration") if demonstration is None else demonstration
            ),
            byte=_number(values, "byte"),
            column=_number(values, "column"),
        )


def _text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _number(values: Mapping[str, object], name: str) -> int | None:
    value = values.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _INT64_END:
        return value
    return None


def _severity(value: object) -> Severity:
    return Severity.WARNING if value == Severity.WARNING else Severity.ERROR


class DemonstrationError(Exception):
    """Raised if a demonstration cannot be processed. Other demonstrations are not affected."""

    def __init__(self, problems: Problem | Sequence[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems,))


def warning(
    code: str, file: str, message: str, remedy: str = "", line: int | None = None
) -> Problem:
    """Returns a problem of severity `warning`, with the arguments as fields of `Problem`."""
    return Problem(code, file, message, line, remedy=remedy, severity=Severity.WARNING)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Returns the problems of severity `error`."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]
