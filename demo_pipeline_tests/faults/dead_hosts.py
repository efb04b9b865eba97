"""Simulates a machine that dies while Dagster's daemon processes demonstrations, and restarts.

`python -m demo_pipeline_tests.faults.dead_hosts [--times N]` repeats this N times: it kills the
daemon and all its processes at a random moment after the first run was launched, uploads a third
recording, and starts the daemon again. Within two minutes, the third recording must have all
outputs. Afterwards, no run may be open, and the outputs of the other recordings must be complete.
`make kills` runs this module.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from demo_pipeline.cli.console import print_line
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import (
    LOG,
    Run,
    dagster_home,
    dagster_process,
    open_runs,
    runs_of,
    wait_for,
)
from demo_pipeline_tests.distributed.processes import adopt_orphans, descendants, end_descendants
from demo_pipeline_tests.faults.bad_uploads import environment
from demo_pipeline_tests.faults.cancelled_backfill import write_uploads
from demo_pipeline_tests.faults.daemon import DAEMON
from demo_pipeline_tests.faults.states import blamed
from demo_pipeline_tests.uploads import upload

LIMIT = 120.0  # maximum time from the restart to the outputs of the third upload, seconds
_PATIENCE = 900.0
_LATEST_KILL = 12.0  # seconds after the launch of the first run, which takes about 10 seconds


def kill_everything() -> int:
    """Kills all descendants of this process, as a power cut would. Returns their number."""
    count = 0
    while pids := descendants(os.getpid())[1:]:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            count += 1
        time.sleep(0.05)
    return count


def is_built(workspace: Workspace, demonstration: str) -> bool:
    """Whether every stage has an output of a demonstration."""
    return all(workspace.store.current(stage.output(demonstration)) for stage in STAGES)


def problems_after_death(folder: Path, delay: float) -> Iterator[str]:
    """Simulates one death, `delay` seconds after a run was launched. Yields the problems found."""
    ids = write_uploads(folder, 2)
    home = folder / "home"
    third = "third"
    with (
        environment(folder, str(folder / "uploads"), str(folder / "store")),
        dagster_home(home) as instance,
    ):
        workspace = Workspace.open(Settings())
        with dagster_process(DAEMON, home) as daemon:
            wait_for(daemon, lambda: any_launched(instance), "a run", _PATIENCE)
            time.sleep(delay)
            killed = kill_everything()
        states = sorted(f"{run.job} {run.key}: {run.status}" for run in runs_of(instance))
        killed_runs = {run.id for run in runs_of(instance) if is_going(run)}
        print_line(f"{killed} processes killed after {delay:.1f} s; {', '.join(states)}")
        upload(folder / "example", folder / "uploads", third)
        start = time.monotonic()
        with dagster_process(DAEMON, home) as daemon:
            wait_for(daemon, lambda: all_ended(instance, killed_runs), "their end", _PATIENCE)
            closed = time.monotonic() - start
            wait_for(daemon, lambda: is_built(workspace, third), "the third upload", _PATIENCE)
            seconds = time.monotonic() - start
            wait_for(daemon, lambda: not open_runs(instance), "the end of all runs", _PATIENCE)
            ended = time.monotonic() - start
        print_line(
            f"dead runs closed {closed:.0f} s after the restart, third upload built after "
            f"{seconds:.0f} s, no run open after {ended:.0f} s"
        )
        if seconds > LIMIT:
            yield f"the third upload took {seconds:.0f} s"
        yield from (f"{key} is not built" for key in ids if not is_built(workspace, key))
        for name in workspace.store.outputs():
            yield from (f"{name}: {damage}" for damage in workspace.store.verify(name))
        yield from blamed(workspace)


def all_ended(instance: dg.DagsterInstance, run_ids: set[str]) -> bool:
    """Whether none of these runs is marked as running."""
    return not any(run.id in run_ids and is_going(run) for run in runs_of(instance))


def is_going(run: Run) -> bool:
    """Whether the status of a run says that a process works on it."""
    return run.status in {"STARTING", "STARTED", "CANCELING"}


def any_launched(instance: dg.DagsterInstance) -> bool:
    """Whether any run of a demonstration has left the queue."""
    return any(run.key and run.status not in {"QUEUED", "NOT_STARTED"} for run in runs_of(instance))


def main() -> int:
    """Runs the simulation `--times` times. Returns the exit code, 0 if no problem was found."""
    parser = argparse.ArgumentParser(prog="make kills", description=__doc__)
    parser.add_argument("--times", type=int, default=4)
    times = parser.parse_args().times
    adopt_orphans()
    wrong = list[str]()
    for number in range(times):
        delay = random.uniform(number, number + 1) * _LATEST_KILL / times
        with tempfile.TemporaryDirectory(prefix="dead-host-") as temporary:
            folder = Path(temporary)
            try:
                wrong += problems_after_death(folder, delay)
            except TimeoutError as error:
                wrong.append(f"{error}")
                print_line((folder / "home" / LOG).read_text(errors="replace")[-3000:])
            finally:
                end_descendants()
    print_line(f"wrong: {wrong or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
