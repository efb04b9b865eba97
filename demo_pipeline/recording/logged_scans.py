"""Accessibility scans in the log: when each ran, and what one holds.

A regular scan is decoded fast; of any other, whatever is usable is kept. Which scan is current at
an action, and how its elements are mapped to the canvas, is decided in observation/trees/.
"""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.parquet import read_table
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.events import EVENTS_FILE, read_scans

MAX_COORDINATE = 1e9  # units of event space; a larger coordinate is damage
_NUMBERS = frozenset({int, float})
_TEXTS = ("absolute_position", "size", "description", "value", "subrole", "input_type")
_PASSWORD_MARKS = ("is_password", "IsPassword")

NO_BOX = (math.nan,) * 4


class _RawBox(msgspec.Struct, gc=False):
    """`bbox` as an object."""

    x: float
    y: float
    width: float
    height: float


class RawNode(msgspec.Struct, gc=False):
    """One node. `states` is JSON text, so that equal texts are parsed only once.

    `absolute_position` and `size` are JSON texts, too: only macOS recorders write them. So are
    `description` and `value`: the content of a field, but of an icon often its name. By the last
    four recorders of different systems mark a field for passwords.
    """

    role: str | None = None
    name: str | None = None
    bbox: _RawBox | list[float] | None = None
    states: msgspec.Raw = msgspec.Raw(b"")
    children: "list[RawNode] | RawNode | None" = None
    absolute_position: msgspec.Raw = msgspec.Raw(b"")
    size: msgspec.Raw = msgspec.Raw(b"")
    description: msgspec.Raw = msgspec.Raw(b"")
    value: msgspec.Raw = msgspec.Raw(b"")
    subrole: msgspec.Raw = msgspec.Raw(b"")
    input_type: msgspec.Raw = msgspec.Raw(b"")
    is_password: msgspec.Raw = msgspec.Raw(b"")
    uia_is_password: msgspec.Raw = msgspec.field(name="IsPassword", default=msgspec.Raw(b""))

    @property
    def box(self) -> tuple[float, float, float, float]:
        """x, y, width, height in event space; NaN without a usable box.

        Some macOS recorders write a list [left, top, right, bottom], which is relative to the
        node's window; the place on the screen is then `absolute_position`.
        """
        bbox = self.bbox
        if type(bbox) is _RawBox:
            return bbox.x, bbox.y, bbox.width, bbox.height
        if type(bbox) is list and len(bbox) == 4:
            place, size = _two_numbers(self.absolute_position), _two_numbers(self.size)
            if place is not None and size is not None:
                return *place, *size
            return bbox[0], bbox[1], bbox[2] - bbox[0], bbox[3] - bbox[1]
        return NO_BOX


def _two_numbers(text: msgspec.Raw) -> tuple[float, float] | None:
    """The numbers of a JSON string as `"12.00;44.50"`; None for anything else."""
    parts = bytes(text).strip(b'"').split(b";")
    try:
        first, second = map(float, parts)
    except ValueError:
        return None
    return first, second


_DROPPED = re.compile(r"[\s\-_]+")
_SECRET_ROLES = frozenset(
    {"passwordtext", "password", "passwordfield", "passwordbox", "securetextfield"}
)
_SECRET_STATE = b'"protected":true'  # as Chromium marks the field


@lru_cache(maxsize=4096)
def normalised(raw: str) -> str:
    """A role name in the spelling that is compared: lower case, no separators, no affixes."""
    text = _DROPPED.sub("", raw.lower())
    return text.removeprefix("ax").removesuffix("control") or text


def is_secret_field(node: RawNode) -> bool:
    """Whether a recorder's node is a field for passwords."""
    if normalised(node.role or "") in _SECRET_ROLES:
        return True
    if normalised(bytes(node.subrole).decode("utf-8", "replace").strip('"')) in _SECRET_ROLES:
        return True
    marks = (node.is_password, node.uia_is_password)
    return (
        any(bytes(mark) in {b"true", b"1"} for mark in marks)
        or bytes(node.input_type).lower() == b'"password"'
        or _SECRET_STATE in bytes(node.states).replace(b" ", b"")
    )


class CursorHitTest(msgspec.Struct):
    """The recorder's own hit test at the pointer: the element, and the pointer's position."""

    element: RawNode | None = None
    position: "_RawPoint | None" = None


class _RawPoint(msgspec.Struct):
    """A point in event space."""

    x: float
    y: float


class _HitTestQueries(msgspec.Struct):
    """The recorder's own hit tests (`queries`); only the one at the pointer is read."""

    cursor: CursorHitTest | None = None


class _FlatTree(NamedTuple):
    """Nodes in document order, their depths from 1, positions of their parents (-1: none)."""

    nodes: list[RawNode]
    depths: list[int]
    parents: list[int]


class RawScan(msgspec.Struct):
    """`data` of an axtree event."""

    tree: list[RawNode] | RawNode | None = None
    focused_element: RawNode | None = None
    queries: _HitTestQueries | None = None

    def flatten(self) -> _FlatTree:
        """Every node in document order; iterative, so that any depth works."""
        nodes, depths, parents = flat = _FlatTree([], [], [])
        levels, above = [iter(_listed(self.tree))], [-1]
        while levels:
            depth, parent = len(levels), above[-1]
            for node in levels[-1]:
                nodes.append(node)
                depths.append(depth)
                parents.append(parent)
                if node.children:
                    above.append(len(nodes) - 1)
                    levels.append(iter(_listed(node.children)))
                    break
            else:
                levels.pop()
                above.pop()
        return flat

    @property
    def cursor(self) -> CursorHitTest | None:
        """The recorder's hit test at the pointer; None when it made none."""
        return self.queries.cursor if self.queries else None


class _Event(msgspec.Struct):
    data: RawScan


_DECODER = msgspec.json.Decoder(_Event)


def regular_scan(line: bytes) -> RawScan | None:
    """The scan in a line of the log when everything in it has a known type, else None."""
    try:
        return _DECODER.decode(line).data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_scan(line: bytes) -> RawScan | None:
    """The scan in a line of the log, of any depth; None when the line is not an axtree event.

    A node that differs from the documented form keeps what is usable of it. A role that is not text
    shows that the line is damaged: None.
    """
    if (scan := regular_scan(line)) is not None:
        return scan
    try:
        value = parse_json(line, "")
    except JsonFileError:
        return None
    data = value.get("data") if isinstance(value, dict) else None
    try:
        return scan_from_values(data) if isinstance(data, dict) else None
    except TypeError:
        return None


def scan_from_values(data: Mapping[str, Any]) -> RawScan:
    """The scan in the `data` of an axtree event, read leniently from parsed JSON.

    Raises:
        TypeError: a role is not text.
    """
    queries = data.get("queries")
    cursor = queries.get("cursor") if isinstance(queries, dict) else None
    focused = data.get("focused_element")
    return RawScan(
        [_tree_of(top) for top in _objects(data.get("tree"))],
        _node_of(focused) if isinstance(focused, dict) else None,
        _HitTestQueries(_cursor_of(cursor)) if isinstance(cursor, dict) else None,
    )


def _cursor_of(value: Mapping[str, Any]) -> CursorHitTest:
    element, point = value.get("element"), value.get("position")
    numbers: list[Any] = [point.get("x"), point.get("y")] if isinstance(point, dict) else []
    usable = len(numbers) == 2 and all(map(_is_number, numbers))
    return CursorHitTest(
        _node_of(element) if isinstance(element, dict) else None,
        _RawPoint(*map(float, numbers)) if usable else None,
    )


def _tree_of(value: Mapping[str, Any]) -> RawNode:
    """A node with its descendants; iterative, so that any depth works."""
    top = _node_of(value)
    pending = [(top, value)]
    while pending:
        node, plain = pending.pop()
        children = [(_node_of(child), child) for child in _objects(plain.get("children"))]
        node.children = [child for child, _ in children]
        pending += children
    return top


def _node_of(value: Mapping[str, Any]) -> RawNode:
    role, name, states = value.get("role"), value.get("name"), value.get("states")
    if not isinstance(role, str | None):
        raise TypeError("a role is not text")
    known = {str(k): bool(v) for k, v in states.items()} if isinstance(states, dict) else None
    return RawNode(
        role or "",
        name if isinstance(name, str) else "",
        _box_of(value.get("bbox")),
        msgspec.Raw(json.dumps(known).encode()) if known else msgspec.Raw(b""),
        None,
        *(_raw_text(value.get(key)) for key in _TEXTS),
        *(msgspec.Raw(str(value.get(key)).lower().encode()) for key in _PASSWORD_MARKS),
    )


def _raw_text(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode() if isinstance(value, str) else b"")


def _box_of(value: Any) -> _RawBox | list[float] | None:
    if isinstance(value, dict):
        sides: list[Any] = [value.get(name) for name in ("x", "y", "width", "height")]
        return _RawBox(*map(float, sides)) if all(map(_is_number, sides)) else None
    if isinstance(value, list) and all(map(_is_number, value)):
        return [float(side) for side in value]
    return None


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBERS and -MAX_COORDINATE <= value <= MAX_COORDINATE


def _objects(value: Any) -> list[Mapping[str, Any]]:
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    return [value] if isinstance(value, dict) else []


def _listed(value: list[RawNode] | RawNode | None) -> list[RawNode]:
    """Nodes below a node or the root; macOS recorders write a single one as an object."""
    if value is None:
        return []
    return value if type(value) is list else [value]  # type: ignore[list-item]


STAMP_SLACK_MS = 20  # milliseconds by which a busy recorder's lines are out of order


@dataclass(frozen=True)
class LoggedScan:
    """A scan in the log, a row of the events stage's trees.parquet: where it is and when it ran.

    Attributes:
        event_index: its line in the log.
        byte_offset, byte_length: of that line.
        time_ms: of the line, epoch milliseconds: when the scan began, as documented, or ended.
        duration_ms: how long it took; None when the recorder did not log it.
        stamped_at_end: whether `time_ms` is when it ended, as some recorders write it.
    """

    event_index: int
    byte_offset: int
    byte_length: int
    time_ms: int
    duration_ms: int | None
    stamped_at_end: bool = False

    @property
    def begin_ms(self) -> int:
        """When the scan began, epoch milliseconds."""
        return self.time_ms - (self.duration_ms or 0) * self.stamped_at_end

    @property
    def end_ms(self) -> int:
        """When the scan finished, epoch milliseconds."""
        return self.begin_ms + (self.duration_ms or 0)


def read_logged_scans(events_folder: Path) -> list[LoggedScan]:
    """The scans of a log, in line order.

    A recorder writes a scan when it has finished. Whether its lines carry the time at which scans
    began or ended follows from the lines around them: later events before the line, or earlier
    ones after it. Without either it began then, as documented.
    """
    scans = [LoggedScan(**row) for row in read_scans(events_folder)]
    if not scans:
        return []
    events = read_table(events_folder / EVENTS_FILE, columns=["event_index", "time_ms"])
    own = {scan.event_index for scan in scans}
    lines = zip(events["event_index"].to_pylist(), events["time_ms"].to_pylist(), strict=True)
    others = [(line, time) for line, time in lines if line not in own]
    at_end = list(_stamp_votes(scans, others))
    if 2 * sum(at_end) <= len(at_end):
        return scans
    return [replace(scan, stamped_at_end=True) for scan in scans]


def _stamp_votes(scans: Sequence[LoggedScan], others: Sequence[tuple[int, int]]) -> Iterator[bool]:
    """Yield for each scan between events that tell: whether its time is when it ended.

    Args:
        scans: of the log.
        others: line and epoch milliseconds of each event that is not a scan, in line order.
    """
    lines = [line for line, _ in others]
    for scan in scans:
        after = bisect_right(lines, scan.event_index)
        duration = scan.duration_ms or 0
        before_ms = others[after - 1][1] - scan.time_ms if after else 0
        after_ms = others[after][1] - scan.time_ms if after < len(others) else duration
        if 0 <= after_ms < duration - STAMP_SLACK_MS:  # no line of a later time was written yet
            yield True
        elif STAMP_SLACK_MS < before_ms <= duration + STAMP_SLACK_MS:
            yield False


def read_scan(log: Path, scan: LoggedScan) -> RawScan:
    """Read a scan from the log.

    Raises:
        DemonstrationError: the line is not an axtree event that can be read.
    """
    with log.open("rb") as stream:
        stream.seek(scan.byte_offset)
        decoded = decode_scan(stream.read(scan.byte_length))
    if decoded is None:
        message = "the accessibility scan cannot be read"
        remedy = "the step gets an empty tree; record the demonstration again for a complete one"
        raise DemonstrationError(
            Problem("unreadable_scan", LOG_FILE, message, line=scan.event_index, remedy=remedy)
        )
    return decoded
