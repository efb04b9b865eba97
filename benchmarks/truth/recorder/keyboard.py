"""Which keys type a character on the layout that the X server has now, also with dead keys."""

import unicodedata
from dataclasses import dataclass
from typing import Any

import gi

gi.require_version("Gdk", "3.0")
from gi.repository import Gdk

_SHIFT_OF_COLUMN = {0: (False, False), 1: (True, False), 4: (False, True), 5: (True, True)}
_NO_KEY = 92  # the X server has it for the level of AltGr; no keyboard does
_SECOND_LAYOUT = 2  # columns 2 and 3 of the core keyboard map
_DEAD_KEYS = {
    "\u0300": "dead_grave",
    "\u0301": "dead_acute",
    "\u0302": "dead_circumflex",
    "\u0303": "dead_tilde",
    "\u0308": "dead_diaeresis",
    "\u0327": "dead_cedilla",
    "\u030a": "dead_abovering",
}
_SPACED = {"`": "\u0300", "'": "\u0301", "^": "\u0302", "~": "\u0303", '"': "\u0308"}


@dataclass(frozen=True, slots=True)
class KeyPress:
    """One press of a printable key: its code and the modifiers held with it."""

    code: int
    shift: bool
    altgr: bool = False
    letter: bool = False


class KeyboardMap:
    """Key presses for characters, read from the X server once.

    Attributes:
        second: whether the second of two layouts is active; the caller switches it.
    """

    def __init__(self, display: Any) -> None:
        self.second = False
        first = display.display.info.min_keycode
        count = display.display.info.max_keycode - first + 1
        rows = display.get_keyboard_mapping(first, count)
        self._presses: dict[int, KeyPress] = {}
        self._second_presses: dict[int, KeyPress] = {}
        for code, keysyms in enumerate(rows, start=first):
            if code == _NO_KEY:
                continue
            for column, (shift, altgr) in _SHIFT_OF_COLUMN.items():
                if column < len(keysyms) and keysyms[column]:
                    press = KeyPress(code, shift, altgr, _is_letter(keysyms[0]))
                    self._presses.setdefault(keysyms[column], press)
            for shift in (False, True):
                column = _SECOND_LAYOUT + shift
                if column < len(keysyms) and keysyms[column]:
                    press = KeyPress(code, shift, letter=_is_letter(keysyms[_SECOND_LAYOUT]))
                    self._second_presses.setdefault(keysyms[column], press)

    def named(self, name: str) -> int:
        """The code of a key by its X name on the first layout, such as `Return` or `a`."""
        press = self._presses.get(Gdk.keyval_from_name(name))
        if press is None:
            raise LookupError(f"No key {name} on this keyboard layout.")
        return press.code

    def presses(self, character: str) -> list[KeyPress]:
        """The presses that type a character: of one key, or of a dead key and another one.

        A dead key comes before AltGr, as most people type.
        """
        presses = self._second_presses if self.second else self._presses
        direct = presses.get(Gdk.unicode_to_keyval(ord(character)))
        if direct is not None and not direct.altgr:
            return [direct]
        if character in _SPACED:
            parts = f" {_SPACED[character]}"
        else:
            parts = unicodedata.normalize("NFD", character)
        if len(parts) == 2 and parts[1] in _DEAD_KEYS:
            dead = presses.get(_dead_keysym(parts[1]))
            base = presses.get(ord(parts[0]))
            if dead is not None and base is not None and not dead.altgr:
                return [dead, base]
        if direct is not None:
            return [direct]
        raise LookupError(f"The character {character!r} is not on this keyboard layout.")


def _dead_keysym(mark: str) -> int:
    return int(Gdk.keyval_from_name(_DEAD_KEYS[mark]))


def _is_letter(keysym: int) -> bool:
    """Whether Caps Lock changes the key."""
    return bool(Gdk.keyval_to_upper(keysym) != Gdk.keyval_to_lower(keysym))
