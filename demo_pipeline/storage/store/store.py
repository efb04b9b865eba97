"""The store: outputs that are committed and read as a whole, in a local folder or a bucket.

Belongs here: the protocol of every store, and opening a store by its URL.
"""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.store.bucket_store import BucketStore
from demo_pipeline.storage.store.integrity import OutputDamage
from demo_pipeline.storage.store.local_store import LocalStore
from demo_pipeline.storage.store.part_folder import PartFolder
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import (
    CheckOutcome,
    Recipe,
    Version,
    VersionName,
)


class Store(Protocol):
    """Outputs by name (`events/<id>`, `dataset`, …), each a directory with immutable versions.

    Every method raises `StorageError` for a name that is not safe ids joined by `/`.
    """

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        ...

    def current(self, output: str) -> Version | None:
        """The published version; None without one, or when a file is missing or resized."""
        ...

    def published(self, output: str) -> Version | None:
        """The published version, whether or not its files exist: see `is_complete`."""
        ...

    def is_complete(self, version: Version) -> bool:
        """Whether every file of a published version exists in its size; asks the bucket itself."""
        ...

    def open(self, output: str) -> AbstractContextManager[tuple[Path, Version]]:
        """A local folder with the current version's content, links included, for reading only.

        It stays the same version while it is open, whatever is committed meanwhile.

        Raises:
            MissingOutput: `current` is None.
        """
        ...

    def open_files(self, output: str, pattern: str) -> AbstractContextManager[tuple[Path, Version]]:
        """Like `open`, for readers of a few files of a large output.

        From a bucket only the output's own files whose paths match the glob `pattern` are
        downloaded, none of linked outputs. The folder may hold other files too.

        Raises:
            MissingOutput: `current` is None, or one of these files is missing.
        """
        ...

    def open_all(
        self, outputs: Sequence[str]
    ) -> AbstractContextManager[Sequence[tuple[str, VersionName]]]:
        """Like `open`, for very many outputs without links; those without a version are left out.

        The folders are text, which takes a tenth of the memory of a `Path`.

        Args:
            outputs: sorted names.
        """
        ...

    def stage(self, output: str) -> AbstractContextManager[Staging]:
        """A private directory to build a version in; removed at the end in any case."""
        ...

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """Publish a staged directory as the output's current version, atomically.

        Readers see the old version or the new one. Empty folders are not part of a version.

        Raises:
            StorageError: the directory holds anything but files and `Staging.link`s, was committed
                already, or links a version that was removed.
        """
        ...

    def outputs(self, prefix: str = "") -> list[str]:
        """Names of the published outputs at or below the folder `prefix`, sorted."""
        ...

    def remove(self, output: str) -> None:
        """Unpublish the output; a later `collect` removes its files."""
        ...

    def verify(self, output: str) -> list[OutputDamage]:
        """Every difference between the current version and its manifest; reads every byte."""
        ...

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """Garbage collection: remove versions and staging that were not needed for `grace_seconds`.

        Args:
            grace_seconds: longer than any output is read or built.
            now: epoch seconds.

        Returns:
            Names of what was removed.
        """
        ...

    @property
    def parts(self) -> PartFolder:
        """Parts of exports that builds keep; on this machine, also of a bucket."""
        ...

    def remove_leftovers(self) -> list[str]:
        """Remove unfinished files of processes of this machine that have ended; returns names."""

    def abandoned(self, grace_seconds: float, now: float) -> list[str]:
        """Unfinished directories of processes that died more than `grace_seconds` ago.

        `collect` removes them. For a bucket they are in the local cache.
        """
        ...

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, atomically."""
        ...

    def get_document(self, key: str) -> bytes | None:
        """A document's bytes; None when it does not exist."""
        ...

    def delete_document(self, key: str) -> bool:
        """Remove a document; returns whether it existed."""
        ...

    def list_documents(self, prefix: str) -> list[str]:
        """Keys of the documents in the folder `prefix`, sorted."""
        ...


def open_store(url: str, cache: Path | None = None) -> Store:
    """The store at a path, a `file://` URL or an `s3://` URL; it need not exist yet.

    Args:
        url: the root.
        cache: the folder for local copies of buckets; each store gets its own subfolder.

    Raises:
        StorageError: another kind of root, or a bucket without a `cache`.
    """
    if not is_bucket(url):
        return LocalStore(local_path(url))
    from demo_pipeline.storage.objects.s3_objects import S3Objects  # noqa: PLC0415 - costs 0.6 s

    objects = S3Objects(url)
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    part = hashlib.sha256(objects.url.encode()).hexdigest()[:16]
    return BucketStore(objects, cache / f"store-{part}")
