"""The resource that every asset, job and sensor gets: where everything is, and the settings.

Belongs here: `Roots`, whose values the UI shows and a run's config may change.
"""

import json
from functools import lru_cache
from typing import Any

import dagster as dg
from pydantic import Field

from demo_pipeline.runs.workspace import Workspace
from demo_pipeline.settings import Settings

_PLACES = {"uploads", "store", "osworld_tasks", "cache"}


class Roots(dg.ConfigurableResource):
    """The roots and all thresholds, as `Settings` has them."""

    uploads: str = Field(description="a path or an s3:// URL; the recordings")
    store: str = Field(description="a path or an s3:// URL; everything built")
    osworld_tasks: str = Field(description="a folder of task files; may be missing")
    cache: str = Field(description="a folder for downloads")
    sections: dict[str, Any] = Field(description="all other settings, by section")

    @classmethod
    def of(cls, settings: Settings) -> "Roots":
        """The resource with these settings."""
        values = settings.model_dump(mode="json")
        places = {name: values.pop(name) for name in _PLACES}
        return cls(**places, sections=values)

    @property
    def workspace(self) -> Workspace:
        """Everything that a stage may access; opened once in a process."""
        places = {name: getattr(self, name) for name in _PLACES}
        return _opened(json.dumps(places | self.sections, sort_keys=True))


@lru_cache(maxsize=8)
def _opened(values: str) -> Workspace:
    return Workspace.open(Settings(**json.loads(values)))
