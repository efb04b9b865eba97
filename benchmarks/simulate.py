"""Uploads in any order, kills, lost ledgers: what discovery misses, and what a usual sensor does.

Run: `make simulate`, or `.venv/bin/python benchmarks/simulate.py [--runs N] [--demonstrations N]
[--seed N] [--processes N]`. The same seed gives the same table. Ends with status 1 when discovery
missed, hurried or doubled anything.
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


def one(seed: int, demonstrations: int, run: int) -> Result:
    return simulate(seed + run, demonstrations)


def shown(results: Iterable[Result], runs: int) -> list[Result]:
    """All results; says on the way how many there are."""
    begun, done = time.monotonic(), []
    for result in results:
        done.append(result)
        if len(done) * STEPS // runs > (len(done) - 1) * STEPS // runs:
            print(f"{len(done):>5} runs in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return done


def totals(results: Sequence[Result], of: Callable[[Result], Figures]) -> list[int]:
    """The sum of each figure."""
    return [sum(column) for column in zip(*(astuple(of(each)) for each in results), strict=True)]


def main() -> int:
    """Simulate with two processes, or as many as told; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--demonstrations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    work = partial(one, asked.seed, asked.demonstrations)
    with get_context("spawn").Pool(asked.processes) as pool:
        results = shown(pool.imap_unordered(work, range(asked.runs)), asked.runs)
    ours = totals(results, lambda each: each.ours)
    print(
        f"{asked.runs} runs x {asked.demonstrations} demonstrations (seed {asked.seed}): "
        f"{sum(each.demonstrations for each in results):,} complete at the end, "
        f"{sum(each.runs for each in results):,} runs launched, "
        f"{sum(each.superseded for each in results):,} of them superseded, "
        f"{sum(each.kills for each in results):,} kills, "
        f"{sum(each.ledgers_lost for each in results):,} ledgers deleted"
    )
    print(f"{'':<24}" + "".join(f"{each.name.replace('_', ' '):>18}" for each in fields(Figures)))
    print(f"{'discovery':<24}" + "".join(f"{figure:>18,}" for figure in ours))
    usual = totals(results, lambda each: each.cursor)
    print(f"{'last-modified cursor':<24}" + "".join(f"{figure:>18,}" for figure in usual))
    misjudged = sum(each.misjudged for each in results)
    print(f"folders whose state in the ledger is wrong at the end: {misjudged}")
    return 1 if any(ours) or misjudged else 0


if __name__ == "__main__":
    sys.exit(main())
