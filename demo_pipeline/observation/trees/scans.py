"""Accessibility scans in the log: when each ran, which one is current at an action, reading one.

Not here: the content of a scan (raw_tree.py).
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.common.parquet import read_table
from demo_pipeline.common.recording_files import LOG_FILE
from demo_pipeline.observation.calibration.screen_parts import ScreenParts
from demo_pipeline.observation.trees.raw_tree import RawScan, decode_scan
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.recording.events import EVENTS_FILE, read_scans

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
        others: line and epoch milliseconds of each event that is no scan, in line order.
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
