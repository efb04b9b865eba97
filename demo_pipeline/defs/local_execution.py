"""Runs that the command line launches: each demonstration in a worker process, then the datasets.

Belongs here: registering uploads, running Dagster jobs in process, and collecting their outcomes.
The runs are recorded in the instance like any other, so that the UI shows them.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import dagster as dg

from demo_pipeline.defs import error_redaction, partitions, reporting
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.jobs import datasets_job, demonstration_job, tasks_job
from demo_pipeline.defs.tags import (
    FINGERPRINT_TAG,
    FORCE_TAG,
    OUTCOME_TAG,
    SUPERSEDED_OUTCOME,
)
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_stages import DATASET_STAGES
from demo_pipeline.pipeline.demonstration_stages import TRAJECTORIES_STAGE
from demo_pipeline.pipeline.outcomes import DatasetOutcome, DemonstrationOutcome
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.settings import Settings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.uploads.fingerprint import upload_listing_fingerprint

_CHANGED = "raw_recordings: the upload changed while it was read; run it again"
_DIED = "the worker process died; open the run in the UI and the system's log"
_OURS = ("demo_pipeline.problems.", "demo_pipeline.storage.", f"{error_redaction.__name__}.")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def register_uploads(workspace: Workspace) -> tuple[list[str], list[str]]:
    """(all ids in the uploads root, the ids that were not registered before)."""
    ids = [upload.id for upload in workspace.uploads.list_demonstrations()]
    with dg.DagsterInstance.get() as instance:
        return ids, partitions.register_partitions(instance, ids)


def _execute(settings: Settings, job: str, *, force: bool) -> dg.ExecuteInProcessResult:
    """Run an unpartitioned job in this process; failures are in the result."""
    with dg.DagsterInstance.get() as instance:
        return (
            build_defs(settings)
            .resolve_job_def(job)
            .execute_in_process(
                instance=instance,
                run_config=_QUIET,
                tags={FORCE_TAG: str(force).lower()},
                raise_on_error=False,
            )
        )


def read_tasks(settings: Settings, *, force: bool) -> list[str]:
    """Run the asset `osworld_tasks`; returns why it failed, empty when it did not."""
    result = _execute(settings, tasks_job.name, force=force)
    return [] if result.success else _errors(result)


def process(
    settings: Settings, ids: Sequence[str], workers: int, *, force: bool
) -> Iterator[DemonstrationOutcome]:
    """Run the stages of each demonstration in worker processes; yields outcomes as they finish.

    When a worker dies, the unfinished demonstrations are tried once more, each in its own process.
    """
    values = settings.model_dump(mode="json")
    unfinished: list[str] = []
    with _pool(max(1, min(workers, len(ids)))) as pool:
        waiting: dict[Future[DemonstrationOutcome], str] = {
            pool.submit(_process_one, values, key, force=force): key for key in ids
        }
        for future in as_completed(waiting):
            try:
                yield future.result()
            except BrokenProcessPool:
                unfinished.append(waiting[future])
            except Exception as error:  # noqa: BLE001 - the others go on whatever it is
                yield _crashed(waiting[future], error)
    for key in sorted(unfinished):
        with _pool(1) as pool:
            try:
                yield pool.submit(_process_one, values, key, force=force).result()
            except BrokenProcessPool:
                yield DemonstrationOutcome(key, "crashed", reasons=(_DIED,))
            except Exception as error:  # noqa: BLE001
                yield _crashed(key, error)


def _crashed(demonstration: str, error: Exception) -> DemonstrationOutcome:
    """The outcome of a run that could not begin or end; other words than ours may quote text."""
    ours = isinstance(error, StorageError)
    reason = str(error) if ours else f"the run failed with {type(error).__name__}"
    return DemonstrationOutcome(demonstration, "crashed", reasons=(reason,))


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _process_one(
    values: dict[str, Any], demonstration: str, *, force: bool
) -> DemonstrationOutcome:
    settings = Settings(**values)
    workspace = Workspace.open(settings)
    job = build_defs(settings).resolve_job_def(demonstration_job.name)
    with dg.DagsterInstance.get() as instance:
        result = job.execute_in_process(
            partition_key=demonstration,
            instance=instance,
            run_config=_QUIET,
            tags=_tags(workspace, demonstration, force=force),
            raise_on_error=False,
        )
        run = instance.get_run_by_id(result.run_id)
    if run is not None and run.tags.get(OUTCOME_TAG) == SUPERSEDED_OUTCOME:
        return DemonstrationOutcome(demonstration, "superseded", reasons=(_CHANGED,))
    if result.success:
        current = workspace.store.current(TRAJECTORIES_STAGE.output(demonstration))
        summary = dict(current.manifest.summary) if current else {}
        return DemonstrationOutcome(demonstration, "done", summary)
    record = read_quarantine(workspace.store, demonstration)
    if record is None or not _is_deliberate(result):
        return DemonstrationOutcome(demonstration, "crashed", reasons=tuple(_errors(result)))
    problems = (replace(problem, demonstration="") for problem in reporting.recorded(record))
    reasons = tuple(f"{record.stage}: {problem}" for problem in problems)
    return DemonstrationOutcome(demonstration, "quarantined", reasons=reasons)


def _tags(workspace: Workspace, demonstration: str, *, force: bool) -> dict[str, str]:
    """The tags that the sensor gives its runs, so that it does not launch the same run again."""
    listed = upload_listing_fingerprint(workspace.uploads, demonstration)
    fingerprint = {FINGERPRINT_TAG: listed} if listed is not None else {}
    return {FORCE_TAG: str(force).lower(), **fingerprint}


def _is_deliberate(result: dg.ExecuteInProcessResult) -> bool:
    """Whether every step that failed did so with a `Failure`, not with a defect."""
    failed = result.get_step_failure_events()
    return all(event.step_failure_data.user_failure_data is not None for event in failed)


def _errors(result: dg.ExecuteInProcessResult) -> list[str]:
    errors = [
        f"{event.step_key}: {_message(event.step_failure_data)}"
        for event in result.get_step_failure_events()
    ]
    return errors or ["the run failed; open it in the UI"]


def _message(data: Any) -> str:
    """Why a step failed: the description of a `Failure`, else the message of the first error.

    Messages of errors that are not ours are left out, since they may quote typed text.
    """
    if data.user_failure_data is not None and data.user_failure_data.description:
        return str(data.user_failure_data.description)
    error = data.error
    while error is not None and error.cause is not None:
        error = error.cause
    if error is None:
        return "the step failed"
    line = str(error.message).strip().partition("\n")[0]
    if not line.startswith(_OURS):
        return f"{error.cls_name}; open the run in the UI"
    return f"{error.cls_name}: {line.partition(': ')[2]}"


def build_datasets(settings: Settings, *, force: bool) -> tuple[list[DatasetOutcome], list[str]]:
    """Run the job that builds the datasets; returns (datasets that were built, errors)."""
    store = Workspace.open(settings).store
    result = _execute(settings, datasets_job.name, force=force)
    paths = {
        event.asset_key.path[-1]: str(
            event.step_materialization_data.materialization.metadata["path"].value
        )
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    outcomes = []
    for stage in DATASET_STAGES:
        if stage.counts and stage.name in paths:
            path = paths[stage.name]
            version = store.current(path.removeprefix(f"{store.url}/"))
            summary = version.manifest.summary if version else {}
            counts = {key: summary[key] for key in stage.counts if key in summary}
            outcomes.append(DatasetOutcome(stage.name, path, counts))
    return outcomes, [] if result.success else _errors(result)
