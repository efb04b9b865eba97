"""Unpartitioned jobs that the command line runs in its own process: the catalog and the datasets.

Belongs here: running such a job, again after pauses while it waits, and collecting what it built.
"""

import logging
import uuid
from dataclasses import dataclass, field

import dagster as dg

from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.jobs import tasks_job
from demo_pipeline.defs.local_instance import local_instance
from demo_pipeline.defs.run_recovery import close_own_run, heartbeat, local_run_tags
from demo_pipeline.defs.run_results import run_errors, waits_for, was_interrupted
from demo_pipeline.defs.tags import INTERRUPTED_OUTCOME, OUTCOME_TAG
from demo_pipeline.defs.worker_pool import (
    QUIET_RUN,
    RETRY_PAUSES,
    RetryPause,
    helpers_without_interrupts,
)
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.idle_run import dataset_outcome, tasks_unchanged
from demo_pipeline.pipeline.outcomes import DatasetOutcome
from demo_pipeline.pipeline.stages import DATASET_STAGES
from demo_pipeline.pipeline.verification import left_out_damage
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB

_LOG = logging.getLogger(__package__)


def _execute(settings: Settings, job: str, *, force: bool) -> dg.ExecuteInProcessResult:
    """Run an unpartitioned job in this process; failures are in the result.

    Raises:
        KeyboardInterrupt: Ctrl-C, which Dagster turns into a failure.
    """
    run_id = str(uuid.uuid4())
    with local_instance() as instance, heartbeat(instance):
        try:
            with helpers_without_interrupts():  # the heartbeat's thread receives them
                result = (
                    build_defs(settings)
                    .resolve_job_def(job)
                    .execute_in_process(
                        instance=instance,
                        run_config=QUIET_RUN,
                        tags=local_run_tags(run_id, force=force),
                        raise_on_error=False,
                        run_id=run_id,
                    )
                )
        except BaseException:
            close_own_run(instance, run_id)
            raise
        if was_interrupted(result):
            instance.add_run_tags(run_id, {OUTCOME_TAG: INTERRUPTED_OUTCOME})
            raise KeyboardInterrupt
    return result


def _execute_patiently(
    settings: Settings, job: str, pause: RetryPause | None, *, force: bool
) -> dg.ExecuteInProcessResult:
    """Run an unpartitioned job, again after each pause while it waits; without `pause` once."""
    for seconds in RETRY_PAUSES if pause is not None else ():
        result = _execute(settings, job, force=force)
        reason = waits_for(result)
        if reason is None or pause is None:
            return result
        pause(f"{job}: {reason}", seconds)
    return _execute(settings, job, force=force)


def read_tasks(settings: Settings, pause: RetryPause, *, force: bool) -> list[str]:
    """Run the asset `osworld_tasks` unless its files are as they were; returns why it failed."""
    if not force and _tasks_unchanged(settings):
        return []
    result = _execute_patiently(settings, tasks_job.name, pause, force=force)
    return [] if result.success else run_errors(result)


def _tasks_unchanged(settings: Settings) -> bool:
    try:
        return tasks_unchanged(Workspace.open(settings))
    except Exception as error:  # noqa: BLE001 - the run reports whatever it is
        _LOG.debug("whether the tasks changed is left to their run (%s)", type(error).__name__)
        return False


@dataclass(frozen=True, slots=True)
class BuiltDatasets:
    """What a run of the job that builds the datasets gave.

    Attributes:
        outcomes: the datasets that were built.
        errors: why others were not.
        damage: the trajectories that they lack, since they differ from their manifests or cannot
            be read.
    """

    outcomes: list[DatasetOutcome] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    damage: tuple[Problem, ...] = ()


def build_datasets(settings: Settings, pause: RetryPause | None, *, force: bool) -> BuiltDatasets:
    """Run the job that builds the datasets."""
    store = Workspace.open(settings).store
    result = _execute_patiently(settings, DATASETS_JOB, pause, force=force)
    paths = {
        event.asset_key.path[-1]: str(
            event.step_materialization_data.materialization.metadata["path"].value
        )
        for event in result.get_asset_materialization_events()
        if event.asset_key is not None
    }
    outcomes, damage = [], dict[Problem, None]()
    for stage in DATASET_STAGES:
        if stage.name not in paths:
            continue
        output = paths[stage.name].removeprefix(f"{store.url}/")
        version = store.published(output)
        damage |= dict.fromkeys(left_out_damage(version.manifest.summary) if version else ())
        if stage.counts:
            outcomes.append(dataset_outcome(store, stage, output))
    return BuiltDatasets(outcomes, [] if result.success else run_errors(result), tuple(damage))
