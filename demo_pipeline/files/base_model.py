"""Defines the base class of the pydantic models of all file formats, and validates JSON values.

The models keep keys that they do not declare. Validation reports a rejected value as a `Problem`
with file, line and field instead of raising an exception.
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PlainValidator,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from demo_pipeline.files.json_files import Location, places_in
from demo_pipeline.problems import Problem, Severity

MAX_PROBLEMS = 20  # maximum number of problems per file; the last one counts those left out


def _number(value: Any) -> int | float:
    with suppress(OverflowError):  # `isfinite` raises it for an integer beyond the largest float
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and math.isfinite(value):
            return value  # type: ignore[no-any-return]
    raise ValueError("Input should be a number")


Number = Annotated[int | float, PlainValidator(_number)]
"""A finite int or float. Validation keeps its type: 21 does not become 21.0."""


class Document(BaseModel):
    """The base class for frozen models of JSON objects. Types are strict; undeclared keys are kept.

    Attributes:
        left_out_when_none: names of fields that are not written if their value is None.
    """

    model_config = ConfigDict(
        defer_build=True,
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
        """Returns a dictionary with the declared keys first. Nested models stay models."""
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
    """Yields the location and the message of each error, without the rejected value."""
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        message = fault["msg"].removeprefix("Value error, ")
        # Some messages of pydantic end with "or instance of" and a class unknown to users.
        yield fault["loc"], message.partition(" or instance of ")[0]


def field_name(location: Location) -> str:
    """Returns a location as text, such as `trajectories[3].steps`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def check(
    model: type[DocumentT], value: Any, file: str, text: str = "", *, line: int | None = None
) -> tuple[DocumentT | None, list[Problem]]:
    """Validates a JSON value against a model.

    Args:
        text: the JSON text of the value, from which the lines of problems are computed.
        line: the line number of all problems; replaces `text` for values in JSON Lines files.

    Returns:
        The instance and a warning about undeclared keys; or None and an error for each wrong field.
    """
    try:
        document = model.model_validate(value)
    except ValidationError as error:
        place_of = places_in(text)
        problems = []
        for location, message in explain(error):
            at, column = place_of(location)
            problem = Problem(
                "invalid_field",
                file,
                f"{field_name(location) or 'document'}: {message}",
                line=line or at,
                column=column,
                remedy="correct the field",
            )
            problems.append(problem)
        return None, limited(problems)
    unknown = sorted(unknown_fields(document))
    if not unknown:
        return document, []
    message = f"unknown keys, which are kept: {', '.join(unknown[:MAX_PROBLEMS])}"
    warning = Severity.WARNING
    return document, [Problem("unknown_field", file, message, line=line, severity=warning)]


def unknown_fields(document: Document) -> set[str]:
    """Returns the undeclared keys of a document and of the documents in its fields."""
    names = {repr(name)[1:-1] for name in document.__pydantic_extra__ or {}}
    for value in vars(document).values():
        children = value if isinstance(value, list | tuple) else (value,)
        for child in children:
            if isinstance(child, Document):
                names |= unknown_fields(child)
    return names


def limited(problems: list[Problem]) -> list[Problem]:
    """Returns at most `MAX_PROBLEMS` problems; the last one counts the problems left out."""
    if len(problems) <= MAX_PROBLEMS:
        return problems
    last = problems[MAX_PROBLEMS - 1]
    more = len(problems) - MAX_PROBLEMS + 1
    summary = Problem(last.code, last.file, f"and {more} more problems", line=last.line)
    return [*problems[: MAX_PROBLEMS - 1], summary]
