"""The roots and the settings: everything that a stage may access.

Belongs here: opening them.
"""

from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.settings import Settings
from demo_pipeline.store.names import local_path
from demo_pipeline.store.store import Store, open_store
from demo_pipeline.store.uploads import Uploads, open_uploads


@dataclass(frozen=True)
class Workspace:
    """The roots and the settings: everything that a stage may access.

    `tasks` is the folder of OSWorld task files, which may be missing.
    """

    settings: Settings
    uploads: Uploads
    store: Store
    tasks: Path

    @classmethod
    def open(cls, settings: Settings) -> "Workspace":
        """Open the roots. Raises `StorageError` for a root of a kind that is not supported."""
        uploads = open_uploads(settings.uploads, local_path(settings.cache), settings.limits)
        store = open_store(settings.store, local_path(settings.cache))
        return cls(settings, uploads, store, local_path(settings.osworld_tasks))
