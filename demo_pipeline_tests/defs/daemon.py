"""Starts and ends Dagster's own processes, and reads the runs of their instance.

The processes are started as users start them, and are ended together with all processes that they
started. The tests and `make demo-s3` check the results.
"""

import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import dagster as dg

from demo_pipeline.defs.partitions import PARTITION_TAG, REASON_TAG, UNFINISHED

ROOT = Path(__file__).resolve().parents[2]
LOG = "dagster.log"
_LEAVE = 15.0  # seconds after which a process that was asked to end is killed
_FAILED = {"FAILURE", "CANCELED"}


@dataclass(frozen=True)
class Run:
    """A run of Dagster.

    Attributes:
        key: the partition of the run; empty if it has none.
        reason: why the run was launched.
    """

    id: str
    job: str
    key: str
    reason: str
    status: str

    @property
    def started(self) -> bool:
        return self.ended or self.status == "STARTED"

    @property
    def ended(self) -> bool:
        return self.status == "SUCCESS" or self.failed

    @property
    def failed(self) -> bool:
        return self.status in _FAILED


@contextmanager
def dagster_home(folder: Path, config: str = "dagster.yaml") -> Iterator[dg.DagsterInstance]:
    """Opens an instance in a new folder with a dagster.yaml of this checkout.

    The databases are created here, so that no two processes create them at the same time.
    """
    folder.mkdir(parents=True)
    text = (ROOT / config).read_text("utf-8")
    (folder / "dagster.yaml").write_text(text, "utf-8")
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        yield instance


@contextmanager
def dagster_process(
    command: tuple[str, ...], home: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a console script of Dagster in the checkout; its output goes to `home`/dagster.log.

    The process, and every process that it started, are ended with the context.
    """
    script = f"{sysconfig.get_path('scripts')}/{command[0]}"
    with (home / LOG).open("ab") as log:
        process = subprocess.Popen(
            (script, *command[1:]),
            cwd=ROOT,
            env={**os.environ, **environment, "DAGSTER_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            _end(process)


def open_runs(instance: dg.DagsterInstance) -> int:
    """Returns the number of runs that are queued or running."""
    return instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED))


def runs_of(instance: dg.DagsterInstance) -> list[Run]:
    """Returns all runs, oldest request first."""
    records = instance.get_run_records(ascending=True)
    return [_run(record.dagster_run) for record in records]


def wait_for(
    process: subprocess.Popen[bytes],
    done: Callable[[], bool],
    what: str,
    seconds: float,
    pause: float = 0.25,
) -> None:
    """Waits until a condition is true.

    Args:
        process: the process that has to run meanwhile.
        done: the condition.
        what: the name of the condition in the error.
        seconds: the maximum time to wait.
        pause: seconds between two calls of `done`.

    Raises:
        TimeoutError: the time is over, or the process ended before the condition was true.
    """
    end = time.monotonic() + seconds
    while not done():
        if process.poll() is not None:
            raise TimeoutError(f"{what}: the process ended with {process.returncode}; see {LOG}")
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(pause)


def _run(run: dg.DagsterRun) -> Run:
    key = run.tags.get(PARTITION_TAG, "")
    reason = run.tags.get(REASON_TAG, "")
    return Run(run.run_id, run.job_name, key, reason, run.status.value)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupts a process, waits for its end, and kills the rest of its session."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LEAVE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
