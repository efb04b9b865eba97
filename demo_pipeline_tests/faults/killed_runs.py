"""Runs `demo-pipeline run` over many short recordings, and often kills the command or its workers.

`python -m demo_pipeline_tests.faults.killed_runs [--uploads N] [--workers N] [--commands N]` kills
a worker `--workers` times and the command `--commands` times, with SIGKILL at random moments. It
starts the command again after it was killed. Afterwards, every output must have been built once,
and no run of Dagster may be open. No worker and no lock may be left, `doctor` must find no error,
and a further run must find nothing to do. `make kills` runs this module.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from demo_pipeline.cli.console import print_line
from demo_pipeline.runs.run_locks import dead_runs, lock_folder
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline_tests.defs.daemon import dagster_home
from demo_pipeline_tests.distributed.processes import (
    adopt_orphans,
    descendants,
    end_descendants,
    process_states,
    title_of,
)
from demo_pipeline_tests.faults.bad_uploads import environment
from demo_pipeline_tests.faults.cancelled_backfill import write_uploads
from demo_pipeline_tests.faults.states import blamed, stuck_runs

_COMMAND = (sys.executable, "-m", "demo_pipeline.cli.app")
_PAUSE = 3.0  # maximum time between two checks of the progress, seconds
_PATIENCE = 7200.0


def run_with_kills(kills: list[tuple[int, str]], uploads: int) -> int:
    """Runs the command, again after each kill, until it ends by itself. Returns its exit code.

    `kills` contains pairs: a number of finished recordings, and the process to kill (`worker` or
    `command`) when this number is reached. Kills that happened are removed from the list.
    """
    done = Workspace.open(Settings()).store.outputs
    while True:
        command = subprocess.Popen([*_COMMAND, "run", "--workers", "2"], stdout=subprocess.DEVNULL)
        while kills and command.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                command.wait(random.uniform(0.1, _PAUSE))
            now = len(done(STAGES[-1].folder))
            if now >= kills[0][0] and command.poll() is None and _kill(command.pid, kills[0][1]):
                print_line(f"{kills.pop(0)[1]} killed, {now} of {uploads} done")
        if command.wait(_PATIENCE) != -signal.SIGKILL:
            return command.returncode


def _kill(command: int, what: str) -> bool:
    if what == "command":
        os.kill(command, signal.SIGKILL)
        return True
    states = process_states()
    workers = [
        pid
        for pid in descendants(command)
        if pid in states and states[states[pid].parent].parent == command
    ]
    if workers:
        with suppress(ProcessLookupError):
            os.kill(random.choice(workers), signal.SIGKILL)
    return bool(workers)


def problems_of(home: Path, uploads: int) -> Iterator[str]:
    """Yields the differences from the state after an undisturbed command."""
    workspace = Workspace.open(Settings())
    for stage in STAGES:
        count = len(workspace.store.outputs(stage.folder))
        if count != uploads:
            yield f"{stage.name}: {count} of {uploads}"
    versions = Path(workspace.settings.store) / ".versions"
    for stage in STAGES:
        for folder in (versions / stage.folder).iterdir():
            times = len(list(folder.iterdir()))
            if times > 1:
                yield f"{stage.name} of {folder.name} was made {times} times"
    for name in workspace.store.outputs(""):
        yield from (f"{name}: {damage}" for damage in workspace.store.verify(name))
    yield from blamed(workspace)
    yield from stuck_runs(home)
    yield from (f"a lock of run {run} is left" for run in dead_runs(lock_folder(home)))
    for arguments in (("doctor",), ("run", "--dry-run")):
        done = subprocess.run([*_COMMAND, *arguments], capture_output=True, text=True, check=False)
        print_line(done.stdout[-1500:])
        if done.returncode:
            yield f"{' '.join(arguments)}: exit code {done.returncode}: {done.stdout[-800:]}"


def main() -> int:
    """Runs the test. Returns the exit code, 0 if no problem was found."""
    parser = argparse.ArgumentParser(prog="make kills", description=__doc__)
    parser.add_argument("--uploads", type=int, default=100)
    parser.add_argument("--workers", type=int, default=10, help="kills of a worker")
    parser.add_argument("--commands", type=int, default=5, help="kills of the command")
    chosen = parser.parse_args()
    adopt_orphans()
    what = ["worker"] * chosen.workers + ["command"] * chosen.commands
    random.shuffle(what)
    moments = sorted(random.choices(range(chosen.uploads), k=len(what)))
    kills = list(zip(moments, what, strict=True))
    with tempfile.TemporaryDirectory(prefix="killed-runs-") as temporary:
        folder = Path(temporary)
        write_uploads(folder, chosen.uploads)
        home = folder / "home"
        with (
            environment(folder, str(folder / "uploads"), str(folder / "store")),
            dagster_home(home),
        ):
            os.environ["DAGSTER_HOME"] = str(home)
            start = time.monotonic()
            code = run_with_kills(kills, chosen.uploads)
            wrong = [f"the last command ended with {code}"] if code else []
            wrong += [f"kills that found no work: {kills}"] if kills else []
            wrong += problems_of(home, chosen.uploads)
            left = descendants(os.getpid())[1:]
            wrong += [f"process {pid} is left: {title_of(pid)}" for pid in left]
        print_line(f"{time.monotonic() - start:.0f} s; wrong: {wrong or 'nothing'}")
    end_descendants()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
