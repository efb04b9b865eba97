"""The truth list of a recording, as benchmarks/truth/recorder writes it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHORTEST_WAIT_S = 2.0  # docs/reference/output-formats.md: shorter pauses are no wait
_TYPED_KEYS = {"space": " "}
_UNSCORED_KINDS = ("wait", "think", "layout_switch", "unfinished_press")
_CONTAINERS = frozenset({"frame", "window", "dialog", "document web", "scroll pane"})


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float

    def scaled(self, scale: float, pad_x: float = 0, pad_y: float = 0) -> "Box":
        """The same rectangle on the canvas."""
        return Box(
            self.x * scale + pad_x, self.y * scale + pad_y, self.width * scale, self.height * scale
        )

    def intersection(self, other: "Box") -> float:
        """The common area, in square pixels."""
        width = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        height = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        return max(0.0, width) * max(0.0, height)

    def overlap(self, other: "Box") -> float:
        """The common area as a share of the area that either covers."""
        common = self.intersection(other)
        covered = self.width * self.height + other.width * other.height - common
        return common / max(covered, 1e-9)

    def nesting(self, other: "Box") -> float:
        """The common area as a share of the smaller one."""
        smaller = min(self.width * self.height, other.width * other.height)
        return self.intersection(other) / max(smaller, 1e-9)


@dataclass(frozen=True, slots=True)
class Widget:
    """A widget as AT-SPI names it; `box` in pixels of the screen."""

    role: str
    name: str
    box: Box


@dataclass(frozen=True, slots=True)
class Intended:
    """One entry of the truth list; times are epoch milliseconds of the log's clock.

    Attributes:
        press_ms, end_ms: the first press and the last release.
        look_ms: when the person had decided; None for waits and pauses.
        x, y: place of the press, or start of a drag; None for keys.
        second_ms: the second press of a double click that becomes a drag (`word_drag`).
        unfair: why the entry is not scored, or "target …" if only its target is not.
    """

    kind: str
    press_ms: int
    end_ms: int
    look_ms: int | None
    x: float | None
    y: float | None
    end_x: float | None
    end_y: float | None
    second_ms: int | None
    text: str
    keys: tuple[str, ...]
    modifiers: tuple[str, ...]
    direction: str
    ticks: int
    target: Widget | None
    focus: Widget | None
    unfair: str

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.end_ms - self.press_ms) / 1000

    @property
    def is_scored(self) -> bool:
        """Whether it is an action that a trajectory should have."""
        excluded = bool(self.unfair) and "target" not in self.unfair
        return self.kind not in _UNSCORED_KINDS and not excluded

    @property
    def scored_target(self) -> Widget | None:
        """The widget that a target should be; windows and whole pages are no targets."""
        if self.unfair or self.target is None or self.target.role in _CONTAINERS:
            return None
        return self.target

    @property
    def typed(self) -> str:
        """The text of a run of keys, also of a single key that types."""
        if self.kind == "type":
            return self.text
        if self.kind == "hotkey" and len(self.keys) == 1:
            key = self.keys[0]
            return _TYPED_KEYS.get(key, key if len(key) == 1 else "")
        return ""


@dataclass(frozen=True, slots=True)
class TruthList:
    """All that is known about a recording.

    Attributes:
        start_ms: the time of the first frame on the log's clock.
        clock_is_exact: whether `start_ms` is where the video shows the pointer.
    """

    start_ms: float
    clock_is_exact: bool
    entries: tuple[Intended, ...]

    @property
    def actions(self) -> list[Intended]:
        """The entries that a trajectory should have as steps."""
        return [entry for entry in self.entries if entry.is_scored]

    @property
    def waits(self) -> list[Intended]:
        """The waits that are long enough and end before the last action."""
        last = max((action.press_ms for action in self.actions), default=0)
        return [
            entry
            for entry in self.entries
            if entry.kind == "wait"
            and not entry.unfair
            and entry.seconds >= SHORTEST_WAIT_S
            and entry.end_ms <= last
        ]


def read_truth(path: Path) -> TruthList:
    """Reads a truth list."""
    document = json.loads(path.read_text("utf-8"))
    exact = document.get("picture_start_ms")
    return TruthList(
        start_ms=document["video_start_ms"] if exact is None else exact,
        clock_is_exact=exact is not None,
        entries=tuple(_entry(entry) for entry in document["actions"]),
    )


def _entry(entry: dict[str, Any]) -> Intended:
    return Intended(
        kind=entry["kind"],
        press_ms=entry["t"],
        end_ms=entry.get("t_end", entry["t"]),
        look_ms=entry.get("t_look"),
        x=entry.get("x", entry.get("start_x")),
        y=entry.get("y", entry.get("start_y")),
        end_x=entry.get("end_x"),
        end_y=entry.get("end_y"),
        second_ms=entry.get("t2"),
        text=entry.get("text", ""),
        keys=(entry["key"],) if "key" in entry else tuple(entry.get("keys", ())),
        modifiers=tuple(entry.get("modifiers", ())),
        direction=entry.get("direction", ""),
        ticks=entry.get("ticks", 0),
        target=_widget(entry.get("target")),
        focus=_widget(entry.get("focus")),
        unfair=entry.get("unfair", ""),
    )


def _widget(widget: dict[str, Any] | None) -> Widget | None:
    if widget is None:
        return None
    return Widget(widget["role"], widget["name"], Box(*widget["box"]))
