"""The assets of one demonstration, from raw recordings to contact sheets, partitioned.

Belongs here: one asset per stage, over one partition or a batch of them. What a stage reads, builds
and checks is run by pipeline/runner.py.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import dagster as dg

from demo_pipeline.datasets import contact_sheets
from demo_pipeline.defs import reporting
from demo_pipeline.defs.error_redaction import DefectError, redacted_errors
from demo_pipeline.defs.exceeded_runs import ExceededLimit, earlier_attempts, mark_exceeded
from demo_pipeline.defs.partitions import DEMONSTRATIONS
from demo_pipeline.defs.run_log import package_log
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.superseded_runs import superseded
from demo_pipeline.defs.tags import FINGERPRINT_TAG, FORCE_TAG, OWNERS, WAITING_OUTCOME
from demo_pipeline.defs.waiting_runs import wait_in_batch, waiting_failure
from demo_pipeline.observation.contact_sheet_image import encode_jpeg
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.demonstration_stages import (
    CONTACT_SHEETS_STAGE,
    STAGES,
    TRAJECTORIES_STAGE,
)
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.rebuild import storage_message
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.stage_limits import EarlierAttempts, ExceededLimitError
from demo_pipeline.pipeline.stage_types import Stage
from demo_pipeline.pipeline.superseded import SupersededError
from demo_pipeline.pipeline.task_catalog import OSWORLD_TASKS
from demo_pipeline.pipeline.transient import TransientError
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store.version_manifest import CheckOutcome

_EMPTY_RANGE = (
    "no demonstration is in this range; partitions are in the order of their registration, so the "
    "first of the range must be the one that was registered first"
)
_RUN_AGAIN = "materialise its partition again when the cause is removed"
_WILL_RERUN = "none: the sensor new_uploads requests a new run when the upload is stable again"
_PREVIEWS = {
    TRAJECTORIES_STAGE.name: contact_sheets.overview_sheet,
    CONTACT_SHEETS_STAGE.name: contact_sheets.first_steps_sheet,
}
_Results = Iterator[dg.MaterializeResult | dg.AssetCheckResult]


@dataclass
class _Batch:
    """The results of the partitions of one run, by demonstration.

    A rejected demonstration is in `built` and, once its problems are collected, in `failed`. For a
    demonstration that waits, `waiting` has the reason.
    """

    built: dict[str, BuildResult] = field(default_factory=dict)
    failed: dict[str, list[Problem]] = field(default_factory=dict)
    superseded: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)


def build_demonstration_assets(partitions_per_run: int) -> list[dg.AssetsDefinition]:
    """The partitioned assets. A backfill launches `partitions_per_run` demonstrations per run.

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
        deps=[*stage.inputs, *([OSWORLD_TASKS] if stage.matches_task else [])],
        group_name=stage.group,
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        output_required=False,  # a run whose upload changes meanwhile has no output
        backfill_policy=dg.BackfillPolicy.multi_run(partitions_per_run),
        check_specs=reporting.check_specs(stage.name, stage.checks, check_partitions),
    )
    def compute(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> _Results:
        keys = list(context.partition_keys)
        if not keys:
            raise dg.Failure(_EMPTY_RANGE, allow_retries=False)
        batch = _run(context, workspace, stage, keys)
        if len(keys) == 1 and batch.superseded:
            yield from superseded(context, workspace, stage, keys[0])
        elif len(keys) == 1 and batch.waiting:
            reason = batch.waiting[keys[0]]
            raise waiting_failure(context.instance, context.run.run_id, reason)
        elif len(keys) == 1:
            yield from _single_results(workspace, stage, keys[0], batch)
        else:
            yield from _batch_results(context, workspace, stage, batch)

    return compute


def _run(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, keys: list[str]
) -> _Batch:
    batch = _Batch()
    claim_run(context.instance, context.run)
    force = context.run.tags.get(FORCE_TAG) == "true"
    listed = context.run.tags.get(FINGERPRINT_TAG) if len(keys) == 1 else None
    earlier = EarlierAttempts()  # a run of several demonstrations decides about none
    if len(keys) == 1:
        earlier = earlier_attempts(context.instance, context.run, stage.name)
    for key in keys:
        try:
            with package_log(context.log), redacted_errors(stage.name, key):
                problems = _cannot_start(workspace, stage, key)
                if problems:
                    batch.failed[key] = problems
                    continue
                result = run_stage(
                    workspace, stage, key, force=force, listed=listed, earlier=earlier
                )
        except SupersededError as error:
            batch.superseded.append(key)
            batch.failed[key] = [Problem("upload_changed", ".", str(error), remedy=_WILL_RERUN)]
        except DemonstrationError as error:
            batch.failed[key] = list(error.problems)
        except MissingOutput as error:
            batch.failed[key] = [_missing_input(stage, error)]
        except TransientError as error:
            batch.waiting[key] = error.reason
            if isinstance(error, ExceededLimitError) and len(keys) == 1:
                reason = error.reason.removeprefix(f"{stage.name} ")
                limit = ExceededLimit(stage.name, reason)
                mark_exceeded(context.instance, context.run.run_id, limit)
        except (StorageError, DefectError) as error:
            if len(keys) == 1:
                raise
            batch.failed[key] = [Problem("run_failed", ".", str(error), remedy=_RUN_AGAIN)]
        else:
            batch.built[key] = result
    return batch


def _missing_input(stage: Stage, error: MissingOutput) -> Problem:
    remedy = f"materialize {', '.join(stage.inputs)} of this demonstration first"
    return Problem("missing_input", stage.folder, storage_message(error), remedy=remedy)


def _cannot_start(workspace: Workspace, stage: Stage, key: str) -> list[Problem]:
    """Why the stage cannot run: the key is not an id, or an earlier stage quarantined it.

    The outputs that the later stages built before are of another upload.
    """
    if not is_safe_id(key):
        remedy = "delete this partition; `demo-pipeline register` registers uploads by their ids"
        message = f"{key!r} is not a demonstration id"
        return [Problem("unsafe_id", ".", message, remedy=remedy)]
    record = read_quarantine(workspace.store, key)
    names = [known.name for known in STAGES]
    if record is None or record.stage not in names[: names.index(stage.name)]:
        return []
    return reporting.recorded(record)


def _single_results(workspace: Workspace, stage: Stage, key: str, batch: _Batch) -> _Results:
    if key in batch.failed:
        problems = tuple(batch.failed[key])
        yield reporting.check_result(CheckOutcome(stage.checks[0].name, False, problems))
        raise reporting.failure(batch.failed[key], stage.name, key)
    result = batch.built[key]
    results = [reporting.check_result(outcome) for outcome in result.checks]
    if result.status == "rejected" or result.version is None:
        yield from results
        raise reporting.failure(_problems(result), stage.name, key)
    yield dg.MaterializeResult(
        metadata=_metadata(workspace, stage, key, result),
        check_results=results,
        data_version=dg.DataVersion(result.version.content[:16]),
    )


def _batch_results(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage, batch: _Batch
) -> _Results:
    """A batch continues without its failed demonstrations, which every check names."""
    for key, result in batch.built.items():
        if result.status == "rejected":
            batch.failed[key] = _problems(result)
            continue
        context.add_asset_metadata(_metadata(workspace, stage, key, result), partition_key=key)
    for key, reason in batch.waiting.items():
        batch.failed[key] = wait_in_batch(context.instance, workspace, key, reason)
    for key, problems in batch.failed.items():
        outcome = WAITING_OUTCOME if key in batch.waiting else "quarantined"
        context.add_asset_metadata(
            {"outcome": outcome, "found": reporting.problem_table(problems)},
            partition_key=key,
        )
    if len(batch.failed) == len(context.partition_keys):
        every = [problem for problems in batch.failed.values() for problem in problems]
        raise reporting.failure(every, stage.name, f"all {len(batch.failed)} demonstrations")
    yield dg.MaterializeResult(
        check_results=[
            reporting.check_result(
                _joint_outcome(check.name, batch, blocking=check.blocking), halts=False
            )
            for check in stage.checks
        ]
    )


def _problems(result: BuildResult) -> list[Problem]:
    return reporting.errors_first(
        [problem for outcome in result.checks for problem in outcome.problems]
    )


def _joint_outcome(name: str, batch: _Batch, *, blocking: bool) -> CheckOutcome:
    """One outcome of a check for all demonstrations of a batch."""
    problems = [problem for found in batch.failed.values() for problem in found]
    good = [result for key, result in batch.built.items() if key not in batch.failed]
    outcomes = [check for result in good for check in result.checks if check.name == name]
    problems.extend(problem for outcome in outcomes for problem in outcome.problems)
    passed = not batch.failed and all(outcome.passed for outcome in outcomes)
    return CheckOutcome(name, passed, tuple(problems), blocking=blocking)


def _metadata(
    workspace: Workspace, stage: Stage, key: str, result: BuildResult
) -> dict[str, dg.MetadataValue]:
    location = f"{workspace.store.url}/{stage.output(key)}"
    entries = reporting.result_metadata(result, location)
    draw = _PREVIEWS.get(stage.name)
    if draw is not None and workspace.settings.execution.contact_sheets_in_ui:
        trajectory = workspace.store.open(TRAJECTORIES_STAGE.output(key))
        with redacted_errors(stage.name, key), trajectory as (folder, _):
            small = encode_jpeg(draw(key, folder), 60)
            entries["preview"] = reporting.picture(small, "steps")
    return entries
