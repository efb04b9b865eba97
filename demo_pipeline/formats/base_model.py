"""The base of every model, and findings about values that a model rejects.

Belongs here: what all formats share about models. A model keeps keys it does not know, and what is
wrong with a value becomes a `Problem` with file, line and field instead of an exception.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from demo_pipeline.common.deep_json import Location, line_numbers
from demo_pipeline.problems import Problem, Severity

MAX_PROBLEMS = 20  # a file; what follows is counted


def _number(value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise ValueError("Input should be a number")


Number = Annotated[int | float, PlainValidator(_number)]
"""An int or float as JSON has it: 21 stays 21."""


class Document(BaseModel):
    """A frozen model of one JSON object. Types are strict, unknown keys are kept."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        strict=True,
        allow_inf_nan=False,
        populate_by_name=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
    )

    left_out_when_none: ClassVar[frozenset[str]] = frozenset()

    def members(self) -> dict[str, Any]:
        """What is written for this object, one level: declared keys in order, then the others."""
        declared = {
            name: getattr(self, name)
            for name, field in type(self).model_fields.items()
            if not field.exclude
            and not (name in self.left_out_when_none and getattr(self, name) is None)
        }
        return declared | (self.__pydantic_extra__ or {})

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {
            key: value
            for key, value in data.items()
            if value is not None or key not in self.left_out_when_none
        }


DocumentT = TypeVar("DocumentT", bound=Document)


def explain(error: ValidationError) -> Iterator[tuple[Location, str]]:
    """Yield (location, what was expected there) for each fault; never the rejected value."""
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        yield fault["loc"], fault["msg"].removeprefix("Value error, ")


def field_name(location: Location) -> str:
    """A location as a person writes it: `trajectories[3].steps`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def line_of(lines: Mapping[Location, int], location: Location) -> int | None:
    """The line of a value, or of the nearest object around it that has one."""
    for length in range(len(location), -1, -1):
        if location[:length] in lines:
            return lines[location[:length]]
    return None


def check(
    model: type[DocumentT], value: Any, file: str, text: str = "", *, line: int | None = None
) -> tuple[DocumentT | None, list[Problem]]:
    """The model of a value, or None and why not.

    Args:
        model: what the value should be.
        value: a JSON value.
        file: what problems are filed under.
        text: the JSON text of the value, for line numbers.
        line: the line of all problems, instead, for files of one document a line.

    Returns:
        The model with a warning about unknown keys, if any; or None with one error a field.
    """
    try:
        document = model.model_validate(value)
    except ValidationError as error:
        lines = line_numbers(text) if text else {}
        faults = list(explain(error))
        problems = [
            Problem(
                "invalid_field",
                file,
                f"{field_name(location) or 'document'}: {message}",
                line=line or line_of(lines, location),
                remedy="correct the field",
            )
            for location, message in faults
        ]
        return None, limited(problems)
    unknown = sorted(unknown_fields(document))
    if not unknown:
        return document, []
    names = ", ".join(unknown[:MAX_PROBLEMS])
    warning = Problem(
        "unknown_field",
        file,
        f"keys outside the format, kept as they are: {names}",
        line=line,
        severity=Severity.WARNING,
    )
    return document, [warning]


def unknown_fields(document: Document) -> set[str]:
    """Names of keys the models do not declare, in this document and in those below it."""
    names = {repr(name)[1:-1] for name in document.__pydantic_extra__ or {}}
    for value in vars(document).values():
        below = value if isinstance(value, list | tuple) else (value,)
        for child in below:
            if isinstance(child, Document):
                names |= unknown_fields(child)
    return names


def limited(problems: list[Problem]) -> list[Problem]:
    """At most `MAX_PROBLEMS` of one file's problems; the last says how many more there are."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    last = problems[MAX_PROBLEMS - 1]
    more = len(problems) - MAX_PROBLEMS + 1
    summary = Problem(last.code, last.file, f"and {more} more problems", line=last.line)
    return [*problems[: MAX_PROBLEMS - 1], summary]
