"""Runs the command line in processes that are forked from this process."""

import importlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from demo_pipeline_tests.faults.injection import Disturbance, Injection
from demo_pipeline_tests.sample_workspace import variables_of

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0  # maximum time of a command, seconds; long, because the machine may be busy


@dataclass(frozen=True)
class Place:
    """The folder of one case, which contains uploads, store, Dagster's home and cache.

    `changes` are environment variables that replace the usual ones.
    """

    folder: Path
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return variables_of(self.folder) | {**self.changes}


@dataclass(frozen=True)
class Ended:
    """The result of a command; `code` is negative if a signal ended the command."""

    code: int
    output: str


class Command:
    """A running command; `end` waits for its end."""

    def __init__(
        self,
        place: Place,
        *arguments: str,
        disturbance: Disturbance | None = None,
        name: str = "command",
    ) -> None:
        self.log = place.folder / f"{name}.log"
        self.pid = os.fork()
        if self.pid == 0:
            _become_command(place, arguments, disturbance, self.log)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> Ended:
        """Waits for the end of the command; kills the command after `PATIENCE` seconds."""
        last = time.monotonic() + PATIENCE
        while True:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                break
            if time.monotonic() > last:
                self.kill()
            time.sleep(0.05)
        code = os.waitstatus_to_exitcode(status)
        return Ended(code, self.log.read_text(encoding="utf-8", errors="replace"))


def run_command(place: Place, *arguments: str, disturbance: Disturbance | None = None) -> Ended:
    """Runs `demo-pipeline` with these arguments and waits for its end."""
    return Command(place, *arguments, disturbance=disturbance).end()


def wait_for_orphans(place: Place) -> None:
    """Waits until all workers have ended. They end soon after their command was killed.

    Raises:
        TimeoutError: a worker still runs after `PATIENCE` seconds.
    """
    mark = str(place.folder)
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last:
        if not any(_is_of(pid, mark) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))):
            return
        time.sleep(0.05)
    raise TimeoutError(f"a worker of {mark} outlives its command")


def _is_of(pid: int, mark: str) -> bool:
    """Returns whether a process is a Python process with this working directory.

    Other processes are ignored, because Dagster may leave an idle `tail` behind.
    """
    if pid == os.getpid():
        return False
    with suppress(OSError):
        in_folder = os.readlink(f"/proc/{pid}/cwd") == mark
        return in_folder and "python" in os.readlink(f"/proc/{pid}/exe")
    return False


def _become_command(
    place: Place, arguments: tuple[str, ...], disturbance: Disturbance | None, log: Path
) -> None:
    """Turns the forked child into the command line; never returns."""
    code = 70
    try:
        os.setsid()
        os.chdir(place.folder)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        os.environ |= place.environment
        sys.argv = ["demo-pipeline", *arguments]
        _prepare(disturbance)
        from demo_pipeline.cli.app import main

        try:
            main()
            code = 0
        except SystemExit as end:
            if isinstance(end.code, int):
                code = end.code
            else:
                code = int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _prepare(disturbance: Disturbance | None) -> None:
    """Removes the delays between retries, and installs the disturbance.

    Processes that are forked later are disturbed, too.
    """
    from demo_pipeline.defs import reporting

    vars(reporting)["RETRY_SECONDS"] = (0, 0, 0)
    if disturbance is not None:
        Injection(disturbance).install()


def preload() -> None:
    """Imports the modules that forked processes need, before the first fork."""
    for name in ("demo_pipeline.cli.app", "demo_pipeline.defs.worker", "s3fs"):
        importlib.import_module(name)
