"""Reads the texts of input fields from accessibility scans, and finds how a text changed.

Password fields are never read.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.recording.logged_scans import (
    LoggedScan,
    RawNode,
    RawScan,
    decode_scan,
    is_secret_field,
    normalised,
)

# Roles of elements that people can type into, from AT-SPI, UI Automation and the macOS
# accessibility API, written as `normalised` returns them.
_FIELD_ROLES = frozenset(
    {
        "entry",
        "text",
        "textfield",
        "textarea",
        "textbox",
        "edit",
        "editbar",
        "searchfield",
        "searchbox",
        "document",
        "documenttext",
        "documentweb",
        "documentframe",
        "terminal",
        "combobox",
        "spinbutton",
        "spinner",
        "paragraph",
        "heading",
        "tablecell",
        "dataitem",
        "cell",
        "datecell",
        "editcombobox",
        "inputmethodwindow",
        "section",
    }
)
# Role of labels in UI Automation, but of fields in other accessibility APIs.
_LABEL_ON_WINDOWS = "text"
_MASKED = re.compile(r"[•●∙*⚫]+")
# Replaces special spaces with a space, and removes other invisible characters.
_BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\r": None, "\ufffc": None, "\u200b": None})
LONGEST_TEXT = 100_000  # maximum number of characters in a field; longer fields are left out


@dataclass(frozen=True, slots=True)
class Field:
    """An input field of a scan with its text.

    Attributes:
        role: role of the element, as returned by `normalised`.
        place: path from the root of the tree to the field, as child indexes.
        box: left, top, width and height in event space; NaN if unknown.
        name: name of the element.
        text: value of the element; for a focused element without a value, its name.
        focused: whether the field is the focused element in the scan.
    """

    role: str
    place: tuple[int, ...]
    box: tuple[float, float, float, float]
    name: str
    text: str
    focused: bool


@dataclass(frozen=True, slots=True)
class Edit:
    """The difference between two texts of a field, as the replacement of a single substring.

    Attributes:
        gained: the new characters.
        removed: the characters that were replaced by `gained`.
        whole: whether the whole text was replaced.
    """

    gained: str
    removed: str
    whole: bool


def edit_between(before: str, after: str) -> Edit:
    """Returns the shortest replacement of a single substring that turns `before` into `after`."""
    limit = min(len(before), len(after))
    start = 0
    while start < limit and before[start] == after[start]:
        start += 1
    end = 0
    while end < limit - start and before[-1 - end] == after[-1 - end]:
        end += 1
    gained = after[start : len(after) - end]
    removed = before[start : len(before) - end]
    return Edit(gained, removed, whole=start == end == 0)


def is_masked(text: str) -> bool:
    """Returns whether a text consists of dots or asterisks, like a hidden password."""
    return _MASKED.fullmatch(text.strip()) is not None


class ScanFields:
    """Reads input fields from the accessibility scans in a log, and caches the fields of each scan.

    Attributes:
        scans: scans of the log, sorted by the time at which they ended.
    """

    def __init__(self, log: Path, platform: str, scans: Sequence[LoggedScan]) -> None:
        self._log = log
        self._platform = platform
        self._fields: dict[int, tuple[Field, ...]] = {}
        self.scans = sorted(scans, key=lambda scan: (scan.end_ms, scan.event_index))

    def before(self, time_ms: int) -> LoggedScan | None:
        """Returns the latest scan that ended at a time (epoch ms) or earlier, or None."""
        earlier = [scan for scan in self.scans if scan.end_ms <= time_ms]
        return earlier[-1] if earlier else None

    def after(self, time_ms: int, count: int) -> list[LoggedScan]:
        """Returns the first `count` scans that began at a time (epoch ms) or later."""
        later = [scan for scan in self.scans if scan.begin_ms >= time_ms]
        return later[:count]

    def fields(self, scan: LoggedScan) -> tuple[Field, ...]:
        """Returns the fields of a scan in document order, or () if the scan cannot be read."""
        if scan.event_index not in self._fields:
            with self._log.open("rb") as log:
                log.seek(scan.byte_offset)
                decoded = decode_scan(log.read(scan.byte_length))
            fields = () if decoded is None else tuple(_fields_of(decoded, self._platform))
            self._fields[scan.event_index] = fields
        return self._fields[scan.event_index]

    def pairs(
        self, before: LoggedScan | None, after: LoggedScan
    ) -> Iterator[tuple[Field | None, Field]]:
        """Yields a pair for each field of `after`: its counterpart in `before`, then the field.

        The counterpart has the same role, box and name. If there is no such field, the counterpart
        is a field with the same role and place. If there is no such field either, it is None.

        Args:
            before: the earlier scan, or None if there is no earlier scan.
        """
        by_box: dict[tuple[object, ...], Field] = {}
        by_place: dict[tuple[object, ...], Field] = {}
        for field in self.fields(before) if before else ():
            by_box[field.role, field.box, field.name] = field
            by_place[field.role, field.place] = field
        for field in self.fields(after):
            same = by_box.get((field.role, field.box, field.name))
            yield same or by_place.get((field.role, field.place)), field


def _fields_of(scan: RawScan, platform: str) -> Iterator[Field]:
    """Yields the input fields of a scan, except password fields and very long texts."""
    nodes, _, parents = scan.flatten()
    places: list[tuple[int, ...]] = []
    children = [0] * len(nodes)
    roots = 0
    for parent in parents:
        if parent < 0:
            places.append((roots,))
            roots += 1
        else:
            places.append((*places[parent], children[parent]))
            children[parent] += 1
    focus = scan.focused_element
    focus_key = None if focus is None else (focus.role, focus.name, focus.box)
    for node, place in zip(nodes, places, strict=True):
        focused = focus_key == (node.role, node.name, node.box)
        role = normalised(node.role or "")
        if is_secret_field(node) or not _is_field(node, role, platform, focused=focused):
            continue
        text = _text_of(node, focused=focused)
        if len(text) <= LONGEST_TEXT:
            yield Field(role, place, node.box, node.name or "", text, focused)


def _is_field(node: RawNode, role: str, platform: str, *, focused: bool) -> bool:
    """Returns whether people can type into an element, judging by role, states and focus."""
    states = bytes(node.states)
    if b'"visible":false' in states.replace(b" ", b""):
        return False
    if role == _LABEL_ON_WINDOWS and platform == "windows":
        return focused
    return focused or role in _FIELD_ROLES


def _text_of(node: RawNode, *, focused: bool) -> str:
    """Returns the text of a field, with special characters replaced as in `_BLANKS`."""
    value = ""
    if node.value:
        decoded = json.loads(bytes(node.value))
        value = decoded if isinstance(decoded, str) else ""
    if not value and focused:
        value = node.name or ""
    return value.translate(_BLANKS)
