"""Damaged lines and logs by the million through the parser, the events and the actions stage.

Run: `make fuzz`, or `.venv/bin/python benchmarks/fuzz.py [--lines N] [--logs N] [--seed N]`. The
same seed tries the same lines and logs, whatever the number of processes. Progress goes to standard
error; the closing line has the totals. A failure ends the run with the case's number and seed.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from multiprocessing import TimeoutError as Silence
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline_tests.actions.fuzzing import BATCH, fuzz_lines, fuzz_log

STUCK_SECONDS = 300  # no answer for so long: native code hangs, which no limit of CPU time ends
STEPS = 20


def run(
    pool: Pool, name: str, try_case: Callable[[int], Counter[str]], cases: int, case_size: int
) -> Counter[str]:
    """Try `cases` cases of `case_size` lines or logs; returns the sum of their counts."""
    found: Counter[str] = Counter()
    begun = time.monotonic()
    results = pool.imap(try_case, range(cases))
    for done in range(1, cases + 1):
        try:
            found += results.next(timeout=STUCK_SECONDS)
        except Silence:
            sys.exit(f"no answer for {STUCK_SECONDS} s: {name} after case {done - 1} hangs")
        if done * STEPS // cases > (done - 1) * STEPS // cases:
            seconds = time.monotonic() - begun
            print(f"{done * case_size:>9,} {name} in {seconds:.0f} s", file=sys.stderr)
    return found


def listed(counts: Counter[str]) -> str:
    """The counts as text, the largest first."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def main() -> None:
    """Fuzz with two processes, or with `--processes`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--logs", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    batches = -(-asked.lines // BATCH)
    with get_context("spawn").Pool(asked.processes, pa.set_cpu_count, (1,)) as pool:
        lines = run(pool, "lines", partial(fuzz_lines, asked.seed), batches, BATCH)
        logs = run(pool, "logs", partial(fuzz_log, asked.seed), asked.logs, 1)
    print(f"lines: {listed(lines)}")
    print(f"lines of the logs: {listed(logs)}")
    print(
        f"{lines.total():,} damaged lines and {asked.logs:,} damaged logs (seed {asked.seed}): "
        "no exception, no hang, every event accounted for"
    )


if __name__ == "__main__":
    main()
