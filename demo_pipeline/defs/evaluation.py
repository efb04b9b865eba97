"""The asset `evaluation_scores`: every folder of predictions in the store, scored.

Belongs here: the asset, its job and its sensor. Finding and scoring predictions is in
runs/evaluations.py.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
from pydantic import Field

from demo_pipeline.defs import reporting
from demo_pipeline.defs.dataset_assets import watching
from demo_pipeline.defs.partitions import FORCE_TAG, OWNERS, group_of
from demo_pipeline.defs.reporting import package_log
from demo_pipeline.defs.resources import Roots
from demo_pipeline.evaluation.scoring import PREDICTIONS
from demo_pipeline.exports.dataset_stages import INDEX_STAGE
from demo_pipeline.runs import evaluations
from demo_pipeline.runs.damage import storage_message
from demo_pipeline.runs.failures import (
    DefectError,
    RefusedError,
    TransientError,
    redacted_errors,
)
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.results import BuildResult
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.versions import CheckOutcome

_STAGE = evaluations.EVALUATION_STAGE
EVALUATION_SCORES = _STAGE.name
_SHOWN = ("preset", "answers", "score", "low", "high", "success", "grounding", "prefix_share")


class _EvaluationConfig(dg.Config):
    """Names of the folders to score; empty: every folder with predictions."""

    names: list[str] = Field(default_factory=list)


@dg.asset(
    name=EVALUATION_SCORES,
    group_name=group_of(EVALUATION_SCORES),
    deps=[INDEX_STAGE.name],
    kinds=set(_STAGE.kinds),
    owners=OWNERS,
    code_version=_STAGE.code_version,
    description=_STAGE.description,
    metadata=reporting.columns_metadata(_STAGE.columns),
    check_specs=reporting.check_specs(EVALUATION_SCORES, _STAGE.checks),
)
def evaluation_scores(
    context: dg.AssetExecutionContext,
    config: _EvaluationConfig,
    roots: Roots,
) -> Iterator[dg.MaterializeResult[None]]:
    """Score folders of predictions; one that cannot be scored keeps no other from its scores."""
    workspace = roots.workspace
    results, failed = _scored(context, workspace, config.names)
    if results or not failed:
        yield dg.MaterializeResult(
            metadata=_metadata(workspace, results),
            check_results=[_joint(check.name, results) for check in _STAGE.checks],
        )
    if failed:
        raise dg.Failure("\n".join(failed), allow_retries=False)


def _scored(
    context: dg.AssetExecutionContext, workspace: Workspace, names: Sequence[str]
) -> tuple[dict[str, BuildResult], list[str]]:
    """(name → its output, plain reasons why the others have none)."""
    results, failed = dict[str, BuildResult](), list[str]()
    force = context.run.tags.get(FORCE_TAG) == "true"
    with package_log(context.log.log), redacted_errors(EVALUATION_SCORES):
        try:
            found, unreadable = evaluations.list_evaluations(workspace)
        except StorageError as error:
            return {}, [storage_message(error)]
        failed += unreadable.values() if not names else ()
    graph = Graph(workspace)
    with package_log(context.log.log):
        for name in names or [dropped.name for dropped in found]:
            try:
                output = evaluations.EvaluationOutput(graph, _STAGE, name)
                results[name] = graph.build(output, force=force)
            except RefusedError as error:
                failed += [f"{name}: {problem.message}" for problem in error.problems]
            except (TransientError, DefectError) as error:
                failed.append(f"{name}: {error}")
    return results, failed


def _metadata(
    workspace: Workspace, results: Mapping[str, BuildResult]
) -> dict[str, dg.MetadataValue]:
    """Scores as numbers, which the UI draws over the runs, and where the pages of failures are."""
    summaries: dict[str, Any] = {name: result.summary for name, result in results.items()}
    rows = [
        {"evaluation": name, "outcome": results[name].status.value}
        | {key: f"{row[key]:.3f}" if isinstance(row[key], float) else row[key] for key in _SHOWN}
        for name, summary in summaries.items()
        for row in summary["rows"]
        if len(summaries) == 1 or row["answers"] == PREDICTIONS  # baselines beside one alone
    ]
    scores = {name: summary["score"] for name, summary in summaries.items()}
    location = f"{workspace.store.url}/{EVALUATION_SCORES}"
    shown = {
        "evaluations": dg.MetadataValue.int(len(results)),
        "table": reporting.records(rows),
        "scores": dg.MetadataValue.json(scores),
        "path": dg.MetadataValue.path(location),
    }
    for name, score in scores.items():
        if score is not None:
            shown[f"score_{name}"] = dg.MetadataValue.float(float(score))
        page = f"{location}/{name}/{evaluations.FAILURES_FILE}"
        shown[f"failures_{name}"] = dg.MetadataValue.path(page)
    return shown


def _joint(check: str, results: Mapping[str, BuildResult]) -> dg.AssetCheckResult:
    """One result for all evaluations; its problems say whose predictions they are about."""
    found = [
        (name, outcome)
        for name, result in results.items()
        for outcome in result.checks
        if outcome.name == check
    ]
    problems = tuple(
        replace(problem, file=evaluations.predictions_path(name))
        for name, outcome in found
        for problem in outcome.problems
    )
    steps = sum(int(str(result.summary.get("steps", 0))) for result in results.values())
    outcome = CheckOutcome(check, all(one.passed for _, one in found), problems, blocking=False)
    return reporting.check_result(outcome, {"evaluations": len(results), "steps": steps})


evaluation_job = dg.define_asset_job(
    "score_evaluation",
    selection=[EVALUATION_SCORES],
    description="Scores the predictions in the folders `evaluations/<name>/` of the store "
    "(config: `names`; default: all).",
)


def new_evaluations(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor `new_evaluations`."""

    @watching(
        "new_evaluations",
        interval_seconds,
        "Scores new and changed predictions in `evaluations/<name>/` of the store, in a folder or "
        "a bucket, once they have been still for `discovery.stable_seconds`, and all of them again "
        "when the dataset changed that they are compared with.",
        evaluation_job,
    )
    def evaluate(
        context: dg.SensorEvaluationContext, workspace: Workspace
    ) -> dg.SensorResult | dg.SkipReason:
        limits = workspace.settings.discovery
        listed, unreadable = evaluations.list_evaluations(workspace)
        index = workspace.store.current(INDEX_STAGE.folder) if listed else None
        for reason in unreadable.values():
            context.log.warning(reason)
        scored = index.content if index else ""  # what the answers are compared with
        still = {
            one.name: f"{one.fingerprint}@{scored}"
            for one in listed
            if time.time() - one.modified >= limits.stable_seconds
        }
        lines = (context.cursor or "").splitlines()
        seen = {name: state for name, _, state in (line.partition(" ") for line in lines)}
        changed = [name for name, state in still.items() if seen.get(name) != state]
        if not changed:
            reasons = ["no new or changed predictions are complete", *unreadable.values()]
            return dg.SkipReason("; ".join(reasons))
        seen |= still
        present = {one.name for one in listed} | unreadable.keys()
        wanted = dg.RunConfig(ops={EVALUATION_SCORES: _EvaluationConfig(names=changed)})
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_config=wanted)],
            cursor="\n".join(f"{name} {seen[name]}" for name in sorted(seen.keys() & present)),
        )

    return evaluate
