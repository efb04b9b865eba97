"""Settings whose fixed values a test changes."""

from typing import TypeVar

from demo_pipeline.settings import Section

SectionT = TypeVar("SectionT", bound=Section)


def settings_with(section: type[SectionT], **values: object) -> SectionT:
    """A section with these settings, and with these values in place of its constants."""
    chosen = {name: value for name, value in values.items() if name in section.model_fields}
    constants = {name: value for name, value in values.items() if name not in chosen}
    assert all(hasattr(section, name) for name in constants), constants
    return section.model_validate(chosen).model_copy(update=constants)
