"""The store in a bucket: versions written object by object, one small object for readers.

Belongs here: the order of a commit's steps, and what readers get. A process that dies between any
two of them leaves the last good version. Outputs are made and read in a local working copy.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from pydantic import JsonValue

from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.objects.object_store import Objects, list_all
from demo_pipeline.storage.store import bucket_pointers
from demo_pipeline.storage.store.bucket_gc import collect_bucket_garbage
from demo_pipeline.storage.store.bucket_layout import (
    in_parallel,
    manifest_key,
    require_bucket_document,
)
from demo_pipeline.storage.store.bucket_verification import verify_bucket_version
from demo_pipeline.storage.store.bucket_versions import fetch_version, find_version, upload_version
from demo_pipeline.storage.store.integrity import OutputDamage, missing_output_damage
from demo_pipeline.storage.store.layout import is_document, require_output
from demo_pipeline.storage.store.local_cache import LocalCache
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import CheckOutcome, LinkEntry, Recipe, Version


class BucketStore:
    """A `Store` over objects.

    Args:
        objects: the bucket.
        cache: folder of the working copy, for this bucket alone; safe to remove at any time that
            nothing reads it.
    """

    def __init__(self, objects: Objects, cache: Path) -> None:
        self._objects = objects
        self._copy = LocalCache(cache)

    @property
    def url(self) -> str:
        """The bucket's URL."""
        return self._objects.url

    def current(self, output: str) -> Version | None:
        """See `Store`; a file is known to be missing when somebody here looked for it."""
        require_output(output)
        pointed = bucket_pointers.read_pointer(self._objects, output)
        if pointed is None or self._is_damaged(output, pointed):
            return None
        return find_version(self._objects, self._copy, (output, pointed))

    @contextmanager
    def open(self, output: str) -> Iterator[tuple[Path, Version]]:
        """See `Store`: the working copy of the version, fetched when it is not there or not whole.

        Raises:
            MissingOutput: names the linked output when that is the one with a file missing.
        """
        version = self.current(output)
        if version is None:
            raise MissingOutput(output)
        fetch_version(self._objects, self._copy, version)
        self._copy.point(version)
        yield self._copy.content(version), version

    def stage(self, output: str) -> AbstractContextManager[Staging]:
        """See `Store`; what is linked has to be opened, or committed, here before."""
        return self._copy.local.stage(output)

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """See `Store`: the working copy, then its objects, the manifest, the pointer."""
        bucket_pointers.require_separate_output(self._objects, staging.output)
        in_parallel(partial(self._require_link, staging.output), list(staging.links.values()))
        version = self._copy.local.commit(staging, recipe, summary, checks)
        upload_version(self._objects, self._copy, version)
        bucket_pointers.move_pointer(self._objects, version.output, version.id)
        self._copy.forget_damage(version.output, version.id)
        return version

    def outputs(self, prefix: str = "") -> list[str]:
        """See `Store`: one listing of the pointers."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return bucket_pointers.published_outputs(self._objects, folder)

    def remove(self, output: str) -> None:
        """See `Store`."""
        require_output(output)
        bucket_pointers.remove_pointer(self._objects, output)
        self._copy.unpoint(output)

    def verify(self, output: str) -> list[OutputDamage]:
        """See `Store`: reads the bucket, and throws away what is wrong in the working copy."""
        require_output(output)
        pointed = bucket_pointers.read_pointer(self._objects, output)
        if pointed is None:
            return [missing_output_damage(output)]
        return verify_bucket_version(self._objects, self._copy, (output, pointed))

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`: ages in the bucket by its clock; the working copy is pruned by its own."""
        removed, current = collect_bucket_garbage(self._objects, self._copy, grace_seconds, now)
        return removed + self._copy.prune(current, grace_seconds, now)

    def put_document(self, key: str, data: bytes) -> None:
        """See `Store`."""
        require_bucket_document(key)
        self._objects.put(key, data)

    def get_document(self, key: str) -> bytes | None:
        """See `Store`."""
        require_bucket_document(key)
        found = self._objects.read(key)
        return found[0] if found else None

    def delete_document(self, key: str) -> bool:
        """See `Store`."""
        require_bucket_document(key)
        if self._objects.head(key) is None:
            return False
        self._objects.delete(key)
        return True

    def list_documents(self, prefix: str) -> list[str]:
        """See `Store`."""
        folder = prefix.rstrip("/")
        require_bucket_document(f"{folder}/x")
        keys = {info.key for info in list_all(self._objects, f"{folder}/")}
        return sorted(filter(is_document, keys))

    def _is_damaged(self, output: str, version: str) -> bool:
        """Whether an object was found to be wrong, and nobody has written it again since."""
        damage = self._copy.damage(output, version)
        if damage is None:
            return False
        info = self._objects.head(damage.key)
        if (info.etag if info else "") == damage.etag:
            return True
        self._copy.forget_damage(output, version)
        return False

    def _require_link(self, output: str, link: LinkEntry) -> None:
        """Refuse links to versions that were collected meanwhile."""
        if self._objects.head(manifest_key(link.output, link.version)) is None:
            raise StorageError(f"{output}: {link.output} changed meanwhile; run again")
