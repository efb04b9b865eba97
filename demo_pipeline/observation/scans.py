"""Accessibility scans: which one a step sees, and reading just that one from the log.

Belongs here: choosing by time, reading by offset. Trees are walked with a stack, never recursively.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from demo_pipeline.formats.jsonfile import JsonFileError, parse_json
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.tables import LOG_FILE

_FARTHEST = 1e9  # pixels; what lies beyond is damage
_NUMBERS = frozenset({int, float})


@dataclass(frozen=True)
class ScanAt:
    """A row of trees.parquet: where a scan lies in the log and when it ran."""

    event_index: int
    byte_offset: int
    byte_length: int
    time_ms: int
    duration_ms: int | None

    @property
    def end_ms(self) -> int:
        """When the scan had finished, epoch milliseconds."""
        return self.time_ms + (self.duration_ms or 0)


@dataclass(frozen=True)
class InForce:
    """The scan an action sees, how old it was, and what that means.

    Attributes:
        scan: None when there is none.
        age_ms: from the end of the scan to the press; negative while it was still running.
        freshness: `fresh`: begun after the previous action ended; `stale`: older;
            `changed`: stale, and much of the screen changed since; `running`: begun but not
            finished by the press; `none`.
    """

    scan: ScanAt | None
    age_ms: int | None
    freshness: str


def scan_in_force(
    scans: Sequence[ScanAt], press_ms: int, since_ms: float, changes_ms: Sequence[float] = ()
) -> InForce:
    """The newest scan that had finished by the press, else the newest that had begun.

    `changes_ms`: when much of the screen changed, epoch milliseconds.
    """
    done = [scan for scan in scans if scan.end_ms <= press_ms]
    if done:
        newest = max(done, key=lambda scan: (scan.time_ms, scan.event_index))
        freshness = "fresh" if newest.time_ms >= since_ms else "stale"
        if freshness == "stale" and any(newest.time_ms < at < press_ms for at in changes_ms):
            freshness = "changed"
        return InForce(newest, press_ms - newest.end_ms, freshness)
    begun = [scan for scan in scans if scan.time_ms <= press_ms]
    if begun:
        newest = max(begun, key=lambda scan: (scan.time_ms, scan.event_index))
        return InForce(newest, press_ms - newest.end_ms, "running")
    return InForce(None, None, "none")


def read_scan(log: Path, scan: ScanAt) -> dict[str, Any]:
    """`data` of one axtree event. Raises `DemonstrationError` when the line is no longer that."""
    with log.open("rb") as stream:
        stream.seek(scan.byte_offset)
        line = stream.read(scan.byte_length)
    value = _decoded(line)
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, dict):
        message = "the accessibility scan cannot be read"
        remedy = "the step gets an empty tree; record again for a better one"
        raise DemonstrationError(
            Problem("unreadable_scan", LOG_FILE, message, line=scan.event_index, remedy=remedy)
        )
    return data


def _decoded(line: bytes) -> Any:
    """The value of a line, of any depth; None when it is no JSON."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return parse_json(line, LOG_FILE)
    except JsonFileError:
        return None


def children_of(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A node's children as a list: macOS recorders write a single child as an object."""
    return _as_nodes(node.get("children"))


def top_nodes(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nodes of a scan's `tree`."""
    return _as_nodes(data.get("tree"))


def _as_nodes(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return [node for node in value if isinstance(node, dict)]
    return [value] if isinstance(value, dict) else []


def walk(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """(node, depth) in document order."""
    stack = [(node, 0) for node in reversed(top_nodes(data))]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack.extend((child, depth + 1) for child in reversed(children_of(node)))


def bounds_of(node: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    """(x, y, width, height) in event space; None without a usable box.

    A box is an object, or on some macOS recorders a list [left, top, right, bottom]. Sizes are
    never negative: AT-SPI's -1 for "nowhere" gives None.
    """
    box = node.get("bbox")
    if isinstance(box, dict):
        values: list[Any] = [box.get("x"), box.get("y"), box.get("width"), box.get("height")]
    elif isinstance(box, list) and len(box) == 4:
        values = box
    else:
        return None
    for value in values:
        if type(value) not in _NUMBERS or not -_FARTHEST <= value <= _FARTHEST:
            return None
    x, y, third, fourth = values
    width, height = (third - x, fourth - y) if values is box else (third, fourth)
    return None if width < 0 or height < 0 else (x, y, width, height)
