"""Uploads that come after the daemon and all its processes were killed while runs were open.

`python -m demo_pipeline_tests.faults.killed_daemon [--trials N]` kills a daemon whose runs are
STARTING, and one whose runs are STARTED, N times each: SIGKILL to every process of its tree. It
starts it again, adds an upload and waits for that upload's trajectory. Once it does the same
without a kill. The upload may be done at most a minute later than then, and no other may be lost.
`make kills` runs it.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import dagster as dg

from demo_pipeline.cli.console import print_line
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import dagster_home, dagster_process, runs_of, wait_for
from demo_pipeline_tests.distributed.processes import (
    adopt_orphans,
    end_descendants,
    process_states,
)
from demo_pipeline_tests.faults.bad_uploads import environment
from demo_pipeline_tests.faults.daemon import DAEMON
from demo_pipeline_tests.simulator.form import SMALL, script
from demo_pipeline_tests.simulator.recording import write_recording
from demo_pipeline_tests.simulator.script import click
from demo_pipeline_tests.uploads import upload

LIMIT = 60.0  # seconds that a kill may cost the next upload
_PATIENCE = 900.0  # seconds for a run to begin, and for an upload to be done
_FAST = 0.02  # seconds between two looks: a run is STARTING for two to five seconds


def seconds_of_fresh_upload(folder: Path, state: str) -> tuple[float, list[str]]:
    """Kill the daemon in that state of its runs, or not when it is empty.

    Returns:
        How long the fresh upload took, from the start of the daemon on, and what was lost.
    """
    folder.mkdir()
    recording = folder / "example"
    write_recording(recording, script(click("Agree")), SMALL)
    uploads = folder / "uploads"
    names = ["first", "second"]
    with (
        environment(folder, str(uploads), str(folder / "store")),
        dagster_home(folder / "home") as instance,
    ):
        store = Workspace.open(Settings()).store

        def done(name: str) -> bool:
            return store.current(f"trajectories/{name}") is not None

        if state:
            for name in names:
                upload(recording, uploads, name)
            kill_while(state, folder / "home", instance)
        with dagster_process(DAEMON, folder / "home") as daemon:
            start = time.monotonic()
            upload(recording, uploads, "fresh")
            wait_for(daemon, lambda: done("fresh"), "the fresh upload", _PATIENCE)
            taken = time.monotonic() - start
            if state:
                wait_for(daemon, lambda: all(map(done, names)), "those before", _PATIENCE)
                wait_for(
                    daemon, lambda: all(run.ended for run in runs_of(instance)), "runs", _PATIENCE
                )
        lost = [f"{name}: {damage}" for name in store.outputs("") for damage in store.verify(name)]
    end_descendants()
    return taken, lost


def kill_while(state: str, home: Path, instance: dg.DagsterInstance) -> None:
    """Start a daemon, and kill all its processes when a run is in that state."""
    with dagster_process(DAEMON, home) as daemon:
        wait_for(
            daemon,
            lambda: any(run.status == state for run in runs_of(instance)),
            f"a run that is {state}",
            _PATIENCE,
            _FAST,
        )
        while pids := descendants(daemon.pid):  # the daemon first: it starts nothing any more
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_FAST)
        end_descendants()


def descendants(pid: int) -> list[int]:
    """A living process and those that it and they started, itself first."""
    states = {one: found for one, found in process_states().items() if found.state != "Z"}
    found = [pid] if pid in states else []
    for parent in found:
        found += [child for child, state in states.items() if state.parent == parent]
    return found


def main() -> int:
    """Do all trials; the exit code is 0 when none costs more than a minute and nothing is lost."""
    parser = argparse.ArgumentParser(prog="make kills", description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    trials = parser.parse_args().trials
    adopt_orphans()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="killed-daemon-") as temporary:
        folder = Path(temporary)
        usual, _ = seconds_of_fresh_upload(folder / "usual", "")
        print_line(f"without a kill: {usual:.0f} s")
        for state in ("STARTING", "STARTED"):
            for trial in range(trials):
                taken, lost = seconds_of_fresh_upload(folder / f"{state}-{trial}", state)
                print_line(f"{state}, trial {trial + 1}: {taken:.0f} s, lost {lost}")
                bad += bool(lost) or taken > usual + LIMIT
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
