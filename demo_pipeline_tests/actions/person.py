"""Simulates a person and a recorder: turns intentions into the lines of a log.

The simulation knows how long people hold keys, which keys operating systems repeat, and which
events recorders log twice. It is independent of the code that finds the actions in a log.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from demo_pipeline_tests.simulator.keys import Platform, key_name, stroke

MOVING_ON = frozenset(
    {"up", "down", "left", "right", "home", "end", "pageup", "pagedown", "tab", "delete"}
)
ActionValues = tuple[Any, ...]  # type of an action, then the values that tests compare


@dataclass(frozen=True, slots=True)
class Intent:
    """An intention of a person, for example a click while the modifiers in `held` are held."""

    verb: Literal["click", "drag", "scroll", "type", "keys", "repeat", "tap", "wait"]
    button: str = "Left"
    count: int = 1
    held: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    text: str = ""
    slips: tuple[int, ...] = ()
    style: Literal["rolling", "careful", "caps_lock", "shift_held"] = "rolling"
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Recorder:
    """How a recorder writes the log.

    Attributes:
        copies: number of active hooks, each of which logs every event.
        lag_ms: longest delay between the lines of two hooks for the same event.
        xy_on_buttons: whether presses and releases have the position of the pointer.
        wheel: `documented` logs 120 per notch, and positive deltas scroll down. `native` logs
            deltas as the operating system reports them.
        moves_while_held: whether moves are logged while a button is held. Recorders on macOS may
            log none.
    """

    platform: Platform = "linux"
    copies: int = 1
    lag_ms: int = 2
    xy_on_buttons: bool = True
    wheel: Literal["documented", "native"] = "documented"
    moves_while_held: bool = True
    noise: bool = False


@dataclass
class Person:
    """Performs intentions.

    Attributes:
        events: the inputs of the person, before a recorder logs them.
        truth: the intended actions.
    """

    recorder: Recorder
    seed: int
    now: int = 1_700_000_000_000
    at: tuple[int, int] = (600, 400)
    events: list[dict[str, Any]] = field(default_factory=list)
    truth: list[ActionValues] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = Random(self.seed)
        self._button_down = False
        self._same_intent = False
        self._down: list[str] = []
        self._go((640, 420))

    def act(self, intents: Sequence[Intent]) -> None:
        """Performs all intentions, and finally moves the pointer away."""
        for intent in intents:
            self.now += self._between(450, 900)  # long enough to look at the screen
            self._same_intent = False
            getattr(self, f"_{intent.verb}")(intent)
        self.now += self._between(300, 600)
        self._go((self.at[0] + 30, self.at[1] + 30))

    # --- the hand

    def _between(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def _emit(self, event: str, **data: Any) -> None:
        self.events.append({"event": event, "data": data, "time": self.now})

    def _go(self, to: tuple[int, int]) -> None:
        """Moves the pointer along a curve, slowly at both ends, with a little tremor."""
        x0, y0 = self.at
        steps = self._between(9, 24)
        for step in range(1, steps + 1):
            self.now += self._between(12, 22)
            part = step / steps
            s = part * part * (3 - 2 * part)
            tremor = self._between(-1, 1) if step not in {1, steps} else 0
            self._put((round(x0 + s * (to[0] - x0)), round(y0 + s * (to[1] - y0)) + tremor))

    def _put(self, to: tuple[int, int]) -> None:
        if to == self.at:
            return
        self.at = to
        if self.recorder.moves_while_held or not self._button_down:
            self._emit("mousemove", x=to[0], y=to[1])

    def _elsewhere(self) -> None:
        """Moves the pointer at least 80 pixels away, and waits for up to 0.7 seconds."""
        x, y = self.at
        dx = self._between(80, 500)
        dy = self._between(0, 250)
        self._go((x - dx if x > 700 else x + dx, y - dy if y > 500 else y + dy))
        self.now += self._between(60, 700)

    def _button(self, event: str, button: str) -> None:
        here = {"x": self.at[0], "y": self.at[1]} if self.recorder.xy_on_buttons else {}
        self._emit(event, **here, button=button)
        self._button_down = event == "mousedown"

    def _hold(self, names: Sequence[str]) -> None:
        for name in names:
            self._emit("keydown", key=self._key(name))
            if self.recorder.platform == "windows" and self._random.random() < 0.3:
                self._system_repeats(self._key(name))
            self.now += self._between(45, 140)

    def _system_repeats(self, key: str) -> None:
        self.now += 500
        for _ in range(self._between(1, 6)):
            self._emit("keydown", key=key)
            self.now += 33

    def _let_go(self, names: Sequence[str]) -> None:
        for name in reversed(names):
            self.now += self._between(20, 90)
            self._emit("keyup", key=self._key(name))

    def _key(self, name: str) -> str:
        return key_name(name, self.recorder.platform)

    # --- a method for each verb of an intent

    def _click(self, intent: Intent) -> None:
        self._elsewhere()
        self._hold(intent.held)
        press = self.now
        (x, y) = self.at
        for turn in range(intent.count):
            self.now += self._between(70, 160) if turn else 0
            self._button("mousedown", intent.button)
            self.now += self._between(40, 130)
            if self._random.random() < 0.3:
                self._put((x + self._between(-2, 2), y + self._between(-1, 1)))
                self.now += self._between(3, 20)
            self._button("mouseup", intent.button)
            self._put((x, y))
        self._let_go(intent.held)
        what = (intent.button.lower(), intent.count, intent.held)
        self.truth.append(("click", *what, x, y, press))

    def _drag(self, intent: Intent) -> None:
        self._elsewhere()
        self._hold(intent.held)
        press = self.now
        (x, y) = self.at
        self._button("mousedown", intent.button)
        self.now += self._between(60, 150)
        self._go((x + self._between(60, 300), y + self._between(-60, 60)))
        self.now += self._between(60, 250)
        self._button("mouseup", intent.button)
        self._let_go(intent.held)
        what = (intent.button.lower(), intent.held)
        self.truth.append(("drag", *what, x, y, *self.at, press))

    def _scroll(self, intent: Intent) -> None:
        self._elsewhere()
        press = self.now
        total = 0
        down = intent.button == "down"
        pixels = self.recorder.wheel == "native" and self.recorder.platform == "macos"
        for turn in range(intent.count * (12 if pixels else 1)):
            self.now += (self._between(10, 17) if pixels else self._between(40, 240)) * (turn > 0)
            size = self._between(3, 29) if pixels else 1
            total += size
            delta = size * (1 if down == (self.recorder.wheel == "documented") else -1)
            self._emit("mousewheel", delta=delta * (120 if self.recorder.wheel[0] == "d" else 1))
        amount = int(total / 100 + 0.5) if pixels else total
        if amount:
            self.truth.append(("scroll", intent.button, amount, *self.at, press))

    def _type(self, intent: Intent) -> None:
        press = self.now
        caps = intent.style == "caps_lock"
        if caps:
            self._strike("CapsLock")
            press = self.now
        for number, char in enumerate(intent.text):
            if number in intent.slips:
                self._letter("x", intent, caps=caps)
                self.now += self._between(150, 900)
                self._strike(self._key("backspace"))
            self._letter(char, intent, caps=caps)
        self._lift_all()
        if caps:
            self._strike("CapsLock")
        self.truth.append(("type", intent.text, press))

    def _letter(self, char: str, intent: Intent, *, caps: bool) -> None:
        key, shift = stroke(char, self.recorder.platform)
        if caps and char.isalpha():
            shift = not shift
        if shift:
            self._lift_all()
            side = "ShiftRight" if self._random.random() < 0.3 else "ShiftLeft"
            name = "Shift" if self.recorder.platform == "windows" else side
            self._emit("keydown", key=name)
            self.now += self._between(30, 120)
            self._strike(key)
            self._emit("keyup", key=name)
            self.now += self._between(30, 120)
            return
        if key in self._down or intent.style == "careful":
            self._lift_all()
        self._emit("keydown", key=key)
        self._down.append(key)
        self.now += self._between(60, 200)
        while self._down[:-1] or (self._down and self._random.random() < 0.6):
            self._emit("keyup", key=self._down.pop(0))
            self.now += self._between(2, 40)

    def _lift_all(self) -> None:
        while self._down:
            self.now += self._between(10, 40)
            self._emit("keyup", key=self._down.pop(0))
            self.now += self._between(20, 60)

    def _strike(self, key: str) -> None:
        self._lift_all()
        self._emit("keydown", key=key)
        self.now += self._between(40, 130)
        self._emit("keyup", key=key)
        self.now += self._between(20, 150)

    def _keys(self, intent: Intent) -> None:
        """Presses the keys one after another while the modifiers are held."""
        press = self.now
        self._hold(intent.held)
        for number, key in enumerate(intent.keys):
            start = press if number == 0 else self.now
            self._strike(self._key(key))
            self._pressed((*intent.held, key), start)
        self._let_go(intent.held)

    def _pressed(self, keys: tuple[str, ...], start: int) -> None:
        """Records a hotkey as an intended action, or adds a press to the preceding hotkey.

        Quick presses of the same navigation key are a single action.
        """
        if self._same_intent and keys[-1] in MOVING_ON and self.truth[-1][1] == keys:
            _, _, presses, first = self.truth[-1]
            self.truth[-1] = ("hotkey", keys, presses + 1, first)
        else:
            self.truth.append(("hotkey", keys, 1, start))
        self._same_intent = True

    def _repeat(self, intent: Intent) -> None:
        """Holds a key until the system has repeated it often enough."""
        [name] = intent.keys
        key = self._key(name)
        press = self.now
        for turn in range(intent.count):
            self._emit("keydown", key=key)
            if len(name) > 1:
                self._pressed((name,), self.now)
            self.now += self._between(250, 600) if turn == 0 else self._between(25, 50)
        self._emit("keyup", key=key)
        if len(name) == 1:
            self.truth.append(("type", name * intent.count, press))

    def _tap(self, intent: Intent) -> None:
        self.truth.append(("hotkey", intent.keys, 1, self.now))
        for name in intent.keys:
            self._emit("keydown", key=self._key(name))
            self.now += self._between(30, 90)
        self._let_go(intent.keys)

    def _wait(self, intent: Intent) -> None:
        self.now += round(intent.seconds * 1000)


def log_of(person: Person) -> bytes:
    """Returns the log that a recorder writes while a person acts."""
    recorder = person.recorder
    random = Random(person.seed + 1)
    written: list[tuple[int, int, dict[str, Any]]] = []
    last: dict[int, int] = {}
    for number, event in enumerate(person.events):
        for copy in range(recorder.copies):
            lag = random.randint(0, recorder.lag_ms) if copy else 0
            time = max(event["time"] + lag, last.get(copy, 0))
            last[copy] = time
            written.append((time, number, _copy(event, copy, recorder.platform, time)))
    if recorder.noise:
        written.extend(_noise(person, random))
    written.sort(key=lambda item: item[0])
    lines = [json.dumps(line).encode() for _, _, line in written]
    if not recorder.noise:
        return b"\n".join(lines) + b"\n"
    return b"\xef\xbb\xbf" + b"\r\n".join(lines) + b'\r\n\r\n{"event":"mousemo'


def _copy(event: dict[str, Any], copy: int, platform: Platform, time: int) -> dict[str, Any]:
    """Returns the line that one hook logs for an event.

    On macOS, further hooks log the release of a modifier as a press.
    """
    flips = platform == "macos" and event["event"] == "keyup"
    name = event["data"].get("key", "")
    modifier = name.startswith(("Shift", "Control", "Meta", "Alt"))
    if copy and flips and modifier:
        event = {**event, "event": "keydown"}
    return {**event, "time": time}


def _noise(person: Person, random: Random) -> list[tuple[int, int, dict[str, Any]]]:
    """Returns lines without actions: scans, undocumented events and a wheel event of delta 0."""
    start = person.events[0]["time"]
    end = person.events[-1]["time"]
    lines = []
    for begun in range(start, end, 3000):
        duration = random.randint(50, 2500)
        scan = {"duration": duration, "tree": [{"children": []}], "focused_element": {}}
        lines.append((begun + duration, 0, {"event": "axtree", "data": scan, "time": begun}))
    for event in ("mousedelta", "ffmpeg_stderr", "axtree_interaction"):
        time = random.randint(start, end)
        lines.append((time, 0, {"event": event, "data": {"x": 1, "output": "?"}, "time": time}))
    time = random.randint(start, end)
    lines.append((time, 0, {"event": "mousewheel", "data": {"delta": 0}, "time": time}))
    return lines
