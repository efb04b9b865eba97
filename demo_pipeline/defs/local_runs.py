"""What a command tells Dagster: its uploads before, and what it built afterwards.

Belongs here: registering, and runs of this process that only report results: so that what a command
built is under a job, and what failed is red. The work itself needs no Dagster.
"""

import logging
import signal
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from functools import partial

from demo_pipeline.defs import demonstrations, jobs
from demo_pipeline.defs.claims import claim, note_registered, unreported
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.dataset_assets import BuiltBefore, built_before
from demo_pipeline.defs.demonstrations import LogLine
from demo_pipeline.defs.jobs import BATCH_JOB
from demo_pipeline.defs.local_instance import local_instance
from demo_pipeline.defs.reporting import package_log
from demo_pipeline.defs.run_history import (
    BatchMember,
    batch_tags,
    claims_folder,
    note_results,
)
from demo_pipeline.defs.run_recovery import local_run_tags, recover
from demo_pipeline.defs.sensors import batched, latest_trajectory
from demo_pipeline.files.system_errors import best_effort
from demo_pipeline.runs.batch import DemonstrationTask, process_patiently
from demo_pipeline.runs.dataset_builds import BuiltDatasets, RetryPause, build_datasets
from demo_pipeline.runs.failures import transient_reason
from demo_pipeline.runs.results import DemonstrationResult
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.uploads import upload_listing_fingerprint

_LOG = logging.getLogger(__package__)
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def register_uploads(workspace: Workspace) -> tuple[list[str], list[str]]:
    """(all ids in the uploads root, the ids that were not registered before).

    What dead processes left behind is cleared away first.
    """
    ids = [upload.id for upload in workspace.uploads.list_demonstrations()]
    with local_instance() as instance:
        recover(instance, workspace)
        new = jobs.register_partitions(instance, ids)
        note_registered(claims_folder(instance, workspace), ids)
        return ids, new


def take_unreported(workspace: Workspace) -> list[str]:
    """The demonstrations that a command that was killed may have built without reporting them."""
    with local_instance() as instance:
        left = unreported(claims_folder(instance, workspace))
    for file in left:
        file.unlink(missing_ok=True)
    return sorted({key for keys in left.values() for key in keys})


def process_and_report(
    workspace: Workspace, tasks: Sequence[DemonstrationTask], workers: int, pause: RetryPause
) -> Generator[DemonstrationResult]:
    """Yield the results of `process_patiently`; report them, some hundred at a time.

    Results that came before an interruption are reported too. Until they are, other processes of
    this machine leave these demonstrations alone.
    """
    limits = workspace.settings.execution
    for part in batched(tasks, max(limits.partitions_per_run, workers)):
        listed = {
            task.demonstration: upload_listing_fingerprint(workspace.uploads, task.demonstration)
            or ""
            for task in part
        }
        done, lines = list[DemonstrationResult](), list[LogLine]()
        log = partial(_keep, lines) if len(part) < limits.batch_from else None
        with local_instance() as instance:
            claims = claim(claims_folder(instance, workspace), listed)
        try:
            with closing(process_patiently(workspace, part, workers, pause, log)) as running:
                for result in running:
                    done.append(result)
                    yield result
        finally:
            reported = True
            for some in batched(done, limits.partitions_per_run):
                ids = [one.demonstration for one in some]
                run_id = str(uuid.uuid4())
                demonstrations.processed[run_id] = some, lines
                tags = batch_tags([BatchMember(key, listed[key]) for key in ids])
                reported &= _execute(workspace, BATCH_JOB, run_id, tags)
            with best_effort(_LOG, "noting what waits"), local_instance() as instance:
                note_results(instance, workspace, done, listed)
            if reported and len(done) == len(part):
                claims.unlink(missing_ok=True)


def _keep(lines: list[LogLine], level: int, text: str) -> None:
    lines.append((level, text))


def build_and_report(
    workspace: Workspace, job: str, pause: RetryPause | None, *, force: bool
) -> BuiltDatasets:
    """Build the datasets of a job, and report them."""
    lines: list[LogLine] = []
    with local_instance() as instance:
        claims = claim(claims_folder(instance, workspace), (), "datasets")
        seen = latest_trajectory(instance)  # before the store is read
        with package_log(partial(_keep, lines)):
            built = build_datasets(workspace, job, pause, force=force)
        run_id = str(uuid.uuid4())
        built_before[run_id] = BuiltBefore(seen, built.results, lines)
        _execute(workspace, job, run_id, {})
        claims.unlink(missing_ok=True)
    return built


def _execute(workspace: Workspace, job: str, run_id: str, tags: Mapping[str, str]) -> bool:
    """Run a job that only reports, and answer Ctrl-C afterwards; whether it was recorded."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with local_instance() as instance:
            build_defs(workspace.settings).resolve_job_def(job).execute_in_process(
                instance=instance,
                run_config=_QUIET,
                tags={**tags, **local_run_tags(run_id)},
                raise_on_error=False,
                run_id=run_id,
            )
    except Exception as error:  # noqa: BLE001 - what was built is in the store
        reason = transient_reason(error) or type(error).__name__
        _LOG.warning("not reported to Dagster: %s; the next run does it", reason)
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    return True
