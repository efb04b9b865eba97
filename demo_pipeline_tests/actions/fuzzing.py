"""Feeds damaged logs to the parser and to the first stages, and checks rules for every log.

Each batch of lines and each log is generated from a seed and a number, so failures can be
reproduced. The mutations are in demo_pipeline_tests/simulator/mutations.py.
"""

import io
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NoReturn

from demo_pipeline.actions.build_actions import build_actions, check_event_accounting
from demo_pipeline.actions.build_actions import check_action_tables as check_action_schemas
from demo_pipeline.files.recording_files import LOG_FILE
from demo_pipeline.recording.events import (
    build_events,
    check_event_tables,
    check_line_accounting,
    count_lines,
)
from demo_pipeline.recording.input_log import MAX_LINE_BYTES, Event, parse_log
from demo_pipeline.runs.inspection import timeline_lines
from demo_pipeline.settings import ActionSettings
from demo_pipeline_tests.simulator.mutations import PLATFORMS, mutated_line, mutated_log
from demo_pipeline_tests.uploads import made_manifest

BATCH = 500
LOG_CPU_SECONDS = 10.0  # limit for one log; a log of a thousand lines takes about 50 ms
PIECE = 32  # characters; messages may repeat shorter parts of a line by chance


def fuzz_lines(seed: int, batch: int, count: int = BATCH) -> Counter[str]:
    """Parses a log of `count` damaged lines.

    Returns the number of accepted lines under `read`, and the number of rejected lines under each
    reason.
    """
    random = Random(f"lines {seed} {batch}")
    log = b"\n".join(mutated_line(random) for _ in range(count)) + b"\n"
    limit = random.choice((100, *[MAX_LINE_BYTES] * 9))
    with limited(f"lines of batch {batch}, seed {seed}"):
        rows = list(parse_log(io.BytesIO(log), max_line_bytes=limit))
        for number, (row, line) in enumerate(zip(rows, lines_of(log), strict=True), 1):
            index = row.event_index if isinstance(row, Event) else row.line
            assert (index, row.byte_length) == (number, len(line))
            assert log[row.byte_offset : row.byte_offset + row.byte_length] == line
            if not isinstance(row, Event):
                assert not quotes(row.message, line), row.code
    return Counter("read" if isinstance(row, Event) else row.code for row in rows)


def lines_of(log: bytes) -> list[bytes]:
    """Returns the lines of a log without line ends and byte order mark."""
    return [line.rstrip(b"\r\n") for line in log.removeprefix(b"\xef\xbb\xbf").split(b"\n")[:-1]]


def quotes(message: str, line: bytes) -> bool:
    """Returns whether a message repeats `PIECE` consecutive characters of a line."""
    return any(
        message[at : at + PIECE].encode() in line for at in range(max(0, len(message) - PIECE + 1))
    )


def fuzz_log(seed: int, number: int) -> Counter[str]:
    """Runs the stages `events` and `actions` and their checks on a damaged log.

    Returns the number of lines in each bucket of the event accounting.
    """
    random = Random(f"log {seed} {number}")
    log = mutated_log(random)
    platform = random.choice((*PLATFORMS, "", "beos"))
    with limited(f"log {number}, seed {seed}"), TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / LOG_FILE).write_bytes(log)
        build_events(folder / LOG_FILE, folder)
        build_actions(folder, folder, platform, ActionSettings())
        problems = [
            *check_line_accounting(folder, folder / LOG_FILE),
            *check_event_tables(folder),
            *check_action_schemas(folder),
            *check_event_accounting(folder, folder),
        ]
        assert problems == []
        text = timeline_lines(folder, folder, made_manifest("demo", platform=platform))
        lines = count_lines(folder / LOG_FILE)
        start = text.index(f"Event accounting: {lines} lines") + 1
        counts = Counter(
            {
                name: int(number)
                for name, number, *_ in map(str.split, text[start : text.index("", start)])
            }
        )
        assert counts.total() == lines
    return counts


@contextmanager
def limited(case: str, cpu_seconds: float = LOG_CPU_SECONDS) -> Iterator[None]:
    """Stops a case that takes too much CPU time, and adds the name of the case to any error.

    CPU time is limited instead of wall time, so that a busy machine does not fail the test.
    """

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"{case}: still at work after {cpu_seconds:g} s of CPU time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    except BaseException as error:
        error.add_note(f"while reading {case}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
