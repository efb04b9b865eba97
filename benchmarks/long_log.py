"""A long input log without its video: moves, clicks, keys, wheel turns, scans of half a megabyte.

Belongs here: the log that benchmarks of the parser read, the same bytes for the same arguments.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from demo_pipeline_tests.simulator.desktop import Box
from demo_pipeline_tests.simulator.trees import node

MOVES = 36_000
SCANS = 200
_START_MS = 1_741_119_496_000
_MOVE_MS = 16
_NAMES = ("Ledger entry", "Résumé, Entwürfe", "Amount due", "価格 entry")
_WORD = "SEEBELOW"


def write_log(path: Path, megabytes: float = 100, moves: int = MOVES, scans: int = SCANS) -> None:
    """Write a log of about `megabytes` (10^6 bytes), most of them in its scans.

    A quarter of a scan's names are not ASCII, as on any screen that shows people's own words. All
    scans are the same but for their time.
    """
    tree = _tree(round(megabytes * 1e6 - moves * 75) // scans)
    with path.open("w", encoding="utf-8", newline="\n") as log:
        for number in range(moves):
            time = _START_MS + number * _MOVE_MS
            x = 200 + number * 7 % 1500
            y = 100 + number * 3 % 800
            log.write(_text("mousemove", time, {"x": x, "y": y}))
            for event, data, after in _extra(number, x, y):
                log.write(_text(event, time + after, data))
            if number % (moves // scans) == 0:
                log.write(f'{{"event":"axtree","data":{tree},"time":{time}}}\n')


def _text(event: str, time: int, data: dict[str, Any]) -> str:
    return _compact({"event": event, "data": data, "time": time}) + "\n"


def _extra(number: int, x: int, y: int) -> Iterator[tuple[str, dict[str, Any], int]]:
    """A click every three seconds or so, some typing after it, and now and then a scroll."""
    turn = number % 200
    if turn == 50:
        yield "mousedown", {"x": x, "y": y, "button": "Left"}, 2
        yield "mouseup", {"x": x, "y": y, "button": "Left"}, 9
    if turn % 10 == 0 and 60 <= turn < 60 + 10 * len(_WORD):
        key = _WORD[(turn - 60) // 10]
        yield "keydown", {"key": key}, 1
        yield "keyup", {"key": key}, 12
    if 160 <= turn < 164:
        yield "mousewheel", {"delta": 120}, 3


def _tree(size: int) -> str:
    """The `data` of a scan of about `size` bytes: one long list of texts."""
    screen = node("Pane", "Desktop", Box(0, 0, 1920, 1080))
    texts: list[dict[str, Any]] = []
    while size > 0:
        name = f"{_NAMES[len(texts) % 4]} {len(texts):05d}"
        texts.append(node("Text", name, Box(0, 100, 400, 20)))
        size -= len(_compact(texts[-1]).encode()) + 1
    tree = [screen | {"children": texts}]
    return _compact({"duration": 340, "focused_element": screen, "queries": {}, "tree": tree})


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
