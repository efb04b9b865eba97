"""The store: outputs that are committed and read as a whole, in a local folder.

Belongs here: what other packages may ask of it, and the order of the steps of a commit and of a
collection. A process that dies at any moment leaves the last good version, and nothing unfinished
that a reader can see. A store in a bucket is the same with a local cache as its folder.
"""

import hashlib
import logging
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import JsonValue

from demo_pipeline.files.atomic_write import sync, sync_file_system
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import (
    MANIFEST,
    VERSIONS_FOLDER,
    Folder,
    VersionKey,
    remove_tree,
)
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
from demo_pipeline.store.version_manifest import (
    CheckOutcome,
    Recipe,
    Version,
    make_manifest,
    write_version,
)
from demo_pipeline.store.versions import (
    OutputDamage,
    Staging,
    describe_files,
    has_all_files,
    install,
    is_linked,
    link_removed,
    publish,
    require_free,
    staged,
    start_grace_period,
    unneeded_versions,
    verify_version,
)

_COLLECTION = ".collect"  # the lock of a collection, shared by the commits that run meanwhile
_MANY = 1000  # files and folders that are synced by one call for the file system
_LOG = logging.getLogger(__package__)


class Store:
    """Outputs by name (`events/<id>`, `dataset`, …), each a directory with immutable versions.

    Every method raises `StorageError` for a name that is not safe ids joined by `/`.

    Args:
        root: the folder, which is created by the first write; everything is on its file system.
        objects: where documents are; None: in the folder.

    Attributes:
        objects: for what people put beside the outputs.
    """

    def __init__(self, root: Path, objects: Objects | None = None) -> None:
        self._folder = Folder(root.absolute())
        self.objects = objects or FolderObjects(self._folder.root, self._folder.draft)

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        return self.objects.url

    # What a store in a bucket answers in another way

    def _pointed(self, output: str) -> str | None:
        """The version that readers see, whether or not it exists; None without a valid pointer."""
        return self._folder.published_version(output)

    def _outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        return self._folder.published_outputs(folder)

    def _keys(self, within: str) -> set[VersionKey]:
        """Every version below a folder, published or not, complete or not."""
        return set(self._folder.versions(within))

    def _load(self, key: VersionKey) -> Version | None:
        """A version; None when it is known to be damaged."""
        return self._folder.load(*key)

    def _bring(self, version: Version, pattern: str | None = None) -> None:
        """Have a version with those it links to, or its files that match a glob, in the folder."""

    def _verify(self, key: VersionKey) -> list[OutputDamage]:
        """Every difference between a version, with those it links to, and its manifest."""
        return verify_version(self._folder, *key)

    # Reading

    def current(self, output: str, whole: Container[VersionKey] = ()) -> Version | None:
        """The published version; None without one, or when a file is missing or resized.

        A file that is missing in a bucket is only known when this machine tried to download it.
        `whole`: versions whose files the caller knows to be there.
        """
        version = self.published(output)
        if version and version.key in whole:
            return version
        return version if version and has_all_files(self._folder, version) else None

    def published(self, output: str) -> Version | None:
        """The published version, whether or not its files exist: see `is_complete`."""
        require_output(output)
        published = self._pointed(output)
        return self._load((output, published)) if published else None

    def is_complete(self, version: Version) -> bool:
        """Whether every file of a published version exists in its size; asks the bucket itself."""
        return has_all_files(self._folder, version)

    def open(
        self, output: str, files: str | None = None, whole: Container[VersionKey] = ()
    ) -> tuple[Path, Version]:
        """A local folder with the current version's content, links included, for reading only.

        It stays this version, whatever is committed meanwhile, and goes a grace period later.

        Args:
            output: its name.
            files: a glob, by readers of a few files of a large output. From a bucket only the
                output's own files whose paths match are downloaded, none of linked outputs. The
                folder may hold other files too.
            whole: see `current`.

        Raises:
            MissingOutput: `current` is None; or names an output that lacks one of these files, or
                a linked one that lacks a file.
        """
        version = self.current(output, whole)
        if version is None:
            raise MissingOutput(output)
        self._bring(version, files)
        return Path(self._folder.content(*version.key)), version

    def open_version(self, version: Version) -> Path:
        """Like `open`, for the own files of a version that `versions` gave, published or not."""
        self._bring(version, "*")
        return Path(self._folder.content(*version.key))

    def open_all(self, outputs: Iterable[str]) -> Iterator[tuple[str, Version]]:
        """Yield what `open` gives of very many outputs; those without a whole version are left out.

        The folders are text, which takes a tenth of the memory of a `Path`.
        """
        for version in filter(None, map(self.current, outputs)):
            with suppress(MissingOutput):
                self._bring(version)
                yield self._folder.content(*version.key), version

    def outputs(self, prefix: str = "") -> list[str]:
        """Names of the published outputs at or below the folder `prefix`, sorted."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(self._outputs(folder))

    def versions(self, within: str = "") -> Iterator[tuple[str, Version | None]]:
        """Yield every version of every output, published or not; None: its manifest is damaged.

        `within`: only of this output, or of those in a folder of this name.
        """
        for key in sorted(self._keys(within)):
            yield key[0], self._load(key)

    def verify(self, output: str) -> list[OutputDamage]:
        """Every difference between the current version and its manifest; reads every byte."""
        require_output(output)
        published = self._pointed(output)
        if published is None:
            message = "was never built, or was removed"
            return [OutputDamage.of(output, "missing_output", ".", message)]
        return self._verify((output, published))

    # Writing

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
        folder, output = self._folder, staging.output
        if not staging.path.is_dir():
            message = "this staged directory was committed or removed; stage again"
            raise StorageError(f"{output}: {message}")
        files, unsynced = describe_files(staging, recipe.stage)
        manifest = make_manifest(
            output, recipe, files=files, links=staging.links, summary=summary, checks=checks
        )
        version = write_version(staging.directory / MANIFEST, manifest)
        folders = {path.rpartition("/")[0] for path, _ in files.sizes()}
        few = len(unsynced) + len(folders) <= _MANY
        if few or not sync_file_system(staging.directory):
            places = [Path(place[0]) for place in os.walk(staging.directory, topdown=False)]
            for place in [*(staging.path / file for file in unsynced), *places]:
                sync(place)
        with folder.locked(output), folder.locked(_COLLECTION, shared=True):
            require_free(folder, output)
            for path, link in staging.links.items():
                if not is_linked(folder, staging.path / path, link):
                    raise link_removed(output, link)
            install(folder, staging.directory, version)
            publish(folder, version)
        _LOG.debug("%s: version %s published", *version.key)
        return version

    def remove(self, output: str) -> None:
        """Unpublish the output; a later `collect` removes its files."""
        require_output(output)
        pointer = self._folder.pointer(output)
        if pointer.is_symlink():
            with self._folder.locked(output):
                start_grace_period(self._folder, output)
                pointer.unlink(missing_ok=True)
                sync(pointer.parent)

    def erase(self, output: str) -> bool:
        """Remove the output with all of its versions at once, also for readers that have it open.

        Returns whether anything was there.
        """
        require_output(output)
        places = [self._folder.root / VERSIONS_FOLDER / output, self._folder.staging / output]
        found = self._pointed(output) is not None
        found |= any(os.path.lexists(place) for place in places)
        self.remove(output)
        for place in places:
            with self._folder.locked(output):
                trash = self._folder.discard(place) if place.is_dir() else None
            if trash:
                remove_tree(trash)
        return found

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """Garbage collection: remove what was not needed for `grace_seconds`; returns its names.

        These are `<output>@<version>`, sorted, then the paths of abandoned drafts. Ages are by the
        bucket's clock, in a folder and a cache by the file system's. In a bucket a version that no
        commit has marked as replaced is marked, and goes at a later collection.

        Args:
            grace_seconds: longer than any output is read or built.
            now: epoch seconds.
        """
        folder, before = self._folder, now - grace_seconds
        if not folder.root.is_dir():
            return []
        with folder.locked(_COLLECTION):  # while it is decided, nothing is published
            needed_at = {key: folder.version(*key).stat().st_mtime for key in folder.versions()}
            current = {(output, folder.published_version(output)) for output, _ in needed_at}
            old = unneeded_versions(
                needed_at, current, before, lambda keys: [folder.load(*key) for key in keys]
            )
            trash = [folder.discard(folder.version(*key)) for key in old]
        for path in trash:
            remove_tree(path)
        return [f"{output}@{version}" for output, version in old] + folder.remove_unfinished(before)

    def remove_leftovers(self) -> list[str]:
        """Remove unfinished files of processes of this machine that have ended; returns names."""
        return self._folder.remove_unfinished(None)

    def abandoned(self, grace_seconds: float, now: float) -> list[str]:
        """What processes that died more than `grace_seconds` ago left, which `collect` removes."""
        paths = self._folder.unfinished(now - grace_seconds)
        return [path.relative_to(self._folder.root).as_posix() for path in paths]

    # Documents

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, atomically."""
        self.objects.put(require_document(key), data)

    def add_document(self, key: str, data: bytes) -> bool:
        """Write a document unless there is one; returns whether this call wrote it."""
        with suppress(ObjectChangedError):
            self.objects.put(require_document(key), data, replaces="")
            return True
        return False

    def get_document(self, key: str) -> bytes | None:
        """A document's bytes; None when it does not exist."""
        stored = self.objects.read(require_document(key))
        return stored[0] if stored else None

    def delete_document(self, key: str) -> bool:
        """Remove a document; returns whether it existed."""
        exists = self.objects.head(require_document(key)) is not None
        if exists:
            self.objects.delete(key)
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
        with suppress(MissingRootError):
            return sorted({i.key for i in list_all(self.objects, folder) if is_document(i.key)})
        return []


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
    from demo_pipeline.store.bucket import BucketStore  # noqa: PLC0415 - it needs this module
    from demo_pipeline.store.s3 import S3Objects  # noqa: PLC0415 - costs 0.6 s

    objects = S3Objects(url)
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    part = hashlib.sha256(objects.url.encode()).hexdigest()[:16]
    return BucketStore(cache / f"store-{part}", objects)
