"""Defines the Dagster assets of the datasets, which have no partitions, and the job to build them.

The assets read the store directly, because a Dagster IO manager would require every partition.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.partitions import ASSET_GROUP, DATASET_KIND, FORCE_TAG, OWNERS
from demo_pipeline.defs.resources import Roots
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.problems import Problem
from demo_pipeline.runs.damage import left_out_damage
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.failures import (
    DefectError,
    RefusedError,
    TransientError,
    UnusableInputError,
)
from demo_pipeline.runs.graph import Graph
from demo_pipeline.runs.plan import bytes_written
from demo_pipeline.runs.results import REFUSED, BuildResult
from demo_pipeline.runs.stages import built_stages, parents_that_always_exist, upstream
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB, Stage
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.versions import CheckOutcome

# Tag on the materialization of a dataset. Its value is the result of `newest_records_event` at the
# beginning of the build.
NEWEST_RECORDS_TAG = "demo_pipeline/newest_records"
_PRIORITY_TAG = "dagster/priority"  # Dagster first runs the ready steps with the highest priority
_WHOLE_CHECK = "trajectories_whole"  # name of the asset check that reports damaged trajectories
_NO_TRAJECTORY = (
    "no trajectory is committed yet; materialize `records` of a demonstration first, or run "
    "`demo-pipeline run`"
)
_graphs: dict[str, Graph] = {}  # maps the id of the current run to its build graph
_Results = Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]


def wanted_stages(settings: Settings) -> list[Stage[Any]]:
    """Returns the stages of the datasets that the settings enable, in build order."""
    return built_stages(settings)


def build_dataset_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """Returns an asset for each dataset that the settings enable."""
    return [_asset(stage, upstream(stage, settings)) for stage in wanted_stages(settings)]


def datasets_job(settings: Settings) -> Any:
    """Returns the job that builds every dataset."""
    return dg.define_asset_job(
        DATASETS_JOB,
        [stage.name for stage in wanted_stages(settings)],
        description="Builds the training exports from the committed trajectories, and then the "
        "index and the statistics.",
    )


def _asset(stage: Stage[Any], parents: Sequence[str]) -> dg.AssetsDefinition:
    specs = reporting.check_specs(stage.name, stage.checks)
    if stage.reads_trajectories:
        description = "All files of the trajectories still have the SHA-256 in the manifest."
        specs.append(dg.AssetCheckSpec(_WHOLE_CHECK, asset=stage.name, description=description))

    @dg.asset(
        name=stage.name,
        deps=parents_that_always_exist(stage),
        op_tags={_PRIORITY_TAG: "1" if stage.export else "0"},
        group_name=ASSET_GROUP,
        kinds={*stage.kinds, DATASET_KIND},
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        check_specs=specs,
    )
    def build(context: dg.AssetExecutionContext, roots: Roots) -> _Results:
        workspace = roots.workspace
        newest_event = newest_records_event(context.instance)
        trajectory_count = len(workspace.store.outputs(RECORDS_STAGE.folder))
        try:
            if stage.reads_trajectories and not trajectory_count:
                raise dg.Failure(f"{stage.name}: {_NO_TRAJECTORY}", allow_retries=False)
            graph = _graph_of_run(context.run.run_id, workspace)
            force = context.run.tags.get(FORCE_TAG) == "true"
            with reporting.package_log(context.log.log):
                result = graph.build(DatasetOutput(graph, stage), force=force)
        except TransientError as error:
            raise reporting.retried(context, error, roots.vain_waits) from None
        except UnusableInputError as error:
            message = "; ".join(problem.message for problem in error.problems)
            raise dg.Failure(message, allow_retries=False) from None
        except RefusedError as error:
            yield from (reporting.check_result(outcome) for outcome in error.checks)
            raise reporting.failure(error.problems, REFUSED, reporting.KEPT_VERSION) from None
        except (StorageError, DefectError) as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        check_results = list(reporting.stage_check_results(stage, result))
        if stage.reads_trajectories:
            check_results.append(_whole_result(result, trajectory_count))
        location = f"{workspace.store.url}/{result.output}"
        yield dg.MaterializeResult(
            metadata={
                **reporting.dataset_metadata(result, location),
                "bytes_written": bytes_written(workspace.store, result.output),
                "trajectories_seen": trajectory_count,
            },
            tags={NEWEST_RECORDS_TAG: str(newest_event)},
            check_results=check_results,
            data_version=reporting.data_version(result),
        )

    return _with_lineage(build, parents)


def _with_lineage(asset: dg.AssetsDefinition, parents: Sequence[str]) -> dg.AssetsDefinition:
    """Returns the asset with the parents that Dagster's UI shows in the lineage.

    The index and the statistics show the exports as parents. In a run, they do not depend on the
    exports, so that both are built even if an export fails.
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


def _graph_of_run(run_id: str, workspace: Workspace) -> Graph:
    """Returns the build graph of a run. All datasets of the run share its cached trajectories."""
    if run_id not in _graphs:
        _graphs.clear()  # a process executes one run at a time
        _graphs[run_id] = Graph(workspace)
    return _graphs[run_id]


def _whole_result(result: BuildResult, trajectory_count: int) -> dg.AssetCheckResult:
    damage: tuple[Problem, ...] = tuple(left_out_damage(result.summary))
    outcome = CheckOutcome(_WHOLE_CHECK, not damage, damage, blocking=False)
    return reporting.check_result(outcome, {"trajectories": trajectory_count})


def newest_records_event(instance: dg.DagsterInstance) -> int:
    """Returns Dagster's id of the newest materialization of the asset `records`, or 0."""
    events = instance.fetch_materializations(dg.AssetKey(RECORDS_STAGE.name), limit=1).records
    return events[0].storage_id if events else 0


def built_from_event(instance: dg.DagsterInstance, settings: Settings) -> int:
    """Returns the id of the newest materialization of `records` that all datasets include.

    Returns 0 if any dataset was never built.
    """
    stages = [stage for stage in wanted_stages(settings) if stage.reads_trajectories]
    event_ids = []
    for record in instance.get_asset_records([dg.AssetKey(stage.name) for stage in stages]):
        event = record.asset_entry.last_materialization
        materialization = event.asset_materialization if event else None
        tags = (materialization.tags if materialization else None) or {}
        event_ids.append(int(tags.get(NEWEST_RECORDS_TAG, 0)))
    return min(event_ids) if len(event_ids) == len(stages) else 0
