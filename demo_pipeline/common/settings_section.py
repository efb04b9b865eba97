"""A section of the settings: its hash, its former names, and the refusal of unknown names.

Belongs here: what every section shares. The settings themselves are in settings.py.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationInfo, field_validator

PREFIX = "DEMO_PIPELINE_"  # of the variables in the environment


class Section(BaseModel):
    """The settings that one stage depends on."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, allow_inf_nan=False
    )
    RENAMED: ClassVar[Mapping[str, str]] = {}  # former name → name
    # name → its value, why it is gone; None for a name that never was in a hash
    REMOVED: ClassVar[Mapping[str, tuple[JsonValue, str]]] = {}
    SIGNED: ClassVar[frozenset[str]] = frozenset()  # numbers that may be negative
    UNHASHED: ClassVar[frozenset[str]] = frozenset()  # they change no byte of any one output

    @field_validator("*")
    @classmethod
    def _not_negative(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int | float) and value < 0 and info.field_name not in cls.SIGNED:
            raise ValueError("Input should be greater than or equal to 0")
        return value

    def fingerprint(self) -> str:
        """SHA-256 over the values, for the manifests of the outputs that depend on them.

        A renamed setting is hashed under its first name, a removed one with the value that it had:
        another name alone makes no output stale. Those in `UNHASHED` are left out.
        """
        values = self.model_dump(mode="json", exclude=set(self.UNHASHED))
        for former, name in self.RENAMED.items():
            if name in values:
                values[former] = values.pop(name)
        removed = {name: value for name, (value, _) in self.REMOVED.items()}
        values |= {name: value for name, value in removed.items() if value is not None}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def refused_names(names: Iterable[str], fields: Mapping[str, type]) -> Iterator[str]:
    """What is wrong with names of settings: former, removed and unknown ones, a sentence each.

    Args:
        names: of settings, `name` or `section.name`, in the environment or the file.
        fields: name of every setting or section → its type.
    """
    now = {name: name for name in fields}
    removed: dict[str, str] = {}
    for section, kind in fields.items():
        if issubclass(kind, Section):
            now |= {f"{section}.{name}": f"{section}.{name}" for name in kind.model_fields}
            now |= {f"{section}.{old}": f"{section}.{new}" for old, new in kind.RENAMED.items()}
            removed |= {f"{section}.{name}": reason for name, (_, reason) in kind.REMOVED.items()}
    for name in sorted(names):
        if name in removed:
            yield f"setting {_both(name)} was removed: {removed[name]}"
        elif name not in now:
            near = difflib.get_close_matches(name.lower(), now, 1, 0.5)
            hint = f"; the nearest is {_both(now[near[0]])}" if near else ""
            yield f"setting {_both(name)} does not exist{hint}"
        elif now[name] != name:
            yield f"setting {_both(name)} is now called {_both(now[name])}"


def _both(name: str) -> str:
    return f"{name} ({PREFIX}{name.replace('.', '__').upper()})"
