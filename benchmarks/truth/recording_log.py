"""What the scorer needs of a recording's log: where the pointer was, key presses, and scans."""

import bisect
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.truth.truth_list import Box, Widget

_NAME_LENGTH = 60  # characters of a name that are compared
_SAME_PLACE = 0.7  # overlap of two boxes of the same widget


@dataclass(frozen=True, slots=True)
class Scan:
    """An accessibility scan; the recorder stamps a scan with its end."""

    begin_ms: int
    end_ms: int
    tree: list[dict[str, Any]]

    def holds(self, widget: Widget) -> bool:
        """Whether a visible element has the widget's name and place."""
        name = widget.name.strip()[:_NAME_LENGTH]
        for element in self._elements():
            box = element.get("bbox")
            visible = element.get("states", {}).get("visible", True)
            same_name = (element.get("name") or "").strip()[:_NAME_LENGTH] == name
            if box and visible and same_name:
                place = Box(box["x"], box["y"], box["width"], box["height"])
                if place.overlap(widget.box) > _SAME_PLACE:
                    return True
        return False

    def _elements(self) -> Iterator[dict[str, Any]]:
        waiting = list(self.tree)
        while waiting:
            element = waiting.pop()
            yield element
            waiting += element.get("children") or []


class RecordingLog:
    """The events of a log, in its own pixels and its own clock."""

    def __init__(self, path: Path) -> None:
        self.scans: list[Scan] = []
        self._key_presses: list[tuple[int, str]] = []
        self._move_times: list[int] = []
        self._places: list[tuple[float, float]] = []
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                event = json.loads(line)
                data = event["data"]
                time = event["time"]
                if event["event"] == "mousemove":
                    self._move_times.append(time)
                    self._places.append((data["x"], data["y"]))
                elif event["event"] == "keydown":
                    self._key_presses.append((time, _short(data["key"])))
                elif event["event"].startswith("axtree"):
                    begin = time - (data.get("duration") or 0)
                    self.scans.append(Scan(begin, time, data.get("tree") or []))

    def pointer(self, time_ms: float) -> tuple[float, float]:
        """Where the pointer was; before the first move, where that move ended."""
        index = bisect.bisect_right(self._move_times, time_ms) - 1
        return self._places[max(index, 0)]

    def distance(self, time_ms: float, x: float, y: float) -> float:
        """How far the pointer was from a place; infinite if it had not moved yet."""
        if not self._move_times or time_ms < self._move_times[0]:
            return math.inf
        pointer_x, pointer_y = self.pointer(time_ms)
        return math.hypot(pointer_x - x, pointer_y - y)

    def presses_of(self, key: str, begin_ms: float, end_ms: float) -> int:
        """How often the log has a key's press, with repetitions, in a span of time."""
        wanted = _short(key)
        return sum(
            1 for time, name in self._key_presses if begin_ms <= time <= end_ms and name == wanted
        )

    def newest_scan(self, time_ms: float) -> Scan | None:
        """The scan with the latest begin among those that had ended."""
        ended = [scan for scan in self.scans if scan.end_ms <= time_ms]
        return max(ended, key=lambda scan: scan.begin_ms, default=None)


def _short(key: str) -> str:
    """A key name in which a recorder's and X's names agree."""
    return key.lower().replace("key", "").replace("arrow", "").replace("pagedown", "next")
