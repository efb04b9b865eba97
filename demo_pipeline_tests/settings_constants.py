"""Changes constants in sections of settings for tests."""

from typing import Any, ClassVar, TypeVar

from demo_pipeline.settings import Section

SectionT = TypeVar("SectionT", bound=Section)


def with_constants(section: type[SectionT], **constants: Any) -> type[SectionT]:
    """Returns a section of settings with other values of its constants.

    An unknown name fails an assertion.
    """
    assert set(constants) <= section.__class_vars__
    names = dict.fromkeys(constants, ClassVar[Any])
    body = {"__module__": section.__module__, "__annotations__": names, **constants}
    metaclass: Any = type(section)
    section_class: type[SectionT] = metaclass(section.__name__, (section,), body)
    return section_class
