"""Roles: what UIA, AX and AT-SPI call a thing, in seed 001's words.

Belongs here: the lookup over roles.json. A name in no table is `unknown`, and counted.
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
    """Seed 001's role for a recorder's role name; None when no table has it.

    The platform's own table is asked first, then the others: recorders mix them.
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
    """A role name in the one spelling that the tables are compared in."""
    text = _DROPPED.sub("", raw.lower())
    return text.removeprefix("ax").removesuffix("control") or text
