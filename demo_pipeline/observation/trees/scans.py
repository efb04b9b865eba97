"""Chooses the current scan of an action, and reports problems of the scans in a log.

The reports never quote an element, because elements may contain private text.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.observation.clock.canvas import Boxes, ScreenParts
from demo_pipeline.problems import Problem, warning
from demo_pipeline.recording.input_log import deeper_decoding, scan_fault
from demo_pipeline.recording.logged_scans import (
    MAX_COORDINATE,
    LoggedScan,
    RawNode,
    RawScan,
    RecordersHitTest,
    decode_scan,
    regular_scan,
)

# Largest distance, in units of event space, by which rounding may move an element out of its
# container.
ROUNDING_PX = 1

Bools = np.ndarray[Any, np.dtype[np.bool_]]


def boxes_of(nodes: Sequence[RawNode]) -> Boxes:
    """Returns the boxes of nodes as (nodes, 4): x, y, width, height in event space.

    A box is NaN if its width or height is negative ("unknown" in AT-SPI), or if one of its numbers
    is impossibly large.
    """
    sides = chain.from_iterable(node.box for node in nodes)
    boxes = np.fromiter(sides, float, 4 * len(nodes)).reshape(-1, 4)
    usable = (np.abs(boxes) <= MAX_COORDINATE).all(axis=1) & (boxes[:, 2:] >= 0).all(axis=1)
    boxes[~usable] = math.nan
    return boxes


def samples_agree(scan: RawScan, nodes: Sequence[RawNode], boxes: Boxes) -> bool | None:
    """Returns whether the recorder's own hit tests at random points agree with the scan's tree.

    A tree contradicts a hit test if the recorder's element is not in the tree, and the smallest
    node at the point neither encloses this element nor lies inside it.

    Args:
        nodes: the nodes of the scan's tree, in document order.

    Returns:
        False if the tree contradicts at least one hit test. None if no hit test can be compared.
    """
    agree: bool | None = None
    for sample in scan.samples:
        agrees = _sample_agrees(sample, nodes, boxes)
        if agrees is False:
            return False
        if agrees:
            agree = True
    return agree


def _sample_agrees(sample: RecordersHitTest, nodes: Sequence[RawNode], boxes: Boxes) -> bool | None:
    """Returns whether a hit test agrees with the tree; None if they cannot be compared."""
    element = sample.element
    point = sample.position
    if element is None or point is None:
        return None
    box = boxes_of([element])[0]
    if not _holds(box[None], point.x, point.y)[0]:
        # The recorder contradicts itself: the point is outside the box of its element.
        return None
    for position in np.flatnonzero((boxes == box).all(axis=1)).tolist():
        if (nodes[position].role, nodes[position].name) == (element.role, element.name):
            return True
    usable = boxes[~np.isnan(boxes[:, 0])]
    if len(usable) and _encloses(box, usable).all():
        return None  # the recorder found the desktop, which is missing in some trees
    under = usable[_holds(usable, point.x, point.y)]
    if not len(under):
        return False
    smallest = under[np.argmin(under[:, 2] * under[:, 3])]
    return bool(_encloses(box, smallest[None])[0] or _encloses(smallest, box[None])[0])


def _holds(boxes: Boxes, x: float, y: float) -> Bools:
    """Returns whether each of the boxes contains a point, as an array (boxes,)."""
    left, top, width, height = boxes.T
    inside: Bools = (left <= x) & (x < left + width) & (top <= y) & (y < top + height)
    return inside


def _encloses(outer: Boxes, inner: Boxes) -> Bools:
    """Returns whether each box of `inner` lies in the box `outer`, as an array (boxes,).

    Boxes may reach beyond `outer` by `ROUNDING_PX`.
    """
    left, top, width, height = outer.tolist()
    x, y, across, down = inner.T
    inside: Bools = (left - ROUNDING_PX <= x) & (x + across <= left + width + ROUNDING_PX)
    inside &= (top - ROUNDING_PX <= y) & (y + down <= top + height + ROUNDING_PX)
    return inside


@dataclass(frozen=True)
class CurrentScan:
    """The current scan at an action: the newest scan that had finished by the press.

    Attributes:
        scan: the scan; None if no scan had finished.
        age_ms: milliseconds from the end of the scan to the press; None if no scan had finished.
        freshness: `fresh` if the scan began at or after the end of the previous action. If the scan
            began earlier: `changed` if much of the screen changed between its start and the press,
            otherwise `stale`. If no scan had finished: `running` if one had begun, otherwise
            `none`.
        previous: the finished scan before `scan`; None if there is no such scan.
    """

    scan: LoggedScan | None
    age_ms: int | None
    freshness: str
    previous: LoggedScan | None = None


def current_scan(
    scans: Sequence[LoggedScan], press_ms: int, since_ms: float, changes_ms: Sequence[float] = ()
) -> CurrentScan:
    """Returns the newest scan that had finished by the press of an action.

    A scan that was still running is never used, because it may show the effect of the press.

    Args:
        scans: in any order.
        press_ms, since_ms: when the action began and the previous one ended, epoch milliseconds.
        changes_ms: times at which much of the screen changed, epoch milliseconds.
    """
    finished = sorted(
        (scan for scan in scans if scan.end_ms <= press_ms),
        key=lambda scan: (scan.begin_ms, scan.event_index),
    )
    if not finished:
        is_running = any(scan.begin_ms <= press_ms for scan in scans)
        return CurrentScan(None, None, "running" if is_running else "none")
    newest = finished[-1]
    previous = finished[-2] if len(finished) > 1 else None
    if newest.begin_ms >= since_ms:
        freshness = "fresh"
    elif any(newest.begin_ms < change_ms < press_ms for change_ms in changes_ms):
        freshness = "changed"
    else:
        freshness = "stale"
    return CurrentScan(newest, press_ms - newest.end_ms, freshness, previous)


def scans_of_part(
    scans: Sequence[LoggedScan], screen: ScreenParts, press_ms: int
) -> Sequence[LoggedScan]:
    """Returns the scans from the same part of the recording as an action's press.

    A new part begins when the resolution or scale of the screen changes. Scans that were running at
    that time are left out.
    """
    if len(screen) == 1:
        return scans
    part = screen.at(press_ms)
    if part.canvas is None:
        return []
    return [scan for scan in scans if screen.at(scan.begin_ms) == part == screen.at(scan.end_ms)]


def scan_problems(log: Path, scans: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """Returns the problems of the scans in a log, with at most one problem of each kind.

    Each problem has the number of affected scans, and the line of the first one.

    Args:
        scans: rows of trees.parquet of the `events` stage.

    Returns:
        - The error `unreadable_scan` for scans without any usable element.
        - The warning `malformed_scan` for scans that differ from the documented format.
        - The warning `contradicted_scan` for scans that contradict the recorder's own hit tests.
    """
    unreadable: list[int] = []
    malformed: list[tuple[int, str]] = []
    contradicted: list[int] = []
    with log.open("rb") as stream:
        for row in scans:
            stream.seek(row["byte_offset"])
            line = stream.read(row["byte_length"])
            line_number = row["event_index"]
            regular = regular_scan(line)
            scan = decode_scan(line) if regular is None else regular
            if scan is None or _gives_no_tree(scan, lenient=regular is None):
                unreadable.append(line_number)
                continue
            fault = _lenient_fault(line) if regular is None else _regular_fault(line, regular)
            if fault:
                malformed.append((line_number, fault))
            nodes = scan.flatten().nodes
            if samples_agree(scan, nodes, boxes_of(nodes)) is False:
                contradicted.append(line_number)
    return list(_problems_of(unreadable, malformed, contradicted))


def _problems_of(
    unreadable: Sequence[int], malformed: Sequence[tuple[int, str]], contradicted: Sequence[int]
) -> Iterator[Problem]:
    if unreadable:
        scans_have = _count(len(unreadable), "has", "have")
        message = f"{scans_have} no element in `data.tree`, so that steps get an empty tree"
        remedy = "record with a recorder that writes `tree` as a list of elements"
        yield Problem("unreadable_scan", LOG_FILE, message, line=unreadable[0], remedy=remedy)
    if malformed:
        line, fault = malformed[0]
        scans_differ = _count(len(malformed), "differs", "differ")
        message = f"{scans_differ} from the documented form, first: {fault}"
        remedy = "everything else in the scan is used"
        yield warning("malformed_scan", LOG_FILE, message, remedy, line)
    if contradicted:
        trees = _count(len(contradicted), "has a tree that lacks", "have trees that lack")
        message = f"{trees} an element that the recorder itself found on the screen"
        remedy = "compare the targets on the contact sheet; tell the recorder's makers"
        yield warning("contradicted_scan", LOG_FILE, message, remedy, contradicted[0])


def _gives_no_tree(scan: RawScan, *, lenient: bool) -> bool:
    """Returns whether a scan has no tree, or only an empty tree after lenient decoding."""
    return scan.tree is None or (lenient and not scan.tree)


def _lenient_fault(line: bytes) -> str:
    """Describes why the strict decoder rejects a scan."""
    try:
        return scan_fault(parse_json(line, LOG_FILE)) or "data: has a wrong type"
    except JsonFileError as error:
        return error.message


class _NodeKeys(msgspec.Struct, gc=False):
    """The raw JSON value of each documented key of a node. A missing key has an empty value.

    Only `children` is decoded. It is `UNSET` if it is missing.
    """

    role: msgspec.Raw = msgspec.Raw(b"")
    bbox: msgspec.Raw = msgspec.Raw(b"")
    states: msgspec.Raw = msgspec.Raw(b"")
    value: msgspec.Raw = msgspec.Raw(b"")
    name: msgspec.Raw = msgspec.Raw(b"")
    description: msgspec.Raw = msgspec.Raw(b"")
    children: "list[_NodeKeys] | _NodeKeys | msgspec.UnsetType | None" = msgspec.UNSET


class _ScanKeys(msgspec.Struct):
    """The raw JSON value of each documented key of a scan. A missing key has an empty value.

    Only `tree` is decoded. It is None if it is missing.
    """

    tree: list[_NodeKeys] | _NodeKeys | None = None
    duration: msgspec.Raw = msgspec.Raw(b"")
    queries: msgspec.Raw = msgspec.Raw(b"")
    focused_element: msgspec.Raw = msgspec.Raw(b"")


class _EventKeys(msgspec.Struct):
    data: _ScanKeys


_KEYS_DECODER = msgspec.json.Decoder(_EventKeys)
_NEEDED = frozenset({"role", "bbox"})  # keys of a node that must not be null


def _regular_fault(line: bytes, scan: RawScan) -> str:
    """Describes the missing documented keys of a scan whose values have the correct types.

    A tree without elements is described, too. Returns an empty string if there is no fault.
    """
    if not scan.tree:
        return "data.tree: has no element"
    with deeper_decoding():
        keys = _KEYS_DECODER.decode(line).data
    faults = [
        f"data.{name}: Field required"
        for name in ("duration", "queries", "focused_element")
        if not bytes(getattr(keys, name))
    ]
    missing: Counter[str] = Counter()
    elements = 0
    pending: list[Any] = [keys.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, _NodeKeys):
            elements += 1
            missing.update(_missing_keys(node))
            pending.append(node.children)
    faults += [
        f"{missing[name]} of {elements} elements have no {name}"
        for name in _NodeKeys.__struct_fields__
        if missing[name]
    ]
    return "; ".join(faults)


def _missing_keys(node: _NodeKeys) -> Iterator[str]:
    """Yields the documented keys that are missing from a node."""
    for name in _NodeKeys.__struct_fields__:
        value = getattr(node, name)
        if name == "children":
            is_missing = value is msgspec.UNSET
        else:
            text = bytes(value)
            is_missing = not text or (text == b"null" and name in _NEEDED)
        if is_missing:
            yield name


def _count(scans: int, singular: str, plural: str) -> str:
    return f"1 scan {singular}" if scans == 1 else f"{scans} scans {plural}"
