"""Measures building and checking the trajectory index over thousands of trajectories.

Run: `.venv/bin/python benchmarks/index_check.py [--sizes 1000,10000] [--steps 5] [--profile]`. The
trajectories are lines of records with ids, tasks and groups of their own; no store is made, so that
10,000 are ready in seconds. A row has user CPU seconds of the build and of the check, the check's
milliseconds of a trajectory, and the most memory that the process held. Each size has a process of
its own. Exits with 1 if the check finds a problem.
"""

import argparse
import cProfile
import hashlib
import pstats
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from benchmarks.child import in_child, peak_mb  # noqa: E402 - after the path
from benchmarks.datasets import KINDS  # noqa: E402
from demo_pipeline.datasets.index import ExportState, build_index  # noqa: E402
from demo_pipeline.datasets.index_checks import compare_index  # noqa: E402
from demo_pipeline.datasets.selection import (  # noqa: E402
    TRAJECTORY_FILE,
    read_head,
    trajectory_lines,
)
from demo_pipeline.exports.cards import describe_index  # noqa: E402
from demo_pipeline.files.processes import save_memory  # noqa: E402
from demo_pipeline.settings import BUILT_IN_EXPORTS, DatasetSettings  # noqa: E402
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory  # noqa: E402
from demo_pipeline_tests.datasets.builders import make_trajectory  # noqa: E402

_BUILT = ("sft", "messages", "cudag")
_LONGEST = 30  # lines of the profile


class Row(NamedTuple):
    """User CPU seconds of the build and of the check, megabytes, and the number of problems."""

    build: float
    check: float
    peak: float
    problems: int


def write_trajectories(root: Path, count: int, steps: int) -> list[DatasetTrajectory]:
    """Write the records of trajectories that differ in id, task and group."""
    actions = [KINDS[number % len(KINDS)] for number in range(steps)]
    sample = make_trajectory(root / "sample", "sample", actions)
    head, rows = read_head(sample)
    trajectories: list[DatasetTrajectory] = []
    for number in range(count):
        key = f"demo_{number:06d}"
        group = f"task_{number}"
        own_head = replace(
            head, task_id=group, instruction=f"{head.instruction} {number}", split_groups=(group,)
        )
        own_rows = [{**row, "trajectory_id": key, "split_group": group} for row in rows]
        data = b"".join(trajectory_lines(own_head, own_rows))
        folder = root / "records" / key
        folder.mkdir(parents=True)
        (folder / TRAJECTORY_FILE).write_bytes(data)
        digests = {TRAJECTORY_FILE: hashlib.sha256(data).hexdigest()}
        trajectories.append(
            DatasetTrajectory(key, str(folder), key, records=str(folder), digests=digests)
        )
    return trajectories


def export_states(trajectories: Sequence[DatasetTrajectory], steps: int) -> list[ExportState]:
    """The default exports as built, with a record of every step; the others as disabled."""
    records = {trajectory.id: steps for trajectory in trajectories}
    return [
        ExportState(name, name, "built", name, "0123456789abcdef", 1000, records)
        if name in _BUILT
        else ExportState(name, "", "disabled")
        for name in BUILT_IN_EXPORTS
    ]


def user_seconds(work: Callable[[], object]) -> float:
    """The user CPU time of a piece of work in this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before


def measure(count: int, steps: int, profile: bool) -> Row:
    """Build and check an index."""
    save_memory()  # as every process of the program does
    problems: list[object] = []
    with tempfile.TemporaryDirectory(prefix="index-check-") as text:
        root = Path(text)
        trajectories = write_trajectories(root, count, steps)
        exports = export_states(trajectories, steps)
        settings = DatasetSettings()
        out = root / "index"

        def build() -> None:
            build_index(trajectories, out, settings, ("benchmark", "1"), exports)
            describe_index(out, settings)

        def check() -> None:
            problems.extend(compare_index(out, trajectories, exports, settings))

        build_seconds = user_seconds(build)
        if profile:
            profiler = cProfile.Profile()
            profiler.runcall(check)
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(_LONGEST)
        check_seconds = user_seconds(check)
    return Row(build_seconds, check_seconds, peak_mb(), len(problems))


def main() -> int:
    """Measure each size and print a table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="print where the check spends time")
    arguments = parser.parse_args()
    total_problems = 0
    print(f"{'':>7}{'build s':>9}{'check s':>9}{'ms each':>9}{'peak MB':>9}")
    for size in map(int, arguments.sizes.split(",")):
        row: Row = in_child(measure, size, arguments.steps, arguments.profile)
        each = 1000 * row.check / size
        print(f"{size:>7}{row.build:>9.1f}{row.check:>9.1f}{each:>9.2f}{row.peak:>9.0f}")
        total_problems += row.problems
    return int(total_problems > 0)


if __name__ == "__main__":
    sys.exit(main())
