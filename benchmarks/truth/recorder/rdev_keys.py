"""The names that recorders on Linux log for keys: by the place on the keyboard, not the layout.

Recorders built on Rust's rdev name a key by its X key code; `KeyQ` is the first letter key on every
layout. Key codes that rdev has no name for are logged as `Unknown(code)`.
"""

_ROWS = {
    10: "Num1 Num2 Num3 Num4 Num5 Num6 Num7 Num8 Num9 Num0 Minus Equal Backspace Tab",
    24: "KeyQ KeyW KeyE KeyR KeyT KeyY KeyU KeyI KeyO KeyP LeftBracket RightBracket Return",
    37: "ControlLeft KeyA KeyS KeyD KeyF KeyG KeyH KeyJ KeyK KeyL SemiColon Quote BackQuote",
    50: "ShiftLeft BackSlash KeyZ KeyX KeyC KeyV KeyB KeyN KeyM Comma Dot Slash ShiftRight",
    63: "KpMultiply Alt Space CapsLock F1 F2 F3 F4 F5 F6 F7 F8 F9 F10 NumLock ScrollLock",
    79: "Kp7 Kp8 Kp9 KpMinus Kp4 Kp5 Kp6 KpPlus Kp1 Kp2 Kp3 Kp0 KpDelete",
    94: "IntlBackslash F11 F12",
    104: "KpReturn ControlRight KpDivide PrintScreen AltGr",
    110: "Home UpArrow PageUp LeftArrow RightArrow End DownArrow PageDown Insert Delete",
}


def _names() -> dict[int, str]:
    names = {9: "Escape", 127: "Pause", 133: "MetaLeft"}
    for first, row in _ROWS.items():
        names.update(enumerate(row.split(), start=first))
    return names


_NAMES = _names()


def rdev_name(key_code: int) -> str:
    """The logged name of an X key code."""
    return _NAMES.get(key_code, f"Unknown({key_code})")
