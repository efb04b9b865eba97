"""The unpartitioned assets, one per dataset stage of the registry that the settings want.

Belongs here: the one factory that makes them. They read the store, not an IO manager, so that a
missing demonstration does not prevent a dataset.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.asset_additions import ADDITIONS, Addition
from demo_pipeline.defs.freshness import SEEN, latest_trajectory
from demo_pipeline.defs.instance_runs import open_ledger
from demo_pipeline.defs.run_log import package_log
from demo_pipeline.defs.run_recovery import claim_run
from demo_pipeline.defs.tags import FORCE_TAG, OWNERS
from demo_pipeline.defs.waiting_runs import waiting_failure
from demo_pipeline.exports.charts import read_charts
from demo_pipeline.files.shown_text import plain_line
from demo_pipeline.pipeline.build_if_stale import BuildResult
from demo_pipeline.pipeline.context import Workspace
from demo_pipeline.pipeline.dataset_runner import run_dataset_stage
from demo_pipeline.pipeline.error_redaction import redacted_errors
from demo_pipeline.pipeline.output_sizes import bytes_written
from demo_pipeline.pipeline.rebuild import storage_message
from demo_pipeline.pipeline.stages import DATASET_STAGES, training_exports, upstream
from demo_pipeline.pipeline.transient import TransientError
from demo_pipeline.pipeline.verification import left_out_damage
from demo_pipeline.problems import Problem
from demo_pipeline.settings import Settings
from demo_pipeline.stage import Stage
from demo_pipeline.storage.errors import OutputError
from demo_pipeline.storage.store.version_manifest import CheckOutcome
from demo_pipeline.trajectories.trajectory_stages import TRAJECTORIES_STAGE

_WHOLE = "trajectories_whole"
_WHOLE_TEXT = "Every committed trajectory that was read has the SHA-256 of its manifest."
_PRIORITY = "dagster/priority"  # of a step among those that can run
_Results = Iterator[dg.MaterializeResult | dg.AssetCheckResult]


def build_dataset_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """One asset per dataset stage; a training export that is switched off has none."""
    built = {stage.name: stage for stage in DATASET_STAGES if stage.is_built(settings)}
    return [
        _asset(stage, [TRAJECTORIES_STAGE.name, *built], ADDITIONS.get(name, Addition()))
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
        committed = workspace.store.outputs(TRAJECTORIES_STAGE.folder)
    if not committed:
        raise _no_trajectory(stage.name)
    return {SEEN: dg.MetadataValue.int(latest_trajectory(context.instance))}


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
    force = context.run.tags.get(FORCE_TAG) == "true"
    with package_log(context.log), redacted_errors(stage.name):
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
    if damage and launched and result.status == "made":
        with open_ledger(context.instance, workspace) as ledger:
            for key in {problem.demonstration for problem in damage}:
                ledger.request_rerun(key, "damaged")
    compared = {"trajectories": len(workspace.store.outputs(TRAJECTORIES_STAGE.folder))}
    return CheckOutcome(_WHOLE, not damage, tuple(damage), compared, blocking=False)


def _charts(folder: Path) -> dict[str, dg.MetadataValue]:
    charts = read_charts(folder)
    return {"plots": reporting.pictures(charts)} if charts else {}


def _no_trajectory(name: str) -> dg.Failure:
    message = (
        f"{name}: no trajectory is committed yet; materialize `trajectories` of a demonstration "
        "first, or run `demo-pipeline run`"
    )
    return dg.Failure(message, allow_retries=False)


def _rejected(name: str, result: BuildResult) -> dg.Failure:
    problems: list[Problem] = reporting.errors_first(
        [problem for outcome in result.checks for problem in outcome.problems]
    )
    why = plain_line(str(problems[0]))
    message = f"{name}: a check failed, so the last good version is kept: {why}"
    table = reporting.problem_table(problems)
    return dg.Failure(message, metadata={"found": table}, allow_retries=False)
