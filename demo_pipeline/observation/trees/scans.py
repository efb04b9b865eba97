"""Accessibility scans: which one a step sees, and reading just that one from the log.

Belongs here: choosing by time, reading by offset. What a scan says is raw_tree.py's subject.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.observation.trees.raw_tree import RawScan, decode_scan
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.event_tables import LOG_FILE


@dataclass(frozen=True)
class LoggedScan:
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
class CurrentScan:
    """The scan an action sees, how old it was, and what that means.

    Attributes:
        scan: None when there is none.
        age_ms: from the end of the scan to the press; negative while it was still running.
        freshness: `fresh`: begun after the previous action ended; `stale`: older;
            `changed`: stale, and much of the screen changed since; `running`: begun but not
            finished by the press; `none`.
    """

    scan: LoggedScan | None
    age_ms: int | None
    freshness: str


def current_scan(
    scans: Sequence[LoggedScan], press_ms: int, since_ms: float, changes_ms: Sequence[float] = ()
) -> CurrentScan:
    """The newest scan that had finished by the press, else the newest that had begun.

    `changes_ms`: when much of the screen changed, epoch milliseconds.
    """
    done = [scan for scan in scans if scan.end_ms <= press_ms]
    if done:
        newest = max(done, key=lambda scan: (scan.time_ms, scan.event_index))
        freshness = "fresh" if newest.time_ms >= since_ms else "stale"
        if freshness == "stale" and any(newest.time_ms < at < press_ms for at in changes_ms):
            freshness = "changed"
        return CurrentScan(newest, press_ms - newest.end_ms, freshness)
    begun = [scan for scan in scans if scan.time_ms <= press_ms]
    if begun:
        newest = max(begun, key=lambda scan: (scan.time_ms, scan.event_index))
        return CurrentScan(newest, press_ms - newest.end_ms, "running")
    return CurrentScan(None, None, "none")


def read_scan(log: Path, scan: LoggedScan) -> RawScan:
    """One axtree event's scan. Raises `DemonstrationError` when the line is no longer that."""
    with log.open("rb") as stream:
        stream.seek(scan.byte_offset)
        found = decode_scan(stream.read(scan.byte_length))
    if found is None:
        message = "the accessibility scan cannot be read"
        remedy = "the step gets an empty tree; record again for a better one"
        raise DemonstrationError(
            Problem("unreadable_scan", LOG_FILE, message, line=scan.event_index, remedy=remedy)
        )
    return found
