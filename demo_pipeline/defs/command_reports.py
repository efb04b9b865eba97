"""What a command tells Dagster: its uploads before, what it built afterwards, what to forget.

Belongs here: registering, and runs of this process that only report results: so that what a command
built is under a job, and what failed is red. The work itself needs no Dagster.
"""

import logging
import os
import shutil
import signal
import sqlite3
import uuid
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import dagster as dg

from demo_pipeline.defs import jobs
from demo_pipeline.defs.claims import claim, note_registered, unreported
from demo_pipeline.defs.demonstration_runs import (
    BatchMember,
    batch_tags,
    claims_folder,
    demonstrations_of,
    note_results,
    records_of,
)
from demo_pipeline.defs.demonstrations import Report, build_batch_job, reports
from demo_pipeline.defs.reporting import package_log
from demo_pipeline.defs.run_recovery import local_run_tags, recover
from demo_pipeline.defs.sensors import batched, latest_trajectory
from demo_pipeline.defs.tags import PARTITIONS_NAME
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.runs.batch import DemonstrationTask, process_patiently
from demo_pipeline.runs.dataset_builds import BuiltDatasets, RetryPause, build_datasets
from demo_pipeline.runs.failures import error_words
from demo_pipeline.runs.results import DemonstrationResult
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.uploads import upload_listing_fingerprint

_LOG = logging.getLogger(__package__)
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


class Reporter:
    """What one command tells Dagster, and what it built and did not report yet.

    While it lives, other processes of this machine leave alone what it processes.
    """

    def __init__(self, instance: dg.DagsterInstance, workspace: Workspace) -> None:
        self._instance, self._workspace = instance, workspace
        self._report, self._listed = Report([], []), dict[str, str]()  # id → listing fingerprint
        self._claims: Path | None = None

    def register_uploads(self) -> tuple[list[str], list[str]]:
        """(all ids in the uploads root, the ids that were not registered before).

        What dead processes left behind is cleared away first.
        """
        ids = [upload.id for upload in self._workspace.uploads.list_demonstrations()]
        recover(self._instance, self._workspace)
        new = jobs.register_partitions(self._instance, ids)
        note_registered(claims_folder(self._instance, self._workspace), ids)
        return ids, new

    def take_unreported(self, known: Collection[str]) -> list[str]:
        """Those that a command that was killed may have built without reporting; it claims them."""
        left = unreported(claims_folder(self._instance, self._workspace))
        lost = sorted({key for keys in left.values() for key in keys}.intersection(known))
        if lost:
            self._claim(dict.fromkeys(lost, ""))
        for file in left:
            file.unlink(missing_ok=True)
        return lost

    def process(
        self, tasks: Sequence[DemonstrationTask], workers: int, pause: RetryPause
    ) -> Generator[DemonstrationResult]:
        """Yield the results of `process_patiently`; some hundred at a time are reported.

        Results that came before an interruption are reported too.
        """
        workspace, limits = self._workspace, self._workspace.settings.execution
        for part in batched(tasks, max(limits.partitions_per_run, workers)):
            if len(self._listed) + len(part) > limits.partitions_per_run:
                self.tell()
            keys = [task.demonstration for task in part]
            self._claim(
                {key: upload_listing_fingerprint(workspace.uploads, key) or "" for key in keys}
            )
            log = self._log if len(part) < limits.batch_from else None
            with closing(process_patiently(workspace, part, workers, pause, log)) as running:
                for result in running:
                    self._report.results.append(result)
                    yield result

    def build(self, job: str, pause: RetryPause | None, *, force: bool) -> BuiltDatasets:
        """Build the datasets of a job."""
        self._claim({})
        if self._report.seen is None:  # before the store is read
            self._report.seen = latest_trajectory(self._instance)
        with package_log(self._log):
            built = build_datasets(self._workspace, job, pause, force=force)
        self._report.results += built.results.items()
        return built

    def _claim(self, listed: Mapping[str, str]) -> None:
        self._listed |= listed
        self._claims = claim(claims_folder(self._instance, self._workspace), self._listed)

    def _log(self, level: int, text: str) -> None:
        self._report.lines.append((level, text))

    def tell(self) -> None:
        """Report all of it by one run."""
        if self._claims is None:
            return
        done = [one for one in self._report.results if isinstance(one, DemonstrationResult)]
        members = [BatchMember(one.demonstration, self._listed[one.demonstration]) for one in done]
        told = not self._report.results or self._execute(batch_tags(members) if members else {})
        with best_effort(_LOG, "noting what waits"):
            note_results(self._instance, self._workspace, done, self._listed)
        if told:
            for one in done:
                self._listed.pop(one.demonstration, None)
            if self._listed:
                self._claim({})
            else:
                self._claims.unlink(missing_ok=True)
                self._claims = None
        self._report = Report([], [])

    def _execute(self, tags: Mapping[str, str]) -> bool:
        """Run a job that only reports, and answer Ctrl-C afterwards; whether it was recorded."""
        run_id = str(uuid.uuid4())
        reports[run_id] = self._report
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            build_batch_job(self._workspace).execute_in_process(
                instance=self._instance,
                run_config=_QUIET,
                tags={**tags, **local_run_tags(run_id)},
                raise_on_error=False,
                run_id=run_id,
            )
        except Exception as error:  # noqa: BLE001 - what was built is in the store
            _LOG.warning("not reported to Dagster: %s; the next run does it", error_words(error))
            return False
        finally:
            reports.pop(run_id, None)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return True


@contextmanager
def reported(instance: dg.DagsterInstance, workspace: Workspace) -> Iterator[Reporter]:
    """What is built by it is reported by one run when this ends, also by an interruption."""
    reporter = Reporter(instance, workspace)
    try:
        yield reporter
    finally:
        reporter.tell()


_MOST = 100_000  # runs of one demonstration


def forget_partition(instance: dg.DagsterInstance, demonstration: str) -> tuple[int, int]:
    """Remove the partition and its own runs with their events and logs.

    Dagster cannot remove single events: those of a run over several demonstrations, and those
    without a run, stay. They hold ids and counts.

    Returns:
        Numbers of the runs removed, and of those over several demonstrations that stay.
    """
    runs = [one.dagster_run for one in records_of(instance, demonstration, _MOST)]
    own = [run.run_id for run in runs if set(demonstrations_of(run)) == {demonstration}]
    for run_id in own:
        instance.delete_run(run_id)
    if demonstration in instance.get_dynamic_partitions(PARTITIONS_NAME):
        instance.delete_dynamic_partition(PARTITIONS_NAME, demonstration)
    _wipe(Path(os.environ["DAGSTER_HOME"]), own)
    return len(own), len(runs) - len(own)


def _wipe(home: Path, run_ids: Collection[str]) -> None:
    """Remove what deleting leaves in files: logs, and deleted rows in SQLite's free pages."""
    for run_id in run_ids:
        shutil.rmtree(home / "storage" / run_id, ignore_errors=True)
        for file in (home / "history" / "runs").glob(f"{run_id}.db*"):
            file.unlink(missing_ok=True)
    for file in (home / "history").rglob("*.db"):
        # A database that is in use stays as it is; SQLite uses its free pages again.
        with suppress(sqlite3.Error), closing(sqlite3.connect(file, timeout=10)) as database:
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
