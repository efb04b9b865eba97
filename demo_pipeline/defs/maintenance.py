"""The maintenance jobs: retrying, reprocessing and pruning.

Belongs here: op jobs and their schedule. A rerun is only requested here; the next tick of the
sensor `new_uploads` launches it, so that nothing runs twice.
"""

import time

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.instance_runs import open_ledger
from demo_pipeline.defs.run_pruning import prune_runs
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import is_quarantined, list_quarantine
from demo_pipeline.pipeline.staleness import is_outdated

RETRY, REPROCESS = "retry", "reprocess"
_DAY = 86400.0


class RetryConfig(dg.Config):
    """Ids of the demonstrations to retry; empty: every quarantined one."""

    ids: list[str] = Field(default_factory=list)


class PruneConfig(dg.Config):
    """Finished runs are kept for `days`, unreferenced versions of outputs for `grace_hours`."""

    days: float = 30.0
    grace_hours: float = 24.0


@dg.op(name="request_retries", description="Requests a run for every quarantined demonstration.")
def _request_retries(
    context: dg.OpExecutionContext, config: RetryConfig, workspace: dg.ResourceParam[Workspace]
) -> None:
    quarantined = [record.demonstration for record in list_quarantine(workspace.store)]
    unknown = sorted(set(config.ids) - set(quarantined))
    if unknown:
        context.log.warning("not quarantined, skipped: %s", ", ".join(map(repr, unknown)))
    chosen = [key for key in quarantined if not config.ids or key in config.ids]
    _request_reruns(context, workspace, chosen, RETRY)


@dg.op(
    name="request_reprocessing",
    description="Requests a run for every demonstration whose code or settings changed.",
)
def _request_reprocessing(
    context: dg.OpExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> None:
    ids = [upload.id for upload in workspace.uploads.list_demonstrations()]
    outdated = [key for key in ids if _is_to_reprocess(context, workspace, key)]
    _request_reruns(context, workspace, outdated, REPROCESS)


def _is_to_reprocess(context: dg.OpExecutionContext, workspace: Workspace, key: str) -> bool:
    """Whether code or settings changed; one that cannot be read now is left to the next time."""
    try:
        return is_outdated(workspace, key) and not is_quarantined(workspace, key)
    except Exception as error:  # noqa: BLE001 - the others are requested whatever it is
        context.log.warning("%s skipped, it cannot be read now: %s", key, type(error).__name__)
        return False


def _request_reruns(
    context: dg.OpExecutionContext, workspace: Workspace, ids: list[str], reason: str
) -> None:
    with open_ledger(context.instance, workspace) as ledger:
        for key in ids:
            ledger.request_rerun(key, reason)
    context.log.info("%d demonstrations to %s; new_uploads launches them", len(ids), reason)
    context.add_output_metadata({"demonstrations": len(ids), "reason": reason})


@dg.op(name="prune", description="Deletes old runs and old versions that nothing refers to.")
def _prune(
    context: dg.OpExecutionContext, config: PruneConfig, workspace: dg.ResourceParam[Workspace]
) -> None:
    now = time.time()
    runs = prune_runs(context.instance, now - config.days * _DAY)
    versions = workspace.store.collect(config.grace_hours * 3600, now)
    context.log.info("%d runs and %d versions deleted", len(runs), len(versions))
    context.add_output_metadata({"runs": len(runs), "versions": len(versions)})


@dg.job(
    description="Retries quarantined demonstrations whose upload did not change (config: `ids`; "
    "default: all)."
)
def retry_quarantined() -> None:
    """Request the runs; each run reads the record and runs the stage again."""
    _request_retries()


@dg.job(
    description="Processes again the demonstrations whose outputs were built by other code or with "
    "other settings."
)
def reprocess_changed() -> None:
    """Request the runs; a changed upload is noticed by the sensor `new_uploads` itself."""
    _request_reprocessing()


@dg.job(
    description="Deletes finished runs older than `days`, except the newest run of each partition "
    "and dataset, and versions in the store that nothing refers to."
)
def prune_history() -> None:
    """Dagster itself never deletes a run."""
    _prune()


weekly_prune = dg.ScheduleDefinition(
    name="prune_history_weekly",
    job=prune_history,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Prunes every Sunday at 04:00. Off by default.",
)

MAINTENANCE_JOBS = (retry_quarantined, reprocess_changed, prune_history)
