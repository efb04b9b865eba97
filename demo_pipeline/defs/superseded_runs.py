"""How Dagster shows a run whose upload changed during the run: it succeeds without an output.

Belongs here: check results, tags and events of such a run. pipeline/runner.py detects the change.
"""

from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs.instance_runs import open_ledger
from demo_pipeline.defs.tags import OUTCOME_TAG, SUPERSEDED_OUTCOME
from demo_pipeline.discovery.decisions import SUPERSEDED_REASON
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.stage import Stage

_MESSAGE = "superseded: the upload changed during the run; a new run will process the new upload"


def superseded(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, key: str
) -> Iterator[dg.AssetCheckResult]:
    """End the stage without an output, so that Dagster skips the later stages and nothing fails.

    Dagster requires a result of every check: a warning, since nothing was checked.
    """
    context.log.warning("%s of %s: %s", stage.name, key, _MESSAGE)
    context.instance.add_run_tags(context.run.run_id, {OUTCOME_TAG: SUPERSEDED_OUTCOME})
    context.log_event(
        dg.AssetObservation(
            asset_key=stage.name,
            partition=key,
            metadata={"outcome": SUPERSEDED_OUTCOME, "why": _MESSAGE},
        )
    )
    with open_ledger(context.instance, workspace) as ledger:
        ledger.request_rerun(key, SUPERSEDED_REASON)
    for check in stage.checks:
        yield dg.AssetCheckResult(
            check_name=check.name,
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            description=_MESSAGE,
        )
