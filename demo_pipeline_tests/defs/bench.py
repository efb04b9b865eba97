"""Makes workspaces in temporary folders with their own Dagster instances, and reads their runs."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from demo_pipeline.defs import build_defs
from demo_pipeline.defs.partitions import PARTITION_TAG, register_partitions
from demo_pipeline.defs.resources import roots_resource
from demo_pipeline.runs.task_catalog import CATALOG_OUTPUT
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import DiscoverySettings, ExecutionSettings, Settings
from demo_pipeline_tests.dagster_homes import WITHOUT_OUTPUT
from demo_pipeline_tests.datasets.builders import snapshot
from demo_pipeline_tests.sample_workspace import places_in, run_catalog

Result = dg.ExecuteInProcessResult


@dataclass(frozen=True)
class Bench:
    settings: Settings
    definitions: dg.Definitions
    instance: dg.DagsterInstance

    @property
    def uploads(self) -> Path:
        return Path(self.settings.uploads)

    @property
    def workspace(self) -> Workspace:
        return Workspace.open(self.settings)

    def run(
        self, job: str, key: str | None = None, only: Sequence[str] = (), **tags: str
    ) -> Result:
        """Runs a job, or only the assets `only` of it. Failures are in the result, not raised."""
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            partition_key=key,
            asset_selection=[dg.AssetKey(name) for name in only] or None,
            tags=tags,
            raise_on_error=False,
        )

    def process(self, key: str, **tags: str) -> Result:
        """Processes a demonstration, after registering it and reading the OSWorld tasks."""
        self.catalogue()
        register_partitions(self.instance, [key])
        return self.run("process_demonstration", key, **tags)

    def catalogue(self) -> None:
        """Builds the catalog of OSWorld tasks, unless it exists."""
        if self.workspace.store.current(CATALOG_OUTPUT) is None:
            run_catalog(self.workspace)

    def files(self) -> dict[str, dict[str, bytes]]:
        """Returns the content of every file of every committed output, by output and path."""
        contents = {}
        for output in self.workspace.store.outputs():
            folder = self.workspace.store.open(output)[0]
            contents[output] = snapshot(folder)
        return contents


@contextmanager
def open_bench(
    root: Path,
    *,
    kept: bool = False,
    captured: bool = False,
    source: Path | None = None,
    **execution: Any,
) -> Iterator[Bench]:
    """Makes a workspace over `root`/uploads, `root`/store and `root`/tasks, with an instance.

    An upload is complete if two evaluations of the sensor see the same files.

    Args:
        root: an empty folder, except for the optional folder `tasks`.
        kept: whether the instance is stored on disk in `root`/home.
        captured: whether the instance stores the output of steps, which is Dagster's default.
        source: a folder whose `uploads` and `store` are copied.
        execution: values of `ExecutionSettings`.
    """
    if source is None:
        (root / "uploads").mkdir()
    else:
        for name in ("uploads", "store"):
            shutil.copytree(source / name, root / name, symlinks=True)
    (root / "home").mkdir()
    settings = Settings(
        **places_in(root),
        execution=ExecutionSettings(**execution),
        discovery=DiscoverySettings(stable_seconds=0),
    )
    with _instance(root / "home", kept=kept, captured=captured) as instance:
        yield Bench(settings, build_defs(settings), instance)


def _instance(home: Path, *, kept: bool, captured: bool) -> dg.DagsterInstance:
    if kept:
        config = {"telemetry": {"enabled": False}} if captured else WITHOUT_OUTPUT
        return dg.DagsterInstance.local_temp(str(home), config)
    return dg.DagsterInstance.ephemeral(str(home))


@dataclass(frozen=True)
class Ticked:
    """The result of one evaluation of a sensor, with the runs that the daemon would launch."""

    skipped: str
    requests: tuple[dg.RunRequest, ...]
    cursor: str | None

    @property
    def keys(self) -> list[str | None]:
        return [request.partition_key for request in self.requests]


def ticked(bench: Bench, sensor: str, cursor: str | None = None) -> Ticked:
    """Evaluates a sensor once.

    Like the daemon, the function registers the partitions that the sensor requests. No run is
    launched.
    """
    definition = bench.definitions.resolve_sensor_def(sensor)
    with dg.build_sensor_context(
        instance=bench.instance,
        cursor=cursor,
        resources={"roots": roots_resource(bench.settings)},
        definitions=bench.definitions,
    ) as context:
        result = definition(context)
    if isinstance(result, dg.SkipReason):
        return Ticked(result.skip_message or "", (), cursor)
    if isinstance(result, dg.RunRequest):
        return Ticked("", (result,), cursor)
    assert isinstance(result, dg.SensorResult)
    for request in result.dynamic_partitions_requests or []:
        assert isinstance(request, dg.AddDynamicPartitionsRequest)
        keys = list(request.partition_keys)
        bench.instance.add_dynamic_partitions(request.partitions_def_name, keys)
    why = result.skip_reason.skip_message if result.skip_reason else ""
    return Ticked(why or "", tuple(result.run_requests or ()), result.cursor)


def launched(bench: Bench, request: dg.RunRequest, job: str = "process_demonstration") -> Result:
    """Executes the run that the daemon would launch for a request."""
    return bench.run(job, request.partition_key, **request.tags)


def cancel(bench: Bench, request: dg.RunRequest) -> None:
    """Records a run for a request that a person cancelled before it started."""
    key = {PARTITION_TAG: str(request.partition_key)}
    job = bench.definitions.resolve_job_def("process_demonstration")
    run = bench.instance.create_run_for_job(job, tags={**request.tags, **key})
    bench.instance.report_run_canceled(run)


def materialized(result: Result) -> dict[tuple[str, str | None], dg.AssetMaterialization]:
    """Returns the materializations of a run by asset and partition."""
    materializations = {}
    for event in result.get_asset_materialization_events():
        materialization = event.step_materialization_data.materialization
        asset = materialization.asset_key.path[-1]
        materializations[asset, materialization.partition] = materialization
    return materializations


def values(materialization: dg.AssetMaterialization) -> dict[str, Any]:
    return {key: entry.value for key, entry in materialization.metadata.items()}


def verdicts(result: Result) -> dict[str, dg.AssetCheckEvaluation]:
    """Returns the evaluations of checks in a run by the name of the check."""
    evaluations = result.get_asset_check_evaluations()
    return {evaluation.check_name: evaluation for evaluation in evaluations}


def failures(result: Result) -> dict[str, Any]:
    """Returns the data of the failures in a run by stage."""
    failures_by_stage = {}
    for event in result.get_step_failure_events():
        data = event.step_failure_data
        assert data.user_failure_data is not None, data.error
        failures_by_stage[str(event.step_key)] = data.user_failure_data
    return failures_by_stage
