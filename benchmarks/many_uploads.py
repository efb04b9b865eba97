"""Measures many uploads that come at once: through Dagster's daemon, and by `demo-pipeline run`.

Run: `.venv/bin/python benchmarks/many_uploads.py [--uploads 300]`. Copies of a short synthetic
recording lie in the uploads before either begins; each way has a store and a home of its own, and
the daemon's way ends when every output is as `run` made it. A row says what a way took: seconds,
CPU seconds of all its processes, the most memory that Dagster's daemon and code servers held
together (their proportional share of pages, PSS), and bytes of Dagster's home for each upload.
Exits with 1 when a demonstration is not done, or the outputs of both ways differ.
"""

import argparse
import os
import re
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.demonstration_runs import contents, write_copies, write_example  # noqa: E402 - the path
from demo_pipeline.runs.stages import STAGES  # noqa: E402
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


def main() -> int:
    """Run both ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uploads", type=int, default=300)
    count = parser.parse_args().uploads
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
            made = contents(folder / way / "store")
            done = sum(name.startswith(f"{STAGES[-1].folder}/") for name in made)
            if done != count or not outputs.items() <= made.items():
                print(f"{done} of {count} are done; these differ from what `run` made:")
                print(sorted(outputs.items() - made.items())[:5])
                return 1
            outputs = made
    return 0


if __name__ == "__main__":
    sys.exit(main())
