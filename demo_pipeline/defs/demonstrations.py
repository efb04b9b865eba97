"""Defines a partitioned asset for each stage of a demonstration, and the job of these assets.

Each demonstration is a partition.
"""

import warnings
from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.partitions import ASSET_GROUP, DEMONSTRATIONS, FORCE_TAG, OWNERS
from demo_pipeline.defs.resources import Roots
from demo_pipeline.observation.observation_stages import SCREENSHOTS_STAGE
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.runs.demonstration_outputs import demonstration_output
from demo_pipeline.runs.failures import DefectError, RefusedError, TransientError
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.results import DEFECT, REFUSED
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.runs.task_catalog import OSWORLD_TASKS
from demo_pipeline.stage import DEMONSTRATION_JOB, Need, Stage
from demo_pipeline.store.versions import CheckOutcome

DECODING_POOL = "decoding"
_SEE_SCREENSHOTS = (
    " To see them, run `demo-pipeline review ID`, or open the contact sheet whose path is in the "
    "metadata of a partition."
)
_Results = Iterator[dg.AssetObservation | dg.AssetCheckResult | dg.MaterializeResult[None]]


def demonstration_asset(stage: Stage[RecordingInputs]) -> dg.AssetsDefinition:
    """Returns the asset of a stage."""
    with warnings.catch_warnings():
        # Partitioned checks are a preview feature of Dagster. Tests notice if this feature changes.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        checks = reporting.check_specs(stage.name, stage.checks, DEMONSTRATIONS)
    parents = list(stage.inputs)
    if Need.TASK in stage.needs:
        parents.append(OSWORLD_TASKS)
    is_screenshots = stage is SCREENSHOTS_STAGE

    @dg.asset(
        name=stage.name,
        deps=parents,
        partitions_def=DEMONSTRATIONS,
        check_specs=checks,
        group_name=ASSET_GROUP,
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description + (_SEE_SCREENSHOTS if is_screenshots else ""),
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        pool=DECODING_POOL if is_screenshots else None,
    )
    def build(context: dg.AssetExecutionContext, roots: Roots) -> _Results:
        key = context.partition_key
        force = context.run.tags.get(FORCE_TAG) == "true"
        try:
            with reporting.package_log(context.log.log):
                graph = Graph(roots.workspace)
                result = graph.build(demonstration_output(graph, stage, key), force=force)
        except TransientError as error:
            raise reporting.retried(context, error, roots.vain_waits) from None
        except RefusedError as error:
            message = reporting.first_sentence(error.problems)
            yield dg.AssetObservation(stage.name, partition=key, description=message)
            for outcome in error.checks or [_failed_first_check(stage, error)]:
                yield reporting.check_result(outcome)
            raise reporting.failure(error.problems, REFUSED) from None
        except DefectError as error:
            message = f"{key}: {error}"
            yield dg.AssetObservation(stage.name, partition=key, description=message)
            raise dg.Failure(
                message, metadata={reporting.WHY: DEFECT}, allow_retries=False
            ) from None
        # Dagster would store the metadata twice if it were an argument of `MaterializeResult`.
        metadata = reporting.stage_metadata(result, roots.workspace.store.url)
        context.add_asset_metadata(metadata)
        yield dg.MaterializeResult(
            data_version=reporting.data_version(result),
            check_results=list(reporting.stage_check_results(stage, result)),
        )

    return build


def _failed_first_check(stage: Stage[RecordingInputs], error: RefusedError) -> CheckOutcome:
    """Returns a failed first check, for a stage that rejected its input before any check ran."""
    check = stage.checks[0]
    return CheckOutcome(check.name, False, error.problems, blocking=check.blocking)


DEMONSTRATION_ASSETS = [demonstration_asset(stage) for stage in STAGES]

process_demonstration = dg.define_asset_job(
    DEMONSTRATION_JOB,
    selection=[stage.name for stage in STAGES],
    description="Processes a demonstration, from its uploaded files to its contact sheets.",
)
