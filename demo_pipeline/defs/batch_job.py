"""The job that processes many demonstrations in one run, whichever they are.

Belongs here: the job. A range of partitions is processed by the assets themselves (range_runs.py);
uploads that arrive together are no range, so this job is given their ids.
"""

import dagster as dg
from pydantic import Field

from demo_pipeline.defs.batch_execution import execute_batch
from demo_pipeline.defs.batch_members import BatchMember, members_of
from demo_pipeline.defs.jobs import BATCH_JOB
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.waiting_runs import waiting_failure
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.pipeline.transient import transient_reason

_STEP = "all_stages"


class BatchConfig(dg.Config):
    """Ids of the demonstrations to process, for a run that a person launches."""

    ids: list[str] = Field(default_factory=list)


@dg.op(
    name=_STEP,
    out={"done": dg.Out(dg.Nothing, is_required=False)},
    description="Takes each demonstration through every stage, in worker processes, and reports "
    "each by itself: one that fails changes nothing for the others.",
)
def _all_stages(
    context: dg.OpExecutionContext, config: BatchConfig, workspace: dg.ResourceParam[Workspace]
) -> None:
    members = members_of(context.run) or [BatchMember(key) for key in dict.fromkeys(config.ids)]
    if not members:
        raise dg.Failure("no demonstration is named; list their `ids`", allow_retries=False)
    claim_run(context.instance, context.run)
    try:
        report = execute_batch(context, workspace, STAGES, members, step=_STEP, ranged=False)
    except Exception as error:
        reason = transient_reason(error)
        if reason is None:
            raise
        raise waiting_failure(context.instance, context.run.run_id, reason) from None
    for stage in report.stages:
        report.say_checks(context, stage)
    failure = report.failure()
    if failure is not None:
        raise failure
    context.add_output_metadata(report.numbers(), output_name="done")


@dg.graph(
    name=BATCH_JOB,
    description="Processes many demonstrations in one run, from the uploaded files to the contact "
    "sheets (config: `ids`). The sensor new_uploads launches it when many uploads arrive at once.",
)
def _batch_graph() -> None:
    """One step; see its description."""
    _all_stages()


def build_batch_job(workspace: Workspace) -> dg.JobDefinition:
    """The job over these roots.

    With its resource from the start: a sensor of several jobs cannot be given it later.
    """
    return _batch_graph.to_job(
        resource_defs={"workspace": dg.ResourceDefinition.hardcoded_resource(workspace)},
        executor_def=dg.in_process_executor,
    )
