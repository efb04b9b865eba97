"""What a person does on a busy screen, frame by frame, and the log of it.

Belongs here: single acts. Their order and the files are in busy_recording.py.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TextIO

from benchmarks.recordings.busy_screen import ROW, SIDE, TITLE, BusyScreen, BusyWindow
from demo_pipeline_tests.simulator.desktop import Box
from demo_pipeline_tests.simulator.keys import key_name
from demo_pipeline_tests.simulator.trees import node

START_MS = 1_790_000_000_000
BUSY_FPS = 30
_DELAY = (1, 4)  # frames from an input to what it changes on the screen


@dataclass
class BusyPerson:
    """Acts on the screen frame by frame, and writes the log as the time passes."""

    screen: BusyScreen
    random: Random
    log: TextIO
    frame: int = 0
    actions: int = 0
    pointer: tuple[int, int] = (400, 300)
    lines: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    later: list[tuple[int, Callable[[], object]]] = field(default_factory=list)

    def emit(self, event: str, data: dict[str, Any], after_ms: float = 0.0) -> None:
        """A line of the log, `after_ms` after the beginning of the frame."""
        self.lines.append((self.frame * 1000 / BUSY_FPS + after_ms, event, data))

    def show(self, change: Callable[[], object]) -> None:
        """Change the screen some frames from now, as applications do."""
        self.later.append((self.frame + self.random.randint(*_DELAY), change))

    def tick(self) -> None:
        """End a frame: what is due is shown, and what has happened is written."""
        self.frame += 1
        due = [change for frame, change in self.later if frame <= self.frame]
        self.later = [entry for entry in self.later if entry[0] > self.frame]
        for change in due:
            change()
        self.screen.play(self.frame)
        now = self.frame * 1000 / BUSY_FPS
        ready = sorted((line for line in self.lines if line[0] <= now), key=lambda line: line[0])
        self.lines = [line for line in self.lines if line[0] > now]
        for time, event, data in ready:
            line = {"event": event, "data": data, "time": START_MS + round(time)}
            self.log.write(json.dumps(line, separators=(",", ":")) + "\n")

    def wait(self, frames: int) -> Iterator[None]:
        """Do nothing."""
        for _ in range(frames):
            yield

    def move(self, to: tuple[int, int], frames: int = 0) -> Iterator[None]:
        """Move the pointer, two positions a frame, slow at both ends."""
        frames = frames or self.random.randint(8, 24)
        (x0, y0), (x1, y1) = self.pointer, to
        bend = self.random.randint(-80, 80)
        for step in range(1, 2 * frames + 1):
            part = step / (2 * frames)
            eased = part * part * (3 - 2 * part)
            arc = round(4 * bend * part * (1 - part))
            x = min(max(round(x0 + (x1 - x0) * eased) + arc, 0), self.screen.width - 20)
            y = min(max(round(y0 + (y1 - y0) * eased) + arc, 0), self.screen.height - 24)
            self.pointer = (x, y)
            self.emit("mousemove", {"x": x, "y": y}, 0.0 if step % 2 else 16.0)
            if step % 2 == 0:
                yield

    def button(self, event: str, after_ms: float = 0.0) -> None:
        """Press or release the left button here."""
        x, y = self.pointer
        self.emit(event, {"x": x, "y": y, "button": "Left"}, after_ms)
        self.actions += event == "mousedown"

    def click(self, to: tuple[int, int], then: Callable[[], object]) -> Iterator[None]:
        """Move there and click; the screen changes afterwards."""
        yield from self.move(to)
        yield from self.wait(self.random.randint(2, 6))
        self.button("mousedown", 3.0)
        self.button("mouseup", 80.0)
        self.show(then)
        yield from self.wait(4)

    def open_window(self) -> Iterator[None]:
        """A click on the taskbar opens a window."""
        place = (30 + 56 * self.random.randrange(12), self.screen.height - 30)
        yield from self.click(place, self.screen.open_window)

    def drag_window(self, window: BusyWindow) -> Iterator[None]:
        """A window follows the pointer, and everything below it is drawn again."""
        yield from self.move((window.x + window.width // 2, window.y + 16))
        yield from self.wait(3)
        self.button("mousedown", 2.0)
        yield from self.wait(2)
        dx = self.random.randint(0, self.screen.width - window.width) - window.x
        dy = self.random.randint(0, self.screen.height - 60 - window.height) - window.y
        x0 = window.x
        y0 = window.y
        (px, py) = self.pointer
        frames = self.random.randint(15, 40)
        for step, _ in enumerate(self.move((px + dx, py + dy), frames), 1):
            window.x = x0 + round(dx * step / frames)
            window.y = y0 + round(dy * step / frames)
            self.screen.draw()
            yield
        self.button("mouseup", 5.0)
        yield from self.wait(3)

    def scroll(self, window: BusyWindow) -> Iterator[None]:
        """Many notches of the wheel, each moving the page, as people read down a page."""
        place = (window.x + SIDE + (window.width - SIDE) // 2, window.y + window.height // 2)
        yield from self.move(place)
        yield from self.wait(4)
        sign = -1 if window.scroll > 2500 else 1
        self.actions += 1
        for _ in range(self.random.randint(8, 30)):
            self.emit("mousewheel", {"delta": 120 * sign}, self.random.uniform(0, 30))
            for _ in range(self.random.randint(1, 3)):
                window.scroll = min(max(window.scroll + 45 * sign, 0), 3500)
                self.screen.draw_window(window)
                yield
        yield from self.wait(6)

    def hover(self, window: BusyWindow) -> Iterator[None]:
        """The pointer sweeps over the list, whose rows light up, and clicks one."""
        last = self.random.randrange(2, max(3, window.rows - 2))
        yield from self.move((window.x + 60, window.y + TITLE + 8))
        target = (window.x + 70, window.y + TITLE + last * ROW + 14)
        for _ in self.move(target, 4 * last):
            window.lit = min((self.pointer[1] - window.y - TITLE) // ROW, window.rows - 1)
            self.screen.draw_window(window)
            yield
        yield from self.click(target, lambda: self.screen.turn_page(window))
        window.lit = -1

    def type(self, window: BusyWindow) -> Iterator[None]:
        """A click into the field, then typing."""
        yield from self.click(
            (window.x + SIDE + 60, window.y + TITLE + 18), lambda: setattr(window, "text", "")
        )
        self.actions += 1
        for letter in "".join(self.random.choices("abcdefghiklmnoprstu", k=12)):
            name = key_name(letter, "windows")
            self.emit("keydown", {"key": name}, 1.0)
            self.emit("keyup", {"key": name}, 50.0)
            window.text += letter
            self.show(lambda: self.screen.draw_window(window))
            yield from self.wait(self.random.randint(2, 5))
        yield from self.wait(35)

    def hurry(self, window: BusyWindow) -> Iterator[None]:
        """Clicks on near places, some of them less than a frame apart."""
        x = window.x + SIDE + self.random.randint(20, window.width - SIDE - 130)
        y = window.y + TITLE + self.random.randint(60, window.height - TITLE - 70)
        yield from self.move((x, y))
        yield from self.wait(3)
        for number in range(self.random.randint(2, 4)):
            self.pointer = (min(x + 22 * number, self.screen.width - 20), y)
            start = self.random.uniform(0, 8)
            at = {"x": self.pointer[0], "y": y}
            self.emit("mousemove", at, start)
            self.button("mousedown", start + 2)
            self.button("mouseup", start + 12)
            if self.random.random() < 0.5:
                self.emit("mousedown", {**at, "button": "Right"}, start + 16)
                self.emit("mouseup", {**at, "button": "Right"}, start + 24)
                self.actions += 1
            window.pressed = (self.pointer[0] - 10, y)
            self.show(lambda: self.screen.draw_window(window))
            yield from self.wait(self.random.randint(1, 3))
        window.pressed = None
        yield from self.wait(10)

    def play(self, window: BusyWindow) -> Iterator[None]:
        """A click starts a clip, which goes on while the person does other things."""
        place = (window.x + window.width - 60, window.y + window.height - 40)
        length = self.random.randint(90, 450)
        yield from self.click(place, lambda: setattr(self.screen, "playing", length))

    def scan(self, nodes: int) -> None:
        """One accessibility scan of what is on the screen, with a long document."""
        size = Box(0, 0, self.screen.width, self.screen.height)
        root = node("Pane", "Desktop", size)
        for window in reversed(self.screen.windows):
            box = Box(window.x, window.y, window.width, window.height)
            shown = node("Window", "Window", box)
            for row in range(nodes // max(1, len(self.screen.windows))):
                inside = row < window.rows
                top = window.y + TITLE + row * ROW
                place = Box(window.x, top, SIDE, ROW) if inside else Box(0, 100_000 + row, 9, 9)
                entry = node("ListItem", f"Row {row} of the list", place, visible=inside)
                shown["children"].append(entry)
            root["children"].append(shown)
        under = {"element": node("Pane", "Desktop", size)}
        queries = {
            name: {**under, "position": {"x": self.pointer[0], "y": self.pointer[1]}}
            for name in ("cursor", "random1", "random2")
        }
        focus = node("Pane", "Desktop", size)
        data = {"duration": 300, "focused_element": focus, "queries": queries, "tree": [root]}
        self.emit("axtree", data)
