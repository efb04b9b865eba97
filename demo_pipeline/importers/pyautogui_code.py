"""Converts Python code that calls pyautogui to actions, without running the code.

OSWorld's agents write such code. Calls of pyautogui, `pyperclip.copy` and `time.sleep` are read;
python_program.py defines which other statements are allowed. Positions are pixels of the screen.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from demo_pipeline.desktopd.models import ActionType
from demo_pipeline.importers.python_program import PythonProgram, UnreadCodeError
from demo_pipeline.importers.source_trajectory import (
    POINTED,
    SourceAct,
    SourcePoint,
    click,
    drag,
    key_name,
    press_keys,
    scroll,
    type_text,
    wait,
)
from demo_pipeline.importers.source_values import number

# Maximum number of actions in a program, and of clicks or presses in a call.
_MOST_ACTS = 1000
_MOST_CLICKS = 3  # maximum number of clicks in one action; more clicks become single clicks
# pyautogui passes the argument of `scroll` to the operating system. A notch of the wheel counts 120
# on Windows, and 1 on other systems.
_UNIT_OF_WINDOWS = 120
_PLACE = ("x", "y")
_DISTANCE = ("xOffset", "yOffset")
# The supported functions, with their parameters in order.
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "click": (*_PLACE, "clicks", "interval", "button"),
    "leftClick": _PLACE,
    "rightClick": _PLACE,
    "middleClick": _PLACE,
    "doubleClick": (*_PLACE, "interval", "button"),
    "tripleClick": (*_PLACE, "interval", "button"),
    "moveTo": _PLACE,
    "move": _DISTANCE,
    "moveRel": _DISTANCE,
    "dragTo": (*_PLACE, "duration", "tween", "button"),
    "drag": (*_DISTANCE, "duration", "tween", "button"),
    "dragRel": (*_DISTANCE, "duration", "tween", "button"),
    "mouseDown": (*_PLACE, "button"),
    "mouseUp": (*_PLACE, "button"),
    "scroll": ("clicks", *_PLACE),
    "vscroll": ("clicks", *_PLACE),
    "hscroll": ("clicks", *_PLACE),
    "press": ("keys", "presses"),
    "keyDown": ("key",),
    "keyUp": ("key",),
    "hotkey": (),
    "write": ("message",),
    "typewrite": ("message",),
    "sleep": ("seconds",),
}
# Functions that click, with their default button and default number of clicks.
_CLICKS = {
    "click": ("left", 1),
    "leftClick": ("left", 1),
    "rightClick": ("right", 1),
    "middleClick": ("middle", 1),
    "doubleClick": ("left", 2),
    "tripleClick": ("left", 3),
}
_MODIFIERS = frozenset({"ctrl", "shift", "alt", "altgr", "win", "command", "fn"})
_SILENT = frozenset({"print", "copy", "position", "size"})  # functions without effect on the screen


@dataclass
class CodeReader:
    """Converts the programs of a trajectory, in order, to actions.

    The pointer's position, a pressed button and the clipboard are remembered from one program to
    the next.

    Attributes:
        platform: windows, macos, linux, or empty.
        at: the pointer's position; None if unknown.
    """

    platform: str = ""
    at: SourcePoint | None = None
    _acts: list[SourceAct] = field(default_factory=list)
    _held: list[str] = field(default_factory=list)
    # True while no action has followed the press of the last key in `_held`.
    _held_alone: bool = False
    # Position and button of a press that has no release yet; None if no button is pressed.
    _down: tuple[SourcePoint | None, str] | None = None
    _clipboard: str = ""
    _slept: float = 0.0  # total duration of `sleep` in the current program, seconds

    def read(self, code: str) -> list[SourceAct]:
        """Returns the actions of a program; an empty list if the program only moves the pointer.

        For a program that only sleeps, the result is a wait.

        Raises:
            NotPythonError: the program is not Python.
            UnreadCodeError: the program has a statement, function or value that is not supported.
        """
        self._acts = []
        self._slept = 0.0
        program = PythonProgram(code)
        try:
            for call in program.calls():
                if len(self._acts) > _MOST_ACTS:
                    raise UnreadCodeError("the code does too much")
                self._call(program, call)
        except (ValueError, RecursionError, MemoryError, TypeError, ArithmeticError, LookupError):
            raise UnreadCodeError("the code has an argument that cannot be read") from None
        if self._held and self._held_alone:
            self._release_alone()
        self._held = []
        if not self._acts and self._slept > 0:
            self._acts = [wait(self._slept)]
        return self._acts

    def _call(self, program: PythonProgram, call: ast.Call) -> None:
        """Adds the actions of a call in the program, or changes the state of this reader."""
        match call.func:
            case ast.Attribute(attr=name) | ast.Name(id=name):
                pass
            case _:
                raise UnreadCodeError("the code has a call that is not read")
        values = [program.value(argument) for argument in call.args]
        if name == "copy" and values:  # pyperclip.copy(text)
            self._clipboard = str(values[0])
        if name in _SILENT:
            return
        if name not in _ARGUMENTS:
            raise UnreadCodeError("the code calls a function that is not read")
        if name == "hotkey":
            keys = values[0] if len(values) == 1 and isinstance(values[0], list) else values
            self._hotkey([str(key) for key in keys])
            return
        given = dict(zip(_ARGUMENTS[name], values, strict=False))
        for keyword in call.keywords:
            if keyword.arg is None:
                raise UnreadCodeError("the code has a call that is not read")
            parameter = "message" if keyword.arg == "text" else keyword.arg
            given[parameter] = program.value(keyword.value)
        self._do(name, given)

    def _do(self, name: str, given: Mapping[str, Any]) -> None:
        """Adds the actions of a call, or changes the state of this reader.

        Args:
            name: the function, a key of `_ARGUMENTS`.
            given: maps parameter names to arguments.
        """
        if name in _CLICKS:
            self._click(name, given)
        elif name in {"moveTo", "move", "moveRel"}:
            self._move(given)
        elif name in {"dragTo", "drag", "dragRel"}:
            start = self.at
            self._move(given)
            self._act(drag(start, self.at, _button(given)))
        elif name == "mouseDown":
            self._move(given)
            self._down = (self.at, _button(given))
        elif name == "mouseUp":
            self._move(given)
            self._let_go(_button(given))
        elif name in {"scroll", "vscroll", "hscroll"}:
            self._scroll(name, given)
        elif name in {"press", "write", "typewrite"}:
            self._type(name, given)
        elif name == "keyDown":
            self._held.append(self._key(given.get("key")))
            self._held_alone = True
        elif name == "keyUp":
            if self._held_alone:
                self._release_alone()
            key = self._key(given.get("key"))
            self._held = [held for held in self._held if held != key]
        else:
            self._slept += number(given.get("seconds")) or 0.0

    def _click(self, name: str, given: Mapping[str, Any]) -> None:
        """Adds clicks: up to three left clicks as one action, other clicks as separate actions."""
        button, clicks = _CLICKS[name]
        clicks = int(given.get("clicks", clicks))
        button = _button(given, button)
        self._move(given)
        if clicks > _MOST_ACTS:
            raise UnreadCodeError("the code does too much")
        if button == "left" and clicks <= _MOST_CLICKS:
            self._act(click(self.at, button, clicks))
            return
        for _ in range(clicks):
            self._act(click(self.at, button))

    def _let_go(self, released: str) -> None:
        """Releases a button: adds a drag if the pointer moved since the press, else a click.

        Args:
            released: the button in the call, which is used only if no press was read before.
        """
        start, button = self._down or (self.at, released)
        self._down = None
        if start == self.at:
            self._act(click(start, button))
        else:
            self._act(drag(start, self.at, button))

    def _move(self, given: Mapping[str, Any]) -> None:
        """Moves the pointer to a position or by a distance; without either, the pointer stays."""
        place = (number(given.get("x")), number(given.get("y")))
        if isinstance(given.get("x"), tuple | list):  # click((x, y))
            place = (number(given["x"][0]), number(given["x"][1]))
        across = number(given.get("xOffset"))
        down = number(given.get("yOffset"))
        if place[0] is not None and place[1] is not None:
            self.at = (place[0], place[1])
        elif self.at is not None and (across is not None or down is not None):
            self.at = (self.at[0] + (across or 0), self.at[1] + (down or 0))

    def _scroll(self, name: str, given: Mapping[str, Any]) -> None:
        """Adds a scroll; a positive argument scrolls up, or to the right for `hscroll`."""
        self._move(given)
        notches = number(given.get("clicks")) or 0.0
        if self.platform == "windows":
            notches /= _UNIT_OF_WINDOWS
        turn = scroll(self.at, 0.0, -notches)
        if name == "hscroll":
            turn = scroll(self.at, notches, 0.0)
        if turn is not None:
            self._act(turn)

    def _type(self, name: str, given: Mapping[str, Any]) -> None:
        """Adds the text that a call types, or the keys that it presses one after the other."""
        value = given.get("keys" if name == "press" else "message")
        presses = int(given.get("presses", 1))
        if presses > _MOST_ACTS:
            raise UnreadCodeError("the code does too much")
        if name != "press" and isinstance(value, str):
            self._text(value)
            return
        keys = [value] if isinstance(value, str) else list(value or ())
        names = [self._key(key) for key in keys]
        if len(names) == 1 and len(names[0]) > 1:
            self._press(names[0], presses)
            return
        for _ in range(presses):
            for key, written in zip(names, keys, strict=True):
                if len(key) == 1 and not self._held:
                    self._text(str(written))
                else:
                    self._press(key, 1)

    def _text(self, text: str) -> None:
        """Adds typed text; extends the last action of this program if that action typed text."""
        if self._goes_on():
            text = self._acts.pop().values["text"] + text
        if text:
            self._act(type_text(text))

    def _press(self, key: str, presses: int) -> None:
        """Adds presses of a key with the held keys; Enter alone adds line breaks to typed text."""
        if key == "enter" and not self._held and self._goes_on():
            self._text("\n" * presses)
        else:
            self._act(press_keys([*self._held, key], presses))

    def _goes_on(self) -> bool:
        """Returns whether the last action of this program typed text and can be extended."""
        return bool(self._acts) and self._acts[-1].kind is ActionType.TYPE

    def _hotkey(self, keys: list[str]) -> None:
        """Adds a hotkey. A hotkey that pastes becomes typed text if the clipboard is known."""
        names = [self._key(key) for key in keys]
        if names in (["ctrl", "v"], ["command", "v"]) and self._clipboard:
            self._text(self._clipboard)
            self._clipboard = ""
        elif names == ["enter"]:
            self._press("enter", 1)
        elif names:
            self._act(press_keys([*self._held, *names]))

    def _release_alone(self) -> None:
        """Adds a hotkey of the held keys; called if no other action followed their presses."""
        self._act(press_keys(self._held))

    def _act(self, act: SourceAct) -> None:
        """Adds an action; pointer actions get the held modifier keys."""
        self._held_alone = False
        modifiers = [key for key in self._held if key in _MODIFIERS]
        if modifiers and act.kind in POINTED:
            act = replace(act, values={**act.values, "modifiers": modifiers})
        self._acts.append(act)

    def _key(self, name: Any) -> str:
        if not isinstance(name, str) or not name:
            raise UnreadCodeError("the code presses a key without a name")
        return key_name(name, self.platform)


def _button(given: Mapping[str, Any], default: str = "left") -> str:
    """Returns the button in the arguments; the default if the button is missing or unknown."""
    button = str(given.get("button", default)).lower()
    return button if button in {"left", "right", "middle"} else default
