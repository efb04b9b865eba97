"""Performs a script: logs the input events of each act, and lets the desktop react."""

from typing import Any

from demo_pipeline_tests.simulator import desktop_history as changes
from demo_pipeline_tests.simulator.desktop import Placed
from demo_pipeline_tests.simulator.input_device import InputDevice
from demo_pipeline_tests.simulator.keys import key_name, keystrokes
from demo_pipeline_tests.simulator.script import Act, Performance, ScreenTimeline

ROWS_PER_NOTCH = 3
ECHO_MS = 64  # shortest time from an input to its effect on the screen
# Delta that each platform's recorder logs for a notch of the wheel; on macOS in pixels.
_RECORDED_NOTCH = {"windows": 1, "linux": 1, "macos": 100}
_COUNTS = {"double_click": 2, "triple_click": 3}


class Performer(InputDevice):
    """Performs the acts of a script one after another."""

    def perform(self) -> Performance:
        """Performs the whole script."""
        for act in self.script.acts:
            self._act(act)
            self.now += self.random.randint(320, 650)
        end = self.now + self.script.tail_ms
        self._end_pause(end)
        self.history.at(max(end, self.history.settled_ms()))
        timeline = ScreenTimeline(
            self.history.change_ms,
            self.history.states,
            [ms for ms, _ in self.moves],
            [point for _, point in self.moves],
        )
        return Performance(
            self.desktop,
            self.events,
            timeline,
            self.actions,
            self.pauses,
            self.script.start_ms,
            end,
        )

    def _act(self, act: Act) -> None:
        match act.verb:
            case "move_to":
                self._approach(act.target)
            case "click" | "double_click" | "triple_click" | "right_click" | "middle_click":
                self._click(act)
            case "drag":
                self._drag(act)
            case "scroll":
                self._scroll(act)
            case "type_text":
                self._type(act.text)
            case "hotkey":
                self._hotkey(act.keys)
            case "wait_for_screen":
                self._keep_still("wait")
                self.now = self.history.settled_ms() + self.random.randint(350, 600)
            case "think":
                self._keep_still("think")
                self.now += round(act.seconds * 1000)

    def _click(self, act: Act) -> None:
        thing = self._approach(act.target)
        button = {"right_click": "Right", "middle_click": "Middle"}.get(act.verb, "Left")
        for key in act.keys:
            self._key("keydown", key_name(key, self.platform))
            self.now += self.random.randint(40, 80)
        press = self.now
        (x, y) = self.pointer
        count = _COUNTS.get(act.verb, 1)
        for turn in range(count):
            self._press(thing, button)
            self.now += self.random.randint(60, 140)
            if count == 1 and self.random.random() < 0.3:
                self._move_at_once((x + 1, y))
                self.now += self.random.randint(2, 9)
            self._release(button)
            if turn < count - 1:
                self.now += self.random.randint(50, 110)
        end = self.now
        self._react(act, thing)
        for key in reversed(act.keys):
            self.now += self.random.randint(30, 60)
            self._key("keyup", key_name(key, self.platform))
        self._record(*_clicked(act, x, y), press, end, thing)

    def _react(self, act: Act, thing: Placed) -> None:
        at = self.now + self.random.randint(ECHO_MS, 150)
        widget = thing.widget
        if act.verb == "right_click":
            self.history.start(widget.on_right_click, at, self.pointer)
        elif act.verb != "middle_click":
            self.history.schedule(at, changes.clicked(thing))
            if act.verb != "double_click":
                self.history.start(widget.on_click, at, self.pointer)
        if act.verb == "triple_click" and thing.kind == "text_field":
            self.history.schedule(at, changes.all_selected)

    def _drag(self, act: Act) -> None:
        thing = self._approach(act.target)
        scale = self.desktop.scale
        press = self.now
        (x0, y0) = self.pointer
        self._press(thing, "Left")
        self.now += self.random.randint(60, 140)
        before = len(self.moves)
        self._move((x0 + round(act.offset[0] * scale), y0 + round(act.offset[1] * scale)))
        came_from = (x0, y0)
        for ms, (x, y) in self.moves[before:]:
            step = changes.shifted(thing.widget.name, x - came_from[0], y - came_from[1])
            self.history.schedule(ms + ECHO_MS, step)
            came_from = (x, y)
        self.now += self.random.randint(70, 140)
        self._release("Left")
        x, y = self.pointer
        points = {"start_x": x0, "start_y": y0, "end_x": x, "end_y": y}
        self._record("drag", points, press, self.now, thing)

    def _scroll(self, act: Act) -> None:
        thing = self._approach(act.target)
        first = self.now
        sign = 1 if act.notches > 0 else -1
        rows = self.history.at(self.now).rows[thing.widget.name]
        last = max(0, len(rows) - self.desktop.visible_rows(thing.widget))
        for notch in range(abs(act.notches)):
            if notch:
                self.now += self.random.randint(45, 120)
            delta = 120 if self.wheel == "documented" else -_RECORDED_NOTCH[self.platform]
            self._emit("mousewheel", {"delta": delta * sign})
            change = changes.scrolled(thing.widget.name, sign * ROWS_PER_NOTCH, last)
            self.history.schedule(self.now + ECHO_MS, change)
        x, y = self.pointer
        direction = "down" if sign > 0 else "up"
        parameters = {"x": x, "y": y, "direction": direction, "amount": abs(act.notches)}
        self._record("scroll", parameters, first, self.now, thing)

    def _type(self, text: str) -> None:
        state = self.history.at(self.now)
        thing = self.desktop.find(state, state.focused)
        press = self.now
        for stroke in keystrokes(text, self.platform, self.random, self.now):
            self.now = stroke.ms
            self._key(stroke.event, stroke.key, stroke.character)
            if stroke.character:
                self.history.schedule(self.now + ECHO_MS, changes.typed(stroke.character))
        self._record("type", {"text": corrected(text)}, press, self.now, thing)

    def _hotkey(self, keys: tuple[str, ...]) -> None:
        press = self.now
        names = [key_name(key, self.platform) for key in keys]
        for index, name in enumerate(names):
            if index:
                self.now += self.random.randint(45, 110)
            self._key("keydown", name)
        state = self.history.at(self.now)
        echo = self.now + ECHO_MS
        for name in reversed(names):
            self.now += self.random.randint(40, 80)
            self._key("keyup", name)
        if keys in {("ctrl", "a"), ("command", "a")}:
            self.history.schedule(echo, changes.all_selected)
        elif keys in {("backspace",), ("delete",)} and state.focused:
            self.history.schedule(echo, changes.typed("\b"))
        elif keys == ("enter",) and state.focused:
            self.history.start(self.desktop.widget(state.focused).on_enter, echo, self.pointer)
        self._record("hotkey", {"keys": list(keys)}, press, self.now, None)


def corrected(text: str) -> str:
    """Returns a text in which each backspace has removed the character before it."""
    kept: list[str] = []
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept:
            kept.pop()
    return "".join(kept)


def _clicked(act: Act, x: int, y: int) -> tuple[str, dict[str, Any]]:
    held = {"modifiers": list(act.keys)} if act.keys else {}
    if act.verb in {"double_click", "right_click"}:
        return act.verb, {"x": x, "y": y, **held}
    button = "middle" if act.verb == "middle_click" else "left"
    count = {"clicks": 3} if act.verb == "triple_click" else {}
    return "click", {"x": x, "y": y, "button": button, **count, **held}
