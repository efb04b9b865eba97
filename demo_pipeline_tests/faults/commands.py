"""The command line in a process of its own, forked from this one."""

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
PATIENCE = 600.0  # seconds for one command, on a machine with much else to do


@dataclass(frozen=True)
class Place:
    """The folder of one case: uploads, store, Dagster's home and cache."""

    folder: Path
    changes: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return variables_of(self.folder) | {**self.changes}


@dataclass(frozen=True)
class Ended:
    """How a command ended; `code` is negative after a signal."""

    code: int
    output: str


class Command:
    """A command that runs; `end` waits for it."""

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
        """Wait; what takes too long is killed, and has the code of that."""
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
    """Run `demo-pipeline` with these arguments to its end."""
    return Command(place, *arguments, disturbance=disturbance).end()


def wait_for_orphans(place: Place) -> None:
    """Workers end by themselves soon after the command that started them was killed."""
    mark = str(place.folder)
    last = time.monotonic() + PATIENCE
    while time.monotonic() < last:
        if not any(_is_of(pid, mark) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))):
            return
        time.sleep(0.05)
    raise TimeoutError(f"a worker of {mark} outlives its command")


def _is_of(pid: int, mark: str) -> bool:
    """Whether a process of Python works in that folder; Dagster's idle `tail` may stay behind."""
    if pid == os.getpid():
        return False
    with suppress(OSError):
        in_folder = os.readlink(f"/proc/{pid}/cwd") == mark
        return in_folder and "python" in os.readlink(f"/proc/{pid}/exe")
    return False


def _become_command(
    place: Place, arguments: tuple[str, ...], disturbance: Disturbance | None, log: Path
) -> None:
    """In the forked child: become the command line, and never return."""
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
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _prepare(disturbance: Disturbance | None) -> None:
    """Do not wait long for what never gets better; then disturb, also what is forked from here."""
    from demo_pipeline.defs import reporting

    vars(reporting)["RETRY_SECONDS"] = (0, 0, 0)
    if disturbance is not None:
        Injection(disturbance).install()


def preload() -> None:
    """Import what the command line and its workers need, before the first fork."""
    for name in ("demo_pipeline.cli.app", "demo_pipeline.defs.worker", "s3fs"):
        importlib.import_module(name)
