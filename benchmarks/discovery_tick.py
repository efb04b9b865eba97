"""Looks at very many uploads in a simulated listing: how long one takes, and how much memory.

Run: `.venv/bin/python benchmarks/discovery_tick.py [--demonstrations N] [--ticks N]`. The first
looks find everything new; then, with all of it accepted, one upload in a thousand changes before
each look. The listing costs next to no time, so that what is measured is discovery's own.
"""

import argparse
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline.discovery.decisions import accept, described, fingerprint_of
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.tick import Tick, tick
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.storage.objects import PAGE, ObjectInfo, Page
from demo_pipeline.storage.uploads import FILES
from demo_pipeline_tests.discovery.dagster_like import Runs


class Many:
    """`count` complete uploads, made up as they are listed; some have a second version."""

    url = "s3://many"

    def __init__(self, count: int) -> None:
        self.count, self.versions = count, dict[int, int]()

    def files(self, number: int) -> list[ObjectInfo]:
        """Of one upload."""
        version = self.versions.get(number, 0)
        etag = f"{number:032x}-{version}"
        return [ObjectInfo(f"demo-{number:07}/{file}", 1000, etag, 0.0) for file in FILES]

    def list_page(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """Objects of one upload, or a page of all."""
        if prefix:
            return Page(tuple(self.files(int(prefix[5:-1]))), (), None)
        start = int(token or 0)
        numbers = range(start // 3, min(self.count, (start + limit) // 3 + 1))
        infos = [info for number in numbers for info in self.files(number)]
        part = infos[start % 3 :][:limit]
        ended = start + len(part) >= 3 * self.count
        return Page(tuple(part), (), None if ended else str(start + len(part)))

    def list_prefixes(self, prefix: str = "", token: str | None = None, limit: int = PAGE) -> Page:
        """A page of folders."""
        start = int(token or 0)
        numbers = range(start, min(self.count, start + limit))
        following = str(start + limit) if start + limit < self.count else None
        return Page((), tuple(f"{prefix}demo-{number:07}/" for number in numbers), following)


def timed(objects: Many, path: Path, runs: Runs, now: float) -> tuple[float, Tick]:
    begun = time.perf_counter()
    with Ledger.open(path) as ledger:
        found = tick(objects, ledger, runs, now, DiscoverySettings())  # type: ignore[arg-type]
    seconds = time.perf_counter() - begun
    for request in found.requests:
        runs.launch(request, now)
    return seconds, found


def accept_all(objects: Many, path: Path) -> None:
    """As after the hours in which everything is run."""
    with Ledger.open(path) as ledger:
        while entries := ledger.due(float("inf"), 5000, complete=False):
            done = []
            for entry in entries:
                infos = objects.files(int(entry.name[5:]))
                files = tuple(described(i.key.rpartition("/")[2], i) for i in infos)
                full = replace(entry, files=files, fingerprint=fingerprint_of(files))
                done.append(accept(full))
            with ledger.transaction():
                ledger.save(done)


def told(name: str, seconds: list[float]) -> None:
    ranked = sorted(seconds)
    p50, p95 = (ranked[int(share * (len(ranked) - 1))] for share in (0.5, 0.95))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<28} {len(ranked):>4} looks  p50 {p50:6.2f} s  p95 {p95:6.2f} s  "
        f"longest {ranked[-1]:6.2f} s  peak {peak:6.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demonstrations", type=int, default=100_000)
    parser.add_argument("--ticks", type=int, default=40)
    asked = parser.parse_args()
    objects, runs, now = Many(asked.demonstrations), Runs(), 1_700_000_000.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        found: list[float] = []
        for _ in range(asked.ticks):
            now += 30
            found.append(timed(objects, path, runs, now)[0])
        told("everything is new", found)
        accept_all(objects, path)
        steady, launched = [], len(runs.by_id)
        for look in range(asked.ticks):
            now += 30
            for number in range(look, asked.demonstrations, 1000 * asked.ticks):
                objects.versions[number] = look
            steady.append(timed(objects, path, runs, now)[0])
        told("all known, some change", steady)
        print(f"runs launched: {launched:,} and {len(runs.by_id) - launched:,}")


if __name__ == "__main__":
    main()
