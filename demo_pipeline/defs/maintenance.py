"""Jobs that look after the pipeline: trying again, making again, and forgetting.

Belongs here: op jobs and their schedule. What is tried or made again is only wished for here; the
next tick of `new_uploads` launches it, so that nothing runs twice.
"""

import time

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.instance_runs import open_ledger
from demo_pipeline.defs.run_pruning import prune_runs
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.quarantine import list_quarantine
from demo_pipeline.pipeline.runner import is_outdated, is_quarantined

RETRY, REPROCESS = "retry", "reprocess"
_DAY = 86400.0


class RetryConfig(dg.Config):
    """Which demonstrations to try again; empty: all that are quarantined."""

    ids: list[str] = Field(default_factory=list)


class PruneConfig(dg.Config):
    """How long to remember."""

    days: float = 30.0
    grace_hours: float = 24.0


@dg.op(name="wish_retries", description="Wishes a run for each quarantined demonstration.")
def _wish_retries(
    context: dg.OpExecutionContext, config: RetryConfig, pipeline: dg.ResourceParam[Workspace]
) -> None:
    held = [record.demonstration for record in list_quarantine(pipeline.store)]
    unknown = sorted(set(config.ids) - set(held))
    if unknown:
        context.log.warning("not quarantined, left alone: %s", ", ".join(map(repr, unknown)))
    _wish(context, pipeline, [key for key in held if not config.ids or key in config.ids], RETRY)


@dg.op(name="wish_reprocessing", description="Wishes a run where code or settings changed.")
def _wish_reprocessing(
    context: dg.OpExecutionContext, pipeline: dg.ResourceParam[Workspace]
) -> None:
    ids = [one.id for one in pipeline.uploads.list_demonstrations()]
    outdated = [
        key for key in ids if is_outdated(pipeline, key) and not is_quarantined(pipeline, key)
    ]
    _wish(context, pipeline, outdated, REPROCESS)


def _wish(context: dg.OpExecutionContext, pipeline: Workspace, ids: list[str], reason: str) -> None:
    with open_ledger(context.instance, pipeline) as ledger:
        for key in ids:
            ledger.request_rerun(key, reason)
    context.log.info("%d demonstrations to %s; new_uploads launches them", len(ids), reason)
    context.add_output_metadata({"demonstrations": len(ids), "reason": reason})


@dg.op(name="forget", description="Deletes old runs and old versions that nobody needs.")
def _forget(
    context: dg.OpExecutionContext, config: PruneConfig, pipeline: dg.ResourceParam[Workspace]
) -> None:
    now = time.time()
    runs = prune_runs(context.instance, now - config.days * _DAY)
    versions = pipeline.store.collect(config.grace_hours * 3600, now)
    context.log.info("%d runs and %d versions forgotten", len(runs), len(versions))
    context.add_output_metadata({"runs": len(runs), "versions": len(versions)})


@dg.job(description="Runs the quarantined again (config: ids; default all), changed or not.")
def retry_quarantined() -> None:
    """Wishes only; the run itself finds the record and tries the stage again."""
    _wish_retries()


@dg.job(description="Runs again what other code or settings made, where the upload is the same.")
def reprocess_changed() -> None:
    """A changed upload needs no wish: the sensor sees it."""
    _wish_reprocessing()


@dg.job(
    description="Deletes finished runs older than `days`, except those that the state of a "
    "partition or dataset rests on, and versions in the store that nothing refers to."
)
def prune_history() -> None:
    """Dagster itself never forgets a run."""
    _forget()


weekly_prune = dg.ScheduleDefinition(
    name="prune_history_weekly",
    job=prune_history,
    cron_schedule="0 4 * * 0",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Every Sunday at four, once somebody turns it on.",
)

UPKEEP_JOBS = (retry_quarantined, reprocess_changed, prune_history)
