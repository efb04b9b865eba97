"""Creates settings with other values for constants, for tests."""

from typing import TypeVar

from demo_pipeline.settings import Section

SectionT = TypeVar("SectionT", bound=Section)


def settings_with(section: type[SectionT], **values: object) -> SectionT:
    """Returns a section of the settings with these values, even for its constants."""
    chosen = {name: value for name, value in values.items() if name in section.model_fields}
    constants = {name: value for name, value in values.items() if name not in chosen}
    assert all(hasattr(section, name) for name in constants), constants
    return section.model_validate(chosen).model_copy(update=constants)
