"""Runs from the command line: every new demonstration through Dagster, then the datasets.

Belongs here: registering, launching runs in worker processes, and what became of each. The runs are
recorded in the instance like any other, so that the UI shows them.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any, Literal

import dagster as dg

from demo_pipeline.defs import error_redaction, partitions, reporting
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.jobs import datasets_job, demonstration_job, tasks_job
from demo_pipeline.defs.tags import FINGERPRINT_TAG, FORCE_TAG, OUTCOME_TAG, SUPERSEDED
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_stages import DATASET_STAGE_BY_NAME
from demo_pipeline.pipeline.demonstration_stages import STAGE_BY_NAME
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.settings import Settings
from demo_pipeline.storage.uploads.fingerprint import upload_listing_fingerprint

_CHANGED = "raw_recordings: the upload changed while it was read; run it again"
_OURS = ("demo_pipeline.problems.", "demo_pipeline.storage.", f"{error_redaction.__name__}.")
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True)
class DemonstrationOutcome:
    """What became of one demonstration.

    Attributes:
        status: `done`, `quarantined` (its input is at fault), `superseded` (the upload changed
            meanwhile) or `crashed` (the run itself died).
        summary: of its trajectory.
        reasons: why it is not done, one line each.
    """

    demonstration: str
    status: Literal["done", "quarantined", "superseded", "crashed"]
    summary: dict[str, Any]
    reasons: tuple[str, ...] = ()


def register_uploads(pipeline: Workspace) -> tuple[list[str], list[str]]:
    """(all ids in the uploads root, those registered just now)."""
    ids = [one.id for one in pipeline.uploads.list_demonstrations()]
    with dg.DagsterInstance.get() as instance:
        return ids, partitions.register_partitions(instance, ids)


def _executed(settings: Settings, job: str, *, force: bool) -> dg.ExecuteInProcessResult:
    """Run an unpartitioned job here, recorded in the instance; failures are in the result."""
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
    """Run the asset `osworld_tasks`; why it failed, empty when it did not."""
    result = _executed(settings, tasks_job.name, force=force)
    return [] if result.success else _errors(result)


def process(
    settings: Settings, ids: Sequence[str], workers: int, *, force: bool
) -> Iterator[DemonstrationOutcome]:
    """Run each demonstration's stages; outcomes as they fall.

    A worker that dies takes nobody with it: what it held is tried once more, alone.
    """
    values = settings.model_dump(mode="json")
    unsure: list[str] = []
    with _pool(max(1, min(workers, len(ids)))) as pool:
        waiting: dict[Future[DemonstrationOutcome], str] = {
            pool.submit(_process_one, values, key, force=force): key for key in ids
        }
        for future in as_completed(waiting):
            try:
                yield future.result()
            except BrokenProcessPool:
                unsure.append(waiting[future])
    for key in sorted(unsure):
        with _pool(1) as pool:
            try:
                yield pool.submit(_process_one, values, key, force=force).result()
            except BrokenProcessPool:
                reason = "the worker process died; see the run in the UI and the system's log"
                yield DemonstrationOutcome(key, "crashed", {}, (reason,))


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def _process_one(
    values: dict[str, Any], demonstration: str, *, force: bool
) -> DemonstrationOutcome:
    settings = Settings(**values)
    pipeline = Workspace.open(settings)
    job = build_defs(settings).resolve_job_def(demonstration_job.name)
    with dg.DagsterInstance.get() as instance:
        result = job.execute_in_process(
            partition_key=demonstration,
            instance=instance,
            run_config=_QUIET,
            tags=_tags(pipeline, demonstration, force=force),
            raise_on_error=False,
        )
        run = instance.get_run_by_id(result.run_id)
    if run is not None and run.tags.get(OUTCOME_TAG) == SUPERSEDED:
        return DemonstrationOutcome(demonstration, "superseded", {}, (_CHANGED,))
    if result.success:
        current = pipeline.store.current(STAGE_BY_NAME["trajectories"].output(demonstration))
        return DemonstrationOutcome(
            demonstration, "done", dict(current.manifest.summary) if current else {}
        )
    record = read_quarantine(pipeline.store, demonstration)
    if record is None or not _was_meant(result):
        return DemonstrationOutcome(demonstration, "crashed", {}, tuple(_errors(result)))
    problems = (replace(one, demonstration="") for one in reporting.recorded(record))
    reasons = tuple(f"{record.stage}: {problem}" for problem in problems)
    return DemonstrationOutcome(demonstration, "quarantined", {}, reasons)


def _tags(pipeline: Workspace, demonstration: str, *, force: bool) -> dict[str, str]:
    """The same that the sensor gives its runs, so that it does not launch this one again."""
    listed = upload_listing_fingerprint(pipeline.uploads, demonstration)
    named = {FINGERPRINT_TAG: listed} if listed is not None else {}
    return {FORCE_TAG: str(force).lower(), **named}


def _was_meant(result: dg.ExecuteInProcessResult) -> bool:
    """Whether every step that failed did so with a `Failure`, not with a defect."""
    failed = result.get_step_failure_events()
    return all(event.step_failure_data.user_failure_data is not None for event in failed)


def _errors(result: dg.ExecuteInProcessResult) -> list[str]:
    found = [
        f"{event.step_key}: {_why(event.step_failure_data)}"
        for event in result.get_step_failure_events()
    ]
    return found or ["the run failed; open it in the UI"]


def _why(data: Any) -> str:
    """What a person is told of a failed step: a `Failure`'s words, else the first error's.

    The words of errors that are not ours are left out: they may quote what somebody typed.
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


def build_datasets(
    settings: Settings, *, force: bool
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Run the dataset assets; (summary and path by asset, why any failed)."""
    pipeline = Workspace.open(settings)
    result = _executed(settings, datasets_job.name, force=force)
    made: dict[str, dict[str, Any]] = {}
    for event in result.get_asset_materialization_events():
        key = event.asset_key
        if key is not None and key.path[-1] in DATASET_STAGE_BY_NAME:
            found = event.step_materialization_data.materialization.metadata
            path = str(found["path"].value).removeprefix(f"{pipeline.store.url}/")
            version = pipeline.store.current(path)
            made[key.path[-1]] = {
                "path": str(found["path"].value),
                **(version.manifest.summary if version else {}),
            }
    return made, [] if result.success else _errors(result)
