"""Translates logged key names to physical keys, and logged characters to typed characters.

This module contains:

- The key names that recorders log on each platform, for the US and UK keyboards. The other
  keyboards are in keyboard_layouts.py.
- The usual keyboard layout of a locale, and the characters for which this layout is uncertain.
- Functions that hide logged names from people, because an unknown name may be private text.
- The parser for the logged field `actual_char`, the typed character. Newer recorders log the
  character itself, an empty string, or Rust's debug print of a `UnicodeInfo` of the crate rdev.
"""

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, get_args

import msgspec

from demo_pipeline.recording.input_log import shape_of
from demo_pipeline.recording.keyboard_layouts import country_keys

Side = Literal["left", "right", ""]
KeyboardLayout = Literal["us", "uk", "us-intl", "de", "es", "fr", "it", "ru"]
LAYOUTS: tuple[KeyboardLayout, ...] = get_args(KeyboardLayout)


@dataclass(frozen=True, slots=True)
class Key:
    """A physical key.

    Attributes:
        name: pyautogui's lower-case name (`ctrl`, `enter`, `a`, `f1`), or the logged name of an
            unknown key. The name of a printable key is its unshifted character.
        char: character without Shift; empty for keys that type nothing.
        shifted: character with Shift.
        altgr: character with AltGr; empty if missing or unknown.
        both: character with Shift and AltGr; empty if missing or unknown.
        modifier: whether the key is Ctrl, Shift, Alt, AltGr, Windows, Command or Fn.
        side: left or right, for keys that exist twice.
        keypad: whether the key is on the numeric keypad, where Num Lock decides its meaning.
        known: whether the logged name is in one of the tables of key names.
    """

    name: str
    char: str = ""
    shifted: str = ""
    modifier: bool = False
    side: Side = ""
    keypad: bool = False
    known: bool = True
    altgr: str = ""
    both: str = ""


# Maps each key's character without Shift to its character with Shift.
_US_SHIFTED = dict(zip("1234567890-=[]\\;'`,./#§", '!@#$%^&*()_+{}|:"~<>?~±', strict=True))
_UK_SHIFTED = _US_SHIFTED | {"2": '"', "3": "£", "'": "@", "`": "¬"}
# Maps the characters that some keys type without modifiers to their characters with AltGr.
_UK_ALTGR = dict(zip("4aeiou`", "€áéíóú¦", strict=True))
# With Shift, Apple's British layout differs from the US layout only in the key 3.
_UK_MAC_SHIFTED = _US_SHIFTED | {"3": "£"}

_DIGIT_WORDS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> dict[str, str]:
    """Parses `name value name value …` into a dictionary."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


# Logged names of printable keys other than letters and digits, with their unshifted characters. The
# first three lines come from Windows recorders, the last two from recorders on macOS and Linux.
_SYMBOLS = _pairs(r"""
    BackTick ` BackSlash \ ForwardSlash / Plus = Minus - FullStop . Comma ,
    LeftSquareBracket [ RightSquareBracket ] SemiColon ; Apostrophe ' Hash #
    BackQuote ` Equal = LeftBracket [ RightBracket ] Quote ' Dot . Slash / IntlBackslash \
""")

# A second AltGr key on Linux (LVL3 in xkeyboard-config). Programs that simulate typing send it. The
# library rdev has no name for it.
_LEVEL3_OF_X = "Unknown(92)"
# Layouts without Latin letters. In hotkeys, their keys get the names of the US keyboard.
_OTHER_SCRIPTS = frozenset({"ru"})

# For each layout and platform, the unshifted characters that differ from `_SYMBOLS`.
# Recorders on Windows name a key by its character, recorders on Linux and macOS by its place. On a
# Mac, the place is a key code. `BackQuote` is the code 50, which types ` even if its key is next to
# the left Shift. `IntlBackslash` is the code 10 of an extra key left of the 1 on some keyboards.
_MOVED: dict[tuple[KeyboardLayout, str], dict[str, str]] = {
    ("uk", "linux"): {"BackSlash": "#"},
    ("us", "macos"): {"IntlBackslash": "§"},
    ("uk", "macos"): {"IntlBackslash": "§"},
}
_PLATFORMS = ("windows", "macos", "linux", "")

_KEYPAD = _pairs("""
    Add + Subtract - Multiply * Divide / Decimal . Separator ,
    KpMinus - KpPlus + KpMultiply * KpDivide / KpDecimal . KpDelete . KpEqual = KpComma ,
""")
# Layouts whose keypad has a comma instead of a point. Sources: kbdgr and kbdru of Microsoft, and
# kpdl(comma) of xkeyboard-config.
_COMMA_ON_KEYPAD = frozenset({"de", "ru"})
_KEYPAD_POINTS = frozenset({"Decimal", "KpDecimal", "KpDelete"})
_SPECIAL = _pairs("""
    Escape esc Return enter Enter enter KpReturn enter Backspace backspace Tab tab
    Left left Right right Up up Down down LeftArrow left RightArrow right UpArrow up
    DownArrow down Home home End end PageUp pageup PageDown pagedown Insert insert
    Delete delete Clear clear CapsLock capslock Numlock numlock NumLock numlock
    ScrollLock scrolllock Pause pause PrintScreen printscreen KanaMode kana IntlRo intlro
    IntlYen intlyen Apps apps Menu apps VolumeUp volumeup VolumeDown volumedown
    VolumeMute volumemute PlayPause playpause PreviousTrack prevtrack NextTrack nexttrack
""")

_MODIFIERS: dict[tuple[str, Side], str] = {
    ("shift", ""): "Shift",
    ("shift", "left"): "LeftShift ShiftLeft",
    ("shift", "right"): "RightShift ShiftRight",
    ("ctrl", "left"): "LeftCtrl ControlLeft",
    ("ctrl", "right"): "RightCtrl ControlRight",
    ("alt", "left"): "LeftAlt Alt",
    ("alt", "right"): "RightAlt",
    ("altgr", "right"): "AltGr",
    ("fn", ""): "Function",
    ("win", "left"): "LeftWindows LeftWin LeftMeta MetaLeft",
    ("win", "right"): "RightWindows RightWin RightMeta MetaRight",
    ("command", "left"): "LeftCommand Command",
    ("command", "right"): "RightCommand",
}


def lookup(raw: str, platform: str = "", layout: KeyboardLayout = "us") -> Key:
    """Returns the key that a recorder logs as `raw`.

    An unknown key has the name `raw` and `known=False`, and types nothing.

    Args:
        platform: `windows`, `macos` or `linux`, or empty if unknown. For an unknown platform,
            keys have the characters of Windows.
    """
    key = _table(layout, platform).get(raw)
    if key is None:
        return Key(name=raw, known=False)
    if platform == "macos" and key.modifier and key.name == "win":
        return Key("command", modifier=True, side=key.side)
    return key


@cache
def differing_characters(
    layout: KeyboardLayout, other: KeyboardLayout, platform: str
) -> frozenset[str]:
    """Returns the characters of `layout` whose keys type other characters in the layout `other`.

    The keypad is ignored.
    """
    other_keys = _table(other, platform)
    characters: set[str] = set()
    for raw, key in _table(layout, platform).items():
        if key.keypad:
            continue
        if key.char != other_keys[raw].char:
            characters.add(key.char)
        if key.shifted != other_keys[raw].shifted:
            characters.add(key.shifted)
    return frozenset(characters)


@cache
def _table(layout: KeyboardLayout, platform: str) -> Mapping[str, Key]:
    """Returns a dictionary from the logged key names of all platforms to the keys of a layout."""
    shifted = _US_SHIFTED
    if layout == "uk":
        shifted = _UK_MAC_SHIFTED if platform == "macos" else _UK_SHIFTED
    symbols = _SYMBOLS | _MOVED.get((layout, platform), {})
    table: dict[str, Key] = {"Space": Key("space", " ", " ")}
    for letter in string.ascii_uppercase:
        table[letter] = table[f"Key{letter}"] = Key(letter.lower(), letter.lower(), letter)
    for digit, word in enumerate(_DIGIT_WORDS):
        key = Key(str(digit), str(digit), shifted[str(digit)])
        table[word] = table[f"Num{digit}"] = key
        pad = Key(str(digit), str(digit), str(digit), keypad=True)
        table[f"Kp{digit}"] = table[f"Numpad{digit}"] = pad
    table |= {raw: Key(char, char, shifted[char]) for raw, char in symbols.items()}
    if layout == "uk" and platform != "macos":
        table |= {
            raw: replace(key, altgr=_UK_ALTGR[key.char])
            for raw, key in table.items()
            if key.char in _UK_ALTGR and not key.keypad
        }
    for raw, typed in country_keys(layout, platform).items():
        name = typed.alone
        if raw in table and (table[raw].name.isdigit() or layout in _OTHER_SCRIPTS):
            name = table[raw].name
        table[raw] = Key(name, typed.alone, typed.shifted, altgr=typed.altgr, both=typed.both)
    table |= {raw: Key(char, char, char, keypad=True) for raw, char in _KEYPAD.items()}
    if layout in _COMMA_ON_KEYPAD:
        table |= dict.fromkeys(_KEYPAD_POINTS, Key(",", ",", ",", keypad=True))
    table |= {raw: Key(name) for raw, name in _SPECIAL.items()}
    table |= {f"F{number}": Key(f"f{number}") for number in range(1, 25)}
    for (name, side), raws in _MODIFIERS.items():
        table |= dict.fromkeys(raws.split(), Key(name, modifier=True, side=side))
    if layout != "us" and platform != "macos":
        table["RightAlt"] = table["AltGr"]
    if platform == "linux":
        table[_LEVEL3_OF_X] = table["AltGr"]
    return table


@cache
def output_key_names() -> frozenset[str]:
    """Returns the names of keys that can occur in actions, for all layouts and platforms."""
    tables = (_table(layout, platform) for layout in LAYOUTS for platform in _PLATFORMS)
    return frozenset({key.name for table in tables for key in table.values()} | {"clear"})


# Matches names such as `Unknown(92)`. Recorders log them for keys and buttons that have no name in
# the recorder's input library.
_NUMBERED = re.compile(
    r"(?:Unknown|RawKey|Key|Button|Other)\((?:\d{1,10}|[A-Z][A-Za-z]{2,20}\(\d{1,10}\))\)", re.ASCII
)
# Names used only by the library multiinput of Windows recorders, followed by names used only by the
# library rdev.
_ONLY_WINDOWS = {*string.ascii_uppercase, *_DIGIT_WORDS} | _words("""
    LeftCtrl RightCtrl LeftAlt RightAlt Numlock Left Right Up Down Add Subtract Multiply Divide
    Decimal Separator BackTick Hash ForwardSlash Plus FullStop LeftSquareBracket
    RightSquareBracket Apostrophe
""")
_ONLY_RDEV = {f"Key{letter}" for letter in string.ascii_uppercase} | _words("""
    Num0 Num1 Num2 Num3 Num4 Num5 Num6 Num7 Num8 Num9 Kp0 Kp1 Kp2 Kp3 Kp4 Kp5 Kp6 Kp7 Kp8 Kp9
    Alt AltGr ControlLeft ControlRight ShiftLeft ShiftRight MetaLeft MetaRight Function NumLock
    LeftArrow RightArrow UpArrow DownArrow BackQuote Equal LeftBracket RightBracket Quote Dot Slash
""")
# Names of keys and buttons that the recorders' libraries know but this module does not translate.
# These names are not private.
_UNUSED_NAMES = _words("""
    BrowserBack BrowserFavorites BrowserForward BrowserHome BrowserRefresh BrowserSearch BrowserStop
    LaunchApp1 LaunchApp2 LaunchMail LaunchMediaSelect MediaNextTrack MediaPlayPause MediaStop
    MediaPreviousTrack Eject Power Sleep WakeUp FnLock Zoom Convert NonConvert ModeChange Hangul
    Hanja Junja Kana Kanji Lang1 Lang2 Lang3 Lang4 Lang5 Back Forward Side Extra X1 X2 XButton1
    XButton2
""")


def platform_of_keys(names: Iterable[str]) -> str:
    """Returns the platform whose recorders log these key names, or an empty string if uncertain.

    macOS and Linux have the same names, except for the key `Function` of a Mac.
    """
    seen = set(names)
    windows = seen & _ONLY_WINDOWS
    rdev = seen & _ONLY_RDEV
    if windows and not rdev:
        return "windows"
    return "macos" if "Function" in rdev and not windows else ""


def public_name(raw: str, kind: str = "key") -> str:
    """Returns a logged key name, or only its length if the name may be private text.

    Args:
        kind: `key` or `button`.
    """
    if raw in _UNUSED_NAMES or lookup(raw).known or _NUMBERED.fullmatch(raw):
        return raw
    return shape_of(kind, raw)


def public_key(name: str) -> str:
    """Returns the name of a hotkey's key, or only its length if it may be private.

    Single characters and names from the tables are shown.
    """
    return name if len(name) <= 1 or name in output_key_names() else shape_of("key", name)


_LOCALE = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2}|\d{3}))?([.@-].*)?")
_UK_COUNTRIES = _words("GB UK IE")
# Languages whose usual keyboard is the US keyboard; some of them need an input method.
_US_LANGUAGES = _words("zh ko nl pl vi id ms fil hi")
# Languages whose usual keyboard has most letters of the US keyboard, but other punctuation.
_OTHER_PUNCTUATION = _words(
    "de es pt it sv da nb nn no fi is cs sk hu tr ro hr sl et lv lt ca gl eu sq mt ja"
)
# Languages whose usual keyboard has other letters, or no digits without Shift.
_OTHER_LETTERS = _words("fr ru uk bg be sr mk el he ar fa ur th ka hy kk mn")
# For each language, the countries in which the layout of the same name is usual. "" stands for a
# locale without a country.
_COUNTRIES_OF = {"de": ("", "DE", "AT"), "es": ("", "ES"), "fr": ("", "FR"), "it": ("", "IT")}
OTHER_PUNCTUATION = "other punctuation"
OTHER_LETTERS = "other letters"


def layout_of_locale(locale: str) -> str | None:
    """Returns the usual keyboard layout of a locale.

    Returns:
        A name from `LAYOUTS`. For any other layout, `OTHER_PUNCTUATION` or `OTHER_LETTERS`,
        depending on its difference from the US layout. None if the usual layout is unknown.
    """
    match = _LOCALE.fullmatch(locale)
    if match is None:
        return None
    language = match[1].lower()
    country = (match[3] or "").upper()
    if language == "en":
        return "uk" if country in _UK_COUNTRIES else "us" if country else None
    if language in _US_LANGUAGES:
        return "us"
    if country in _COUNTRIES_OF.get(language, ()):
        return language
    if language in _OTHER_LETTERS:
        return None if (language, country) == ("fr", "CA") else OTHER_LETTERS
    return OTHER_PUNCTUATION if language in _OTHER_PUNCTUATION else None


_INPUT_METHODS = _words("zh ja ko vi")  # languages that are typed with an input method
# Regions with traditional Chinese, where the input methods Bopomofo and Cangjie are usual.
_TRADITIONAL = _words("TW HK MO")


def input_method_of(locale: str) -> str:
    """Returns the language of a locale if it is typed with an input method.

    The result is `ja`, `ko`, `vi`, `zh`, or `zh-TW` for traditional Chinese; otherwise empty.
    """
    match = _LOCALE.fullmatch(locale)
    if match is None or match[1].lower() not in _INPUT_METHODS:
        return ""
    language = match[1].lower()
    traditional = (match[3] or "").upper() in _TRADITIONAL or (match[2] or "").lower() == "hant"
    return "zh-TW" if language == "zh" and traditional else language


def is_english(locale: str) -> bool:
    """Returns whether the language of a locale is English, or unknown."""
    match = _LOCALE.fullmatch(locale)
    return match is None or match[1].lower() == "en"


# Maps the first part of a Windows recorder's keyboard name, a language or country, to a layout. The
# second part, the arrangement of the letters, is unreliable: recorders write `qwerty` if the
# registry has no arrangement, even for German and French keyboards.
_LAYOUT_OF_COUNTRY = {
    "us": "us",
    "gb": "uk",
    "de": "de",
    "de-at": "de",
    "es": "es",
    "fr": "fr",
    "it": "it",
}
_LAYOUT_OF_COUNTRY |= dict.fromkeys(("zh-cn", "zh-tw", "ko"), "us")
_LAYOUT_OF_COUNTRY |= dict.fromkeys(("nl", "pt", "pt-br", "ja", "de-ch"), OTHER_PUNCTUATION)
_ARRANGEMENTS = frozenset({"qwerty", "qwertz", "azerty"})


def layout_of_keyboard(name: str) -> str:
    """Returns the layout for a keyboard name that a Windows recorder wrote into meta.json.

    The result is a name from `LAYOUTS`, or `OTHER_PUNCTUATION` or `OTHER_LETTERS`.
    """
    country, _, arrangement = name.casefold().rpartition("-")
    if arrangement not in _ARRANGEMENTS:
        country = name.casefold()
    return _LAYOUT_OF_COUNTRY.get(country, OTHER_LETTERS)


@dataclass(frozen=True)
class Keyboard:
    """The keyboard layout of a recording, and whether the layout is certain.

    Attributes:
        layout: the layout that decides a key's character if the recorder logged no character.
        other: `OTHER_PUNCTUATION` or `OTHER_LETTERS` if the person may have used a layout that
            differs in this way from the US layout; empty if the layout is certain.
    """

    layout: KeyboardLayout
    other: str = ""

    def is_doubtful(self, char: str, platform: str) -> bool:
        """Returns whether a key that types `char` in `layout` may have typed another character."""
        if not self.other or char.isspace():
            return False
        varies = not char.isalnum() and char in _varying(self.layout, platform)
        return varies or self.other == OTHER_LETTERS


@cache
def _varying(layout: KeyboardLayout, platform: str) -> frozenset[str]:
    """Returns characters of a layout: those whose key types something else in another layout.

    `fr` and `ru` are not compared, because even their letters differ.
    """
    varying: frozenset[str] = frozenset()
    for other in LAYOUTS:
        if other not in {layout, "fr", "ru"}:
            varying |= differing_characters(layout, other, platform)
    return varying


def keyboard_of(setting: str, usual: str | None) -> Keyboard:
    """Returns the keyboard of a recording.

    Args:
        setting: the setting `actions.keyboard_layout`: a name from `LAYOUTS`, or `auto` to use
            `usual`.
        usual: the layout that meta.json indicates, as returned by `Meta.usual_layout`.
    """
    if setting != "auto":
        usual = setting
    for layout in LAYOUTS:
        if usual == layout:
            return Keyboard(layout)
    return Keyboard("us", usual or OTHER_PUNCTUATION)


# Maximum number of code points in a typed character: a base letter with combining marks. Longer
# values are ignored.
MAX_CODE_POINTS = 4
# ASCII accents of dead keys. The key after a dead key may type the accent and its own character.
_ACCENTS = frozenset("'\"^~`")
# Unicode categories of code points that do not represent text: control characters, lone
# surrogates, private use, unassigned, line and paragraph separators.
_NO_TEXT = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
# UTF-16: lowest first half of a surrogate pair, lowest second half, and highest second half.
_HIGH_HALF = 0xD800
_LOW_HALF = 0xDC00
_LAST_HALF = 0xDFFF
_REPLACEMENT = "\ufffd"  # decoders write this in place of bytes that they could not decode
_DEBUG_PRINT = re.compile(
    r"""\s* (?: Some \s* \( \s* )?
    UnicodeInfo \s* \{ \s*
        name \s* : \s* (?: None | Some \s* \( \s* "(?P<name> (?: [^"\\] | \\. )* )" \s* ,? \s* \) )
        \s* , \s*
        unicode \s* : \s* \[ (?P<unicode> [\d\s,]* ) \] \s* , \s*
        is_dead \s* : \s* (?P<dead> true | false ) \s* ,? \s*
    \} \s* ,? \s* \)? \s*""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_RUST_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f_]{1,8})\}|x([0-7][0-9A-Fa-f])|(.))", re.DOTALL)
_RUST_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class TypedCharacter:
    """The character that a recorder logged for a key press.

    Attributes:
        text: the character in composed form (NFC); empty if no character was logged.
        dead: whether the key is a dead key, which types nothing until the next key.
        unreadable: whether the logged value has no known format and is therefore ignored.
        half: a lone surrogate, which is one of the two UTF-16 units of a character such as an
            emoji.
    """

    text: str = ""
    dead: bool = False
    unreadable: bool = False
    half: str = ""


_NOTHING = TypedCharacter()
_UNREADABLE = TypedCharacter(unreadable=True)


class _UnicodeInfo(msgspec.Struct, forbid_unknown_fields=True):
    """rdev's `UnicodeInfo`, which some recorders log as a JSON object instead of a debug print."""

    name: str | None
    unicode: list[int]
    is_dead: bool


_decode_info = msgspec.json.Decoder(_UnicodeInfo).decode


def read_typed_character(logged: str | None) -> TypedCharacter:
    """Reads the typed character from a logged `actual_char`, which may be missing (None)."""
    if not logged or logged.strip() == "None":
        return _NOTHING
    try:
        if match := _DEBUG_PRINT.fullmatch(logged):
            units = [int(unit) for unit in match["unicode"].split(",") if unit.strip()]
            name = _RUST_ESCAPE.sub(_unescaped, match["name"] or "")
            return _of_parts(name, units, dead=match["dead"] == "true")
        if logged.lstrip().startswith("{"):
            with suppress(msgspec.DecodeError):
                info = _decode_info(logged)
                return _of_parts(info.name, info.unicode, dead=info.is_dead)
    except (ValueError, OverflowError):
        return _UNREADABLE
    return _of_text(logged) if len(logged) == 1 or _is_one_key(logged) else _UNREADABLE


def _of_parts(name: str | None, units: list[int], *, dead: bool) -> TypedCharacter:
    """Returns the character that the fields of `UnicodeInfo` describe.

    It is unreadable if the name and the UTF-16 units disagree. Some recorders write a code point
    above 0xFFFF instead of two units.

    Raises:
        ValueError, OverflowError: a number is neither a UTF-16 unit nor a code point.
    """
    if dead:
        return TypedCharacter(dead=True)
    if len(units) == 1 and _HIGH_HALF <= units[0] <= _LAST_HALF:
        return TypedCharacter(half=chr(units[0]))
    data = b""
    for unit in units:
        if 0 <= unit <= 0xFFFF:
            data += unit.to_bytes(2, "little")
        else:
            data += chr(unit).encode("utf-16-le")
    decoded = data.decode("utf-16-le")
    text = decoded or name or ""
    differs = name and decoded and _composed(name) != _composed(decoded)
    return _UNREADABLE if differs or len(text) > MAX_CODE_POINTS else _of_text(text)


def begins_pair(half: str) -> bool:
    """Returns whether a lone surrogate is the first half of a surrogate pair."""
    return half < chr(_LOW_HALF)


def join_halves(high: str, low: str) -> TypedCharacter:
    """Joins the two halves of a surrogate pair, which were logged as two keys, into a character."""
    return _of_text((high + low).encode("utf-16", "surrogatepass").decode("utf-16"))


def _unescaped(match: re.Match[str]) -> str:
    """Returns the character of a Rust escape sequence."""
    code, byte, other = match.groups()
    if code or byte:
        return chr(int(code or byte, 16))
    if other not in _RUST_CONTROLS:
        raise ValueError("not an escape sequence of Rust")
    return _RUST_CONTROLS[other]


def _is_one_key(text: str) -> bool:
    """Returns whether one key press may have typed a text of several characters.

    One key press can type an accent and another character, but not a word.
    """
    if not text.isascii():
        return len(text) <= MAX_CODE_POINTS
    control = all(unicodedata.category(char) == "Cc" for char in text)
    return control or (len(text) == 2 and text[0] in _ACCENTS)


def _of_text(text: str) -> TypedCharacter:
    """Converts a logged text to a typed character.

    The result is unreadable if a part of the text could not be decoded, and empty if a code point,
    such as a control character, does not represent text.
    """
    if _REPLACEMENT in text or any("\ud800" <= char <= "\udfff" for char in text):
        return _UNREADABLE
    composed = _composed(text)
    shows = not any(unicodedata.category(char) in _NO_TEXT for char in composed)
    return TypedCharacter(composed) if composed and shows else _NOTHING


def _composed(text: str) -> str:
    """Composes a text to NFC, except for a single code point, which NFC might replace."""
    return text if len(text) < 2 else unicodedata.normalize("NFC", text)
