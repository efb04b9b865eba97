"""Accessibility scans in the log: which one is current at an action, and reading only that one.

Not here: the content of a scan (raw_tree.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.common.recording_files import LOG_FILE
from demo_pipeline.observation.calibration.screen_parts import ScreenParts
from demo_pipeline.observation.trees.raw_tree import RawScan, decode_scan
from demo_pipeline.problems import DemonstrationError, Problem


@dataclass(frozen=True)
class LoggedScan:
    """A scan in the log, a row of the events stage's trees.parquet: where it is and when it ran.

    Attributes:
        event_index: its line in the log.
        byte_offset, byte_length: of that line.
        time_ms: when it began, epoch milliseconds.
        duration_ms: how long it took; None when the recorder did not log it.
    """

    event_index: int
    byte_offset: int
    byte_length: int
    time_ms: int
    duration_ms: int | None

    @property
    def end_ms(self) -> int:
        """When the scan finished, epoch milliseconds."""
        return self.time_ms + (self.duration_ms or 0)


@dataclass(frozen=True)
class CurrentScan:
    """The current scan at an action, and how fresh it is.

    Attributes:
        scan: None without a scan that had begun by the press.
        age_ms: from the end of the scan to the press; negative while it was still running.
        freshness: `fresh`: begun after the previous action ended; `stale`: older;
            `changed`: stale, and much of the screen changed since; `running`: begun but not
            finished by the press; `none`: no scan.
    """

    scan: LoggedScan | None
    age_ms: int | None
    freshness: str


def current_scan(
    scans: Sequence[LoggedScan], press_ms: int, since_ms: float, changes_ms: Sequence[float] = ()
) -> CurrentScan:
    """The newest scan that had finished by the press, else the newest that had begun.

    Args:
        scans: of the log, in any order.
        press_ms: when the action began; this and all times are epoch milliseconds.
        since_ms: when the previous action had ended.
        changes_ms: when much of the screen changed.
    """
    done = [scan for scan in scans if scan.end_ms <= press_ms]
    if done:
        newest = max(done, key=lambda scan: (scan.time_ms, scan.event_index))
        freshness = "fresh" if newest.time_ms >= since_ms else "stale"
        changed = any(newest.time_ms < change < press_ms for change in changes_ms)
        if freshness == "stale" and changed:
            freshness = "changed"
        return CurrentScan(newest, press_ms - newest.end_ms, freshness)
    begun = [scan for scan in scans if scan.time_ms <= press_ms]
    if begun:
        newest = max(begun, key=lambda scan: (scan.time_ms, scan.event_index))
        return CurrentScan(newest, press_ms - newest.end_ms, "running")
    return CurrentScan(None, None, "none")


def scans_of_part(
    scans: Sequence[LoggedScan], screen: ScreenParts, press_ms: int
) -> Sequence[LoggedScan]:
    """The scans whose coordinates are those of an action: the screen had the same resolution."""
    if len(screen) == 1:
        return scans
    part = screen.at(press_ms)
    if part.canvas is None:
        return []
    return [scan for scan in scans if screen.at(scan.time_ms) == part == screen.at(scan.end_ms)]


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
