"""The keyboards of some countries as data: which character each key types.

A key is named by the character that it types without modifiers. For each key there are the
characters with Shift and AltGr, whether it is an accent that types nothing until the next key, its
place, and its virtual key on Windows. Sources: Microsoft's published layouts (kbduk, kbdgr, kbdfr,
kbdsp, kbdit, kbdusx, kbdru), and the basic variants of xkeyboard-config and its `us(intl)`. The
French and Russian layouts of macOS are Apple's.
"""

# ruff: noqa: RUF001 - accents are what this is about

import unicodedata
from dataclasses import dataclass, replace
from functools import cache


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The names of keys by place, row by row, as rdev logs them on Linux and macOS.
_PLACES = _names("""
    BackQuote Num1 Num2 Num3 Num4 Num5 Num6 Num7 Num8 Num9 Num0 Minus Equal
    KeyQ KeyW KeyE KeyR KeyT KeyY KeyU KeyI KeyO KeyP LeftBracket RightBracket
    KeyA KeyS KeyD KeyF KeyG KeyH KeyJ KeyK KeyL SemiColon Quote BackSlash
    IntlBackslash KeyZ KeyX KeyC KeyV KeyB KeyN KeyM Comma Dot Slash
""")
_DIGITS = _names("Zero One Two Three Four Five Six Seven Eight Nine")
# OEM_1 … OEM_8, OEM_PLUS, OEM_MINUS, OEM_COMMA, OEM_PERIOD, OEM_102: as the multiinput library
# names them, which has British names, and as rdev does on Windows. Both name a letter by its key.
_MULTIINPUT = _names("""
    SemiColon ForwardSlash Apostrophe LeftSquareBracket BackSlash RightSquareBracket Hash BackTick
    Plus Minus Comma FullStop -
""")
_RDEV_ON_WINDOWS = _names("""
    SemiColon Slash BackQuote LeftBracket BackSlash RightBracket Quote - Equal Minus Comma Dot
    IntlBackslash
""")
# The character of the US keyboard that each name of multiinput stands for.
_US_NAMES = dict(zip(_MULTIINPUT[:-1], ";/'[\\]#`=-,.", strict=True))
# On a Mac the two keys beside the left Shift and the 1 have each other's key codes.
_SWAPPED = {"BackQuote": "IntlBackslash", "IntlBackslash": "BackQuote"}


@dataclass(frozen=True)
class CountryLayout:
    """The characters of a keyboard.

    Attributes:
        alone, shifted: of the keys, in the order of their places.
        with_altgr: pairs of a key and its character with AltGr; on a Mac that is Option, and other.
        with_both: the same with Shift and AltGr.
        dead: accents, with Shift, AltGr or without; on French and Spanish keyboards `~` and a
            backquote only with AltGr.
        virtual: the keys of OEM_1 … OEM_102, with a space where no key has the code; empty where
            Windows recorders name keys by the US keyboard.
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
# Some keys type other characters with AltGr than on Windows. AltGr and Shift make seven more dead
# keys there, whose characters are left unknown.
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
# xkeyboard-config has `|` where Windows has `/` on the key beside the left Shift, whose character
# alone is `/`: the only difference.
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
# The accents of dead keys and their combining marks.
COMBINING = {"^": "\u0302", "´": "\u0301", "`": "\u0300", "¨": "\u0308", "~": "\u0303"}
COMBINING |= {"ˇ": "\u030c", "¸": "\u0327", "˘": "\u0306", "˙": "\u0307", "˚": "\u030a"}
COMBINING |= {"˝": "\u030b", "˛": "\u0328"}
COMBINING |= {"'": COMBINING["´"], '"': COMBINING["¨"]}
_BY_ALTGR = "~`"  # dead only there, where a key alone or with Shift types another character


@dataclass(frozen=True, slots=True)
class CountryKey:
    """What a key types: alone, with Shift, with AltGr and with both; empty: nothing, or unknown."""

    alone: str
    shifted: str
    altgr: str = ""
    both: str = ""


@cache
def country_keys(layout: str, platform: str) -> dict[str, CountryKey]:
    """The keys that type a character, by the names that recorders on a platform log.

    Empty for a layout that is not of this module.
    """
    mac = platform == "macos"
    table = _OTHERS_BY_PLATFORM.get((layout, platform), _COUNTRIES.get(layout))
    if table is None:
        return {}
    altgr, both = (
        {} if mac else dict(zip(pairs[::2], pairs[1::2], strict=True))
        for pairs in (table.with_altgr, table.with_both)
    )
    keys = {
        alone: CountryKey(alone, shifted.strip(), altgr.get(alone, ""), both.get(alone, ""))
        for alone, shifted in zip(table.alone, table.shifted, strict=True)
    }
    places = {name: keys[alone] for name, alone in zip(_PLACES, table.alone, strict=True)}
    places |= {word: places[f"Num{digit}"] for digit, word in enumerate(_DIGITS)}
    if mac:
        return places | {name: places[other] for name, other in _SWAPPED.items()}
    # Keyboards of another script have the virtual keys of the US keyboard.
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
    """Whether a key that has this character on its cap types nothing until the next key."""
    table = _COUNTRIES.get(layout)
    if table is None or char not in table.dead:
        return False
    if layout in {"fr", "es"} and char in _BY_ALTGR:
        return altgr or (layout == "es" and char == "`")
    return not altgr


_VOWELS = "aeiouAEIOU"
# The letters that each accent joins with on Windows; before others it types its own character, too.
_JOINED_ON_WINDOWS = {
    "´": _VOWELS + "yY",
    "'": _VOWELS + "yYcC",
    "`": _VOWELS,
    "^": _VOWELS,
    "¨": _VOWELS + "y",
    '"': _VOWELS + "y",
    "~": "anoANO",
}
_QUOTES = frozenset("'\"")  # dead keys of US-International alone
_CEDILLAS = {"c": "ç", "C": "Ç"}  # of the dead key of the apostrophe
_SPACING_ON_LINUX = {"´": "'", "¨": '"'}  # the accent and Space
_TWICE_ON_LINUX = {"'": "´", '"': "¨"}  # a dead key pressed twice


def accented(accent: str, char: str, platform: str) -> str:
    """The characters of a dead key and the key after it: a letter with an accent, or both.

    Empty where nothing says which: on Linux, toolkits differ for a pair that is no letter, and a
    locale decides about the apostrophe and c.
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
