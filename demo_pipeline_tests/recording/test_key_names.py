"""Tests of the key names that recorders log on all platforms."""

import string

import pytest

from demo_pipeline.recording.key_names import Key, differing_characters, lookup


def words(line: str) -> list[str]:
    return line.split()


WINDOWS = [
    *string.ascii_uppercase,
    *words("Zero One Two Three Four Five Six Seven Eight Nine"),
    *(f"F{n}" for n in range(1, 13)),
    *words("Escape Return Backspace Tab Space Left Right Up Down Home End PageUp PageDown"),
    *words("Insert Delete Shift LeftCtrl RightCtrl LeftAlt RightAlt CapsLock Numlock"),
    *words("Pause PrintScreen Add Subtract Multiply Divide Decimal Separator"),
    *words("BackTick BackSlash ForwardSlash Plus Minus FullStop Comma"),
    *words("LeftSquareBracket RightSquareBracket SemiColon Apostrophe Hash"),
]
MAC_AND_LINUX = [
    *(f"Key{letter}" for letter in string.ascii_uppercase),
    *(f"Num{n}" for n in range(10)),
    *(f"F{n}" for n in range(1, 25)),
    *(f"Kp{n}" for n in range(10)),
    *words("Alt AltGr ControlLeft ControlRight ShiftLeft ShiftRight MetaLeft MetaRight"),
    *words("Function CapsLock NumLock ScrollLock Backspace Delete Insert Return Tab Space"),
    *words("Escape Home End PageUp PageDown LeftArrow RightArrow UpArrow DownArrow"),
    *words("PrintScreen Pause BackQuote Minus Equal LeftBracket RightBracket SemiColon"),
    *words("Quote BackSlash Comma Dot Slash IntlBackslash IntlRo IntlYen KanaMode"),
    *words("KpReturn KpMinus KpPlus KpMultiply KpDivide KpDecimal KpEqual KpComma"),
]
PLATFORMS = ("windows", "macos", "linux", "")


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_listed_name_is_known(platform):
    names = {*WINDOWS, *MAC_AND_LINUX}
    assert {name for name in names if not lookup(name, platform).known} == set()


@pytest.mark.parametrize(
    ("windows", "other", "plain", "shifted"),
    [
        ("A", "KeyA", "a", "A"),
        ("Zero", "Num0", "0", ")"),
        ("Two", "Num2", "2", "@"),
        ("BackTick", "BackQuote", "`", "~"),
        ("BackSlash", "BackSlash", "\\", "|"),
        ("ForwardSlash", "Slash", "/", "?"),
        ("Plus", "Equal", "=", "+"),
        ("Minus", "Minus", "-", "_"),
        ("FullStop", "Dot", ".", ">"),
        ("LeftSquareBracket", "LeftBracket", "[", "{"),
        ("RightSquareBracket", "RightBracket", "]", "}"),
        ("SemiColon", "SemiColon", ";", ":"),
        ("Apostrophe", "Quote", "'", '"'),
        ("Comma", "Comma", ",", "<"),
        ("Space", "Space", " ", " "),
    ],
)
def test_printable_keys(windows, other, plain, shifted):
    for name in (windows, other):
        key = lookup(name)
        assert (key.char, key.shifted, key.modifier) == (plain, shifted, False)


def test_the_us_board_types_every_ascii_character():
    keys = [lookup(name) for name in MAC_AND_LINUX]
    typed = {key.char for key in keys} | {key.shifted for key in keys}
    assert typed >= {chr(code) for code in range(32, 127)}


@pytest.mark.parametrize(
    ("raw", "platform", "name"),
    [
        ("Escape", "windows", "esc"),
        ("Return", "linux", "enter"),
        ("KpReturn", "linux", "enter"),
        ("Left", "windows", "left"),
        ("LeftArrow", "macos", "left"),
        ("PageDown", "windows", "pagedown"),
        ("F12", "windows", "f12"),
        ("F24", "linux", "f24"),
        ("LeftCtrl", "windows", "ctrl"),
        ("ControlRight", "macos", "ctrl"),
        ("Shift", "windows", "shift"),
        ("LeftAlt", "windows", "alt"),
        ("Alt", "macos", "alt"),
        ("MetaLeft", "linux", "win"),
        ("MetaLeft", "windows", "win"),
        ("MetaRight", "macos", "command"),
        ("PrintScreen", "windows", "printscreen"),
        ("Backspace", "windows", "backspace"),
    ],
)
def test_names_are_those_of_pyautogui(raw, platform, name):
    assert lookup(raw, platform).name == name


@pytest.mark.parametrize(
    ("raw", "side"),
    [("ShiftLeft", "left"), ("ShiftRight", "right"), ("RightAlt", "right"), ("Shift", "")],
)
def test_modifiers_have_a_side(raw, side):
    key = lookup(raw)
    assert (key.modifier, key.side, key.char) == (True, side, "")


@pytest.mark.parametrize("raw", ["CapsLock", "Numlock", "NumLock", "ScrollLock", "Tab", "Escape"])
def test_locks_and_special_keys_modify_nothing_and_print_nothing(raw):
    assert (lookup(raw).modifier, lookup(raw).char) == (False, "")


@pytest.mark.parametrize("raw", ["Kp7", "Add", "Decimal", "KpPlus"])
def test_keypad_keys_are_distinguished(raw):
    assert lookup(raw).keypad
    assert lookup(raw).char == lookup(raw).shifted


@pytest.mark.parametrize("raw", ["Unknown(95)", "RawKey(LinuxKey(12))", "a", "keya", "", "é", "\n"])
def test_an_unknown_name_survives_and_prints_nothing(raw):
    assert lookup(raw) == Key(name=raw, known=False)
    assert lookup(raw).char == ""


def test_the_uk_layout_is_a_table_of_its_own():
    assert lookup("Three", layout="uk").shifted == "£"
    assert lookup("Apostrophe", layout="uk").shifted == "@"
    assert lookup("Two", layout="uk").shifted == '"'
    assert lookup("X", layout="uk") == lookup("X", layout="us")
    assert [lookup(name, layout="uk").altgr for name in ("Four", "A")] == ["€", "á"]


@pytest.mark.parametrize(
    ("platform", "typed"),
    [
        # Source for X11: symbols/gb, variant `basic`.
        ("linux", "2\" 3£ '@ `¬ #~ \\|"),
        # Source for macOS: British.keylayout, by key code.
        ("macos", "2@ 3£ '\" `~ \\| §±"),
    ],
)
def test_the_uk_layout_of_each_platform(platform, typed):
    names = words("Num2 Num3 Quote BackQuote BackSlash IntlBackslash")
    keys = [lookup(name, platform, "uk") for name in names]
    assert [f"{key.char}{key.shifted}" for key in keys] == words(typed)


@pytest.mark.parametrize("layout", ["us", "uk"])
def test_names_of_windows_say_the_character(layout):
    names = words("BackTick BackSlash Apostrophe Hash")
    assert [lookup(name, "windows", layout).char for name in names] == ["`", "\\", "'", "#"]


@pytest.mark.parametrize(
    ("platform", "characters"),
    [("windows", '"@#~'), ("linux", '"@#~\\|'), ("macos", "#"), ("", '"@#~')],
)
def test_characters_that_another_layout_changes(platform, characters):
    assert differing_characters("us", "uk", platform) == set(characters)
    assert differing_characters("us", "us", platform) == set()
