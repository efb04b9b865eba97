"""Key names: from the name that a recorder logged to the physical key and the character it typed.

This module contains the names that recorders log on each platform, and the US and UK keyboards;
other keyboards are in keyboard_layouts.py. It knows the usual layout of a locale, and the
characters that this layout leaves in doubt. It decides which names may be shown to people, because
a key name in a log may be any text, even typed text.

Newer recorders log the character, an empty string, or the debug print of the `UnicodeInfo` of
Rust's rdev crate, escaped as Rust escapes strings. actions/keyboard.py reads sequences of keys.
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
        name: pyautogui's lower-case name (`ctrl`, `enter`, `a`, `f1`); for an unknown key the
            logged name. The name of a printable key is its unshifted character.
        char: character without Shift; empty for keys that type nothing.
        shifted: character with Shift.
        altgr, both: character with AltGr, and with Shift and AltGr; empty: none, or not known.
        modifier: whether it is Ctrl, Shift, Alt, AltGr, Windows, Command or Fn.
        side: left or right, for keys that exist twice.
        keypad: whether it is on the numeric keypad, where Num Lock decides its meaning.
        known: False for a name that is in no table.
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


# unshifted → shifted character
_US_SHIFTED = dict(zip("1234567890-=[]\\;'`,./#§", '!@#$%^&*()_+{}|:"~<>?~±', strict=True))
_UK_SHIFTED = _US_SHIFTED | {"2": '"', "3": "£", "'": "@", "`": "¬"}
_UK_ALTGR = dict(zip("4aeiou`", "€áéíóú¦", strict=True))
# Apple's British layout has Shift+2, the quotes and the backquote where the US one has them.
_UK_MAC_SHIFTED = _US_SHIFTED | {"3": "£"}

_DIGIT_WORDS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _pairs(text: str) -> dict[str, str]:
    """The names of keys and what each stands for, of `name value` pairs."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


# Names of printable keys beyond letters and digits, and their unshifted characters: those of
# Windows recorders, then those of recorders on macOS and Linux.
_SYMBOLS = _pairs(r"""
    BackTick ` BackSlash \ ForwardSlash / Plus = Minus - FullStop . Comma ,
    LeftSquareBracket [ RightSquareBracket ] SemiColon ; Apostrophe ' Hash #
    BackQuote ` Equal = LeftBracket [ RightBracket ] Quote ' Dot . Slash / IntlBackslash \
""")

# rdev has no name for the key code that xkeyboard-config calls LVL3, which is AltGr. Programs that
# type for people send it.
_LEVEL3_OF_X = "Unknown(92)"
# Layouts whose keys have the names of the US keyboard in hotkeys: Ctrl with the key of the
# Cyrillic letter es is Ctrl+C.
_OTHER_SCRIPTS = frozenset({"ru"})

# (layout, platform) → name → unshifted character, where it is not that of `_SYMBOLS`. Linux and
# macOS recorders name a key by its place; Windows recorders by the character. On a Mac, each name
# is a key code: `BackQuote` is 50 and types ` also where that key is beside the left Shift;
# `IntlBackslash` is 10, which the boards with one more key have left of the 1.
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
# Layouts on which the keypad's point is a comma (kbdgr, kbdru; xkeyboard-config's kpdl(comma)).
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
    """The key that a recorder on `platform` (`windows`, `macos`, `linux`) logs as `raw`.

    A name that is in no table gives a `Key` with `known=False` and that name; it types nothing.
    Without a platform, keys have the characters that they have on Windows.
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
    """Characters that a key of `platform` types with `layout`, and not with the layout `other`.

    Those of the keypad are left out: only its point differs, which other keys type as well.
    """
    others = _table(other, platform)
    keys = [(raw, key) for raw, key in _table(layout, platform).items() if not key.keypad]
    pairs = [(key, others[raw]) for raw, key in keys]
    return frozenset(
        mine
        for key, same in pairs
        for mine, theirs in ((key.char, same.char), (key.shifted, same.shifted))
        if mine != theirs
    )


@cache
def _table(layout: KeyboardLayout, platform: str) -> Mapping[str, Key]:
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
    """The names that keys have in actions, of every layout's tables."""
    tables = (_table(layout, platform) for layout in LAYOUTS for platform in _PLATFORMS)
    return frozenset({key.name for table in tables for key in table.values()} | {"clear"})


# How recorders name a key or button without a name of its own: by a number.
_NUMBERED = re.compile(
    r"(?:Unknown|RawKey|Key|Button|Other)\((?:\d{1,10}|[A-Z][A-Za-z]{2,20}\(\d{1,10}\))\)", re.ASCII
)
# Names that only recorders on Windows log (the multiinput library), and only others (rdev).
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
# Names that recorders' libraries have for keys and buttons that this module gives no meaning.
_UNUSED_NAMES = _words("""
    BrowserBack BrowserFavorites BrowserForward BrowserHome BrowserRefresh BrowserSearch BrowserStop
    LaunchApp1 LaunchApp2 LaunchMail LaunchMediaSelect MediaNextTrack MediaPlayPause MediaStop
    MediaPreviousTrack Eject Power Sleep WakeUp FnLock Zoom Convert NonConvert ModeChange Hangul
    Hanja Junja Kana Kanji Lang1 Lang2 Lang3 Lang4 Lang5 Back Forward Side Extra X1 X2 XButton1
    XButton2
""")


def platform_of_keys(names: Iterable[str]) -> str:
    """The platform whose recorder logs these names; empty unless they leave no doubt.

    Recorders on Windows use names of their own. Those of macOS and Linux share one library; only a
    Mac has the key `Function`.
    """
    seen = set(names)
    windows = seen & _ONLY_WINDOWS
    rdev = seen & _ONLY_RDEV
    if windows and not rdev:
        return "windows"
    return "macos" if "Function" in rdev and not windows else ""


def public_name(raw: str, kind: str = "key") -> str:
    """The logged name of an unknown key or button (`kind`), if it is in a known vocabulary.

    Otherwise only its length: it might be what somebody typed.
    """
    if raw in _UNUSED_NAMES or lookup(raw).known or _NUMBERED.fullmatch(raw):
        return raw
    return shape_of(kind, raw)


def public_key(name: str) -> str:
    """The name of a hotkey's key as logs and metadata may show it: of a table, or one character."""
    return name if len(name) <= 1 or name in output_key_names() else shape_of("key", name)


_LOCALE = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2}|\d{3}))?([.@-].*)?")
_UK_COUNTRIES = _words("GB UK IE")
# Languages of which the usual keyboard is the US one, apart from methods to enter other scripts.
_US_LANGUAGES = _words("zh ko nl pl vi id ms fil hi")
# Latin keyboards on which letters are mostly those of the US one, and punctuation is not.
_OTHER_PUNCTUATION = _words(
    "de es pt it sv da nb nn no fi is cs sk hu tr ro hr sl et lv lt ca gl eu sq mt ja"
)
# Keyboards on which letters or unshifted digits differ too.
_OTHER_LETTERS = _words("fr ru uk bg be sr mk el he ar fa ur th ka hy kk mn")
# Elsewhere their languages are typed on other keyboards.
_COUNTRIES_OF = {"de": ("", "DE", "AT"), "es": ("", "ES"), "fr": ("", "FR"), "it": ("", "IT")}
OTHER_PUNCTUATION = "other punctuation"
OTHER_LETTERS = "other letters"


def layout_of_locale(locale: str) -> str | None:
    """One of `LAYOUTS`, `OTHER_PUNCTUATION` or `OTHER_LETTERS`; None if nothing is known of it."""
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


# Languages whose letters are typed with an input method. Where Bopomofo and Cangjie are usual,
# Chinese is written in its traditional form.
_INPUT_METHODS = _words("zh ja ko vi")
_TRADITIONAL = _words("TW HK MO")


def input_method_of(locale: str) -> str:
    """`ja`, `ko`, `vi`, `zh` or `zh-TW` for a language that is typed with an input method.

    Empty for every other language.
    """
    match = _LOCALE.fullmatch(locale)
    if match is None or match[1].lower() not in _INPUT_METHODS:
        return ""
    language = match[1].lower()
    traditional = (match[3] or "").upper() in _TRADITIONAL or (match[2] or "").lower() == "hant"
    return "zh-TW" if language == "zh" and traditional else language


def is_english(locale: str) -> bool:
    """Whether a locale is of English, or says no language."""
    match = _LOCALE.fullmatch(locale)
    return match is None or match[1].lower() == "en"


# How Windows recorders name keyboards: <language or country>-<arrangement>. The arrangement is
# `qwerty` also where the name in the registry does not say it, as of German and French ones.
_TOLD = {"us": "us", "gb": "uk", "de": "de", "de-at": "de", "es": "es", "fr": "fr", "it": "it"}
_TOLD |= dict.fromkeys(("zh-cn", "zh-tw", "ko"), "us")
_TOLD |= dict.fromkeys(("nl", "pt", "pt-br", "ja", "de-ch"), OTHER_PUNCTUATION)
_ARRANGEMENTS = frozenset({"qwerty", "qwertz", "azerty"})


def layout_of_keyboard(name: str) -> str:
    """The same of a keyboard by the name that Windows recorders write into meta.json."""
    country, _, arrangement = name.casefold().rpartition("-")
    if arrangement not in _ARRANGEMENTS:
        country = name.casefold()
    return _TOLD.get(country, OTHER_LETTERS)


@dataclass(frozen=True)
class Keyboard:
    """The keyboard of a recording.

    Attributes:
        layout: by which keys without a logged character are read.
        other: `OTHER_PUNCTUATION` or `OTHER_LETTERS`, if the person may have had another; else "".
    """

    layout: KeyboardLayout
    other: str = ""

    def is_doubtful(self, char: str, platform: str) -> bool:
        """Whether the key that types `char` with the layout may have typed another character."""
        if not self.other or char.isspace():
            return False
        varies = not char.isalnum() and char in _varying(self.layout, platform)
        return varies or self.other == OTHER_LETTERS


@cache
def _varying(layout: KeyboardLayout, platform: str) -> frozenset[str]:
    varying: frozenset[str] = frozenset()
    for other in LAYOUTS:
        if other not in {layout, "fr", "ru"}:
            varying |= differing_characters(layout, other, platform)
    return varying


def keyboard_of(setting: str, usual: str | None) -> Keyboard:
    """The keyboard by `actions.keyboard_layout`, one of `LAYOUTS`; `auto`: as meta.json says."""
    if setting != "auto":
        usual = setting
    for layout in LAYOUTS:
        if usual == layout:
            return Keyboard(layout)
    return Keyboard("us", usual or OTHER_PUNCTUATION)


MAX_CODE_POINTS = 4  # of one key: a base letter with its marks; longer values are not a character
_ACCENTS = frozenset("'\"^~`")  # ASCII accents of dead keys; the next key types both characters
# Control characters, lone surrogates, private use, unassigned, line and paragraph separators.
_NO_TEXT = frozenset({"Cc", "Cs", "Co", "Cn", "Zl", "Zp"})
# The ranges of surrogate pairs.
_HIGH_HALF = 0xD800
_LOW_HALF = 0xDC00
_LAST_HALF = 0xDFFF
_REPLACEMENT = "\ufffd"  # what decoders write for bytes that they could not read
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
    """What a recorder says that a key typed.

    Attributes:
        text: the character, composed where several code points are one; empty: none is known.
        dead: the key is a dead key, which types nothing until the next key.
        unreadable: the logged value is in no known form. It counts as absent.
        half: one of the two UTF-16 units of a character such as an emoji, a lone surrogate.
    """

    text: str = ""
    dead: bool = False
    unreadable: bool = False
    half: str = ""


_NOTHING = TypedCharacter()
_UNREADABLE = TypedCharacter(unreadable=True)


class _UnicodeInfo(msgspec.Struct, forbid_unknown_fields=True):
    """What a recorder wrote as JSON instead of its print."""

    name: str | None
    unicode: list[int]
    is_dead: bool


_decode_info = msgspec.json.Decoder(_UnicodeInfo).decode


def read_typed_character(logged: str | None) -> TypedCharacter:
    """The character that `actual_char` logs; never any other part of the value."""
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
    """The character of UTF-16 units and a name, which must agree; raises for other numbers."""
    if dead:
        return TypedCharacter(dead=True)
    if len(units) == 1 and _HIGH_HALF <= units[0] <= _LAST_HALF:
        return TypedCharacter(half=chr(units[0]))
    data = b"".join(  # code points above 0xFFFF are accepted as well
        unit.to_bytes(2, "little") if 0 <= unit <= 0xFFFF else chr(unit).encode("utf-16-le")
        for unit in units
    )
    decoded = data.decode("utf-16-le")
    text = decoded or name or ""
    differs = name and decoded and _composed(name) != _composed(decoded)
    return _UNREADABLE if differs or len(text) > MAX_CODE_POINTS else _of_text(text)


def begins_pair(half: str) -> bool:
    """Whether a lone surrogate is the first of the two halves of a character."""
    return half < chr(_LOW_HALF)


def join_halves(high: str, low: str) -> TypedCharacter:
    """Joins two keys, each logged as half of a surrogate pair, into a character."""
    return _of_text((high + low).encode("utf-16", "surrogatepass").decode("utf-16"))


def _unescaped(match: re.Match[str]) -> str:
    code, byte, other = match.groups()
    if code or byte:
        return chr(int(code or byte, 16))
    if other not in _RUST_CONTROLS:
        raise ValueError("not an escape sequence of Rust")
    return _RUST_CONTROLS[other]


def _is_one_key(text: str) -> bool:
    """Whether one key can have typed these code points; names of keys and words are longer."""
    if not text.isascii():
        return len(text) <= MAX_CODE_POINTS
    control = all(unicodedata.category(char) == "Cc" for char in text)
    return control or (len(text) == 2 and text[0] in _ACCENTS)


def _of_text(text: str) -> TypedCharacter:
    """A text, if every code point of it shows as one; control characters do not."""
    if _REPLACEMENT in text or any("\ud800" <= char <= "\udfff" for char in text):
        return _UNREADABLE
    composed = _composed(text)
    shows = not any(unicodedata.category(char) in _NO_TEXT for char in composed)
    return TypedCharacter(composed) if composed and shows else _NOTHING


def _composed(text: str) -> str:
    """One code point stays as it is: NFC replaces a few by others that look the same."""
    return text if len(text) < 2 else unicodedata.normalize("NFC", text)
