"""The store: outputs committed as a whole, read as a whole, whatever kind of place they lie in.

Belongs here: what every store can do, in one protocol, and the opening of one by its URL.
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
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, Recipe, Version


class Store(Protocol):
    """Outputs by name (`events/<id>`, `dataset`, …), each a directory with immutable versions.

    Every method raises `StorageError` for a name that is not made of safe ids joined by `/`.
    """

    @property
    def url(self) -> str:
        """The root as it was given, without credentials."""
        ...

    def current(self, output: str) -> Version | None:
        """The version readers see; None when there is none, or a file is missing or resized."""
        ...

    def open(self, output: str) -> AbstractContextManager[tuple[Path, Version]]:
        """A local folder with the current version's content, links readable, for reading only.

        One version for as long as it is open, whatever is committed meanwhile.

        Raises:
            MissingOutput: `current` is None.
        """
        ...

    def stage(self, output: str) -> AbstractContextManager[Staging]:
        """A private directory to make a version in; removed at the end whatever happens."""
        ...

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """Make a staged directory the output's current version.

        Readers see the old version or the new one. Only files and links count, not empty folders.

        Raises:
            StorageError: the directory holds something else than files and `Staging.link`s, is
                committed already, or links a version that is gone.
        """
        ...

    def outputs(self, prefix: str = "") -> list[str]:
        """Names of the outputs at or below the folder `prefix`, sorted, whole or not."""
        ...

    def remove(self, output: str) -> None:
        """Let readers see no version any more; its files go with a later `collect`."""
        ...

    def verify(self, output: str) -> list[OutputDamage]:
        """Every difference between the current version and its manifest; reads every byte."""
        ...

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """Remove versions and staging that nobody needed for `grace_seconds`; what was removed.

        Args:
            grace_seconds: longer than any reading and any making of an output takes.
            now: epoch seconds.
        """
        ...

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, as a whole."""
        ...

    def get_document(self, key: str) -> bytes | None:
        """A document's bytes, None when there is none."""
        ...

    def delete_document(self, key: str) -> bool:
        """Remove a document; whether there was one."""
        ...

    def list_documents(self, prefix: str) -> list[str]:
        """Keys of the documents in the folder `prefix`, sorted."""
        ...


def open_store(url: str, cache: Path | None = None) -> Store:
    """The store at a path, a `file://` URL or an `s3://` URL; nothing need be there yet.

    Args:
        url: the root.
        cache: the folder for local copies of what is in buckets; each store has its own part.

    Raises:
        StorageError: for a root of another kind, or a bucket without a `cache`.
    """
    if not is_bucket(url):
        return LocalStore(local_path(url))
    from demo_pipeline.storage.objects.s3_objects import S3Objects  # noqa: PLC0415 - costs 0.6 s

    objects = S3Objects(url)
    if cache is None:
        raise StorageError("a store in a bucket needs a folder for local copies; name one")
    part = hashlib.sha256(objects.url.encode()).hexdigest()[:16]
    return BucketStore(objects, cache / f"store-{part}")
