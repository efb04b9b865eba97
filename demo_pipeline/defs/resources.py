"""The resource that every asset, job and sensor gets: where everything is, and the settings.

Belongs here: opening the roots, which no run can change, and holding the lock of a run while a
process executes it.
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
    """The roots and all thresholds of the settings.

    Attributes:
        settings: of the environment.
        vain_waits: the troubles that the run has waited for in vain.
    """

    settings: Settings
    vain_waits: VainWaits

    @property
    def workspace(self) -> Workspace:
        """Everything that a stage may access; opened once in a process."""
        return _opened(self.settings.model_dump_json())


Roots = dg.ResourceParam[OpenRoots]
"""What an asset, op or sensor declares its argument `roots` as."""


def roots_resource(
    settings: Settings, vain_waits: VainWaits | None = None
) -> dg.ResourceDefinition:
    """Yields the resource `roots` with these settings; it has no config that a run could set.

    `vain_waits`: shared by the runs of one command. Without it, every run has its own.
    """

    @dg.resource(
        config_schema={},
        description=f"uploads: {settings.uploads}; store: {settings.store}; the settings of the "
        "environment. A run cannot change them.",
    )
    def roots(context: dg.InitResourceContext) -> Iterator[OpenRoots]:
        with _run_lock(context):
            yield OpenRoots(settings, vain_waits or VainWaits())

    return roots


def _run_lock(context: dg.InitResourceContext) -> AbstractContextManager[None]:
    """Holds the lock of a run that a process of this machine executes, whoever launched it.

    Other launchers than Dagster's default know by themselves which of their runs have died.
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
