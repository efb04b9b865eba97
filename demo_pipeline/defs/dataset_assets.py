"""The unpartitioned assets, one per dataset stage that the settings want.

Belongs here: the one factory that makes them, what single ones show or check besides, and the
decisions of people as an asset that is observed, without their texts. They
read the store, not an IO manager, so that a missing demonstration does not prevent a dataset.
"""

import hashlib
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.demonstration_runs import open_table, waiting_failure
from demo_pipeline.defs.reporting import package_log
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.sensors import SEEN, latest_trajectory
from demo_pipeline.defs.tags import FORCE_TAG, OWNERS
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.problems import errors
from demo_pipeline.review.review_store import REVIEWS, judged_decisions
from demo_pipeline.runs.damage import left_out_damage, storage_message
from demo_pipeline.runs.dataset_builds import bytes_written, failure_text
from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.discovery import Reconciliation, reconcile
from demo_pipeline.runs.failures import TransientError, redacted_errors
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import (
    DATASET_STAGE_BY_NAME,
    DATASET_STAGES,
    STAGES,
    TRAINING_EXPORTS,
    group_of,
    is_built,
    upstream,
)
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.errors import OutputError
from demo_pipeline.store.versions import CheckOutcome

_RECENT_SECONDS = 900.0  # longer than a tick of new_uploads and the pause after it
_PRIORITY = "dagster/priority"  # of a step among those that can run
ACCOUNTED = "uploads_accounted"
_ACCOUNTED_TEXT = "Uploads in a new listing = accepted + quarantined + pending + gone."
_WHOLE = "trajectories_whole"
_WHOLE_TEXT = "Every committed trajectory that was read has the SHA-256 of its manifest."
_NO_TRAJECTORY = (
    "no trajectory is committed yet; materialize `records` of a demonstration first, or run "
    "`demo-pipeline run`"
)
_Results = Iterator[dg.MaterializeResult | dg.AssetCheckResult]


def reconcile_uploads(instance: dg.DagsterInstance, workspace: Workspace) -> Reconciliation:
    """Count every upload once; a folder without a file of a recording is none.

    The uploads are listed before the table of discovery is read, so that it can only know more.
    """
    listed = workspace.uploads.list_demonstrations()
    colliding = set(workspace.uploads.collisions())
    quarantined = {record.demonstration for record in list_quarantine(workspace.store)}
    last = STAGES[-1].folder
    finished = {name.removeprefix(f"{last}/") for name in workspace.store.outputs(last)}
    with open_table(instance, workspace) as table:
        known, position = table.by_id(), table.position()
        colliding |= table.collisions().keys()
    present = {upload.id for upload in listed if upload.files or upload.id in known}
    recent = position is not None and time.time() - position.wall < _RECENT_SECONDS
    return reconcile(known, colliding, quarantined, finished, present, recent_tick=recent)


def told_of_dataset(
    instance: dg.DagsterInstance,
    workspace: Workspace,
    stage: Stage,
    result: BuildResult | Exception,
    seen: int,
) -> tuple[dict[str, Any], list[CheckOutcome]]:
    """What people see of a dataset: metadata when it was built, and the outcomes of its checks.

    `seen`: storage id of the newest trajectory before the store was read.

    Raises:
        StorageError: the store or the table of discovery cannot be read.
    """
    if isinstance(result, Exception):
        return {}, []
    checks = {check.name: check for check in stage.checks}
    outcomes = [
        replace(one, metadata=reporting.compared(checks[one.name], result)) for one in result.checks
    ]
    if result.version is None:
        return {}, outcomes
    metadata: dict[str, Any] = {"bytes_written": bytes_written(workspace.store, result.output)}
    if stage.reads_trajectories:
        metadata[SEEN] = seen
        damage = tuple(left_out_damage(result.summary))
        compared = {"trajectories": len(workspace.store.outputs(RECORDS_STAGE.folder))}
        outcomes.append(CheckOutcome(_WHOLE, not damage, damage, compared, blocking=False))
    if stage.name == TASKS_STAGE.name:
        metadata["task_files"] = dg.MetadataValue.path(str(workspace.tasks))
        metadata["task_files_found"] = workspace.tasks.is_dir()
    if stage.name == QUARANTINE_STAGE.name:
        counts = reconcile_uploads(instance, workspace)
        names = ("listed", "accepted", "quarantined", "pending", "gone")
        uploads = {name: getattr(counts, name) for name in names}
        metadata["uploads"] = dg.MetadataValue.json(uploads)
        passed = counts.balanced and not errors(counts.problems)
        compared = {"uploads": counts.listed}
        found = tuple(counts.problems)
        outcomes.append(CheckOutcome(ACCOUNTED, passed, found, compared, blocking=False))
    location = f"{workspace.store.url}/{result.output}"
    return reporting.report_metadata(result, location) | metadata, outcomes


def added_checks(stage: Stage) -> dict[str, str]:
    """Name → description of the checks that the asset has besides those of the stage."""
    checks = {_WHOLE: _WHOLE_TEXT} if stage.reads_trajectories else {}
    return checks | ({ACCOUNTED: _ACCOUNTED_TEXT} if stage.name == QUARANTINE_STAGE.name else {})


def build_dataset_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """One asset per dataset stage; a training export that is switched off has none."""
    return [
        _asset(stage, parents_of(stage, settings))
        for stage in DATASET_STAGES
        if is_built(stage, settings)
    ]


def parents_of(stage: Stage, settings: Settings) -> list[str]:
    """The assets that a dataset is made of, as the UI shows them."""
    datasets = DATASET_STAGE_BY_NAME
    return [
        name
        for name in upstream(stage)
        if name not in datasets or is_built(datasets[name], settings)
    ]


def _asset(stage: Stage, parents: Sequence[str]) -> dg.AssetsDefinition:
    added = added_checks(stage).items()

    @dg.asset(
        name=stage.name,
        deps=[name for name in stage.inputs if name not in TRAINING_EXPORTS],
        op_tags={_PRIORITY: "1" if stage.name in TRAINING_EXPORTS else "0"},
        group_name=group_of(stage),
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        check_specs=[
            *reporting.check_specs(stage.name, stage.checks),
            *(dg.AssetCheckSpec(name, asset=stage.name, description=text) for name, text in added),
        ],
    )
    def compute(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> _Results:
        yield from _computed(context, workspace, stage)

    return _with_lineage(compute, parents)


def _with_lineage(asset: dg.AssetsDefinition, parents: Sequence[str]) -> dg.AssetsDefinition:
    """The asset with the parents that the UI shows.

    A training export that fails would hold up everything that waits for its step. So nothing does:
    the exports come first by their priority, and are parents in the lineage alone.
    """
    return dg.AssetsDefinition(
        keys_by_input_name=asset.keys_by_input_name,
        keys_by_output_name=asset.keys_by_output_name,
        node_def=asset.node_def,
        specs=[spec.replace_attributes(deps=parents) for spec in asset.specs],
        check_specs_by_output_name={
            spec.get_python_identifier(): spec for spec in asset.check_specs
        },
    )


def _computed(context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage) -> _Results:
    instance = context.instance
    claim_run(instance, context.run)
    with _explained(context, stage):
        is_empty = stage.reads_trajectories and not workspace.store.outputs(RECORDS_STAGE.folder)
    if is_empty:
        raise dg.Failure(f"{stage.name}: {_NO_TRAJECTORY}", allow_retries=False)
    with _explained(context, stage):
        # Before the store is read: a trajectory that is committed meanwhile is not in it.
        seen = latest_trajectory(instance) if stage.reads_trajectories else 0
        force = context.run.tags.get(FORCE_TAG) == "true"
        with package_log(context.log.log):
            result = run_dataset_stage(workspace, stage, force=force)
        damage = left_out_damage(result.summary)
        if damage and result.status is Status.BUILT:  # discovery builds these again
            with open_table(instance, workspace) as table:
                for key in {problem.demonstration for problem in damage}:
                    table.request_rerun(key, "damaged")
        metadata, outcomes = told_of_dataset(instance, workspace, stage, result, seen)
    checks = list(map(reporting.check_result, outcomes))
    if result.version is None:
        yield from checks
        found = {"found": reporting.problem_table(result.problems)}
        raise dg.Failure(
            f"{stage.name}: {failure_text(result)}", metadata=found, allow_retries=False
        )
    yield dg.MaterializeResult(
        metadata=metadata,
        check_results=checks,
        data_version=dg.DataVersion(result.version.content[:16]),
    )


@contextmanager
def _explained(context: dg.AssetExecutionContext, stage: Stage) -> Iterator[None]:
    """End the run with a plain reason, and mark it as waiting when the cause passes by itself."""
    try:
        with redacted_errors(stage.name):
            yield
    except OutputError as error:
        raise dg.Failure(storage_message(error), allow_retries=False) from None
    except TransientError as error:
        run_id = context.run.run_id
        raise waiting_failure(context.instance, run_id, error.reason) from None


_SPEC = dg.AssetSpec(
    REVIEWS,
    group_name="trajectories",
    owners=OWNERS,
    kinds={"json"},
    code_version="1",
    description="Decisions of people: approval, corrections, bad steps, notes. An observation "
    "counts them. The sensor `new_uploads`, or `demo-pipeline run`, applies them: corrections in "
    "`records`, approval and rejection in the datasets. `demo-pipeline review` makes them.",
)


def _observe(workspace: dg.ResourceParam[Workspace]) -> dg.ObserveResult:
    """How many decisions there are, how many hold, and about how many demonstrations."""
    found = list(judged_decisions(workspace.store, ()))
    ids = hashlib.sha256("".join(sorted(one.id for one, _ in found)).encode())
    counts = {
        "decisions": len(found),
        "demonstrations": len({one.demonstration for one, _ in found}),
        **_counted(state for _, state in found),
        **_counted(one.kind for one, state in found if state == "holds"),
    }
    metadata = {name: dg.MetadataValue.int(number) for name, number in counts.items()}
    return dg.ObserveResult(metadata=metadata, data_version=dg.DataVersion(ids.hexdigest()[:16]))


def _counted(names: Iterable[str]) -> dict[str, int]:
    return {name.replace(" ", "_"): n for name, n in sorted(Counter(names).items())}


with warnings.catch_warnings():
    warnings.simplefilter("ignore", dg.BetaWarning)  # a test pins what this relies on
    observed_reviews = dg.multi_observable_source_asset(name="observe_reviews", specs=[_SPEC])(
        _observe
    )
