"""The resource `roots`, which gives every asset, job and sensor the settings and the workspace.

No run can change the resource. While a process executes a run, the resource also holds the run's
lock.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import dagster as dg

from demo_pipeline.defs.partitions import PARTITION_TAG
from demo_pipeline.runs.run_locks import held, lock_folder
from demo_pipeline.runs.vain_waits import VainWaits
from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings


@dataclass(frozen=True)
class OpenRoots:
    """The value of the resource `roots`.

    Attributes:
        settings: the settings of the environment, including the locations of uploads and store.
        vain_waits: the causes of transient errors that outlasted all retries in this run.
    """

    settings: Settings
    vain_waits: VainWaits

    @property
    def workspace(self) -> Workspace:
        """The workspace with uploads and store; opened once per process."""
        return _opened(self.settings.model_dump_json())


Roots = dg.ResourceParam[OpenRoots]
"""The type of the argument `roots` of an asset, op or sensor."""


def roots_resource(
    settings: Settings, vain_waits: VainWaits | None = None
) -> dg.ResourceDefinition:
    """Returns the resource `roots` with these settings; a run cannot configure it.

    Args:
        vain_waits: the causes of transient errors that outlasted all retries, shared by all runs of
            a command. If it is None, each run remembers its own causes.
    """

    @dg.resource(
        config_schema={},
        description=f"The settings of the environment, which a run cannot change. Uploads: "
        f"{settings.uploads}. Store: {settings.store}.",
    )
    def roots(context: dg.InitResourceContext) -> Iterator[OpenRoots]:
        with _run_lock(context):
            yield OpenRoots(settings, vain_waits or VainWaits())

    return roots


def _run_lock(context: dg.InitResourceContext) -> AbstractContextManager[None]:
    """Locks the lock file of a run while this process executes the run.

    Only runs of Dagster's default launcher are locked. Other launchers detect dead runs themselves.
    """
    run = context.run
    instance = context.instance
    if run is None or instance is None:  # a sensor
        return nullcontext()
    if not isinstance(instance.run_launcher, dg.DefaultRunLauncher):
        return nullcontext()
    folder = lock_folder(Path(instance.root_directory))
    return held(folder, run.run_id, run.tags.get(PARTITION_TAG, ""))


@lru_cache(maxsize=8)
def _opened(values: str) -> Workspace:
    return Workspace.open(Settings.model_validate_json(values))
