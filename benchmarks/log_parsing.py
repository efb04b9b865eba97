"""The parser, the events and the actions stage on a 100 MB log, compared with plain `json.loads`.

Run: `.venv/bin/python benchmarks/log_parsing.py [--megabytes 100] [--rounds 3]`. Every figure is
measured in a process of its own that has read a small log before, so that growth is the log's and
not the imports'. Wall and CPU are medians of the rounds; compare ratios, the machine may be busy.
"""

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.long_log import write_log
from demo_pipeline.actions.build_actions import build_actions
from demo_pipeline.recording.events import build_events
from demo_pipeline.recording.input_log import BUFFER_BYTES, parse_log
from demo_pipeline.settings import ActionSettings

SMALL_MB = 1.0


class Cost(NamedTuple):
    """Seconds, and megabytes by which the process grew."""

    wall: float
    cpu: float
    growth: float


class Line(msgspec.Struct):
    """What is decoded of a line when nothing else is done with it."""

    event: str
    time: float


def plain_json(log: Path, _scratch: Path) -> None:
    """What a script would do: decode each line and keep only the input events."""
    kept = []
    with log.open("rb") as stream:
        for line in stream:
            event = json.loads(line)
            if event["event"] != "axtree":
                kept.append((event["event"], event["time"], event["data"]))


def msgspec_lines(log: Path, _scratch: Path) -> None:
    """The least a strict parser can do: split, decode two fields, keep nothing."""
    decode = msgspec.json.Decoder(Line).decode
    with log.open("rb", buffering=BUFFER_BYTES) as stream:
        for line in stream:
            decode(line)


def parse(log: Path, _scratch: Path) -> None:
    """Our parser alone, nothing kept."""
    with log.open("rb", buffering=BUFFER_BYTES) as stream:
        for _ in parse_log(stream):
            pass


def events(log: Path, scratch: Path) -> None:
    """The events stage: parse and write three Parquet tables."""
    build_events(log, scratch)


def actions(_log: Path, scratch: Path) -> None:
    """The actions stage on what `events` wrote."""
    build_actions(scratch, scratch, "windows", ActionSettings())


WORK: tuple[Callable[[Path, Path], None], ...] = (
    plain_json,
    msgspec_lines,
    parse,
    events,
    actions,
)


def measured(work: Callable[[Path, Path], None], small: Path, log: Path, scratch: Path) -> Cost:
    """Run `work` on a small log unmeasured, then on the long one."""
    warm = scratch / "warm"
    warm.mkdir(exist_ok=True)
    if work is actions:
        events(small, warm)
    work(small, warm)
    before = _peak_mb()
    wall = time.perf_counter()
    cpu = time.process_time()
    work(log, scratch)
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return Cost(*seconds, _peak_mb() - before)


def _peak_mb() -> float:
    """The peak of this process alone; Linux's `ru_maxrss` begins with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        [peak] = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS


def main() -> None:
    """Write the logs, measure each piece of work in fresh processes, print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        small = scratch / "small.jsonl"
        log = scratch / "input_log.jsonl"
        write_log(small, SMALL_MB, moves=400, scans=2)
        write_log(log, asked.megabytes)
        megabytes = log.stat().st_size / 1e6
        print(f"{megabytes:.1f} MB, medians of {asked.rounds}")
        print(f"{'':<16}{'wall s':>9}{'cpu s':>9}{'MB/s cpu':>10}{'growth MB':>11}")
        for work in WORK:
            with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
                tasks = [(work, small, log, scratch)] * asked.rounds
                costs = pool.starmap(measured, tasks, chunksize=1)
            wall, cpu, growth = (statistics.median(column) for column in zip(*costs, strict=True))
            name = work.__name__
            print(f"{name:<16}{wall:>9.2f}{cpu:>9.2f}{megabytes / cpu:>10.0f}{growth:>11.0f}")


if __name__ == "__main__":
    main()
