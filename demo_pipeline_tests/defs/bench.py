"""A pipeline over temporary roots with an instance of its own, and what its runs said."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.tags import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
)

from demo_pipeline.defs.build import build_defs
from demo_pipeline.defs.partitions import register
from demo_pipeline.osworld import CATALOG_OUTPUT, run_catalog
from demo_pipeline.pipeline import Pipeline
from demo_pipeline.settings import ExecutionSettings, Settings
from demo_pipeline_tests.datasets.builders import snapshot

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
    def pipeline(self) -> Pipeline:
        return Pipeline.open(self.settings)

    def run(
        self, job: str, key: str | None = None, only: tuple[str, ...] = (), **tags: str
    ) -> Result:
        """A job, or only some of its assets, whatever becomes of it."""
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            partition_key=key,
            asset_selection=[dg.AssetKey(name) for name in only] or None,
            tags=tags,
            raise_on_error=False,
        )

    def process(self, key: str, **tags: str) -> Result:
        """One demonstration, registered first and compared with the OSWorld tasks."""
        self.catalogue()
        register(self.instance, [key])
        return self.run("process_demonstration", key, **tags)

    def process_range(self, first: str, last: str) -> Result:
        between = {ASSET_PARTITION_RANGE_START_TAG: first, ASSET_PARTITION_RANGE_END_TAG: last}
        self.catalogue()
        return self.run("process_demonstration", None, **between)

    def catalogue(self) -> None:
        """The catalog of OSWorld tasks, unless there is one."""
        if self.pipeline.store.current(CATALOG_OUTPUT) is None:
            run_catalog(self.pipeline)

    def files(self) -> dict[str, dict[str, bytes]]:
        """Every file of every committed output."""
        found = {}
        for output in self.pipeline.store.outputs():
            with self.pipeline.store.open(output) as (folder, _):
                found[output] = snapshot(folder)
        return found


@contextmanager
def bench(root: Path, **execution: Any) -> Iterator[Bench]:
    """A bench over `root`/uploads, `root`/store and `root`/tasks, which need not be there."""
    (root / "uploads").mkdir()
    settings = Settings(
        uploads=str(root / "uploads"),
        store=str(root / "store"),
        osworld_tasks=str(root / "tasks"),
        execution=ExecutionSettings(**execution),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        yield Bench(settings, build_defs(settings), instance)


def materialized(result: Result) -> dict[tuple[str, str | None], dg.AssetMaterialization]:
    """(asset, partition) → its materialization."""
    found = {}
    for event in result.get_asset_materialization_events():
        one = event.step_materialization_data.materialization
        found[one.asset_key.path[-1], one.partition] = one
    return found


def values(materialization: dg.AssetMaterialization) -> dict[str, Any]:
    return {key: entry.value for key, entry in materialization.metadata.items()}


def verdicts(result: Result) -> dict[str, dg.AssetCheckEvaluation]:
    """Check → its evaluation."""
    return {one.check_name: one for one in result.get_asset_check_evaluations()}


def failures(result: Result) -> dict[str, Any]:
    """Step → what it said when it failed."""
    found = {}
    for event in result.get_step_failure_events():
        data = event.step_failure_data
        assert data.user_failure_data is not None, data.error
        found[str(event.step_key)] = data.user_failure_data
    return found
