"""A run whose upload changed while it was at work: it ends well, makes nothing, and says so.

Belongs here: how that looks in Dagster. That it is so, stages.py finds out.
"""

from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs.instance_runs import open_ledger
from demo_pipeline.defs.tags import OUTCOME_TAG, SUPERSEDED
from demo_pipeline.discovery.decisions import SUPERSEDED_REASON
from demo_pipeline.pipeline.context import Stage, Workspace

_SAID = "superseded: the upload changed meanwhile; another run is for what lies there now"


def superseded(
    context: dg.AssetExecutionContext, pipeline: Workspace, stage: Stage, key: str
) -> Iterator[dg.AssetCheckResult]:
    """The stage ends without an output, so that Dagster skips what follows, and nothing fails.

    Every check has to have a verdict; theirs is a warning, since they looked at nothing.
    """
    context.log.warning("%s of %s: %s", stage.name, key, _SAID)
    context.instance.add_run_tags(context.run.run_id, {OUTCOME_TAG: SUPERSEDED})
    context.log_event(
        dg.AssetObservation(
            asset_key=stage.name, partition=key, metadata={"outcome": SUPERSEDED, "why": _SAID}
        )
    )
    with open_ledger(context.instance, pipeline) as ledger:
        ledger.request_rerun(key, SUPERSEDED_REASON)
    for check in stage.checks:
        yield dg.AssetCheckResult(
            check_name=check.name,
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=_SAID,
        )
