"""Dagster's own processes over an instance in a folder, and the outcomes of its runs.

Belongs here: starting them as people do, ending them with everything they started, and asking the
instance. What is expected of them, the tests and `make demo-s3` say.
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
_LEAVE = 15.0  # seconds that processes have to end by themselves
_FAILED = {"FAILURE", "CANCELED"}


@dataclass(frozen=True)
class Run:
    """One run. `key` is its partition, empty when it has none; `reason` why it was launched."""

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
    """The instance of a new folder with a dagster.yaml of this checkout.

    Its databases exist before any process could create them.
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
    """A console script of Dagster's in the checkout; its output is in `home`/dagster.log.

    It ends with the context, and so does every process that it started.
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
    """The number of runs that are queued or running."""
    return instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED))


def runs_of(instance: dg.DagsterInstance) -> list[Run]:
    """Every run, in the order of their requests."""
    records = instance.get_run_records(ascending=True)
    return [_run(record.dagster_run) for record in records]


def wait_for(
    process: subprocess.Popen[bytes],
    done: Callable[[], bool],
    what: str,
    seconds: float,
    pause: float = 0.25,
) -> None:
    """Return when it is `done`, which is asked every `pause` seconds.

    Raises:
        TimeoutError: it took too long, or the process ended before.
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
    """Interrupt it, wait, and kill what is left of its session."""
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LEAVE)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
