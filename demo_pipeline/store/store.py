"""The store: outputs that are committed and read as a whole, in a local folder or a bucket.

Belongs here: staging, committing and reading on a POSIX file system: versions as directories, and a
symbolic link that readers follow. A process that dies at any moment leaves the last good version,
and nothing unfinished that a reader can see. A store in a bucket is the same with a local cache as
its folder (bucket.py).
"""

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import JsonValue

from demo_pipeline.files.atomic_write import replace_synced, sync, sync_file_system, synced_file
from demo_pipeline.store import collect
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import (
    MANIFEST,
    Folder,
    PartFolder,
    VersionKey,
    marked_in_use,
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
    VERSION_LENGTH,
    CheckOutcome,
    Recipe,
    Version,
    VersionName,
    make_manifest,
)
from demo_pipeline.store.versions import (
    OutputDamage,
    Staging,
    describe_files,
    has_all_files,
    is_linked,
    load_version,
    missing_output_damage,
    verify_version,
)

_MANY = 1000  # files and folders that are synced by one call for the file system
_LOG = logging.getLogger(__package__)


class Store:
    """Outputs by name (`events/<id>`, `dataset`, …), each a directory with immutable versions.

    Every method raises `StorageError` for a name that is not safe ids joined by `/`.

    Args:
        root: the folder, which is created by the first write; everything is on its file system.
    """

    def __init__(self, root: Path) -> None:
        self._folder = Folder(root.absolute())
        self._objects: Objects = FolderObjects(self._folder.root, self._folder.draft)

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        return self._objects.url

    @property
    def parts(self) -> PartFolder:
        """Parts of exports that builds keep; on this machine, also of a bucket."""
        return PartFolder(self._folder)

    def current(self, output: str) -> Version | None:
        """The published version; None without one, or when a file is missing or resized.

        A file that is missing in a bucket is only known when this machine tried to download it.
        """
        version = self.published(output)
        return version if version and self._seems_whole(version) else None

    def published(self, output: str) -> Version | None:
        """The published version, whether or not its files exist: see `is_complete`."""
        require_output(output)
        published = self._pointed(output)
        return self._load((output, published)) if published else None

    def is_complete(self, version: Version) -> bool:
        """Whether every file of a published version exists in its size; asks the bucket itself."""
        return has_all_files(self._folder, version)

    @contextmanager
    def open(self, output: str) -> Iterator[tuple[Path, Version]]:
        """A local folder with the current version's content, links included, for reading only.

        It stays the same version while it is open, whatever is committed meanwhile.

        Raises:
            MissingOutput: `current` is None; or names a linked output that lacks a file.
        """
        version = self._required(output)
        self._bring(version)
        yield self._content(version), version

    @contextmanager
    def open_files(self, output: str, pattern: str) -> Iterator[tuple[Path, Version]]:
        """Like `open`, for readers of a few files of a large output.

        From a bucket only the output's own files whose paths match the glob `pattern` are
        downloaded, none of linked outputs. The folder may hold other files too.

        Raises:
            MissingOutput: `current` is None, or one of these files is missing.
        """
        version = self._required(output)
        yield self._bring_files(version, pattern), version

    @contextmanager
    def open_all(self, outputs: Sequence[str]) -> Iterator[Sequence[tuple[str, VersionName]]]:
        """Like `open`, for very many outputs; those without a whole version are left out.

        The folders are text, which takes a tenth of the memory of a `Path`.
        """
        opened: list[tuple[str, VersionName]] = []
        for version in filter(None, map(self.current, outputs)):
            with suppress(MissingOutput):
                self._bring(version)
                opened.append((str(self._content(version)), version.name))
        yield opened

    @contextmanager
    def stage(self, output: str) -> Iterator[Staging]:
        """A private directory to build a version in; removed at the end in any case."""
        require_output(output)
        self._require_free(output)
        staging = Staging(output, self._folder, self._folder.draft(output))
        self._folder.make(staging.directory)
        try:
            with marked_in_use(staging.directory):
                self._folder.make(staging.path)
                yield staging
        finally:
            remove_tree(staging.directory)

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
        output = staging.output
        if not staging.path.is_dir():
            raise StorageError(
                f"{output}: this staged directory was committed or removed; stage again"
            )
        files, unsynced, folders = describe_files(staging, recipe.stage)
        manifest = make_manifest(
            output, recipe, files=files, links=staging.links, summary=summary, checks=checks
        )
        digest = hashlib.sha256()
        with synced_file(staging.directory / MANIFEST) as file:
            for chunk in manifest.chunks():
                digest.update(chunk)
                file.write(chunk)
        version = Version(digest.hexdigest()[:VERSION_LENGTH], manifest.as_read())
        _sync_staged(staging, unsynced, folders)
        with self._folder.locked(output), self._folder.locked(collect.LOCK, shared=True):
            self._require_free(output)
            for path, link in staging.links.items():
                if not is_linked(self._folder, staging.path / path, link):
                    raise StorageError(f"{output}: {link.output} {REMOVED}")
            damaged = self._install(staging.directory, version)
            self._publish(version)
        if damaged:
            remove_tree(damaged)
        return version

    def outputs(self, prefix: str = "") -> list[str]:
        """Names of the published outputs at or below the folder `prefix`, sorted."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(self._published_outputs(folder))

    def remove(self, output: str) -> None:
        """Unpublish the output; a later `collect` removes its files."""
        require_output(output)
        if self._folder.pointer(output).is_symlink():
            with self._folder.locked(output):
                self._start_grace_period(output)
                self._folder.pointer(output).unlink(missing_ok=True)
                sync(self._folder.pointer(output).parent)

    def versions(self) -> Iterator[tuple[str, Version | None]]:
        """Yield every version of every output, published or not; None: its manifest is damaged."""
        return ((key[0], load_version(self._folder, *key)) for key in self._version_keys())

    def erase(self, output: str) -> bool:
        """Remove the output with all of its versions at once, also for readers that have it open.

        Kept parts of exports, which may hold rows of it, go too. Returns whether anything was
        there.
        """
        require_output(output)
        places = [self._folder.versions / output, self._folder.staging / output]
        found = self._folder.published_version(output) is not None
        found |= any(os.path.lexists(place) for place in places)
        self.remove(output)
        for place in places:
            with self._folder.locked(output):
                trash = self._folder.discard(place) if place.is_dir() else None
            if trash:
                remove_tree(trash)
        self._folder.lock(output).unlink(missing_ok=True)
        self.parts.collect(float("inf"))
        return found

    def verify(self, output: str) -> list[OutputDamage]:
        """Every difference between the current version and its manifest; reads every byte."""
        require_output(output)
        published = self._pointed(output)
        return self._verify((output, published)) if published else [missing_output_damage(output)]

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """Garbage collection: remove versions and staging that were not needed for `grace_seconds`.

        Args:
            grace_seconds: longer than any output is read or built.
            now: epoch seconds.

        Returns:
            Names of what was removed.
        """
        return collect.collect_folder(self._folder, now - grace_seconds)

    def remove_leftovers(self) -> list[str]:
        """Remove unfinished files of processes of this machine that have ended; returns names."""
        return collect.remove_leftovers(self._folder)

    def abandoned(self, grace_seconds: float, now: float) -> list[str]:
        """Unfinished directories of processes that died more than `grace_seconds` ago.

        `collect` removes them. For a bucket they are in the local cache.
        """
        return collect.abandoned(self._folder, now - grace_seconds)

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, atomically."""
        self._objects.put(_document(key), data)

    def add_document(self, key: str, data: bytes) -> bool:
        """Write a document unless there is one; returns whether this call wrote it."""
        with suppress(ObjectChangedError):
            self._objects.put(_document(key), data, if_none_match=True)
            return True
        return False

    def get_document(self, key: str) -> bytes | None:
        """A document's bytes; None when it does not exist."""
        stored = self._objects.read(_document(key))
        return stored[0] if stored else None

    def delete_document(self, key: str) -> bool:
        """Remove a document; returns whether it existed."""
        exists = self._objects.head(_document(key)) is not None
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
        folder = _document(f"{prefix.rstrip('/')}/x")[:-1]
        try:
            return sorted({i.key for i in list_all(self._objects, folder) if is_document(i.key)})
        except MissingRootError:
            return []

    # What a store in a bucket does otherwise

    def _pointed(self, output: str) -> str | None:
        """The version that readers see, whether or not it exists; None without a valid pointer."""
        return self._folder.published_version(output)

    def _published_outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        return set(filter(self._folder.published_version, self._folder.links(folder)))

    def _version_keys(self) -> list[VersionKey]:
        """Every version that there is."""
        return sorted(collect.all_versions(self._folder))

    def _load(self, key: VersionKey) -> Version | None:
        """The version; None when it is known to be damaged."""
        return load_version(self._folder, *key)

    def _seems_whole(self, version: Version) -> bool:
        """Whether a version may be read, as far as that can be told quickly."""
        return has_all_files(self._folder, version)

    def _bring(self, version: Version) -> None:
        """Have the version and all that it links to in the folder; see `open`."""

    def _bring_files(self, version: Version, pattern: str) -> Path:  # noqa: ARG002 - all are here
        """Have some files in a folder, which is returned; see `open_files`."""
        return self._content(version)

    def _verify(self, key: VersionKey) -> list[OutputDamage]:
        return verify_version(self._folder, *key)

    # What all stores do

    def _required(self, output: str) -> Version:
        version = self.current(output)
        if version is None:
            raise MissingOutput(output)
        return version

    def _content(self, version: Version) -> Path:
        return Path(self._folder.content(version.output, version.id))

    def _install(self, staged: Path, version: Version) -> Path | None:
        """Move a staged directory to its version's place; the caller holds the output's lock.

        Returns:
            Where a damaged version with the same id was moved to; None when nothing was replaced.
        """
        place = self._folder.version(version.output, version.id)
        damaged: Path | None = None
        self._folder.make(place.parent)
        if os.path.lexists(place):
            whole = has_all_files(self._folder, version)
            if whole and not verify_version(self._folder, version.output, version.id, linked=False):
                os.utime(place)
                return None
            damaged = self._folder.discard(place)
        replace_synced(staged, place)
        return damaged

    def _publish(self, version: Version) -> None:
        """Move the pointer of an output, whose lock the caller holds: readers see the version."""
        pointer, link = self._folder.pointer(version.output), self._folder.draft()
        if self._folder.published_version(version.output) == version.id:
            return
        self._start_grace_period(version.output)
        self._folder.make(pointer.parent)
        self._folder.make(link.parent)
        link.symlink_to(self._folder.link_target(pointer, version.output, version.id))
        replace_synced(link, pointer)
        _LOG.debug("%s: version %s published", version.output, version.id)

    def _start_grace_period(self, output: str) -> None:
        """Start the grace period of the version that is published now."""
        published = self._folder.published_version(output)
        if published and self._folder.version(output, published).is_dir():
            os.utime(self._folder.version(output, published))

    def _require_free(self, output: str) -> None:
        """Refuse to commit where the store's own link is not the only thing."""
        pointer, root = self._folder.pointer(output), self._folder.root
        wrong = [
            path for path in pointer.parents if path.is_relative_to(root) and path.is_symlink()
        ]
        wrong = [path for path in wrong if path != root]
        wrong += [pointer] if os.path.lexists(pointer) and not pointer.is_symlink() else []
        if wrong:
            name = wrong[0].relative_to(root).as_posix()
            raise StorageError(
                f"{output}: {name} in the store was not written by the store; move it away"
            )
        # Whether the file system tells upper case from lower case.
        if os.path.lexists(root / self._folder.versions.name.upper()) and os.path.lexists(pointer):
            names = {path.name.lower(): path.name for path in pointer.parent.iterdir()}
            known = names.get(pointer.name.lower(), pointer.name)
            if known != pointer.name:
                other = f"{output.rpartition('/')[0]}/{known}"
                raise StorageError(
                    f"{output}: its name differs from {other} only in case, and the store's file "
                    "system does not tell the two apart; rename one of the folders"
                )


VERSIONS, POINTERS, RETIRED, REMOVING = "versions/", "pointers/", "retired/", "removing/"
"""Folders of a bucket that the store itself uses."""
REMOVED = "was removed or replaced meanwhile; run again"


def _document(key: str) -> str:
    """A document's key. Raises `StorageError` when it may have none, or the store uses it."""
    require_document(key)
    if key.startswith((VERSIONS, POINTERS, RETIRED, REMOVING)):
        raise StorageError(f"{key!r} cannot be the key of a document: the store uses that folder")
    return key


def _sync_staged(staging: Staging, files: Sequence[str], folders: int) -> None:
    """Sync some files of a staged directory, and all of its folders."""
    if len(files) + folders > _MANY and sync_file_system(staging.directory):
        return
    for name in sorted(files):
        sync(staging.path / name)
    for folder, _, _ in os.walk(staging.directory, topdown=False):
        sync(Path(folder))


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
    from demo_pipeline.store.bucket import BucketStore  # noqa: PLC0415 - imports this module
    from demo_pipeline.store.s3 import S3Objects  # noqa: PLC0415 - costs 0.6 s

    objects = S3Objects(url)
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    part = hashlib.sha256(objects.url.encode()).hexdigest()[:16]
    return BucketStore(objects, cache / f"store-{part}")
