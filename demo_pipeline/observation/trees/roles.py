"""Roles: the role names of UI Automation, macOS AX and AT-SPI, mapped to OSWorld-Desktopd roles.

Belongs here: the lookup in roles.json. A name that is in no table becomes `unknown`.
"""

import json
import re
from functools import cache, lru_cache
from importlib.resources import files
from types import MappingProxyType

UNKNOWN = "unknown"
_TABLE_OF_PLATFORM = {"windows": "uia", "macos": "ax", "linux": "atspi"}
_DROPPED = re.compile(r"[\s\-_]+")


@lru_cache(maxsize=4096)
def canonical_role(raw: str, platform: str) -> str | None:
    """The OSWorld-Desktopd role for a recorder's role name; None when no table has it.

    The table of the platform comes first, then the others, since recorders mix them.
    """
    key = normalised(raw)
    own = _TABLE_OF_PLATFORM.get(platform, "uia")
    for name in (own, *(other for other in _tables() if other != own)):
        role = _tables()[name].get(key)
        if role is not None:
            return role
    return None


@cache
def _tables() -> MappingProxyType[str, dict[str, str]]:
    text = files("demo_pipeline.observation.trees").joinpath("roles.json").read_text("utf-8")
    raw: dict[str, dict[str, str]] = json.loads(text)
    return MappingProxyType(
        {
            table: {normalised(name): role for name, role in names.items()}
            for table, names in raw.items()
        }
    )


@lru_cache(maxsize=4096)
def normalised(raw: str) -> str:
    """A role name in the spelling that is compared: lower case, no separators, no affixes."""
    text = _DROPPED.sub("", raw.lower())
    return text.removeprefix("ax").removesuffix("control") or text
