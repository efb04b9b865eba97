"""Measures many uploads that come at once: through Dagster's daemon, and by `demo-pipeline run`.

Run: `.venv/bin/python benchmarks/many_uploads.py [--uploads 300]`. Copies of a short synthetic
recording lie in the uploads before either begins; each way has a store and a home of its own, and
the daemon's way ends when every output is as `run` made it. A row says what a way took: seconds,
CPU seconds of all its processes, the most memory that Dagster's daemon and code servers held
together (their proportional share of pages, PSS), and bytes of Dagster's home for each upload.
Exits with 1 when a demonstration is not done, or the outputs of both ways differ.

`--ticks` measures the sensor instead: seconds a tick while none of the uploads is built, although a
run of many, and a run of each, have ended. Dagster ends a tick after 60 seconds. Exits with 1 when
a tick took more than half of them.
"""

import argparse
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import dagster as dg  # noqa: E402, TID251 - after the path

from benchmarks.demonstration_runs import contents, write_copies, write_example  # noqa: E402 - the path
from demo_pipeline.defs.partitions import PARTITION_TAG  # noqa: E402
from demo_pipeline.files.recording_files import RECORDING_FILES  # noqa: E402
from demo_pipeline.runs.stages import STAGES  # noqa: E402
from demo_pipeline.stage import DEMONSTRATION_JOB  # noqa: E402
from demo_pipeline_tests.defs.bench import open_bench, ticked  # noqa: E402
from demo_pipeline_tests.defs.daemon import dagster_home, dagster_process  # noqa: E402
from demo_pipeline_tests.distributed.processes import (  # noqa: E402
    adopt_orphans,
    descendants,
    end_descendants,
    title_of,
)

_DAEMON = ("dagster-daemon", "run", "-w", "workspace.yaml")
_RUN = ("demo-pipeline", "run")
_PATIENCE = 3600.0  # seconds for a way
_SERVERS = re.compile("dagster-daemon|dagster api grpc|dagster code-server")
_PAUSE = 1.0
_TICKS = 6
_LONGEST_TICK = 30.0  # seconds; Dagster ends a tick after 60


class Taken(NamedTuple):
    """What a way took; memory in bytes, 0 where nothing of Dagster's serves."""

    seconds: float
    cpu: float
    servers: int
    home: int


def process_uploads(folder: Path, uploads: Path, count: int, wanted: Mapping[str, str]) -> Taken:
    """Process all uploads by `run`, or by the daemon until the outputs are as `wanted`."""
    os.environ |= {
        "DEMO_PIPELINE_CONFIG": str(folder / "none.toml"),
        "DEMO_PIPELINE_UPLOADS": str(uploads),
        "DEMO_PIPELINE_STORE": str(folder / "store"),
        "DEMO_PIPELINE_CACHE": str(folder / "cache"),
        "DEMO_PIPELINE_OSWORLD_TASKS": str(folder / "tasks"),
    }
    home = folder / "home"
    servers = 0
    with dagster_home(home):
        pass
    datasets = {name: content for name, content in wanted.items() if "/" not in name}
    start = time.monotonic()
    before = _cpu_of_ended()
    with dagster_process(_DAEMON if wanted else _RUN, home) as process:
        while process.poll() is None:
            if datasets and datasets.items() <= contents(folder / "store", datasets).items():
                break
            if time.monotonic() - start > _PATIENCE:
                raise TimeoutError(f"not done after {_PATIENCE:.0f} s; see {home}")
            servers = max(servers, _memory_of_servers())
            time.sleep(_PAUSE)
        seconds = time.monotonic() - start
    end_descendants()
    size = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    return Taken(seconds, _cpu_of_ended() - before, servers, size // count)


def _cpu_of_ended() -> float:
    """The CPU seconds of all descendants that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _memory_of_servers() -> int:
    """The bytes of those among this process's descendants, each shared page by its share."""
    found = 0
    for pid in descendants(os.getpid())[1:]:
        if _SERVERS.search(title_of(pid)):
            with suppress(OSError):  # it has ended
                text = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8")
                found += int(text.partition("\nPss:")[2].split()[0]) * 1024
    return found


def measure_ticks(folder: Path, count: int) -> list[float]:
    """The seconds of each tick of the sensor over uploads that no run has built."""
    ids = [f"demo_{number:05d}" for number in range(count)]
    for key in ids:
        for file in RECORDING_FILES:
            path = folder / "prepared" / key / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(key, "utf-8")
    seconds: list[float] = []
    with open_bench(folder, kept=True) as bench:
        bench.catalogue()
        bench.uploads.rmdir()
        (folder / "prepared").rename(bench.uploads)
        cursor = None
        for number in range(_TICKS):
            before = time.monotonic()
            tick = ticked(bench, "new_uploads", cursor)
            seconds.append(time.monotonic() - before)
            cursor = tick.cursor
            print(f"tick {number + 1}: {seconds[-1]:.1f} s, {len(tick.requests)} runs", flush=True)
            for request in tick.requests:
                _end_unbuilt(bench.instance, request, ids)
    return seconds


def _end_unbuilt(instance: dg.DagsterInstance, request: dg.RunRequest, ids: Sequence[str]) -> None:
    """Record the failed run of a request, and a failed run of each demonstration within it."""
    run_tags = [(str(request.job_name), dict(request.tags), dict(request.run_config))]
    run_tags += [(DEMONSTRATION_JOB, {PARTITION_TAG: key}, {}) for key in ids]
    for job, tags, config in run_tags:
        instance.add_run(
            dg.DagsterRun(job, tags=tags, run_config=config, status=dg.DagsterRunStatus.FAILURE)
        )


def main() -> int:
    """Run both ways and print a table, or measure ticks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uploads", type=int, default=300)
    parser.add_argument("--ticks", action="store_true", help="measure the sensor only")
    chosen = parser.parse_args()
    count = chosen.uploads
    if chosen.ticks:
        with tempfile.TemporaryDirectory(prefix="ticks-") as text:
            return int(max(measure_ticks(Path(text), count)) > _LONGEST_TICK)
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="uploads-") as text:
        folder = Path(text)
        outputs = dict[str, str]()
        write_example(folder / "example")
        write_copies(folder / "example", folder / "uploads", count)
        print(f"{'':8}{'s':>8}{'CPU s':>8}{'servers MB':>12}{'home kB each':>14}")
        for way in ("run", "daemon"):
            taken = process_uploads(folder / way, folder / "uploads", count, outputs)
            print(
                f"{way:8}{taken.seconds:>8.0f}{taken.cpu:>8.0f}{taken.servers / 1e6:>12.0f}"
                f"{taken.home / 1e3:>14.0f}",
                flush=True,
            )
            written = contents(folder / way / "store")
            done = sum(name.startswith(f"{STAGES[-1].folder}/") for name in written)
            if done != count or not outputs.items() <= written.items():
                print(f"{done} of {count} are done; these differ from what `run` made:")
                print(sorted(outputs.items() - written.items())[:5])
                return 1
            outputs = written
    return 0


if __name__ == "__main__":
    sys.exit(main())
