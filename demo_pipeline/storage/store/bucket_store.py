"""The store in a bucket: versions as objects, and a pointer that names the one readers see.

Belongs here: the order of a commit's steps, and what readers get. A process that dies between any
two steps leaves the last good version. Outputs are built and read in a local cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
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
from demo_pipeline.storage.store.bucket_versions import (
    fetch_files,
    fetch_version,
    find_version,
    has_all_objects,
    upload_version,
)
from demo_pipeline.storage.store.integrity import OutputDamage, missing_output_damage
from demo_pipeline.storage.store.layout import is_document, require_output
from demo_pipeline.storage.store.local_cache import LocalCache
from demo_pipeline.storage.store.part_folder import PartFolder
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import (
    CheckOutcome,
    LinkEntry,
    Recipe,
    Version,
    VersionName,
)


class BucketStore:
    """A `Store` over objects.

    Args:
        objects: the bucket.
        cache: folder of the local cache, for this bucket alone; it may be removed whenever nothing
            reads it.
    """

    def __init__(self, objects: Objects, cache: Path) -> None:
        self._objects = objects
        self._cache = LocalCache(cache)

    @property
    def url(self) -> str:
        """The bucket's URL."""
        return self._objects.url

    def current(self, output: str) -> Version | None:
        """See `Store`; a missing file is only known when this machine tried to download it."""
        require_output(output)
        published = bucket_pointers.read_pointer(self._objects, output)
        if published is None or self._is_damaged(output, published):
            return None
        return find_version(self._objects, self._cache, (output, published))

    def published(self, output: str) -> Version | None:
        """See `Store`; None when a file of it is known to be missing."""
        return self.current(output)

    def is_complete(self, version: Version) -> bool:
        """See `Store`: by one listing."""
        return has_all_objects(self._objects, version)

    @contextmanager
    def open(self, output: str) -> Iterator[tuple[Path, Version]]:
        """See `Store`: the version in the local cache, downloaded when it is missing or incomplete.

        Raises:
            MissingOutput: names the linked output when a file of that is missing.
        """
        version = self.current(output)
        if version is None:
            raise MissingOutput(output)
        fetch_version(self._objects, self._cache, version)
        self._cache.publish(version)
        yield self._cache.content(version), version

    @contextmanager
    def open_files(self, output: str, pattern: str) -> Iterator[tuple[Path, Version]]:
        """See `Store`; the files stay in the local cache until `collect` finds them old."""
        version = self.current(output)
        if version is None:
            raise MissingOutput(output)
        yield fetch_files(self._objects, self._cache, version, pattern), version

    @contextmanager
    def open_all(self, outputs: Sequence[str]) -> Iterator[list[tuple[str, VersionName]]]:
        """See `Store`."""
        with ExitStack() as stack:
            opened: list[tuple[str, VersionName]] = []
            for output in outputs:
                with suppress(MissingOutput):
                    folder, version = stack.enter_context(self.open(output))
                    opened.append((str(folder), version.name))
            yield opened

    def stage(self, output: str) -> AbstractContextManager[Staging]:
        """See `Store`; a linked version has to be opened or committed on this machine before."""
        return self._cache.local.stage(output)

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """See `Store`: first the local cache, then the objects, the manifest and the pointer."""
        bucket_pointers.require_separate_output(self._objects, staging.output)
        in_parallel(partial(self._require_link, staging.output), list(staging.links.values()))
        version = self._cache.local.commit(staging, recipe, summary, checks)
        upload_version(self._objects, self._cache, version)
        bucket_pointers.move_pointer(self._objects, version.output, version.id)
        self._cache.forget_damage(version.output, version.id)
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
        self._cache.unpublish(output)

    def verify(self, output: str) -> list[OutputDamage]:
        """See `Store`: reads the bucket, and removes a changed version from the local cache."""
        require_output(output)
        published = bucket_pointers.read_pointer(self._objects, output)
        if published is None:
            return [missing_output_damage(output)]
        return verify_bucket_version(self._objects, self._cache, (output, published))

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`: ages are by the bucket's clock there, by this machine's in the cache."""
        removed, current = collect_bucket_garbage(self._objects, self._cache, grace_seconds, now)
        return removed + self._cache.prune(current, grace_seconds, now)

    @property
    def parts(self) -> PartFolder:
        """See `Store`: in the local cache."""
        return self._cache.local.parts

    def remove_leftovers(self) -> list[str]:
        """See `Store`: in the local cache; a bucket never has unfinished files."""
        return self._cache.local.remove_leftovers()

    def abandoned(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`."""
        return self._cache.local.abandoned(grace_seconds, now)

    def put_document(self, key: str, data: bytes) -> None:
        """See `Store`."""
        require_bucket_document(key)
        self._objects.put(key, data)

    def get_document(self, key: str) -> bytes | None:
        """See `Store`."""
        require_bucket_document(key)
        stored = self._objects.read(key)
        return stored[0] if stored else None

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
        """Whether a corrupt object is known, and was not written again since."""
        corrupt = self._cache.known_damage(output, version)
        if corrupt is None:
            return False
        info = self._objects.head(corrupt.key)
        if (info.etag if info else "") == corrupt.etag:
            return True
        self._cache.forget_damage(output, version)
        return False

    def _require_link(self, output: str, link: LinkEntry) -> None:
        """Refuse a link to a version that was removed meanwhile."""
        if self._objects.head(manifest_key(link.output, link.version)) is None:
            raise StorageError(
                f"{output}: {link.output} was removed or replaced meanwhile; run again"
            )
