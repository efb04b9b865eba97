"""Reads the accessibility scans of an input log: when each scan ran, and the elements it lists.

A scan that is not in the documented format is read leniently: a damaged element loses its role and
its name, and all other elements are kept unchanged.
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
from demo_pipeline.recording.input_log import deeper_decoding

MAX_COORDINATE = 1e9  # in units of logged coordinates; a larger coordinate counts as missing
_NUMBERS = frozenset({int, float})
_TEXTS = ("absolute_position", "size", "description", "value", "subrole", "input_type")
_PASSWORD_MARKS = ("is_password", "IsPassword")

NO_BOX = (math.nan,) * 4


class _RawBox(msgspec.Struct, gc=False):
    """An element's `bbox` in the documented format, a JSON object."""

    x: float
    y: float
    width: float
    height: float


class RawNode(msgspec.Struct, gc=False):
    """An element of a scan, as logged.

    Attributes:
        bbox: an object with x, y, width and height, or a list [left, top, right, bottom].
        states: undecoded JSON.
        absolute_position, size: undecoded JSON, written only by macOS recorders.
        description, value: undecoded JSON, for example the content of a field or the name of an
            icon.
        subrole, input_type, is_password, uia_is_password: undecoded JSON that marks a password
            field on some systems.
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
        """x, y, width and height in logged coordinates; all NaN if there is no usable box.

        If `bbox` is a list, as from some macOS recorders, it is relative to the element's window.
        Therefore, `absolute_position` and `size` are preferred.
        """
        bbox = self.bbox
        if type(bbox) is _RawBox:
            return bbox.x, bbox.y, bbox.width, bbox.height
        if type(bbox) is list and len(bbox) == 4:
            place = _two_numbers(self.absolute_position)
            size = _two_numbers(self.size)
            if place is not None and size is not None:
                return *place, *size
            return bbox[0], bbox[1], bbox[2] - bbox[0], bbox[3] - bbox[1]
        return NO_BOX


def _two_numbers(text: msgspec.Raw) -> tuple[float, float] | None:
    """Parses a JSON string with two numbers, such as `"12.00;44.50"`, or returns None."""
    parts = bytes(text).strip(b'"').split(b";")
    try:
        first, second = map(float, parts)
    except ValueError:
        return None
    return first, second


_SEPARATORS = re.compile(r"[\s\-_]+")
_SECRET_ROLES = frozenset(
    {"passwordtext", "password", "passwordfield", "passwordbox", "securetextfield"}
)
_SECRET_STATE = b'"protected":true'  # the state that marks a password field in Chromium


@lru_cache(maxsize=4096)
def normalised(raw: str) -> str:
    """Returns a role name in lower case, without separators, `ax` prefix or `control` suffix."""
    text = _SEPARATORS.sub("", raw.lower())
    return text.removeprefix("ax").removesuffix("control") or text


def is_secret_field(node: RawNode) -> bool:
    """Returns whether a recorder marked an element as a password field."""
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


class RecordersHitTest(msgspec.Struct):
    """The element that the recorder's own hit test found at a point of the screen."""

    element: RawNode | None = None
    position: "_RawPoint | None" = None


class _RawPoint(msgspec.Struct):
    """A point in logged coordinates."""

    x: float
    y: float


class _HitTestQueries(msgspec.Struct):
    """The recorder's own hit tests: at the pointer, and at two random points."""

    cursor: RecordersHitTest | None = None
    random1: RecordersHitTest | None = None
    random2: RecordersHitTest | None = None


class _FlatTree(NamedTuple):
    """The nodes of an accessibility tree, their depths and their parents as parallel lists.

    Attributes:
        nodes: all nodes in document order.
        depths: depth of each node; 1 for a root.
        parents: index of each node's parent in `nodes`; -1 for a root.
    """

    nodes: list[RawNode]
    depths: list[int]
    parents: list[int]


class RawScan(msgspec.Struct):
    """The field `data` of an axtree event, which is a scan of the screen's accessibility tree."""

    tree: list[RawNode] | RawNode | None = None
    focused_element: RawNode | None = None
    queries: _HitTestQueries | None = None

    def flatten(self) -> _FlatTree:
        """Returns the nodes of the tree in document order. The tree may have any depth."""
        flat = _FlatTree([], [], [])
        levels = [iter(_listed(self.tree))]
        parents = [-1]
        while levels:
            for node in levels[-1]:
                flat.nodes.append(node)
                flat.depths.append(len(levels))
                flat.parents.append(parents[-1])
                if node.children:
                    parents.append(len(flat.nodes) - 1)
                    levels.append(iter(_listed(node.children)))
                    break
            else:
                levels.pop()
                parents.pop()
        return flat

    @property
    def cursor(self) -> RecordersHitTest | None:
        """The recorder's hit test at the pointer, or None if the recorder made none."""
        if self.queries is None:
            return None
        return self.queries.cursor

    @property
    def samples(self) -> list[RecordersHitTest]:
        """The recorder's hit tests at random points of the screen."""
        if self.queries is None:
            return []
        tests = (self.queries.random1, self.queries.random2)
        return [test for test in tests if test is not None]


class LenientScan(RawScan):
    """A scan that differs from the documented format, with the number of its damaged elements.

    An element that is not a JSON object is ignored. An element whose role is not a string keeps
    only its box and its children.
    """

    damaged_elements: int = 0


class _Event(msgspec.Struct):
    data: RawScan


_DECODER = msgspec.json.Decoder(_Event)


def regular_scan(line: bytes) -> RawScan | None:
    """Decodes the scan in a line of the log; None if a value does not have its documented type."""
    try:
        with deeper_decoding():
            return _DECODER.decode(line).data
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_scan(line: bytes) -> RawScan | None:
    """Decodes the readable parts of the scan in a line of the log.

    Returns None if the line has no readable `data` object.
    """
    if (scan := regular_scan(line)) is not None:
        return scan
    try:
        value = parse_json(line, "")
    except JsonFileError:
        return None
    if not isinstance(value, dict):
        return None
    data = value.get("data")
    if not isinstance(data, dict):
        return None
    return scan_from_values(data)


def scan_from_values(data: Mapping[str, Any]) -> LenientScan:
    """Reads the `data` of an axtree event leniently from parsed JSON."""
    roots, damaged = _tree_of(data.get("tree"))
    focused = data.get("focused_element")
    queries = data.get("queries")
    return LenientScan(
        roots,
        _node_of(focused)[0] if isinstance(focused, dict) else None,
        _queries_of(queries) if isinstance(queries, dict) else None,
        damaged,
    )


def _queries_of(queries: Mapping[str, Any]) -> _HitTestQueries:
    hit_tests = {}
    for name in _HitTestQueries.__struct_fields__:
        query = queries.get(name)
        if isinstance(query, dict):
            hit_tests[name] = _hit_test_of(query)
    return _HitTestQueries(**hit_tests)


def _hit_test_of(query: Mapping[str, Any]) -> RecordersHitTest:
    element = query.get("element")
    position = query.get("position")
    point = None
    if isinstance(position, dict):
        x: Any = position.get("x")
        y: Any = position.get("y")
        if _is_number(x) and _is_number(y):
            point = _RawPoint(float(x), float(y))
    node = _node_of(element)[0] if isinstance(element, dict) else None
    return RecordersHitTest(node, point)


def _tree_of(tree: Any) -> tuple[list[RawNode], int]:
    """Returns the roots of a tree of any depth, and the number of damaged elements in it."""
    roots: list[RawNode] = []
    damaged = 0
    pending: list[tuple[list[RawNode], Any]] = [(roots, tree)]
    while pending:
        siblings, values = pending.pop()
        elements = [values]  # some recorders write a single child without a list
        if isinstance(values, list):
            elements = values
        for element in elements:
            if not isinstance(element, dict):
                damaged += element is not None
                continue
            node, is_damaged = _node_of(element)
            damaged += is_damaged
            children: list[RawNode] = []
            node.children = children
            siblings.append(node)
            pending.append((children, element.get("children")))
    return roots, damaged


def _node_of(value: Mapping[str, Any]) -> tuple[RawNode, bool]:
    """Reads an element without its children, and returns whether it is damaged."""
    role = value.get("role")
    box = _box_of(value.get("bbox"))
    if not isinstance(role, str | None):
        return RawNode("", "", box), True
    name = value.get("name")
    states = value.get("states")
    flags = {}
    if isinstance(states, dict):
        flags = {str(state): bool(flag) for state, flag in states.items()}
    node = RawNode(
        role or "",
        name if isinstance(name, str) else "",
        box,
        msgspec.Raw(json.dumps(flags).encode() if flags else b""),
        None,
        *(_raw_text(value.get(key)) for key in _TEXTS),
        *(msgspec.Raw(str(value.get(key)).lower().encode()) for key in _PASSWORD_MARKS),
    )
    return node, False


def _raw_text(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode() if isinstance(value, str) else b"")


def _box_of(value: Any) -> _RawBox | list[float] | None:
    """Reads a `bbox`. Returns None if a side is missing or is not a number."""
    if isinstance(value, dict):
        sides: list[Any] = [value.get(name) for name in ("x", "y", "width", "height")]
        if not all(map(_is_number, sides)):
            return None
        x, y, width, height = map(float, sides)
        return _RawBox(x, y, width, height)
    if isinstance(value, list) and all(map(_is_number, value)):
        return [float(side) for side in value]
    return None


def _is_number(value: Any) -> bool:
    return type(value) in _NUMBERS and -MAX_COORDINATE <= value <= MAX_COORDINATE


def _listed(nodes: list[RawNode] | RawNode | None) -> list[RawNode]:
    """Returns nodes as a list, because macOS recorders write a single child without a list."""
    if nodes is None:
        return []
    if isinstance(nodes, RawNode):
        return [nodes]
    return nodes


STAMP_SLACK_MS = 20  # milliseconds by which the lines of a busy recorder may be out of order


@dataclass(frozen=True)
class LoggedScan:
    """Place and time of a scan in the log: a row of trees.parquet of the `events` stage.

    Attributes:
        event_index: line number in the log.
        byte_offset, byte_length: place and length of the line in the file.
        time_ms: logged time, epoch milliseconds. Documented as the start of the scan, but some
            recorders log the end.
        duration_ms: duration of the scan, or None if it was not logged.
        stamped_at_end: whether `time_ms` is the end of the scan.
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
        if self.stamped_at_end:
            return self.time_ms - (self.duration_ms or 0)
        return self.time_ms

    @property
    def end_ms(self) -> int:
        """When the scan finished, epoch milliseconds."""
        return self.begin_ms + (self.duration_ms or 0)


def read_logged_scans(events_folder: Path) -> list[LoggedScan]:
    """Returns the scans of a log in line order, and decides whether their times are starts or ends.

    A recorder writes the line of a scan when the scan has finished. Therefore, the times of the
    neighbouring lines often show whether the time of a scan is its start or its end. If more scans
    show an end than a start, all times are taken as ends. Otherwise, all times are taken as starts,
    as documented.
    """
    scans = [LoggedScan(**row) for row in read_scans(events_folder)]
    if not scans:
        return []
    events = read_table(events_folder / EVENTS_FILE, columns=["event_index", "time_ms"])
    scan_lines = {scan.event_index for scan in scans}
    others = []
    lines = events["event_index"].to_pylist()
    for line, time_ms in zip(lines, events["time_ms"].to_pylist(), strict=True):
        if line not in scan_lines:
            others.append((line, time_ms))
    votes_for_end = list(_stamp_votes(scans, others))
    if 2 * sum(votes_for_end) <= len(votes_for_end):
        return scans
    return [replace(scan, stamped_at_end=True) for scan in scans]


def _stamp_votes(scans: Sequence[LoggedScan], others: Sequence[tuple[int, int]]) -> Iterator[bool]:
    """Yields whether the logged time of a scan is its end rather than its start.

    A scan is skipped if the neighbouring lines do not show which of the two it is.

    Args:
        others: line number and epoch milliseconds of each event that is not a scan, in line order.
    """
    lines = [line for line, _ in others]
    for scan in scans:
        duration = scan.duration_ms or 0
        after = bisect_right(lines, scan.event_index)
        before_ms = others[after - 1][1] - scan.time_ms if after else 0
        after_ms = others[after][1] - scan.time_ms if after < len(others) else duration
        if 0 <= after_ms < duration - STAMP_SLACK_MS:
            # If the time were the start, the next event would be earlier than the scan's end, and
            # its line would precede the scan's line.
            yield True
        elif STAMP_SLACK_MS < before_ms <= duration + STAMP_SLACK_MS:
            yield False


def read_scan(log: Path, scan: LoggedScan) -> RawScan:
    """Reads a scan from the log.

    Raises:
        DemonstrationError: the line is not a readable axtree event.
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
