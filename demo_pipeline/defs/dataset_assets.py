"""The unpartitioned assets, one per dataset stage that the settings want.

Belongs here: the one factory that makes them, and what single ones show or check besides. They
read the store, not an IO manager, so that a missing demonstration does not prevent a dataset.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.reporting import package_log
from demo_pipeline.defs.run_history import InstanceRuns, open_ledger, waiting_failure
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.sensors import SEEN, latest_trajectory
from demo_pipeline.defs.tags import FORCE_TAG, OWNERS
from demo_pipeline.exports.charts import read_charts
from demo_pipeline.exports.dataset_statistics import STATISTICS_STAGE, read_statistics
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.problems import errors
from demo_pipeline.runs.damage import left_out_damage, storage_message
from demo_pipeline.runs.dataset_builds import bytes_written, failure_text
from demo_pipeline.runs.datasets import run_dataset_stage
from demo_pipeline.runs.failures import TransientError, redacted_errors
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.quarantine_table import QUARANTINE_SCHEMA, QUARANTINE_STAGE, TABLE_FILE
from demo_pipeline.runs.reconciliation import Reconciliation, reconcile, unfinished_uploads
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.stages import DATASET_STAGES, STAGES, training_exports, upstream
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.upload_decisions import UploadState
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Stage
from demo_pipeline.store.errors import OutputError
from demo_pipeline.store.version_manifest import CheckOutcome

_RECENT_SECONDS = 900.0  # longer than a tick of new_uploads and the pause after it


def reconcile_uploads(instance: dg.DagsterInstance, workspace: Workspace) -> Reconciliation:
    """Count every upload once.

    The uploads are listed before the ledger is read, so that the ledger can only know more.

    Raises:
        StorageError: the uploads, the store or the ledger cannot be read.
    """
    listed = {upload.id for upload in workspace.uploads.list_demonstrations()}
    listed |= set(workspace.uploads.collisions())
    quarantined = {record.demonstration for record in list_quarantine(workspace.store)}
    finished = _finished(workspace)
    runs = InstanceRuns(instance, workspace)
    failed = runs.failed()
    with open_ledger(instance, workspace) as ledger:
        accepted = {key for key, state in ledger.states().items() if state is UploadState.ACCEPTED}
        uncertain = sorted(accepted - finished | accepted & failed)
        unfinished = unfinished_uploads(uncertain, finished, runs)
        last_tick = ledger.last_tick()
        recent = last_tick is not None and time.time() - last_tick < _RECENT_SECONDS
        return reconcile(ledger, quarantined, listed, unfinished, recent_tick=recent)


def _finished(workspace: Workspace) -> set[str]:
    """Ids with an output of the last stage."""
    folder = STAGES[-1].folder
    return {name.removeprefix(f"{folder}/") for name in workspace.store.outputs(folder)}


ACCOUNTED = "uploads_accounted"
_SHOWN = ("demonstration", "stage", "code", "file", "line", "message", "remedy", "attempts")
_Read = tuple[dict[str, dg.MetadataValue], list[CheckOutcome]]


def _nothing(_instance: dg.DagsterInstance, _workspace: Workspace, _folder: Path) -> _Read:
    return {}, []


@dataclass(frozen=True)
class Addition:
    """What one asset adds.

    Attributes:
        read: from the instance, the workspace and the built folder: metadata, and the outcomes of
            the added checks.
        checks: name → description of each added check; none of them blocks.
    """

    read: Callable[[dg.DagsterInstance, Workspace, Path], _Read] = _nothing
    checks: Mapping[str, str] = field(default_factory=dict)


def _statistics(_instance: dg.DagsterInstance, _workspace: Workspace, folder: Path) -> _Read:
    tables = read_statistics(folder)
    return {name: reporting.records(rows) for name, rows in tables.items()}, []


def _task_files(_instance: dg.DagsterInstance, workspace: Workspace, _folder: Path) -> _Read:
    return {
        "task_files": dg.MetadataValue.path(str(workspace.tasks)),
        "task_files_found": dg.MetadataValue.bool(workspace.tasks.is_dir()),
    }, []


def _quarantine(instance: dg.DagsterInstance, workspace: Workspace, folder: Path) -> _Read:
    rows = read_rows(folder / TABLE_FILE, QUARANTINE_SCHEMA, _SHOWN)
    counts = reconcile_uploads(instance, workspace)
    problems = tuple(counts.problems)
    passed = counts.balanced and not errors(problems)
    uploads = {
        "listed": counts.listed,
        "accepted": counts.accepted,
        "quarantined": counts.quarantined,
        "pending": counts.pending,
        "gone": counts.gone,
    }
    return {
        "table": reporting.records(rows),
        "uploads": dg.MetadataValue.json(uploads),
    }, [CheckOutcome(ACCOUNTED, passed, problems, {"uploads": counts.listed}, blocking=False)]


ADDITIONS: Mapping[str, Addition] = {
    STATISTICS_STAGE.name: Addition(_statistics),
    TASKS_STAGE.name: Addition(_task_files),
    QUARANTINE_STAGE.name: Addition(
        _quarantine,
        {ACCOUNTED: "Uploads in a new listing = accepted + quarantined + pending + gone."},
    ),
}


_WHOLE = "trajectories_whole"
_WHOLE_TEXT = "Every committed trajectory that was read has the SHA-256 of its manifest."
_PRIORITY = "dagster/priority"  # of a step among those that can run
_Results = Iterator[dg.MaterializeResult | dg.AssetCheckResult]


@dataclass(frozen=True)
class BuiltBefore:
    """What a command has built already, for the run that only reports it.

    Attributes:
        seen: storage id of the newest trajectory before the store was read.
        results: stage → its output, or why it has none.
        lines: level and message of what was logged.
    """

    seen: int
    results: Mapping[str, BuildResult | Exception]
    lines: Sequence[tuple[int, str]] = ()


built_before: dict[str, BuiltBefore] = {}
"""Run id → what was built before it, in this process."""


def build_dataset_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """One asset per dataset stage; a training export that is switched off has none."""
    built = {stage.name: stage for stage in DATASET_STAGES if stage.is_built(settings)}
    return [
        _asset(stage, [RECORDS_STAGE.name, *built], ADDITIONS.get(name, Addition()))
        for name, stage in built.items()
    ]


def _with_lineage(asset: dg.AssetsDefinition, parents: Sequence[str]) -> dg.AssetsDefinition:
    """The asset with the parents that the UI shows.

    A training export that fails would hold up everything that waits for its step. So nothing does:
    the exports come first by their priority, and are parents in the lineage alone.
    """
    specs = [spec.replace_attributes(deps=parents) for spec in asset.specs]
    return dg.AssetsDefinition(
        keys_by_input_name=asset.keys_by_input_name,
        keys_by_output_name=asset.keys_by_output_name,
        node_def=asset.node_def,
        specs=specs,
        check_specs_by_output_name={
            spec.get_python_identifier(): spec for spec in asset.check_specs
        },
    )


def _asset(stage: Stage, existing: Collection[str], addition: Addition) -> dg.AssetsDefinition:
    @dg.asset(
        name=stage.name,
        deps=[name for name in stage.inputs if not _is_export(name)],
        op_tags={_PRIORITY: "1" if stage.export else "0"},
        group_name=stage.group,
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        check_specs=[
            *reporting.check_specs(stage.name, stage.checks),
            *(
                dg.AssetCheckSpec(name, asset=stage.name, description=description)
                for name, description in added_checks(stage).items()
            ),
        ],
    )
    def compute(
        context: dg.AssetExecutionContext, workspace: dg.ResourceParam[Workspace]
    ) -> _Results:
        claim_run(context.instance, context.run)
        metadata = _trajectories_seen(context, workspace, stage)
        with _explained(context, stage):
            result = _run(context, workspace, stage)
        if result.version is None:
            yield from reporting.check_results(stage.checks, result)
            raise _rejected(stage.name, result)
        with _explained(context, stage), workspace.store.open(result.output) as (folder, _):
            added, outcomes = addition.read(context.instance, workspace, folder)
            metadata |= _charts(folder) | added
            size = bytes_written(workspace.store, result.output)
            metadata["bytes_written"] = dg.MetadataValue.int(size)
        if stage.reads_trajectories:
            outcomes = [_damage(context, workspace, result), *outcomes]
        location = f"{workspace.store.url}/{result.output}"
        yield dg.MaterializeResult(
            metadata=reporting.result_metadata(result, location) | metadata,
            check_results=[
                *reporting.check_results(stage.checks, result),
                *map(reporting.check_result, outcomes),
            ],
            data_version=dg.DataVersion(result.version.content[:16]),
        )

    return _with_lineage(compute, [name for name in upstream(stage) if name in existing])


def _is_export(name: str) -> bool:
    return name in {stage.name for stage in training_exports()}


def _trajectories_seen(
    context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage
) -> dict[str, Any]:
    """Metadata that says which trajectories the dataset contains; empty when it reads none.

    Before the store is read: a trajectory that is committed meanwhile is not in it.
    """
    if not stage.reads_trajectories:
        return {}
    with _explained(context, stage):
        committed = workspace.store.outputs(RECORDS_STAGE.folder)
    if not committed:
        raise _no_trajectory(stage.name)
    before = built_before.get(context.run.run_id)
    seen = before.seen if before else latest_trajectory(context.instance)
    return {SEEN: dg.MetadataValue.int(seen)}


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


def _run(context: dg.AssetExecutionContext, workspace: Workspace, stage: Stage) -> BuildResult:
    before = built_before.get(context.run.run_id)
    result = before.results.get(stage.name) if before else None
    for level, text in before.lines if before else ():
        if text.startswith(f"{stage.name}: "):
            context.log.log(level, text)
    if isinstance(result, Exception):
        raise result
    if result is not None:
        return result
    force = context.run.tags.get(FORCE_TAG) == "true"
    with package_log(context.log.log), redacted_errors(stage.name):
        return run_dataset_stage(workspace, stage, force=force)


def added_checks(stage: Stage) -> dict[str, str]:
    """Name → description of the checks that the asset has besides those of the stage."""
    whole = {_WHOLE: _WHOLE_TEXT} if stage.reads_trajectories else {}
    return whole | dict(ADDITIONS[stage.name].checks if stage.name in ADDITIONS else {})


def _damage(
    context: dg.AssetExecutionContext, workspace: Workspace, result: BuildResult
) -> CheckOutcome:
    """The check that a dataset lacks no trajectory for its damage; discovery builds these again."""
    damage = left_out_damage(result.summary)
    launched = context.run.remote_job_origin is not None  # the command line does it by itself
    if damage and launched and result.status is Status.BUILT:
        with open_ledger(context.instance, workspace) as ledger:
            for key in {problem.demonstration for problem in damage}:
                ledger.request_rerun(key, "damaged")
    compared = {"trajectories": len(workspace.store.outputs(RECORDS_STAGE.folder))}
    return CheckOutcome(_WHOLE, not damage, tuple(damage), compared, blocking=False)


def _charts(folder: Path) -> dict[str, dg.MetadataValue]:
    charts = read_charts(folder)
    return {"plots": reporting.pictures(charts)} if charts else {}


def _no_trajectory(name: str) -> dg.Failure:
    message = (
        f"{name}: no trajectory is committed yet; materialize `records` of a demonstration "
        "first, or run `demo-pipeline run`"
    )
    return dg.Failure(message, allow_retries=False)


def _rejected(name: str, result: BuildResult) -> dg.Failure:
    table = reporting.problem_table(result.problems)
    message = failure_text(name, result)
    return dg.Failure(message, metadata={"found": table}, allow_retries=False)
