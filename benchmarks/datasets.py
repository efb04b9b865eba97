"""Measures the time and memory of building and checking datasets of many synthetic trajectories.

Run: `.venv/bin/python benchmarks/datasets.py [--trajectories 2000] [--steps 8]`. Every figure comes
from a process of its own. All work is also done on a quarter of the trajectories, which shows
whether memory grows with the data. The CUDAG dataset is built twice and compared. At the
end what one more demonstration costs each dataset of the registry, with its checks and its commit.
"""

import argparse
import hashlib
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from demo_pipeline import __version__
from demo_pipeline.datasets.index import build_index
from demo_pipeline.exports.cudag.dataset import dataset_directory_name
from demo_pipeline.exports.cudag.validator import validate_cudag
from demo_pipeline.runs.stages import dataset_stages, dataset_stages_by_name, is_built
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DatasetSettings, Settings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.exports.forms import build_cudag, build_messages, build_sft

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from demo_pipeline_tests.building import run_dataset_stage
from demo_pipeline_tests.datasets.builders import make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories

SIZE = (64, 36)
KINDS = (
    ("click", {"x": 30, "y": 20, "button": "left"}),
    ("type", {"text": "google.com"}),
    ("hotkey", {"keys": ["ctrl", "c"]}),
    ("scroll", {"x": 10, "y": 10, "direction": "down", "amount": 2}),
    ("drag", {"start_x": 5, "start_y": 5, "end_x": 60, "end_y": 30}),
)


class Cost(NamedTuple):
    """What a task took: wall and CPU seconds, peak megabytes, and its result."""

    wall: float
    cpu: float
    peak: float
    result: str


def make_trajectories(root: Path, count: int, steps: int) -> None:
    """Write trajectories, two per task; screenshots repeat, as the desktops at the start do."""
    actions = [KINDS[n % len(KINDS)] for n in range(steps)]
    for number in range(count):
        make_trajectory(
            root,
            f"demo_{number:05d}",
            actions,
            instruction=f"Do task {number // 2}",
            group=f"task_{number // 2}",
            shade=number * 7 % 4000,
            size=SIZE,
        )


def trajectories_of(root: Path, count: int) -> list[DatasetTrajectory]:
    """The first `count` trajectories."""
    names = sorted(path.name for path in (root / "trajectories").iterdir())[:count]
    return [
        DatasetTrajectory(
            name,
            str(root / "trajectories" / name),
            table=str(root / "provenance" / f"{name}.parquet"),
        )
        for name in names
    ]


def build_cudag_dataset(root: Path, out: str, count: int) -> str:
    """Build a CUDAG dataset in `out`; returns the number of records."""
    settings = DatasetSettings()
    chosen = trajectories_of(root, count)
    target = root / out / dataset_directory_name(chosen, settings)
    return f"{build_cudag(chosen, target, settings).total} records"


def build_others(root: Path, out: str, count: int) -> str:
    """Build the dataset that `out` names: sft, messages or dataset; returns its size."""
    settings = DatasetSettings()
    chosen = trajectories_of(root, count)
    target = root / f"{out}-{count}"
    target.mkdir()
    if out == "sft":
        return f"{build_sft(chosen, target, settings).total} samples"
    if out == "messages":
        return f"{build_messages(chosen, target, settings).total} records"
    index = build_index(chosen, target, settings, ("demo_pipeline", __version__))
    return f"{index['steps']} steps"


def validate(root: Path, out: str, _count: int) -> str:
    """Validate the CUDAG dataset in `out`; returns the number of problems."""
    (target,) = (root / out).iterdir()
    return f"{len(validate_cudag(target))} problems"


def digest(root: Path) -> str:
    """SHA-256 over the names and bytes of all files."""
    total = hashlib.sha256()
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        total.update(json.dumps(file.relative_to(root).as_posix()).encode())
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def measured(work: Callable[[Path, str, int], str], *arguments: Path | str | int) -> Cost:
    """Run a task in a process of its own and measure it."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as pool:
        return pool.submit(_measure, work, arguments).result()


def _measure(work: Callable[..., str], arguments: tuple[Path | str | int, ...]) -> Cost:
    wall = time.perf_counter()
    cpu = time.process_time()
    result = work(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(time.perf_counter() - wall, time.process_time() - cpu, peak, result)


def commit_all(root: Path, count: int) -> Workspace:
    """A store with the first trajectories as committed outputs."""
    workspace = Workspace.open(Settings(uploads=str(root), store=str(root / f"store-{count}")))
    commit_trajectories(workspace, trajectories_of(root, count))
    return workspace


def export_stage(root: Path, name: str, count: int) -> str:
    """Build one dataset stage of the registry in a store with `count` trajectories."""
    settings = Settings(uploads=str(root), store=str(root / f"store-{count}"))
    stage = dataset_stages_by_name()[name]
    result = run_dataset_stage(Workspace.open(settings), stage, force=True)
    return result.status


def report_per_demonstration(root: Path, count: int) -> None:
    """Print the CPU that each further trajectory costs every dataset stage that reads them."""
    few = max(count // 8, 1)
    many = max(count // 2, 2)
    for number in (few, many):
        commit_all(root, number)
    print(f"\n{'cpu ms a trajectory':<22}")
    for stage in dataset_stages():
        if stage.reads_trajectories and is_built(stage, Settings()):
            spent = [measured(export_stage, root, stage.name, number) for number in (few, many)]
            each = (spent[1].cpu - spent[0].cpu) / (many - few)
            print(f"{stage.name:<22}{1000 * each:>9.1f}")


def costs(root: Path, count: int) -> Iterator[tuple[str, Cost]]:
    """Build and validate CUDAG for a quarter and for all, build it again, then build the others."""
    quarter = max(count // 4, 1)
    for name, number in (("quarter", quarter), ("first", count)):
        yield f"build {number}", measured(build_cudag_dataset, root, name, number)
        yield f"validate {number}", measured(validate, root, name, number)
    yield f"build {count} again", measured(build_cudag_dataset, root, "second", count)
    for name in ("sft", "messages", "dataset"):
        for number in (quarter, count):
            yield f"{name} {number}", measured(build_others, root, name, number)


def main() -> None:
    """Make the trajectories, measure, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trajectories", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        print("making the trajectories …", file=sys.stderr)
        make_trajectories(root, arguments.trajectories, arguments.steps)
        print(f"{'':<22}{'wall s':>9}{'cpu s':>9}{'peak MB':>9}")
        for name, cost in costs(root, arguments.trajectories):
            print(f"{name:<22}{cost.wall:>9.2f}{cost.cpu:>9.2f}{cost.peak:>9.0f}  {cost.result}")
        report_per_demonstration(root, arguments.trajectories)
        same = digest(root / "first") == digest(root / "second")
        print("the same bytes twice" if same else "DIFFERENT BYTES")
    sys.exit(not same)


if __name__ == "__main__":
    main()
