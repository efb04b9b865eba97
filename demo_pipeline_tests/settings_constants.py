"""Settings whose constants are others: what no setting changes, a test may."""

from typing import Any, ClassVar, TypeVar

from demo_pipeline.settings import Section

SectionT = TypeVar("SectionT", bound=Section)


def with_constants(section: type[SectionT], **constants: Any) -> type[SectionT]:
    """A section of settings with other constants; unknown names are refused."""
    assert set(constants) <= section.__class_vars__
    names = dict.fromkeys(constants, ClassVar[Any])
    body = {"__module__": section.__module__, "__annotations__": names, **constants}
    metaclass: Any = type(section)
    made: type[SectionT] = metaclass(section.__name__, (section,), body)
    return made
