"""The store: outputs that are committed and read as a whole, in a local folder or a bucket.

Belongs here: what other packages may ask of it. A store in a bucket is the same with a local cache
as its folder, which the bucket is compared with before a read and after a commit.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from demo_pipeline.store.bucket import BucketVersions
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import VERSIONS_FOLDER, Folder, remove_tree
from demo_pipeline.store.names import (
    is_bucket,
    is_document,
    local_path,
    require_document,
    require_output,
)
from demo_pipeline.store.objects import (
    FolderObjects,
    MissingRootError,
    ObjectChangedError,
    Objects,
    list_all,
)
from demo_pipeline.store.version_manifest import CheckOutcome, Recipe, Version
from demo_pipeline.store.versions import (
    OutputDamage,
    Staging,
    collect_folder,
    commit_staged,
    has_all_files,
    require_free,
    staged,
    unpublish,
    verify_version,
)

KeptT = TypeVar("KeptT")


class Store:
    """Outputs by name (`events/<id>`, `dataset`, …), each a directory with immutable versions.

    Every method raises `StorageError` for a name that is not safe ids joined by `/`.

    Args:
        root: the folder, which is created by the first write; everything is on its file system. Of
            a bucket the local cache, for this bucket alone.
        bucket: its objects; None: the store is in the folder.
    """

    def __init__(self, root: Path, bucket: Objects | None = None) -> None:
        self._folder = Folder(root.absolute())
        self._objects = bucket or FolderObjects(self._folder.root, self._folder.draft)
        self._bucket = BucketVersions(bucket, self._folder) if bucket else None

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        return self._objects.url

    def current(self, output: str) -> Version | None:
        """The published version; None without one, or when a file is missing or resized.

        A file that is missing in a bucket is only known when this machine tried to download it.
        """
        version = self.published(output)
        whole = version and (self._bucket or has_all_files(self._folder, version))
        return version if whole else None

    def published(self, output: str) -> Version | None:
        """The published version, whether or not its files exist: see `is_complete`."""
        require_output(output)
        published = self._pointed(output)
        if published is None:
            return None
        if self._bucket:
            return self._bucket.load((output, published))
        return self._folder.load(output, published)

    def is_complete(self, version: Version) -> bool:
        """Whether every file of a published version exists in its size; asks the bucket itself."""
        if self._bucket:
            return self._bucket.is_complete(version)
        return has_all_files(self._folder, version)

    @contextmanager
    def open(self, output: str) -> Iterator[tuple[Path, Version]]:
        """A local folder with the current version's content, links included, for reading only.

        It stays the same version while it is open, whatever is committed meanwhile.

        Raises:
            MissingOutput: `current` is None; or names a linked output that lacks a file.
        """
        version = self._required(output)
        if self._bucket:
            self._bucket.bring(version)
        yield Path(self._folder.content(*version.key)), version

    @contextmanager
    def open_version(self, version: Version) -> Iterator[Path]:
        """Like `open`, for a version that `versions` gave, published or not."""
        if self._bucket:
            yield self._bucket.bring_files(version, "*")
        else:
            yield Path(self._folder.content(*version.key))

    @contextmanager
    def open_files(self, output: str, pattern: str) -> Iterator[tuple[Path, Version]]:
        """Like `open`, for readers of a few files of a large output.

        From a bucket only the output's own files whose paths match the glob `pattern` are
        downloaded, none of linked outputs. The folder may hold other files too.

        Raises:
            MissingOutput: `current` is None, or one of these files is missing.
        """
        version = self._required(output)
        if self._bucket:
            yield self._bucket.bring_files(version, pattern), version
        else:
            yield Path(self._folder.content(*version.key)), version

    @contextmanager
    def open_all(
        self, outputs: Sequence[str], keep: Callable[[Version], KeptT]
    ) -> Iterator[Sequence[tuple[str, KeptT]]]:
        """Like `open`, for very many outputs; those without a whole version are left out.

        The folders are text, which takes a tenth of the memory of a `Path`; of a version stays
        what `keep` returns.
        """
        opened: list[tuple[str, KeptT]] = []
        for version in filter(None, map(self.current, outputs)):
            with suppress(MissingOutput):
                if self._bucket:
                    self._bucket.bring(version)
                opened.append((self._folder.content(*version.key), keep(version)))
        yield opened

    @contextmanager
    def stage(self, output: str) -> Iterator[Staging]:
        """A private directory to build a version in; removed at the end in any case."""
        require_output(output)
        require_free(self._folder, output)
        with staged(self._folder, output) as staging:
            yield staging

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
        if self._bucket:
            self._bucket.prepare(staging)
        version = commit_staged(staging, recipe, summary, checks)
        if self._bucket:
            self._bucket.publish(version)
        return version

    def outputs(self, prefix: str = "") -> list[str]:
        """Names of the published outputs at or below the folder `prefix`, sorted."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(
            (self._bucket.outputs if self._bucket else self._folder.published_outputs)(folder)
        )

    def remove(self, output: str) -> None:
        """Unpublish the output; a later `collect` removes its files."""
        require_output(output)
        if self._bucket:
            self._bucket.unpublish(output)
        unpublish(self._folder, output)

    def versions(self, within: str = "") -> Iterator[tuple[str, Version | None]]:
        """Yield every version of every output, published or not; None: its manifest is damaged.

        `within`: only of this output, or of those in a folder of this name.
        """
        bucket = self._bucket.keys(within) if self._bucket else ()
        keys = {*self._folder.versions(within), *bucket}
        for key in sorted(keys):
            yield key[0], self._bucket.load(key) if self._bucket else self._folder.load(*key)

    def erase(self, output: str) -> bool:
        """Remove the output with all of its versions at once, also for readers that have it open.

        Returns whether anything was there.
        """
        require_output(output)
        places = [self._folder.root / VERSIONS_FOLDER / output, self._folder.staging / output]
        found = self._pointed(output) is not None
        found |= any(os.path.lexists(place) for place in places)
        self.remove(output)
        found |= bool(self._bucket and self._bucket.erase(output))
        for place in places:
            with self._folder.locked(output):
                trash = self._folder.discard(place) if place.is_dir() else None
            if trash:
                remove_tree(trash)
        return found

    def verify(self, output: str) -> list[OutputDamage]:
        """Every difference between the current version and its manifest; reads every byte."""
        require_output(output)
        published = self._pointed(output)
        if published is None:
            message = "was never built, or was removed"
            return [OutputDamage.of(output, "missing_output", ".", message)]
        if self._bucket:
            return self._bucket.verify((output, published))
        return verify_version(self._folder, output, published)

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """Garbage collection: remove what was not needed for `grace_seconds`; returns its names.

        Ages are by the bucket's clock, in a folder and a cache by the file system's. In a bucket a
        version that no commit has marked as replaced is marked, and goes at a later collection.

        Args:
            grace_seconds: longer than any output is read or built.
            now: epoch seconds.
        """
        if self._bucket:
            return self._bucket.collect(now - grace_seconds, now)
        return collect_folder(self._folder, now - grace_seconds)

    def remove_leftovers(self) -> list[str]:
        """Remove unfinished files of processes of this machine that have ended; returns names."""
        return self._folder.remove_unfinished(None)

    def abandoned(self, grace_seconds: float, now: float) -> list[str]:
        """What processes that died more than `grace_seconds` ago left, which `collect` removes."""
        paths = self._folder.unfinished(now - grace_seconds)
        return [path.relative_to(self._folder.root).as_posix() for path in paths]

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, atomically."""
        self._objects.put(require_document(key), data)

    def add_document(self, key: str, data: bytes) -> bool:
        """Write a document unless there is one; returns whether this call wrote it."""
        with suppress(ObjectChangedError):
            self._objects.put(require_document(key), data, if_none_match=True)
            return True
        return False

    def get_document(self, key: str) -> bytes | None:
        """A document's bytes; None when it does not exist."""
        stored = self._objects.read(require_document(key))
        return stored[0] if stored else None

    def delete_document(self, key: str) -> bool:
        """Remove a document; returns whether it existed."""
        exists = self._objects.head(require_document(key)) is not None
        if exists:
            self._objects.delete(key)
        return exists

    def delete_documents(self, folder: str) -> int:
        """Remove every document in a folder, and it; returns how many there were."""
        deleted = sum(map(self.delete_document, self.list_documents(folder)))
        with suppress(OSError):  # not empty, or in a bucket
            (self._folder.root / folder).rmdir()
        return deleted

    def list_documents(self, prefix: str) -> list[str]:
        """Keys of the documents in the folder `prefix`, sorted."""
        folder = require_document(f"{prefix.rstrip('/')}/x")[:-1]
        try:
            return sorted({i.key for i in list_all(self._objects, folder) if is_document(i.key)})
        except MissingRootError:
            return []

    def _pointed(self, output: str) -> str | None:
        """The version that readers see, whether or not it exists; None without a valid pointer."""
        return (self._bucket.pointed if self._bucket else self._folder.published_version)(output)

    def _required(self, output: str) -> Version:
        version = self.current(output)
        if version is None:
            raise MissingOutput(output)
        return version


def open_store(url: str, cache: Path | None = None) -> Store:
    """The store at a path, a `file://` URL or an `s3://` URL; it need not exist yet.

    Args:
        url: the root.
        cache: the folder for local copies of buckets; each store gets its own subfolder.

    Raises:
        StorageError: another kind of root, or a bucket without a `cache`.
    """
    if not is_bucket(url):
        return Store(local_path(url))
    from demo_pipeline.store.s3 import S3Objects  # noqa: PLC0415 - costs 0.6 s

    objects = S3Objects(url)
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    part = hashlib.sha256(objects.url.encode()).hexdigest()[:16]
    return Store(cache / f"store-{part}", objects)
