"""Accessibility scans at an action: which one is current, and what is wrong with those of a log.

Problems name no element. Reading a scan from the log is in recording/logged_scans.py; mapping its
nodes to the canvas is in step_tree.py.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from demo_pipeline.files.json_files import JsonFileError, parse_json
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.observation.clock.canvas import Boxes, ScreenParts
from demo_pipeline.problems import Problem, warning
from demo_pipeline.recording.input_log import scan_fault
from demo_pipeline.recording.logged_scans import (
    MAX_COORDINATE,
    LoggedScan,
    RawNode,
    RawScan,
    decode_scan,
    regular_scan,
)


def boxes_of(nodes: Sequence[RawNode]) -> Boxes:
    """The boxes of nodes. AT-SPI's sizes of -1 and impossibly large numbers are not usable."""
    sides = chain.from_iterable(node.box for node in nodes)
    boxes = np.fromiter(sides, float, 4 * len(nodes)).reshape(-1, 4)
    usable = (np.abs(boxes) <= MAX_COORDINATE).all(axis=1) & (boxes[:, 2:] >= 0).all(axis=1)
    boxes[~usable] = math.nan
    return boxes


@dataclass(frozen=True)
class CurrentScan:
    """The current scan at an action, and how fresh it is.

    Attributes:
        scan: None without a scan that had finished by the press.
        age_ms: from the end of the scan to the press.
        freshness: `fresh`: begun after the previous action ended; `stale`: older;
            `changed`: stale, and much of the screen changed since; `running`: none, but one had
            begun by the press; `none`: no scan.
        previous: the scan before `scan`; None without one.
    """

    scan: LoggedScan | None
    age_ms: int | None
    freshness: str
    previous: LoggedScan | None = None


def current_scan(
    scans: Sequence[LoggedScan], press_ms: int, since_ms: float, changes_ms: Sequence[float] = ()
) -> CurrentScan:
    """The newest scan that had finished by the press.

    One that was still running may show what the press opened, so it is never used.

    Args:
        scans: of the log, in any order.
        press_ms: when the action began; this and all times are epoch milliseconds.
        since_ms: when the previous action had ended.
        changes_ms: when much of the screen changed.
    """
    done = sorted(
        (scan for scan in scans if scan.end_ms <= press_ms),
        key=lambda scan: (scan.begin_ms, scan.event_index),
    )
    if done:
        newest = done[-1]
        freshness = "fresh" if newest.begin_ms >= since_ms else "stale"
        changed = any(newest.begin_ms < change < press_ms for change in changes_ms)
        if freshness == "stale" and changed:
            freshness = "changed"
        previous = done[-2] if len(done) > 1 else None
        return CurrentScan(newest, press_ms - newest.end_ms, freshness, previous)
    running = any(scan.begin_ms <= press_ms for scan in scans)
    return CurrentScan(None, None, "running" if running else "none")


def scans_of_part(
    scans: Sequence[LoggedScan], screen: ScreenParts, press_ms: int
) -> Sequence[LoggedScan]:
    """The scans whose coordinates are those of an action: the screen had the same resolution."""
    if len(screen) == 1:
        return scans
    part = screen.at(press_ms)
    if part.canvas is None:
        return []
    return [scan for scan in scans if screen.at(scan.begin_ms) == part == screen.at(scan.end_ms)]


def scan_problems(log: Path, scans: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """The problems of every scan: one for all that give no tree, one for all that deviate.

    Args:
        log: input_log.jsonl.
        scans: rows of the `events` stage's trees.parquet.

    Returns:
        An error `unreadable_scan`, as for a step that needs such a scan, and a warning
        `malformed_scan`; each names its first line.
    """
    unreadable: list[int] = []
    malformed: list[tuple[int, str]] = []
    with log.open("rb") as stream:
        for row in scans:
            stream.seek(row["byte_offset"])
            line = stream.read(row["byte_length"])
            scan = regular_scan(line)
            if _gives_no_tree(decode_scan(line) if scan is None else scan, lenient=scan is None):
                unreadable.append(row["event_index"])
            elif fault := _fault(line, scan):
                malformed.append((row["event_index"], fault))
    problems = []
    if unreadable:
        message = f"{_count(unreadable)} no element in `data.tree`, so that steps get an empty tree"
        remedy = "record with a recorder that writes `tree` as a list of elements"
        found = Problem("unreadable_scan", LOG_FILE, message, line=unreadable[0], remedy=remedy)
        problems.append(found)
    if malformed:
        line_number, fault = malformed[0]
        count = "1 scan differs" if len(malformed) == 1 else f"{len(malformed)} scans differ"
        message = f"{count} from the documented form, first: {fault}"
        remedy = "what can be read of it is used"
        problems.append(warning("malformed_scan", LOG_FILE, message, remedy, line_number))
    return problems


def _gives_no_tree(scan: RawScan | None, *, lenient: bool) -> bool:
    """Whether nothing of the tree can be read; reading leniently turns all else into no element."""
    return scan is None or scan.tree is None or (lenient and not scan.tree)


def _fault(line: bytes, scan: RawScan | None) -> str:
    """How a scan that can be read deviates; empty when nothing in it is lost."""
    if scan is None:
        try:
            return scan_fault(parse_json(line, LOG_FILE)) or "data: has a wrong type"
        except JsonFileError as error:
            return error.message
    if not scan.tree:
        return "data.tree: has no element"
    nodes = scan.flatten().nodes
    for field in ("role", "bbox"):
        count = sum(getattr(node, field) is None for node in nodes)
        if count:
            return f"{count} of {len(nodes)} elements have no {field}"
    return ""


def _count(lines: list[int]) -> str:
    return "1 scan has" if len(lines) == 1 else f"{len(lines)} scans have"
