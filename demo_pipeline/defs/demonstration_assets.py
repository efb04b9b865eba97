"""The assets of one demonstration, from raw recordings to contact sheets, partitioned.

Belongs here: one asset per stage, and running it for one partition. What a stage reads, builds and
checks is run by pipeline/runner.py; a range of partitions by range_runs.py.
"""

import warnings
from collections.abc import Iterator

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.exceeded_runs import ExceededLimit, earlier_attempts, mark_exceeded
from demo_pipeline.defs.input_versions import parents_of
from demo_pipeline.defs.partitions import DEMONSTRATIONS
from demo_pipeline.defs.pools import pool_of
from demo_pipeline.defs.range_runs import range_results
from demo_pipeline.defs.run_log import package_log
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.superseded_runs import superseded
from demo_pipeline.defs.tags import FINGERPRINT_TAG, FORCE_TAG, OWNERS
from demo_pipeline.defs.waiting_runs import waiting_failure
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_run import (
    cannot_start,
    found_problems,
    missing_input,
)
from demo_pipeline.pipeline.error_redaction import redacted_errors
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.stage_limits import ExceededLimitError
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.pipeline.superseded import SupersededError
from demo_pipeline.pipeline.transient import TransientError
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.stage import Stage
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.store.version_manifest import CheckOutcome

_EMPTY_RANGE = (
    "no demonstration is in this range; partitions are in the order of their registration, so the "
    "first of the range must be the one that was registered first"
)
_Results = Iterator[dg.MaterializeResult | dg.AssetCheckResult | dg.Output[None]]


def build_demonstration_assets(partitions_per_run: int) -> list[dg.AssetsDefinition]:
    """The partitioned assets. A backfill launches up to `partitions_per_run` demonstrations a run.

    With one per run, each demonstration has its own check results; a batch has one result per
    check.
    """
    with warnings.catch_warnings():
        # Both are marked as subject to change; tests pin the behaviour that this relies on.
        warnings.simplefilter("ignore", dg.BetaWarning)
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [_asset(stage, partitions_per_run) for stage in STAGES]


def _asset(stage: Stage, partitions_per_run: int) -> dg.AssetsDefinition:
    check_partitions = DEMONSTRATIONS if partitions_per_run == 1 else None

    @dg.asset(
        name=stage.name,
        partitions_def=DEMONSTRATIONS,
        deps=parents_of(stage),
        group_name=stage.group,
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        output_required=False,  # a run whose upload changes meanwhile has no output
        backfill_policy=dg.BackfillPolicy.multi_run(partitions_per_run),
        check_specs=reporting.check_specs(stage.name, stage.checks, check_partitions),
        pool=pool_of(stage),
    )
    def compute(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> _Results:
        keys = list(context.partition_keys)
        if not keys:
            raise dg.Failure(_EMPTY_RANGE, allow_retries=False)
        if len(keys) == 1:
            yield from _single(context, workspace, stage, keys[0])
        else:
            yield from range_results(context, workspace, stage, keys)

    return compute


def _single(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, key: str
) -> _Results:
    claim_run(context.instance, context.run)
    try:
        with package_log(context.log), redacted_errors(stage.name, key):
            problems = cannot_start(workspace, stage, key)
            result = None if problems else _run(context, workspace, stage, key)
    except SupersededError:
        yield from superseded(context, workspace, stage, key)
        return
    except DemonstrationError as error:
        result, problems = None, list(error.problems)
    except MissingOutput as error:
        result, problems = None, [missing_input(stage, error)]
    except TransientError as error:
        if isinstance(error, ExceededLimitError):
            limit = ExceededLimit(stage.name, error.reason.removeprefix(f"{stage.name} "))
            mark_exceeded(context.instance, context.run.run_id, limit)
        raise waiting_failure(context.instance, context.run.run_id, error.reason) from None
    yield from _results(workspace, stage, key, result, problems)


def _run(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, key: str
) -> BuildResult:
    tags = context.run.tags
    return run_stage(
        workspace,
        stage,
        key,
        force=tags.get(FORCE_TAG) == "true",
        listed=tags.get(FINGERPRINT_TAG),
        earlier=earlier_attempts(context.instance, context.run, stage.name),
    )


def _results(
    workspace: Workspace,
    stage: Stage,
    key: str,
    result: BuildResult | None,
    problems: list[Problem],
) -> _Results:
    if result is None:
        outcome = CheckOutcome(stage.checks[0].name, False, tuple(problems))
        yield reporting.check_result(outcome)
        raise reporting.failure(problems, stage.name, key)
    results = reporting.check_results(stage.checks, result)
    if result.status == "rejected" or result.version is None:
        yield from results
        raise reporting.failure(found_problems(result), stage.name, key)
    yield dg.MaterializeResult(
        metadata=_metadata(workspace, stage, key, result),
        check_results=results,
        data_version=dg.DataVersion(result.version.content[:16]),
    )


def _metadata(
    workspace: Workspace, stage: Stage, key: str, result: BuildResult
) -> dict[str, dg.MetadataValue]:
    location = f"{workspace.store.url}/{stage.output(key)}"
    entries = reporting.result_metadata(result, location)
    return reporting.preview(workspace, stage.name, key) | entries
