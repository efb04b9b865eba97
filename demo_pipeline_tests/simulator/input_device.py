"""Simulates pointer moves, button presses and key presses at human pace, as raw log events."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Literal

from demo_pipeline_tests.simulator.desktop import Box, Placed
from demo_pipeline_tests.simulator.desktop_history import DesktopHistory, pressed
from demo_pipeline_tests.simulator.keys import Platform
from demo_pipeline_tests.simulator.script import IntendedAction, Pause, Script
from demo_pipeline_tests.simulator.trees import DESKTOPD_ROLES

Wheel = Literal["documented", "recorder"]


class InputDevice:
    """A simulated mouse and keyboard.

    `now` is the current time of the simulation, in epoch milliseconds.
    """

    def __init__(
        self,
        script: Script,
        size: tuple[int, int],
        platform: Platform,
        *,
        xy_on_buttons: bool,
        wheel: Wheel,
        characters: Callable[[str], str] | None = None,
    ) -> None:
        self.script = script
        self.desktop = script.desktop.at(*size)
        self.platform: Platform = platform
        self.xy_on_buttons = xy_on_buttons
        self.wheel = wheel
        self.characters = characters
        self.random = Random(f"hand {script.seed}")
        self.history = DesktopHistory.opened(self.desktop, script.start_ms)
        self.now = script.start_ms + script.lead_in_ms
        scale = self.desktop.scale
        self.pointer = (round(script.pointer[0] * scale), round(script.pointer[1] * scale))
        self.moves = [(script.start_ms, self.pointer)]
        self.events: list[dict[str, Any]] = []
        self.actions: list[IntendedAction] = []
        self.pauses: list[Pause] = []
        self._last_input = script.start_ms
        self._still: Literal["", "wait", "think"] = ""

    def _emit(self, event: str, data: dict[str, Any]) -> None:
        self._end_pause(self.now)
        self.events.append({"event": event, "data": data, "time": self.now})
        self._last_input = self.now

    def _keep_still(self, kind: Literal["wait", "think"]) -> None:
        if self._still:
            raise ValueError(f"{kind} follows {self._still}: the log would show one pause")
        self._still = kind

    def _end_pause(self, end_ms: int) -> None:
        if self._still:
            self.pauses.append(Pause(self._still, self._last_input, end_ms))
        if self._still == "wait":
            seconds = {"seconds": (end_ms - self._last_input) / 1000}
            self.actions.append(IntendedAction("wait", seconds, self._last_input, end_ms))
        self._still = ""

    def _approach(self, name: str) -> Placed:
        """Moves the pointer well inside a target and pauses briefly. Returns the widget there."""
        target = self.desktop.find(self.history.at(self.now), name)
        self._move(self._aim(target.box))
        self.now += self.random.randint(70, 190)
        under = self.desktop.hit(self.history.at(self.now), *self.pointer)
        if under is None or name not in {under.name, under.widget.name}:
            raise ValueError(f"{name!r} is covered at {self.pointer}")
        return under

    def _aim(self, box: Box) -> tuple[int, int]:
        dx = round(box.width * self.random.uniform(-0.28, 0.28))
        dy = round(box.height * self.random.uniform(-0.25, 0.25))
        return box.x + box.width // 2 + dx, box.y + box.height // 2 + dy

    def _move(self, to: tuple[int, int]) -> None:
        """Moves the pointer along a curved path, slow at both ends.

        The path has 30 to 60 positions per second.
        """
        x0, y0 = self.pointer
        x2, y2 = to
        length = max(abs(x2 - x0), abs(y2 - y0)) / self.desktop.scale
        duration = min(850.0, 200 + 0.5 * length) * self.random.uniform(0.85, 1.2)
        bend = self.random.uniform(-0.16, 0.16)
        x1 = (x0 + x2) / 2 - bend * (y2 - y0)
        y1 = (y0 + y2) / 2 + bend * (x2 - x0)
        spent = 0.0
        while self.pointer != to:
            step = self.random.randint(17, 33)
            spent = spent + step
            self.now = self.now + step
            part = min(1.0, spent / duration)
            s = part * part * (3 - 2 * part)
            x = round((1 - s) ** 2 * x0 + 2 * s * (1 - s) * x1 + s * s * x2)
            y = round((1 - s) ** 2 * y0 + 2 * s * (1 - s) * y1 + s * s * y2)
            if (x, y) != self.pointer:
                self._move_at_once((x, y))

    def _move_at_once(self, to: tuple[int, int]) -> None:
        self.pointer = (
            min(max(to[0], 0), self.desktop.width - 1),
            min(max(to[1], 0), self.desktop.height - 1),
        )
        self.moves.append((self.now, self.pointer))
        self._emit("mousemove", {"x": self.pointer[0], "y": self.pointer[1]})

    def _button(self, event: str, button: str) -> None:
        at = {"x": self.pointer[0], "y": self.pointer[1]} if self.xy_on_buttons else {}
        self._emit(event, {**at, "button": button})

    def _press(self, thing: Placed, button: str) -> None:
        self._button("mousedown", button)
        if button == "Left":
            self.history.schedule(self.now, pressed(thing.name))

    def _release(self, button: str) -> None:
        self._button("mouseup", button)
        self.history.schedule(self.now, pressed(""))

    def _key(self, event: str, name: str, character: str = "") -> None:
        """Logs a key event. A press includes `actual_char` if the recorder logs characters."""
        data = {"key": name}
        if self.characters and event == "keydown":
            data["actual_char"] = self.characters(character)
        self._emit(event, data)

    def _record(
        self, kind: str, parameters: dict[str, Any], press: int, end: int, thing: Placed | None
    ) -> None:
        action = IntendedAction(kind, parameters, press, end)
        if thing:
            role = DESKTOPD_ROLES[thing.kind]
            action = replace(action, target=thing.box, target_name=thing.label, target_role=role)
        self.actions.append(action)
