"""The stages of a demonstration: one asset each, partitioned by demonstration, and their job.

Belongs here: what an asset does and says, whatever started its run. What a stage is, and whether it
is up to date, is in runs/graph.py.
"""

import warnings
from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.partitions import DEMONSTRATIONS, FORCE_TAG, OWNERS, group_of
from demo_pipeline.defs.resources import Roots
from demo_pipeline.observation.observation_stages import SCREENSHOTS_STAGE
from demo_pipeline.problems import Problem
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.demonstration_outputs import demonstration_output
from demo_pipeline.runs.failures import DefectError, RefusedError, TransientError
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.results import DEFECT, REFUSED, BuildResult
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS
from demo_pipeline.stage import DEMONSTRATION_JOB, Need, Stage
from demo_pipeline.store.versions import CheckOutcome

DECODING_POOL = "decoding"
_Said = Iterator[dg.AssetObservation | dg.AssetCheckResult | dg.MaterializeResult[None]]


def demonstration_asset(stage: Stage[RecordingInputs]) -> dg.AssetsDefinition:
    """The asset of one stage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)  # partitioned checks; tests pin them
        checks = reporting.check_specs(stage.name, stage.checks, DEMONSTRATIONS)

    @dg.asset(
        name=stage.name,
        deps=[*stage.inputs, *([OSWORLD_TASKS] if Need.TASK in stage.needs else [])],
        partitions_def=DEMONSTRATIONS,
        check_specs=checks,
        group_name=group_of(stage.name),
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        pool=DECODING_POOL if stage is SCREENSHOTS_STAGE else None,
    )
    def build(context: dg.AssetExecutionContext, roots: Roots) -> _Said:
        key, force = context.partition_key, context.run.tags.get(FORCE_TAG) == "true"
        try:
            with reporting.package_log(context.log.log):
                graph = Graph(roots.workspace)
                made = graph.build(demonstration_output(graph, stage, key), force=force)
        except TransientError as error:
            raise reporting.retried(context, error) from None
        except RefusedError as error:
            sentence = reporting.first_sentence(error.problems)
            yield dg.AssetObservation(stage.name, partition=key, description=sentence)
            for outcome in error.checks or [_refusal(stage, error)]:
                yield reporting.check_result(outcome)
            raise reporting.failure(error.problems, REFUSED) from None
        except DefectError as error:
            sentence = f"{key}: {error}"
            yield dg.AssetObservation(stage.name, partition=key, description=sentence)
            raise dg.Failure(
                sentence, metadata={reporting.WHY: DEFECT}, allow_retries=False
            ) from None
        # Not as the result's own metadata, which are in the event of the step's output too.
        location = f"{roots.workspace.store.url}/{made.output}"
        context.add_asset_metadata(reporting.stage_metadata(made, location))
        yield _materialized(stage, made)

    return build


def _refusal(stage: Stage[RecordingInputs], error: RefusedError) -> CheckOutcome:
    """The verdict of the first check of a stage that wrote nothing."""
    problems: tuple[Problem, ...] = error.problems
    return CheckOutcome(stage.checks[0].name, False, problems, blocking=stage.checks[0].blocking)


def _materialized(stage: Stage[RecordingInputs], made: BuildResult) -> dg.MaterializeResult[None]:
    checks = {check.name: check for check in stage.checks}
    return dg.MaterializeResult(
        data_version=dg.DataVersion(made.content[:16]),
        check_results=[
            reporting.check_result(one, checks[one.name].counts(made.summary))
            for one in made.checks
            if one.name in checks
        ],
    )


DEMONSTRATION_ASSETS = [demonstration_asset(stage) for stage in STAGES]

process_demonstration = dg.define_asset_job(
    DEMONSTRATION_JOB,
    selection=[stage.name for stage in STAGES],
    description="Processes one demonstration from its uploaded files to its contact sheets.",
)
