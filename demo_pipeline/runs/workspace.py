"""The settings, the uploads and the store, which every stage and command needs."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from demo_pipeline.settings import Settings
from demo_pipeline.store.names import local_path
from demo_pipeline.store.store import Store, open_store
from demo_pipeline.store.uploads import Uploads, open_uploads

if TYPE_CHECKING:
    from demo_pipeline.review.review_store import Reviews


@dataclass(frozen=True)
class Workspace:
    """Everything that a stage may access.

    Attributes:
        uploads: the recordings as they arrive.
        store: the outputs and the documents.
        tasks: the folder with the OSWorld task files; it may be missing.
    """

    settings: Settings
    uploads: Uploads
    store: Store
    tasks: Path

    @cached_property
    def reviews(self) -> "Reviews":
        """The decisions of reviewers in the store."""
        from demo_pipeline.review.review_store import Reviews  # noqa: PLC0415 - rarely needed

        return Reviews(self.store)

    @classmethod
    def open(cls, settings: Settings) -> "Workspace":
        """Opens the uploads and the store.

        Raises:
            StorageError: a path or URL in the settings is of a kind that is not supported.
        """
        cache = local_path(settings.cache)
        uploads = open_uploads(settings.uploads, cache)
        store = open_store(settings.store, cache)
        uploads.is_stored = lambda key: store.published(f"recordings/{key}") is not None
        return cls(settings, uploads, store, local_path(settings.osworld_tasks))
