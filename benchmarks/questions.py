"""Measures "is it up to date?": CPU of a demonstration, asked by the sensor and by `run`.

Run: `.venv/bin/python benchmarks/questions.py [--store DIR] [--looks 200]`. The four samples are
built first, in a folder, or taken from `DIR`, where an earlier call has left them. Then every look
asks about all of them anew, as a process does that has just started: the sensor's question trusts
times, that of `run` hashes the uploads. CPU is user and system; the least of all looks is what to
compare, since other work on the machine can only add to it. Exits with 1 when the sensor's question
takes more than 2 ms, or that of `run` more than 4 ms.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.child import in_child  # noqa: E402 - after the path
from demo_pipeline.runs.demonstration_outputs import is_up_to_date  # noqa: E402
from demo_pipeline.runs.discovery import SettledUploads, list_uploads  # noqa: E402
from demo_pipeline.runs.graph import Graph  # noqa: E402
from demo_pipeline.runs.workspace import Workspace  # noqa: E402
from demo_pipeline_tests.sample_workspace import open_workspace, run_all_stages  # noqa: E402

SAMPLES = ROOT / "data" / "samples"
_SENSOR_MS = 2.0
_RUN_MS = 4.0


def build_samples(root: Path) -> None:
    """Build every output of the samples below a folder."""
    if not (root / "uploads").exists():
        shutil.copytree(SAMPLES, root / "uploads")
    workspace = open_workspace(root)
    for upload in workspace.uploads.list_demonstrations():
        run_all_stages(workspace, upload.id)


def ask_as_sensor(workspace: Workspace) -> Callable[[], bool]:
    """The question of the sensor about all uploads, which are listed before."""
    listed = list_uploads(workspace)

    def ask() -> bool:
        settled = SettledUploads()
        settled.begin(workspace)
        answers = [settled.ask(key, upload.state) for key, upload in listed.items()]
        return all(answers)

    return ask


def ask_as_run(workspace: Workspace) -> Callable[[], bool]:
    """The question of `run` about all uploads."""
    ids = [upload.id for upload in workspace.uploads.list_demonstrations()]

    def ask() -> bool:
        graph = Graph(workspace)
        answers = [is_up_to_date(graph, key) for key in ids]
        return all(answers)

    return ask


def measure(name: str, ask: Callable[[], bool], demonstrations: int, looks: int) -> float:
    """Print and return the least CPU milliseconds of a demonstration."""
    if not ask():  # the first look imports and fills caches of the process
        raise RuntimeError("an output of the samples is not up to date")
    costs: list[float] = []
    for _ in range(looks):
        before = time.process_time()
        ask()
        costs.append(1000 * (time.process_time() - before) / demonstrations)
    least = min(costs)
    print(f"{name:<8} least {least:.2f}, median {statistics.median(costs):.2f} CPU ms")
    return least


def main() -> int:
    """Build the samples, ask, and print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, help="a folder that keeps what is built")
    parser.add_argument("--looks", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="questions-") as text:
        root = arguments.store or Path(text)
        in_child(build_samples, root)
        workspace = open_workspace(root)
        demonstrations = len(workspace.uploads.list_demonstrations())
        sensor = measure("sensor", ask_as_sensor(workspace), demonstrations, arguments.looks)
        run = measure("run", ask_as_run(workspace), demonstrations, arguments.looks)
    return int(sensor > _SENSOR_MS or run > _RUN_MS)


if __name__ == "__main__":
    sys.exit(main())
