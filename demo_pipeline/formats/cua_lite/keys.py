"""The names of keys in CUA-Lite's form, and which of our keys they are.

Belongs here: the vocabulary. AgentNet's code may use the same keys, under pyautogui's names.
"""

from collections.abc import Mapping

_SAME = (
    "ctrl alt shift enter tab space backspace delete esc up down left right home end pageup"
    " pagedown insert capslock clear printscreen volumeup volumedown volumemute playpause nexttrack"
    " prevtrack"
)
_FUNCTION_KEYS = tuple(f"f{number}" for number in range(1, 25))
_CHARACTERS = frozenset(map(chr, range(33, 127))) - frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TO_LITE: Mapping[str, str] = {
    **{name: name for name in (*_SAME.split(), *_FUNCTION_KEYS)},
    "win": "meta",
    "command": "meta",
    "apps": "menu",
}
# A key of two names of ours is read as the first; the second key for Enter is read as Enter.
_FROM_LITE: Mapping[str, str] = {
    **{lite: ours for ours, lite in reversed(list(_TO_LITE.items()))},
    "kp_enter": "enter",
}


def to_lite_key(name: str) -> str | None:
    """CUA-Lite's name of one of our keys; None: it has none."""
    return name if name in _CHARACTERS else _TO_LITE.get(name)


def from_lite_key(name: str) -> str | None:
    """Our name of one of CUA-Lite's keys; None: it is not one.

    `meta` is read as `win`, because a key alone does not tell the computer.
    """
    return name if name in _CHARACTERS else _FROM_LITE.get(name)
