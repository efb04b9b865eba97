"""Time and memory of discovery ticks over very many uploads.

Run: `.venv/bin/python benchmarks/discovery_tick.py [--s3] [--demonstrations N] [--ticks N]`. In the
first ticks everything is new; then everything is accepted, and one upload in a thousand changes
before each tick. The simulated listing costs almost no time, so that discovery itself is measured.
`--s3` lists 10,000 real uploads of three tiny objects in a SeaweedFS on this machine: with the
default settings, and with bounds that let each tick list every object.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery import Tick, accept, tick
from demo_pipeline.runs.discovery_table import DiscoveryTable, ObservedFile, Position
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.bucket import Bucket as S3Bucket
from demo_pipeline.store.folder import ObjectInfo, Page, list_all
from demo_pipeline_tests.discovery.dagster_like import Runs
from demo_pipeline_tests.settings_constants import with_constants
from demo_pipeline_tests.simulator.s3_server import seaweed_server

PAGE = 1000  # objects that S3 lists at once


class Many:
    """`count` complete uploads, generated as they are listed; some have a second version."""

    url = "s3://many"

    def __init__(self, count: int) -> None:
        self.count, self.versions = count, dict[int, int]()

    def files(self, number: int) -> list[ObjectInfo]:
        """The files of one upload."""
        version = self.versions.get(number, 0)
        etag = f"{number:032x}-{version}"
        return [ObjectInfo(f"demo-{number:07}/{file}", 1000, etag, 0.0) for file in RECORDING_FILES]

    def everything(self) -> Callable[[int], list[ObjectInfo]]:
        """Number of an upload → its files."""
        return self.files

    def change(self, number: int, version: int) -> None:
        """Upload it again."""
        self.versions[number] = version

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


class Bucket(S3Bucket):
    """`count` complete uploads of three tiny objects in a real bucket."""

    def __init__(self, url: str, count: int) -> None:
        super().__init__(url)
        self.count = count
        keys = [f"demo-{number:07}/{file}" for number in range(count) for file in RECORDING_FILES]
        with ThreadPoolExecutor(32) as pool:
            deque(pool.map(lambda key: self.put(key, key.encode()), keys), maxlen=0)

    def everything(self) -> Callable[[int], list[ObjectInfo]]:
        """Number of an upload → its files, by one listing."""
        files: dict[int, list[ObjectInfo]] = defaultdict(list)
        for info in list_all(self):
            files[int(info.key[5:12])].append(info)
        return files.__getitem__

    def change(self, number: int, version: int) -> None:
        """Upload its meta.json again, with new bytes."""
        self.put(f"demo-{number:07}/meta.json", f"{version} {time.monotonic_ns()}".encode())


def timed_tick(
    objects: Many | Bucket, path: Path, runs: Runs, now: float, settings: DiscoverySettings
) -> tuple[float, Tick]:
    """One tick, whose requests are launched, and the seconds it took."""
    begun = time.perf_counter()
    with DiscoveryTable.open(path) as table:
        result = tick(objects, table, runs, now, settings)  # type: ignore[arg-type]
    seconds = time.perf_counter() - begun
    for request in result.requests:
        runs.launch(request, now)
    return seconds, result


def accept_all(objects: Many | Bucket, path: Path) -> None:
    """Accept every upload, as after the hours in which all of them are processed."""
    files_of = objects.everything()
    with DiscoveryTable.open(path) as table, table.transaction():
        for number in range(objects.count):
            infos = [(info.key.partition("/")[2], info) for info in files_of(number)]
            files = [ObservedFile(name, i.etag, i.size, i.modified) for name, i in infos]
            table.mark_seen({f"demo-{number:07}": files})
        table.take_in("", 0.0, 0.0)
        while known := table.undecided(Position(1.0, 1.0, complete=1.0), 5000):
            table.save(map(accept, known))
        position = table.position()
        assert position is not None
        table.set_position(replace(position, token=None, sweep=1))


def print_times(name: str, seconds: list[float]) -> None:
    """Percentiles of the ticks and the process's peak memory."""
    ranked = sorted(seconds)
    p50, p95 = (ranked[int(share * (len(ranked) - 1))] for share in (0.5, 0.95))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{name:<28} {len(ranked):>4} ticks  p50 {p50:6.2f} s  p95 {p95:6.2f} s  "
        f"longest {ranked[-1]:6.2f} s  peak {peak:6.0f} MB"
    )


def measure(objects: Many | Bucket, ticks: int, settings: DiscoverySettings) -> None:
    """Run both phases with a new table and print their times."""
    runs, now = Runs(), 1_700_000_000.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.sqlite"
        first_ticks: list[float] = []
        first = launched = pages = 0
        for _ in range(ticks):
            now += 30
            seconds, seen = timed_tick(objects, path, runs, now, settings)
            first_ticks.append(seconds)
            first += len(seen.requests)
        print_times("everything is new", first_ticks)
        accept_all(objects, path)
        steady: list[float] = []
        for turn in range(ticks):
            now += 30
            for number in range(turn, objects.count, 1000):
                objects.change(number, turn + 1)
            seconds, seen = timed_tick(objects, path, runs, now, settings)
            steady.append(seconds)
            pages += seen.pages
            launched += len(seen.requests)
        print_times("all known, some change", steady)
        print(f"runs launched: {first:,} and {launched:,}; ", end="")
        print(f"{pages / ticks:.0f} pages per tick, {json.loads(seen.cursor)['sweep']} sweeps")


def measure_s3(demonstrations: int, ticks: int) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(seaweed_server(folder))
        stack.enter_context(server.connected())
        begun = time.perf_counter()
        objects = Bucket(server.make_bucket(), demonstrations)
        print(f"{3 * demonstrations:,} objects put in {time.perf_counter() - begun:.0f} s")
        print("with the default settings")
        measure(objects, ticks, DiscoverySettings())
        pages = 2 * (3 * demonstrations // PAGE + 2)
        print(f"with up to {pages} pages per tick, which is every page")
        measure(objects, ticks, with_constants(DiscoverySettings, pages_per_tick=pages)())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--demonstrations", type=int)
    parser.add_argument("--ticks", type=int, default=40)
    asked = parser.parse_args()
    if asked.s3:
        measure_s3(asked.demonstrations or 10_000, asked.ticks)
    else:
        measure(Many(asked.demonstrations or 100_000), asked.ticks, DiscoverySettings())


if __name__ == "__main__":
    main()
