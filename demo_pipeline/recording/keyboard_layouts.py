"""Keyboard layouts of countries: the characters of each key, alone and with Shift or AltGr.

The tables name a key by its character without modifiers, and contain its place, its Windows virtual
key, and whether it is a dead key, which types nothing until the next key.

Sources: Microsoft's published layouts (kbduk, kbdgr, kbdfr, kbdsp, kbdit, kbdusx, kbdru), the basic
variants of xkeyboard-config, and its `us(intl)`. The French and Russian layouts of macOS are
Apple's.
"""

# ruff: noqa: RUF001 - the tables consist of characters that look alike

import unicodedata
from dataclasses import dataclass, replace
from functools import cache


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The key names of the library rdev on Linux and macOS, row by row. Each name stands for a position
# on the keyboard. The strings of `CountryLayout` have the same order.
_PLACES = _names("""
    BackQuote Num1 Num2 Num3 Num4 Num5 Num6 Num7 Num8 Num9 Num0 Minus Equal
    KeyQ KeyW KeyE KeyR KeyT KeyY KeyU KeyI KeyO KeyP LeftBracket RightBracket
    KeyA KeyS KeyD KeyF KeyG KeyH KeyJ KeyK KeyL SemiColon Quote BackSlash
    IntlBackslash KeyZ KeyX KeyC KeyV KeyB KeyN KeyM Comma Dot Slash
""")
_DIGITS = _names("Zero One Two Three Four Five Six Seven Eight Nine")
# Names of the Windows virtual keys OEM_1 … OEM_8, OEM_PLUS, OEM_MINUS, OEM_COMMA, OEM_PERIOD and
# OEM_102 in the libraries multiinput (for British keyboards) and rdev. "-" means no name.
_MULTIINPUT = _names("""
    SemiColon ForwardSlash Apostrophe LeftSquareBracket BackSlash RightSquareBracket Hash BackTick
    Plus Minus Comma FullStop -
""")
_RDEV_ON_WINDOWS = _names("""
    SemiColon Slash BackQuote LeftBracket BackSlash RightBracket Quote - Equal Minus Comma Dot
    IntlBackslash
""")
# Maps multiinput's key names to the characters on the US keyboard.
_US_NAMES = dict(zip(_MULTIINPUT[:-1], ";/'[\\]#`=-,.", strict=True))
# On a Mac, the key next to the left Shift and the key next to the 1 have swapped key codes.
_SWAPPED = {"BackQuote": "IntlBackslash", "IntlBackslash": "BackQuote"}


@dataclass(frozen=True)
class CountryLayout:
    """The characters of a keyboard.

    Attributes:
        alone: character of each key without modifiers, in the order of `_PLACES`.
        shifted: character of each key with Shift, in the same order; a space if it has none.
        with_altgr: pairs of a key and its character with AltGr. Not used on a Mac, where Option
            types other characters.
        dead: accents of the dead keys. Most are dead only without AltGr. On French and Spanish
            keyboards, `~` and the backquote are dead with AltGr. The Spanish backquote is dead
            without AltGr, too.
        virtual: the key for each Windows virtual key OEM_1 … OEM_102, in the order of
            `_MULTIINPUT`; a space if there is none. If empty, Windows recorders use the key names
            of the US keyboard.
        with_both: pairs of a key and its character with Shift and AltGr.
    """

    alone: str
    shifted: str
    with_altgr: str = ""
    dead: str = ""
    virtual: str = ""
    with_both: str = ""


_DE = CountryLayout(
    "^1234567890ß´qwertzuiopü+asdfghjklöä#<yxcvbnm,.-",
    "°!\"§$%&/()=?`QWERTZUIOPÜ*ASDFGHJKLÖÄ'>YXCVBNM;:_",
    "q@e€2²3³7{8[9]0}ß\\+~<|mµ",
    "^´`",
    "ü#öß^´ä +-,.<",
)
_ES = CountryLayout(
    "º1234567890'¡qwertyuiop`+asdfghjklñ´ç<zxcvbnm,.-",
    'ª!"·$%&/()=?¿QWERTYUIOP^*ASDFGHJKLÑ¨Ç>ZXCVBNM;:_',
    "º\\1|2@3#4~5€6¬e€`[+]´{ç}",
    "^´`¨~",
    "`çñ'º¡´ +-,.<",
)
_FR = CountryLayout(
    "²&é\"'(-è_çà)=azertyuiop^$qsdfghjklmù*<wxcvbn,;:!",
    " 1234567890°+AZERTYUIOP¨£QSDFGHJKLM%µ>WXCVBN?./§",
    "é~\"#'{([-|è`_\\ç^à@)]=}e€$¤",
    "^¨~`",
    "$:ù)*^²!= ,;<",
)
_FR_MAC = CountryLayout(
    "@&é\"'(§è!çà)-azertyuiop^$qsdfghjklmù`<wxcvbn,;:=",
    "#1234567890°_AZERTYUIOP¨*QSDFGHJKLM%£>WXCVBN?./+",
    dead="^¨",
)
_IT = CountryLayout(
    "\\1234567890'ìqwertyuiopè+asdfghjklòàù<zxcvbnm,.-",
    '|!"£$%&/()=?^QWERTYUIOPé*ASDFGHJKLç°§>ZXCVBNM;:_',
    "5€e€è[+]ò@à#",
    "",
    "èùò'\\ìà +-,.<",
    "è{+}",
)
_US_INTL = CountryLayout(
    "`1234567890-=qwertyuiop[]asdfghjkl;'\\\\zxcvbnm,./",
    '~!@#$%^&*()_+QWERTYUIOP{}ASDFGHJKL:"||ZXCVBNM<>?',
    "1¡2²3³4¤5€6¼7½8¾9‘0’-¥=×qäwåeér®tþyüuúiíoópö[«]»aásßdðlø;¶'´\\¬zæc©nñmµ,ç/¿",
    "'\"`~^",
    "",
    "1¹4£=÷qÄwÅeÉtÞyÜuÚiÍoÓpÖaÁs§dÐlØ;°'¨\\¦zÆc¢nÑ,Ç",
)
# With AltGr, some keys type other characters on Linux than on Windows. Seven more dead keys with
# AltGr and Shift are left out here.
_US_INTL_LINUX = replace(
    _US_INTL,
    with_altgr="`"
    "`1¡2²3³4¤5€6¼7½8¾9‘0’-¥=×qäwåeér®tþyüuúiíoópö[«]»"
    "aásßdðffgghhjjkœlø;¶''\\¬zæxxc©vvbbnñmµ,ç/¿",
    with_both="`~1¹4£6^=÷qÄwÅeÉr®tÞyÜuÚiÍoÓpÖ[“]”aÁs§dÐfFgGhHjJkŒlØ;°'\"\\¦zÆxXc¢vVbBnÑmµ,Ç",
)
_US_INTL_MAC = CountryLayout(
    "§1234567890-=qwertyuiop[]asdfghjkl;'\\`zxcvbnm,./",
    '±!@#$%^&*()_+QWERTYUIOP{}ASDFGHJKL:"|~ZXCVBNM<>?',
    dead="'\"`~^",
)
_RU = CountryLayout(
    "ё1234567890-=йцукенгшщзхъфывапролджэ\\\\ячсмитьбю.",
    'Ё!"№;%:?*()_+ЙЦУКЕНГШЩЗХЪФЫВАПРОЛДЖЭ//ЯЧСМИТЬБЮ,',
    "8₽",
    "",
    "ж.ёх\\ъэ =-бю\\",
)
# On Linux, the key next to the left Shift types `/` without modifiers and `|` with Shift
# (xkeyboard-config).
_RU_LINUX = replace(
    _RU,
    alone="ё1234567890-=йцукенгшщзхъфывапролджэ\\/ячсмитьбю.",
    shifted='Ё!"№;%:?*()_+ЙЦУКЕНГШЩЗХЪФЫВАПРОЛДЖЭ/|ЯЧСМИТЬБЮ,',
)
_RU_MAC = CountryLayout(
    ">1234567890-=йцукенгшщзхъфывапролджэё]ячсмитьбю/",
    '<!"№%:,.;()_+ЙЦУКЕНГШЩЗХЪФЫВАПРОЛДЖЭЁ[ЯЧСМИТЬБЮ?',
)
_COUNTRIES = {"de": _DE, "es": _ES, "fr": _FR, "it": _IT, "us-intl": _US_INTL, "ru": _RU}
_OTHERS_BY_PLATFORM = {
    ("fr", "macos"): _FR_MAC,
    ("ru", "macos"): _RU_MAC,
    ("ru", "linux"): _RU_LINUX,
    ("us-intl", "linux"): _US_INTL_LINUX,
    ("us-intl", "macos"): _US_INTL_MAC,
}
# Maps the accent of a dead key to its combining mark.
COMBINING = {"^": "\u0302", "´": "\u0301", "`": "\u0300", "¨": "\u0308", "~": "\u0303"}
COMBINING |= {"ˇ": "\u030c", "¸": "\u0327", "˘": "\u0306", "˙": "\u0307", "˚": "\u030a"}
COMBINING |= {"˝": "\u030b", "˛": "\u0328"}
COMBINING |= {"'": COMBINING["´"], '"': COMBINING["¨"]}
_BY_ALTGR = "~`"  # accents whose dead keys need AltGr on French and Spanish keyboards


@dataclass(frozen=True, slots=True)
class CountryKey:
    """The characters that a key types without modifiers, with Shift, with AltGr, and with both.

    A missing or unknown character is an empty string.
    """

    alone: str
    shifted: str
    altgr: str = ""
    both: str = ""


@cache
def country_keys(layout: str, platform: str) -> dict[str, CountryKey]:
    """Returns a dictionary from the key names that recorders log to the keys' characters.

    The result is empty for layouts that are not in this module.
    """
    mac = platform == "macos"
    table = _OTHERS_BY_PLATFORM.get((layout, platform), _COUNTRIES.get(layout))
    if table is None:
        return {}
    altgr: dict[str, str] = {}
    both: dict[str, str] = {}
    if not mac:
        altgr = dict(zip(table.with_altgr[::2], table.with_altgr[1::2], strict=True))
        both = dict(zip(table.with_both[::2], table.with_both[1::2], strict=True))
    keys = {
        alone: CountryKey(alone, shifted.strip(), altgr.get(alone, ""), both.get(alone, ""))
        for alone, shifted in zip(table.alone, table.shifted, strict=True)
    }
    places = {name: keys[alone] for name, alone in zip(_PLACES, table.alone, strict=True)}
    places |= {word: places[f"Num{digit}"] for digit, word in enumerate(_DIGITS)}
    if mac:
        return places | {name: places[other] for name, other in _SWAPPED.items()}
    # A letter key is named by its Latin letter, or else by its letter on the US keyboard.
    letters = {name[3:]: key for name, key in places.items() if name.startswith("Key")}
    letters |= {alone.upper(): key for alone, key in keys.items() if alone in _LETTERS}
    if platform == "linux":
        return letters | places
    places |= {f"Key{name}": key for name, key in letters.items()}
    if not table.virtual:
        places |= {name: keys[char] for name, char in _US_NAMES.items() if char in keys}
        return letters | places
    for names in (_RDEV_ON_WINDOWS, _MULTIINPUT):
        for name, virtual in zip(names, table.virtual, strict=True):
            if virtual in keys:
                places[name] = keys[virtual]
    return letters | places


_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")


def is_dead(layout: str, char: str, *, altgr: bool) -> bool:
    """Returns whether a key is a dead key, which types nothing until the next key.

    Args:
        char: the character that the key has with the held modifiers.
        altgr: whether AltGr is held.
    """
    table = _COUNTRIES.get(layout)
    if table is None or char not in table.dead:
        return False
    if layout in {"fr", "es"} and char in _BY_ALTGR:
        return altgr or (layout == "es" and char == "`")
    return not altgr


_VOWELS = "aeiouAEIOU"
# The letters that combine with each accent on Windows. Before other letters, the accent is typed as
# a separate character.
_JOINED_ON_WINDOWS = {
    "´": _VOWELS + "yY",
    "'": _VOWELS + "yYcC",
    "`": _VOWELS,
    "^": _VOWELS,
    "¨": _VOWELS + "y",
    '"': _VOWELS + "y",
    "~": "anoANO",
}
_QUOTES = frozenset("'\"")  # accents whose keys are dead keys only on US-International keyboards
_CEDILLAS = {"c": "ç", "C": "Ç"}  # characters that letters type after the dead apostrophe
_SPACING_ON_LINUX = {"´": "'", "¨": '"'}  # maps an accent to what its dead key and Space type
_TWICE_ON_LINUX = {"'": "´", '"': "¨"}  # maps an accent to what pressing its dead key twice types


def accented(accent: str, char: str, platform: str) -> str:
    """Returns the text that is typed by a dead key followed by another key.

    The text is a letter with an accent, the accent alone if the other key is Space, or the accent
    followed by the character. On Linux, a dead key that is followed by Space or pressed twice types
    its accent, or the character in `_SPACING_ON_LINUX` or `_TWICE_ON_LINUX` instead. In two other
    cases, the text is unknown on Linux, and the result is empty:

    - The accent and the character do not combine. The text then depends on the GUI toolkit.
    - An apostrophe precedes a c. The text then depends on the locale.
    """
    composed = unicodedata.normalize("NFC", char + COMBINING.get(accent, ""))
    joins = accent in COMBINING and len(composed) == 1
    if platform == "linux":
        if char == " ":
            return _SPACING_ON_LINUX.get(accent, accent)
        if char == accent:
            return _TWICE_ON_LINUX.get(accent, accent)
        return composed if joins and (accent, char.lower()) != ("'", "c") else ""
    if char == " ":
        return accent
    if accent == "'" and char in _CEDILLAS:
        return _CEDILLAS[char]
    if accent in _JOINED_ON_WINDOWS and (platform != "macos" or accent in _QUOTES):
        joins = char in _JOINED_ON_WINDOWS[accent]
    if joins:
        return composed
    return accent + char
