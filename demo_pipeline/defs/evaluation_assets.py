"""The asset `evaluation_scores`, one partition per folder of predictions in the store.

Belongs here: the asset, its partitions, its job and its sensor. Finding and scoring predictions is
in pipeline/evaluation_runs.py.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.batch_members import has_run_key
from demo_pipeline.defs.run_log import package_log
from demo_pipeline.defs.tags import FORCE_TAG, OWNERS
from demo_pipeline.evaluation.evaluation_pictures import history_chart
from demo_pipeline.evaluation.score_tables import SCORES_SCHEMA
from demo_pipeline.pipeline import evaluation_runs
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.error_redaction import redacted_errors
from demo_pipeline.pipeline.rebuild import storage_message
from demo_pipeline.pipeline.stage_types import TRAJECTORIES
from demo_pipeline.storage.errors import StorageError

EVALUATIONS = dg.DynamicPartitionsDefinition(name="evaluations")
EVALUATION_SCORES = evaluation_runs.EVALUATION_OUTPUT
_HISTORY = 60  # scores of earlier runs
_CHART_TITLE = "score of each evaluation under its first rule, oldest first"
_SHOWN = ("preset", "answers", "score", "low", "high", "success", "grounding", "prefix_share")


@dg.asset(
    name=EVALUATION_SCORES,
    partitions_def=EVALUATIONS,
    deps=[TRAJECTORIES],
    group_name="datasets",
    kinds={"parquet"},
    owners=OWNERS,
    code_version=evaluation_runs.EVALUATION_CODE_VERSION,
    description="Scores of a model's answers in `evaluations/<name>/predictions.jsonl` of the "
    "store, by action type, application, platform and difficulty, beside baselines that need no "
    "model; the page of failures shows steps that were answered wrong.",
    metadata=reporting.columns_metadata(SCORES_SCHEMA),
    check_specs=[
        dg.AssetCheckSpec(
            evaluation_runs.COVERAGE,
            asset=EVALUATION_SCORES,
            description="Every step has one usable answer, and every line belongs to a step.",
        ),
        dg.AssetCheckSpec(
            evaluation_runs.PRIVATE,
            asset=EVALUATION_SCORES,
            description="Only their owner can read the predictions in a folder.",
        ),
    ],
)
def evaluation_scores(
    context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
) -> dg.MaterializeResult:
    """Score one folder of predictions."""
    result = _scored(context, workspace)
    pictures = _pictures(context, workspace, result)
    summary: dict[str, Any] = dict(result.summary)
    rows = [{key: _short(row[key]) for key in _SHOWN} for row in summary.pop("rows", [])]
    location = f"{workspace.store.url}/{result.output}"
    return dg.MaterializeResult(
        metadata={
            **reporting.metadata_of(summary),
            "table": reporting.records(rows),
            "path": dg.MetadataValue.path(location),
            "outcome": dg.MetadataValue.text(result.status),
            **pictures,
        },
        check_results=[
            reporting.check_result(replace(outcome, metadata={"steps": summary["steps"]}))
            for outcome in result.checks
        ],
    )


def _scored(context: dg.AssetExecutionContext, workspace: Workspace) -> BuildResult:
    """The output, or a failure with a plain reason."""
    name, force = context.partition_key, context.run.tags.get(FORCE_TAG) == "true"
    with package_log(context.log), redacted_errors(EVALUATION_SCORES, name):
        try:
            return evaluation_runs.run_evaluation(workspace, name, force=force)
        except StorageError as error:
            message = storage_message(error)
    raise dg.Failure(message, allow_retries=False)


def _short(value: Any) -> Any:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else value


def _pictures(
    context: dg.AssetExecutionContext, workspace: Workspace, result: BuildResult
) -> dict[str, dg.MetadataValue]:
    """The history as a plot, and the page of failures unless screens stay out of the event log."""
    scores = [*reversed(list(_earlier(context)))]
    score = result.summary.get("score")
    if isinstance(score, int | float):
        scores.append((context.partition_key, float(score)))
    shown = {"history": reporting.pictures({"history": history_chart(_CHART_TITLE, scores)})}
    if workspace.settings.execution.contact_sheets_in_ui:
        name = evaluation_runs.PREVIEW_FILE  # the event log is never purged
        with workspace.store.open_files(result.output, name) as (folder, _):
            jpeg = (folder / name).read_bytes()
        shown["failures"] = reporting.picture(jpeg, "steps that were answered wrong")
    return shown


def _earlier(context: dg.AssetExecutionContext) -> Iterator[tuple[str, float]]:
    """The evaluations scored before, newest first, with their scores."""
    key = dg.AssetKey(EVALUATION_SCORES)
    for record in context.instance.fetch_materializations(key, limit=_HISTORY).records:
        made = record.asset_materialization
        score = made.metadata.get("score") if made else None
        if made and score is not None and isinstance(score.value, int | float):
            yield made.partition or "", float(score.value)


evaluation_job = dg.define_asset_job(
    "score_evaluation",
    selection=[EVALUATION_SCORES],
    description="Scores the predictions in a folder `evaluations/<name>/` of the store.",
)


def build_new_evaluations(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `new_evaluations`, evaluated every `interval_seconds`."""

    @dg.sensor(
        name="new_evaluations",
        job=evaluation_job,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Scores new and changed predictions in `evaluations/<name>/` of the store, in "
        "a folder or a bucket, once they have been still for `discovery.stable_seconds`.",
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: dg.ResourceParam[Workspace]
    ) -> dg.SensorResult | dg.SkipReason:
        limits = workspace.settings.discovery
        try:
            listed = evaluation_runs.list_evaluations(workspace)
        except StorageError as error:
            return dg.SkipReason(str(error))
        for reason in listed.unreadable.values():
            context.log.warning(reason)
        still = [one for one in listed.found if time.time() - one.modified >= limits.stable_seconds]
        seen = dict(line.split(" ", 1) for line in (context.cursor or "").splitlines())
        changed = [one for one in still if seen.get(one.name) != one.fingerprint]
        requested = changed[: limits.requests_per_tick]
        if not requested:
            reasons = ["no new or changed predictions are complete", *listed.unreadable.values()]
            return dg.SkipReason("; ".join(reasons))
        seen |= {one.name: one.fingerprint for one in requested}
        present = {one.name for one in listed.found} | listed.unreadable.keys()
        cursor = "\n".join(f"{name} {seen[name]}" for name in sorted(seen.keys() & present))
        known = set(context.instance.get_dynamic_partitions(EVALUATIONS.name or ""))
        new = [one.name for one in requested if one.name not in known]
        return dg.SensorResult(
            dynamic_partitions_requests=[EVALUATIONS.build_add_request(new)] if new else [],
            run_requests=[
                dg.RunRequest(run_key=_unused_key(context.instance, one), partition_key=one.name)
                for one in requested
            ],
            cursor=cursor,
        )

    return evaluate


def _unused_key(instance: dg.DagsterInstance, dropped: evaluation_runs.DroppedEvaluation) -> str:
    """A key launches once: without the number, files put back to earlier bytes get no run."""
    first = f"{dropped.name}:{dropped.fingerprint}"
    keys = (f"{first}#{number}" if number else first for number in count())
    return next(key for key in keys if not has_run_key(instance, key))
