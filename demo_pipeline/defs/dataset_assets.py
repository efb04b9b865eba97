"""The datasets: one unpartitioned asset each, their jobs, and the sensors that ask for them.

Belongs here: what an asset does and says, when the datasets are built again, and the decisions of
people as an asset that is observed, without their texts. The assets read the store, not an IO
manager, so that a missing demonstration does not prevent a dataset.
"""

import hashlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from demo_pipeline.defs import reporting
from demo_pipeline.defs.partitions import (
    FORCE_TAG,
    OWNERS,
    PARTITION_TAG,
    UNFINISHED,
    group_of,
)
from demo_pipeline.defs.resources import Roots
from demo_pipeline.exports.record_stages import RECORDS_STAGE
from demo_pipeline.problems import Problem
from demo_pipeline.review.review_store import REVIEWS, judged_decisions
from demo_pipeline.runs.damage import left_out_damage
from demo_pipeline.runs.dataset_outputs import DatasetOutput
from demo_pipeline.runs.failures import (
    DefectError,
    RefusedError,
    TransientError,
    UnusableInputError,
    retry_pause,
)
from demo_pipeline.runs.graph import Current, Graph
from demo_pipeline.runs.plan import bytes_written
from demo_pipeline.runs.quarantine_table import QUARANTINE_STAGE
from demo_pipeline.runs.results import REFUSED, BuildResult
from demo_pipeline.runs.stages import (
    DATASET_STAGES,
    TRAINING_EXPORTS,
    is_built,
    job_of,
    upstream,
)
from demo_pipeline.runs.task_catalog import TASKS_STAGE
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings
from demo_pipeline.stage import DATASETS_JOB, PROCESS_MANY, Stage
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.versions import CheckOutcome

SEEN = "trajectories_seen"  # storage id of the newest records before the datasets were built
_RECORDS = dg.AssetKey(RECORDS_STAGE.name)
_PRIORITY = "dagster/priority"  # of a step among those that can run
_WHOLE = "trajectories_whole"
_WHOLE_TEXT = "Every committed trajectory that was read has the SHA-256 of its manifest."
_NO_TRAJECTORY = (
    "no trajectory is committed yet; materialize `records` of a demonstration first, or run "
    "`demo-pipeline run`"
)
_KEPT = "a check failed, so the last good version is kept: "
_graphs: dict[str, Graph] = {}  # by the id of the run
_Said = Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]
_Asked = dg.SensorResult | dg.RunRequest | dg.SkipReason
_JOBS = {
    DATASETS_JOB: "Builds the training exports from the committed trajectories, then the "
    "index and the statistics.",
    job_of(TASKS_STAGE): "Builds the catalog of OSWorld tasks that trajectories are compared with.",
    job_of(QUARANTINE_STAGE): "Writes the table of quarantined demonstrations.",
}


def build_dataset_assets(settings: Settings) -> list[dg.AssetsDefinition]:
    """One asset per dataset stage; a training export that is switched off has none."""
    wanted = [stage for stage in DATASET_STAGES if is_built(stage, settings)]
    others = {stage.name for stage in DATASET_STAGES} - {stage.name for stage in wanted}
    return [_asset(one, [name for name in upstream(one) if name not in others]) for one in wanted]


def dataset_jobs(settings: Settings) -> dict[str, Any]:
    """The jobs over datasets, by name."""
    wanted = [stage for stage in DATASET_STAGES if is_built(stage, settings)]
    return {
        name: dg.define_asset_job(
            name, [one.name for one in wanted if job_of(one) == name], description=description
        )
        for name, description in _JOBS.items()
    }


def _asset(stage: Stage[Any], parents: Sequence[str]) -> dg.AssetsDefinition:
    specs = reporting.check_specs(stage.name, stage.checks)
    if stage.reads_trajectories:
        specs.append(dg.AssetCheckSpec(_WHOLE, asset=stage.name, description=_WHOLE_TEXT))

    @dg.asset(
        name=stage.name,
        deps=[name for name in stage.inputs if name not in TRAINING_EXPORTS],
        op_tags={_PRIORITY: "1" if stage.name in TRAINING_EXPORTS else "0"},
        group_name=group_of(stage.name),
        kinds=set(stage.kinds),
        owners=OWNERS,
        description=stage.description,
        code_version=stage.code_version,
        metadata=reporting.columns_metadata(stage.columns),
        check_specs=specs,
    )
    def build(context: dg.AssetExecutionContext, roots: Roots) -> _Said:
        workspace, seen = roots.workspace, newest_records(context.instance)
        try:
            if stage.reads_trajectories and not workspace.store.outputs(RECORDS_STAGE.folder):
                raise dg.Failure(f"{stage.name}: {_NO_TRAJECTORY}", allow_retries=False)
            graph = _graph_of_run(context.run.run_id, workspace)
            force = context.run.tags.get(FORCE_TAG) == "true"
            with reporting.package_log(context.log.log):
                made = graph.build(DatasetOutput(graph, stage), force=force)
        except TransientError as error:
            raise reporting.retried(context, error) from None
        except UnusableInputError as error:
            sentence = "; ".join(problem.message for problem in error.problems)
            raise dg.Failure(sentence, allow_retries=False) from None
        except RefusedError as error:
            yield from map(reporting.check_result, error.checks)
            raise reporting.failure(error.problems, REFUSED, _KEPT) from None
        except (StorageError, DefectError) as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        yield dg.MaterializeResult(
            metadata=_metadata(workspace, stage, made) | {SEEN: seen},
            check_results=list(_check_results(workspace, stage, made)),
            data_version=dg.DataVersion(made.content[:16]),
        )

    return _with_lineage(build, parents)


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


def _graph_of_run(run_id: str, workspace: Workspace) -> Graph:
    """The graph of a run: its datasets open the committed trajectories once."""
    if run_id not in _graphs:
        _graphs.clear()  # a process executes one run at a time
        _graphs[run_id] = Graph(workspace)
    return _graphs[run_id]


def _metadata(workspace: Workspace, stage: Stage[Any], made: BuildResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {"bytes_written": bytes_written(workspace.store, made.output)}
    if stage is TASKS_STAGE:
        metadata["task_files"] = dg.MetadataValue.path(str(workspace.tasks))
        metadata["task_files_found"] = workspace.tasks.is_dir()
    return reporting.dataset_metadata(made, f"{workspace.store.url}/{made.output}") | metadata


def _check_results(
    workspace: Workspace, stage: Stage[Any], made: BuildResult
) -> Iterator[dg.AssetCheckResult]:
    """Yield those of the stage's checks, then that of the check which every dataset has."""
    checks = {check.name: check for check in stage.checks}
    for outcome in made.checks:
        yield reporting.check_result(outcome, checks[outcome.name].counts(made.summary))
    if stage.reads_trajectories:
        damage: tuple[Problem, ...] = tuple(left_out_damage(made.summary))
        compared = {"trajectories": len(workspace.store.outputs(RECORDS_STAGE.folder))}
        outcome = CheckOutcome(_WHOLE, not damage, damage, blocking=False)
        yield reporting.check_result(outcome, compared)


def newest_records(instance: dg.DagsterInstance) -> int:
    """Storage id of the newest records of any demonstration; 0 without one. Ids only grow."""
    found = instance.fetch_materializations(_RECORDS, limit=1).records
    return found[0].storage_id if found else 0


def built_for(instance: dg.DagsterInstance, settings: Settings) -> int:
    """The newest records that every dataset contains; 0 while a dataset is missing."""
    wanted = [one for one in DATASET_STAGES if one.reads_trajectories and is_built(one, settings)]
    seen = []
    for record in instance.get_asset_records([dg.AssetKey(one.name) for one in wanted]):
        event = record.asset_entry.last_materialization
        said = event.asset_materialization if event else None
        value = said.metadata[SEEN].value if said and SEEN in said.metadata else 0
        seen.append(value if isinstance(value, int) else 0)
    return min(seen) if len(seen) == len(wanted) else 0


def watching(
    name: str, interval_seconds: int, description: str, *jobs: Any
) -> Callable[[Callable[[dg.SensorEvaluationContext, Workspace], _Asked]], dg.SensorDefinition]:
    """A sensor that is on from the start; while storage cannot be read, it says so and skips."""

    def decorated(
        evaluate: Callable[[dg.SensorEvaluationContext, Workspace], _Asked],
    ) -> dg.SensorDefinition:
        @dg.sensor(
            name=name,
            jobs=jobs,
            minimum_interval_seconds=interval_seconds,
            default_status=dg.DefaultSensorStatus.RUNNING,
            description=description,
        )
        def evaluated(context: dg.SensorEvaluationContext, roots: Roots) -> _Asked:
            try:
                return evaluate(context, roots.workspace)
            except StorageError as error:
                return dg.SkipReason(str(error))

        return evaluated

    return decorated


def rebuild_datasets(interval_seconds: int, job: Any) -> dg.SensorDefinition:
    """The sensor `rebuild_datasets`."""

    @watching(
        "rebuild_datasets",
        interval_seconds,
        "Builds the datasets once after a wave of demonstrations: when none is in work any more, "
        "or after 15 minutes.",
        job,
    )
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> _Asked:
        # The newest records that were asked for, when newer ones were first seen, the attempt.
        built, since, attempt = _numbers(context.cursor)
        instance, newest = context.instance, newest_records(context.instance)
        building = dg.RunsFilter(job_name=job.name, statuses=UNFINISHED)
        if instance.get_run_ids(building, limit=1):
            return dg.SkipReason("the datasets are being built")
        built = max(built, built_for(instance, workspace.settings))
        if newest > built:
            since = since or time.time()
            waits = time.time() - since < workspace.settings.discovery.max_dataset_age_seconds
            if waits and in_work(instance):
                context.update_cursor(json.dumps([built, since, 0]))
                return dg.SkipReason("demonstrations are in work")
            attempt = 0
        elif not (attempt := _next_attempt(instance, job.name, built, attempt)):
            return dg.SkipReason("the datasets have every demonstration")
        context.update_cursor(json.dumps([newest, 0, attempt]))
        return dg.RunRequest(run_key=f"{job.name}@{newest}#{attempt}")

    return evaluate


def _numbers(cursor: str | None) -> tuple[int, float, int]:
    try:
        built, since, attempt = json.loads(cursor or "[0, 0, 0]")
        return int(built), float(since), int(attempt)
    except (ValueError, TypeError):  # a person wrote it
        return 0, 0.0, 0


def _next_attempt(instance: dg.DagsterInstance, job: str, built: int, attempt: int) -> int:
    """The number of the next attempt when the last one failed and its pause is over; else 0."""
    for record in _requested(instance, f"{job}@{built}#{attempt}"):
        ended = record.end_time or 0.0
        failed = record.dagster_run.status is dg.DagsterRunStatus.FAILURE
        if failed and time.time() - ended > retry_pause(attempt + 1):
            return attempt + 1
    return 0


def in_work(instance: dg.DagsterInstance) -> bool:
    """Whether a run of a demonstration, or of many, is queued or running."""
    runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    return any(PARTITION_TAG in run.tags or run.job_name == PROCESS_MANY for run in runs)


def dataset_changed(
    name: str, interval_seconds: int, stage: Stage[Any], job: Any, description: str
) -> dg.SensorDefinition:
    """A sensor for the job of one dataset that reads no trajectory."""

    @watching(name, interval_seconds, description, job)
    def evaluate(context: dg.SensorEvaluationContext, workspace: Workspace) -> _Asked:
        return _unless_built(context, workspace, stage, job.name)

    return evaluate


def _unless_built(
    context: dg.SensorEvaluationContext, workspace: Workspace, stage: Stage[Any], job: str
) -> _Asked:
    """A run of a job of one dataset that reads no trajectory, unless it is as it would be built.

    One that failed is asked for again after a pause, with its attempt in the key.
    """
    graph = Graph(workspace)
    output = DatasetOutput(graph, stage)
    present = graph.state(output)
    if isinstance(present, Current):
        return dg.SkipReason(f"{stage.name} has everything")
    version = present.version.id if present.version else None
    state = hashlib.sha256(f"{output.plan().recipe}{version}".encode()).hexdigest()[:16]
    said = (context.cursor or "").partition("#")
    attempt = int(said[2]) if said[0] == state and said[2].isdigit() else 0
    for record in _requested(context.instance, f"{job}@{state}#{attempt}"):
        run, ended = record.dagster_run, record.end_time or 0.0
        if not run.is_finished or time.time() - ended < retry_pause(attempt + 1):
            return dg.SkipReason(f"{stage.name} is in work, or its last run has just ended")
        attempt += 1
    context.update_cursor(f"{state}#{attempt}")
    return dg.RunRequest(run_key=f"{job}@{state}#{attempt}")


def _requested(instance: dg.DagsterInstance, run_key: str) -> Sequence[dg.RunRecord]:
    """The run that was requested with this key, if any."""
    return instance.get_run_records(dg.RunsFilter(tags={"dagster/run_key": run_key}), limit=1)


_SPEC = dg.AssetSpec(
    REVIEWS,
    group_name=group_of(REVIEWS),
    owners=OWNERS,
    kinds={"json"},
    code_version="1",
    description="Decisions of people: approval, corrections, bad steps, notes. An observation "
    "counts them. The sensor `new_uploads`, or `demo-pipeline run`, applies them: corrections in "
    "`records`, approval and rejection in the datasets. `demo-pipeline review` makes them.",
)


def _observe(roots: Roots) -> dg.ObserveResult:
    """How many decisions there are, how many hold, and about how many demonstrations."""
    found = list(judged_decisions(roots.workspace.store, ()))
    ids = hashlib.sha256("".join(sorted(one.id for one, _ in found)).encode())
    counts: Mapping[str, int] = {
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
