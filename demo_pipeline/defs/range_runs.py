"""A range of partitions in one run: the first of its steps does the work of all of them.

Belongs here: what each step of such a run does. The worker processes take every demonstration
through all stages of the run at once; the later steps only say what their own checks found.
"""

from collections.abc import Iterator, Sequence

import dagster as dg
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

from demo_pipeline.defs.batch_execution import execute_batch
from demo_pipeline.defs.batch_members import BatchMember
from demo_pipeline.defs.batch_report import BatchReport
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.stage import Stage

# An output with this entry materialises nothing: the demonstrations were reported one by one, and
# those that failed must not count as materialised.
_NO_EVENT = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
_reports: dict[str, BatchReport] = {}
"""Run id → what the first step of that run did, for its later steps in this process."""


def range_results(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, keys: Sequence[str]
) -> Iterator[dg.MaterializeResult | dg.Output[None]]:
    """The results of one step over many partitions.

    Raises:
        Failure: from the last step, when a demonstration is not done; from any step that no
            demonstration came through.
    """
    run_id = context.run.run_id
    if run_id not in _reports:
        claim_run(context.instance, context.run)
        stages = _stages_from(context, stage)
        members = [BatchMember(key) for key in keys]
        _reports[run_id] = execute_batch(
            context, workspace, stages, members, step=stage.name, ranged=True
        )
    report = _reports[run_id]
    report.say_checks(context, stage)
    last = stage.name == report.stages[-1].name
    failure = report.failure() if last or not report.given(stage.name) else None
    if last or failure is not None:
        del _reports[run_id]
    if failure is not None:
        raise failure
    for spec in context.assets_def.check_specs:
        yield dg.Output(None, spec.get_python_identifier())  # what it says was reported already
    yield dg.MaterializeResult(metadata=_NO_EVENT)


def _stages_from(context: dg.AssetExecutionContext, stage: Stage) -> list[Stage]:
    """The stages of this run, from `stage` on."""
    chosen = context.run.asset_selection
    names = [known.name for known in STAGES]
    return [
        known
        for known in STAGES[names.index(stage.name) :]
        if not chosen or dg.AssetKey(known.name) in chosen
    ]
