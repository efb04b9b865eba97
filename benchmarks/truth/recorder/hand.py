"""A scripted hand that moves, clicks and types like a person, and lists what it meant to do.

Each entry of `truth` has the kind of action, the time of its press (`t`) and its end (`t_end`), the
time at which the person had decided (`t_look`), when the pointer arrived (`t_arrive`), its place,
and the widget aimed at. All times are epoch milliseconds. Entries of keys have the widget that had
the keyboard (`focus`). Before each action the scenario looks for its widget; the search takes about
as long as a person takes to look.
"""

import math
import random
import time
from collections.abc import Callable
from typing import Any

from keyboard import KeyboardMap, KeyPress
from widgets import Widget, focused_widget
from Xlib import X, display
from Xlib.ext import xtest

Target = Widget | tuple[int, int]
Entry = dict[str, Any]
Pause = tuple[float, float]

_BUTTON_KINDS = {1: "click", 2: "middle_click", 3: "right_click"}
_REPEATED_KINDS = {2: "double_click", 3: "triple_click"}
_MOVE_INTERVAL = 0.01  # seconds between two pointer positions
_SPEED = 1800  # pixels a second
_NAMED_CHARACTERS = {"\b": "BackSpace", "\t": "Tab"}


def now() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Hand:
    """The pointer and the keyboard of a desktop, driven through the XTEST extension."""

    def __init__(self, seed: int = 23) -> None:
        self.truth: list[Entry] = []
        self.changing = False
        self._random = random.Random(seed)
        self._display = display.Display()
        self._keys = KeyboardMap(self._display)
        self._place = (600, 600)
        self._caps_lock = False

    def read_keyboard_layout(self) -> None:
        """Reads the keyboard map again after the layout was set."""
        self._keys = KeyboardMap(self._display)

    # pointer

    def jump(self, x: int, y: int) -> None:
        """Puts the pointer somewhere at once; no action."""
        self._send(X.MotionNotify, 0, x, y)
        self._place = (x, y)

    def glide(self, x: int, y: int, seconds: float | None = None, bend: float = 40) -> None:
        """Moves along a slightly curved path, slow at both ends."""
        start_x, start_y = self._place
        distance = math.hypot(x - start_x, y - start_y)
        if seconds is None:
            seconds = 0.18 + distance / _SPEED + self._random.uniform(0, 0.15)
        bend = min(bend, distance / 6)
        middle_x = (start_x + x) / 2 + self._random.uniform(-bend, bend)
        middle_y = (start_y + y) / 2 + self._random.uniform(-bend, bend)
        begin = time.time()
        share = 0.0
        while share < 1:
            share = min(1.0, (time.time() - begin) / seconds)
            t = share * share * (3 - 2 * share)
            point_x = round((1 - t) ** 2 * start_x + 2 * (1 - t) * t * middle_x + t * t * x)
            point_y = round((1 - t) ** 2 * start_y + 2 * (1 - t) * t * middle_y + t * t * y)
            if (point_x, point_y) != self._place:
                self.jump(point_x, point_y)
            time.sleep(_MOVE_INTERVAL)

    def hover(self, target: Target, seconds: float = 0.7) -> None:
        """Moves to a place and stays there; no action."""
        x, y, _ = _aim(target, 0, 0)
        self.glide(x, y)
        self.rest(seconds)

    def click(
        self,
        target: Target,
        *,
        button: int = 1,
        dx: int = 0,
        dy: int = 0,
        modifiers: tuple[str, ...] = (),
        pause: Pause = (0.8, 1.3),
    ) -> None:
        """Clicks; `modifiers` are held meanwhile, `pause` is the rest afterwards in seconds."""
        entry = self._approach(target, dx, dy)
        for modifier in modifiers:
            self._key(modifier, down=True)
            self.rest(0.08)
        entry["t"] = self._press_button(button)
        entry["t_end"] = now()
        for modifier in reversed(modifiers):
            self.rest(0.06)
            self._key(modifier, down=False)
        if modifiers:
            entry["modifiers"] = list(modifiers)
        self._note(_BUTTON_KINDS[button], entry)
        self.rest(*pause)

    def multi_click(self, target: Target, times: int = 2, dx: int = 0, dy: int = 0) -> None:
        """Double- or triple-clicks."""
        entry = self._approach(target, dx, dy)
        presses = []
        for _ in range(times):
            presses.append(self._press_button(1, 0.05))
            self.rest(0.09)
        entry["t"] = presses[0]
        entry["t_end"] = now()
        self._note(_REPEATED_KINDS[times], entry)
        self.rest(0.9, 1.4)

    def drag(self, start: Target, end: Target, seconds: float = 0.8) -> None:
        """Drags from one place to another."""
        entry = self._approach(start, 0, 0)
        entry["start_x"] = entry.pop("x")
        entry["start_y"] = entry.pop("y")
        entry["end_x"], entry["end_y"], entry["onto"] = _aim(end, 0, 0)
        entry["t"] = now()
        self._send(X.ButtonPress, 1)
        self.rest(0.15)
        self.glide(entry["end_x"], entry["end_y"], seconds, bend=10)
        self.rest(0.25)
        self._send(X.ButtonRelease, 1)
        entry["t_end"] = now()
        self._note("drag", entry)
        self.rest(0.9, 1.4)

    def scroll(self, target: Target, notches: int, gap: float = 0.09) -> None:
        """Turns the wheel; up if `notches` is positive."""
        entry = self._approach(target, 0, 0)
        button = 4 if notches > 0 else 5
        entry["t"] = now()
        for _ in range(abs(notches)):
            self._send(X.ButtonPress, button)
            self._send(X.ButtonRelease, button)
            self.rest(gap)
        entry["t_end"] = now()
        entry["direction"] = "up" if notches > 0 else "down"
        entry["ticks"] = abs(notches)
        self._note("scroll", entry)
        self.rest(0.8, 1.2)

    # keyboard

    def type(self, keys: str, *, pace: Pause = (0.05, 0.14), rollover: bool = False) -> None:
        """Types characters; the truth is the text that stays after every Backspace character.

        With `rollover` a key is released only after the next one is pressed.
        """
        focus = focused_widget()
        look = now()
        begin = None
        held: int | None = None
        for character in keys:
            if character in _NAMED_CHARACTERS:
                presses = [KeyPress(self._keys.named(_NAMED_CHARACTERS[character]), shift=False)]
            else:
                presses = self._keys.presses(character)
            for press in presses:
                begin = begin or now()
                held = self._tap(press, held, rollover)
                self.rest(*pace)
        if held is not None:
            self._send(X.KeyRelease, held)
        entry = {"t": begin, "t_end": now(), "t_look": look, "text": _remaining(keys), "keys": keys}
        self._note("type", {**entry, "focus": focus})
        self.rest(0.7, 1.2)

    def press(self, *keys: str, pause: Pause = (0.8, 1.3)) -> None:
        """Presses a key, or a key with modifiers before it, by their X names."""
        focus = focused_widget()
        look = now()
        for key in keys[:-1]:
            self._key(key, down=True)
            self.rest(0.06)
        begin = now()
        self._key(keys[-1], down=True)
        self.rest(0.05)
        self._key(keys[-1], down=False)
        for key in reversed(keys[:-1]):
            self.rest(0.04)
            self._key(key, down=False)
        entry = {"t": begin, "t_end": now(), "t_look": look, "keys": list(keys), "focus": focus}
        self._note("hotkey", entry)
        self.rest(*pause)

    def hold(self, key: str, seconds: float) -> None:
        """Holds a key so long that the server repeats it; the log has the count."""
        look = now()
        begin = now()
        self._key(key, down=True)
        self.rest(seconds)
        self._key(key, down=False)
        entry = {"t": begin, "t_end": now(), "t_look": look, "key": key, "seconds": seconds}
        self._note("held", entry)
        self.rest(0.8, 1.2)

    def tap_caps_lock(self) -> None:
        """Switches Caps Lock; no action of its own."""
        self._key("Caps_Lock", down=True)
        self.rest(0.05)
        self._key("Caps_Lock", down=False)
        self.rest(0.15)
        self._caps_lock = not self._caps_lock

    def switch_layout(self, *chord: str) -> None:
        """Switches between two keyboard layouts by a chord such as Alt+Shift."""
        begin = now()
        for key in chord:
            self._key(key, down=True)
            self.rest(0.06)
        for key in reversed(chord):
            self._key(key, down=False)
            self.rest(0.04)
        self._keys.second = not self._keys.second
        self._note("layout_switch", {"t": begin, "t_end": now(), "keys": list(chord)})
        self.rest(0.4, 0.7)

    # time

    def rest(self, shortest: float, longest: float | None = None) -> None:
        """Sleeps a number of seconds, or a random one between two; nothing is noted."""
        time.sleep(shortest if longest is None else self._random.uniform(shortest, longest))

    def wait(self, until: Callable[[], bool], why: str, longest: float = 15) -> None:
        """Watches the screen until something is there, then takes half a second to react."""
        begin = now()
        self.changing = True
        while not until() and now() - begin < longest * 1000:
            time.sleep(0.1)
        self.rest(0.5, 0.8)
        entry = {"t": begin, "t_end": now(), "seconds": (now() - begin) / 1000, "why": why}
        self._note("wait", entry)
        self.changing = False

    def think(self, seconds: float) -> None:
        """A pause over a screen at rest; the truth is that nobody waited for anything."""
        begin = now()
        time.sleep(seconds)
        self._note("think", {"t": begin, "t_end": now(), "seconds": seconds})

    # one level down

    def _approach(self, target: Target, dx: int, dy: int) -> Entry:
        x, y, widget = _aim(target, dx, dy)
        look = now()
        self.glide(x, y)
        arrive = now()
        self.rest(0.12, 0.4)
        return {"x": x, "y": y, "target": widget, "t_look": look, "t_arrive": arrive}

    def _note(self, kind: str, entry: Entry) -> None:
        self.truth.append({"kind": kind, "changing": self.changing, **entry})

    def _press_button(self, button: int, hold: float | None = None) -> int:
        begin = now()
        self._send(X.ButtonPress, button)
        self.rest(hold or self._random.uniform(0.06, 0.11))
        self._send(X.ButtonRelease, button)
        return begin

    def _tap(self, press: KeyPress, held: int | None, rollover: bool) -> int | None:
        """Presses a key; returns its code if it stays down until the next one is pressed."""
        shift = press.shift
        if self._caps_lock and press.letter:
            shift = not shift
        modified = shift or press.altgr
        if held is not None and (modified or held == press.code):
            self._send(X.KeyRelease, held)
            held = None
        if press.altgr:
            self._key("ISO_Level3_Shift", down=True)
            self.rest(0.04)
        if shift:
            self._key("Shift_L", down=True)
            self.rest(0.04)
        self._send(X.KeyPress, press.code)
        self.rest(0.025, 0.05)
        if held is not None:
            self._send(X.KeyRelease, held)
        if rollover and not modified:
            return press.code
        self._send(X.KeyRelease, press.code)
        if shift:
            self.rest(0.02)
            self._key("Shift_L", down=False)
        if press.altgr:
            self.rest(0.02)
            self._key("ISO_Level3_Shift", down=False)
        return None

    def _key(self, name: str, *, down: bool) -> None:
        self._send(X.KeyPress if down else X.KeyRelease, self._keys.named(name))

    def _send(self, kind: int, detail: int = 0, x: int = 0, y: int = 0) -> None:
        xtest.fake_input(self._display, kind, detail, x=x, y=y)
        self._display.sync()


def _aim(target: Target, dx: int, dy: int) -> tuple[int, int, dict[str, Any] | None]:
    if isinstance(target, Widget):
        return target.x + dx, target.y + dy, target.as_truth()
    return target[0] + dx, target[1] + dy, None


def _remaining(keys: str) -> str:
    text = ""
    for character in keys:
        text = text[:-1] if character == "\b" else text + character
    return text
