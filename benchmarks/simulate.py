"""Simulate uploads in any order, kills and lost tables, and count what discovery misses.

Run: `make simulate`, or `.venv/bin/python benchmarks/simulate.py [--runs N] [--demonstrations N]
[--seed N] [--processes N]`. The same seed gives the same table; beside discovery it
shows a usual sensor with a last-modified cursor. Exits with 1 when discovery missed an upload, ran
it too early or twice.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline_tests.discovery.simulation import Figures, Result, simulate

STEPS = 20


def simulate_run(seed: int, demonstrations: int, run: int) -> Result:
    """One simulated world."""
    return simulate(seed + run, demonstrations)


def collect_results(results: Iterable[Result], runs: int) -> list[Result]:
    """All results; prints the progress."""
    begun, done = time.monotonic(), list[Result]()
    for result in results:
        done.append(result)
        if len(done) * STEPS // runs > (len(done) - 1) * STEPS // runs:
            print(f"{len(done):>5} runs in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return done


def totals(results: Sequence[Result], of: Callable[[Result], Figures]) -> list[int]:
    """The sum of each figure."""
    return [
        sum(column) for column in zip(*(astuple(of(result)) for result in results), strict=True)
    ]


def main() -> int:
    """Simulate in some processes; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--demonstrations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    work = partial(simulate_run, asked.seed, asked.demonstrations)
    with get_context("spawn").Pool(asked.processes) as pool:
        results = collect_results(pool.imap_unordered(work, range(asked.runs)), asked.runs)
    ours = totals(results, lambda result: result.ours)
    print(
        f"{asked.runs} runs x {asked.demonstrations} demonstrations (seed {asked.seed}): "
        f"{sum(result.demonstrations for result in results):,} complete at the end, "
        f"{sum(result.runs for result in results):,} runs launched, "
        f"{sum(result.superseded for result in results):,} of them superseded, "
        f"{sum(result.kills for result in results):,} kills, "
        f"{sum(result.tables_lost for result in results):,} tables deleted"
    )
    print(f"{'':<24}" + "".join(f"{field.name.replace('_', ' '):>18}" for field in fields(Figures)))
    print(f"{'discovery':<24}" + "".join(f"{figure:>18,}" for figure in ours))
    usual = totals(results, lambda result: result.cursor)
    print(f"{'last-modified cursor':<24}" + "".join(f"{figure:>18,}" for figure in usual))
    misjudged = sum(result.misjudged for result in results)
    print(f"folders whose state in the table is wrong at the end: {misjudged}")
    return 1 if any(ours) or misjudged else 0


if __name__ == "__main__":
    sys.exit(main())
