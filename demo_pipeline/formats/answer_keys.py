"""What the decoders of answers share: the other names that a key of an answer may have.

Belongs here: the aliases. Written datasets are read without them: a key there has our name.
"""

from collections.abc import Mapping

from demo_pipeline.formats.desktopd.vocabulary import is_canonical_key

_ALIASES: Mapping[str, str] = {
    "return": "enter",
    "escape": "esc",
    "del": "delete",
    "ins": "insert",
    "pgup": "pageup",
    "pgdn": "pagedown",
    "cmd": "command",
    "option": "alt",
    "control": "ctrl",
    "windows": "win",
    **{
        f"{key}{side}": key for key in ("ctrl", "shift", "alt", "win") for side in ("left", "right")
    },
    "prtsc": "printscreen",
    " ": "space",
}


def answered_key(name: str) -> str:
    """Our name of a key that an answer names in another way; an unknown name stays as it is.

    Case does not count, so that `Enter`, `Return` and `return` are `enter`; of the two keys of a
    name (`ctrlleft`, `ctrlright`) we have one.
    """
    lower = name.strip().lower() or name
    known = _ALIASES.get(lower, lower)
    return known if is_canonical_key(known) else name
