"""The store of outputs. Each output is published as a whole and read as a whole.

An output has immutable versions, and a pointer to the version that readers get. This module decides
the order of operations, which folder.py and bucket.py execute.

Writers, readers and `prune` need no locks, because

- a commit creates a new folder and never writes into a folder that exists,
- a process that moves or removes a pointer first restarts the grace period of the version that was
  published, and
- `prune` removes only versions whose grace period has ended.

If a process dies between any two steps, the last complete version remains published.
"""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from demo_pipeline.store.bucket import Bucket, in_parallel
from demo_pipeline.store.errors import ChangedOutput, MissingOutput, StorageError
from demo_pipeline.store.folder import Folder
from demo_pipeline.store.names import (
    bucket_of,
    is_bucket,
    is_document,
    is_output,
    local_path,
    require_document,
    require_output,
)
from demo_pipeline.store.versions import (
    CONTENT,
    MANIFEST,
    VERSION_LENGTH,
    CheckOutcome,
    FileEntry,
    LinkEntry,
    Manifest,
    OutputDamage,
    Recipe,
    Staging,
    Version,
    VersionKey,
    VersionName,
    ascii_path,
    damages_of,
    describe_files,
    new_version,
    parse_manifest,
)

_READS = 3  # attempts to read a pointer and its version; the pointer may move in between
_LOG = logging.getLogger(__package__)


class Store:
    """Publishes and reads outputs by their names, such as `events/<id>` or `dataset`.

    Every method raises `StorageError` for a name that does not consist of safe ids joined by `/`.

    Args:
        place: the folder or the bucket.

    Attributes:
        objects: the folder or bucket, which may also contain files that the store did not write.
        url: the root as it was configured, without credentials.
        local: the folder in which outputs are built and read: the store itself, or the cache of a
            bucket.
    """

    def __init__(self, place: Path | Folder | Bucket) -> None:
        if isinstance(place, Path):
            place = Folder(place)
        self.objects: Folder | Bucket = place
        self.url = place.url
        self.local = place.cache if isinstance(place, Bucket) else place

    # Reading

    def current(self, output: str, whole: Container[VersionKey] = ()) -> Version | None:
        """Returns the published version of an output; None if it is missing or not complete.

        Args:
            whole: versions that are known to be complete and are therefore not examined.
        """
        version = self.published(output)
        if version and (version.key in whole or self.is_complete(version)):
            return version
        return None

    def published(self, output: str) -> Version | None:
        """Returns the published version of an output, complete or not; None if there is none."""
        require_output(output)
        for _ in range(_READS):
            place = self.objects.pointer(output)
            if place is None:
                return None
            if version := self._load(f"{output}/{place}"):
                return version
        return None

    def is_complete(self, version: Version) -> bool:
        """Returns whether all files of a version have the right size, and all links are right.

        In a bucket every version is complete, because the manifest is uploaded last.
        """
        return isinstance(self.objects, Bucket) or self.objects.is_whole(version)

    def open(
        self, output: str, files: str | None = None, whole: Container[VersionKey] = ()
    ) -> tuple[Path, Version]:
        """Returns a local folder with the content of the current version, and the version.

        Callers must not write into the folder. Later commits do not change it; `prune` removes it
        after a grace period.

        Args:
            files: a glob for the files to download from a bucket. Linked outputs are then not
                downloaded, and the folder may contain other files, too. If None, all files and
                linked outputs are downloaded.
            whole: see `current`.

        Raises:
            MissingOutput: the output has no complete version, or a file or linked output to
                download is missing.
            ChangedOutput: a downloaded file differs from its manifest.
        """
        version = self.current(output, whole)
        if version is None:
            raise MissingOutput(output)
        return self.open_version(version, files), version

    def open_all(self, outputs: Iterable[str]) -> Iterator[tuple[str, Version]]:
        """Yields, for each output, a local folder with its content and the current version.

        Missing and incomplete outputs are left out. Folders are strings, which take a tenth of the
        memory of a `Path`.
        """
        for version in filter(None, map(self.current, outputs)):
            with suppress(MissingOutput):
                self.open_version(version, None)
                yield self.local.content(version.path), version

    def open_version(self, version: Version, pattern: str | None = "*") -> Path:
        """Returns a local folder with the content of a version, published or not.

        Args:
            pattern: a glob for the files to download from a bucket. If None, all files and all
                linked versions are downloaded.

        Raises:
            MissingOutput, ChangedOutput: see `open`.
        """
        content = Path(self.local.content(version.path))
        if isinstance(self.objects, Bucket):
            content.mkdir(parents=True, exist_ok=True)
            self.local.renew(version.path)
            bring = partial(self._bring_file, self.objects, version)
            in_parallel(bring, self.local.lacking(version, pattern))
            if pattern is None:
                in_parallel(partial(self._bring_link, version), version.manifest.links)
        return content

    def _bring_file(self, bucket: Bucket, version: Version, file: FileEntry) -> None:
        """Downloads a file of a version into the cache, and verifies its digest."""
        place = Path(self.local.content(version.path), file.path)
        with self.local.incoming(place, version.output) as draft:
            with draft.open("w+b") as out:
                digest = bucket.download(version, file, out)
            if digest is None:
                raise MissingOutput(version.output)
            if digest != file.sha256:
                raise ChangedOutput(version.output, ascii_path(file.path))

    def _bring_link(self, version: Version, path: str) -> None:
        """Downloads the version to which a link leads, and creates the link in the cache."""
        link = version.manifest.links[path]
        version_path = self.local.linked(version, path, link)
        cached = self._load(version_path) if version_path else None
        if cached and not cached.manifest.links and not any(self.local.lacking(cached)):
            return
        linked = self._linked(link)
        self.open_version(linked, None)
        place = f"{self.local.content(version.path)}/{path}"
        self.local.set_link(place, linked.path, version.output)

    def outputs(self, prefix: str = "") -> list[str]:
        """Returns the names of published outputs, sorted.

        Args:
            prefix: an output, or a folder of outputs; empty for all outputs.
        """
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(filter(is_output, self.objects.outputs(folder)))

    def versions(self, within: str = "") -> Iterator[tuple[str, Version | None]]:
        """Yields each version in the store as a pair of the output's name and the version.

        The version is None if its manifest is missing or damaged, or names another output.

        Args:
            within: an output, or a folder of outputs; empty for all outputs.
        """
        for version_path in sorted(self.objects.ages(within)):
            yield version_path.rpartition("/")[0], self._load(version_path)

    def _load(self, version_path: str) -> Version | None:
        """Returns the version at a path.

        Returns None if the manifest is missing or damaged, or names another output.
        """
        output, _, place = version_path.rpartition("/")
        manifest = self._manifest(version_path)
        if manifest is None or manifest.output != output:
            return None
        return Version(place[:VERSION_LENGTH], manifest, place)

    def _manifest(self, version_path: str) -> Manifest | None:
        """Returns the manifest of a version; None if it is missing or damaged.

        A manifest from a bucket is cached.
        """
        output, _, place = version_path.rpartition("/")
        manifest = parse_manifest(self.local.manifest(version_path), place)
        if manifest is None and isinstance(self.objects, Bucket):
            data = self.objects.manifest(version_path)
            manifest = parse_manifest(data, place)
            if data and manifest:
                copy = Path(self.local.content(version_path)).with_name(MANIFEST)
                with self.local.incoming(copy, output) as draft:
                    draft.write_bytes(data)
        return manifest

    def _place(self, output: str, version: str) -> str | None:
        """Returns the path of a stored version; None if the version was removed.

        If several folders hold the same version, the published folder is preferred.
        """
        place = self.objects.pointer(output)
        if place and place[:VERSION_LENGTH] == version and self._exists(f"{output}/{place}"):
            return f"{output}/{place}"
        for version_path in sorted(self.objects.ages(output)):
            if _version_key(version_path) == (output, version) and self._exists(version_path):
                return version_path
        return None

    def _exists(self, version_path: str) -> bool:
        return self.objects.manifest(version_path) is not None

    def _linked(self, link: LinkEntry | VersionName) -> Version:
        """Returns the version to which a link or a version's name refers.

        Raises:
            MissingOutput: the version was removed.
        """
        version_id = link.id if isinstance(link, VersionName) else link.version
        version_path = self._place(link.output, version_id)
        version = self._load(version_path) if version_path else None
        if version is None:
            raise MissingOutput(link.output)
        return version

    # Damage

    def verify(
        self, output: str, damages_by_version: dict[str, list[OutputDamage]] | None = None
    ) -> list[OutputDamage]:
        """Compares the published version with its manifest byte by byte; returns every difference.

        Linked versions are included.

        Args:
            damages_by_version: a cache of the damages of versions, by path. Callers can pass the
                same dictionary to several calls.
        """
        require_output(output)
        if damages_by_version is None:
            damages_by_version = {}
        place = self.objects.pointer(output)
        if place is None:
            message = "was never built, or was removed"
            return [OutputDamage.for_path(output, "missing_output", ".", message)]
        return self._verify(f"{output}/{place}", damages_by_version)

    def _verify(
        self, version_path: str, damages_by_version: dict[str, list[OutputDamage]]
    ) -> list[OutputDamage]:
        if version_path in damages_by_version:
            return damages_by_version[version_path]
        output = version_path.rpartition("/")[0]
        version = self._load(version_path)
        if version is None:
            message = "is missing or was changed"
            damages = [OutputDamage.for_path(output, "damaged_manifest", MANIFEST, message)]
        else:
            digests = self.objects.digests(version)
            damages = damages_of(version, self.objects.sizes(version_path), digests)
            for path, link in version.manifest.links.items():
                damages += self._verify_link(version, path, link, damages_by_version)
        damages_by_version[version_path] = damages
        return damages

    def _verify_link(
        self,
        version: Version,
        path: str,
        link: LinkEntry,
        damages_by_version: dict[str, list[OutputDamage]],
    ) -> list[OutputDamage]:
        if isinstance(self.objects, Folder):
            version_path = self.objects.linked(version, path, link)
        else:
            version_path = self._place(link.output, link.version)
        if version_path is None:
            message = f"does not lead to {link.output} any more"
            return [OutputDamage.for_path(version.output, "broken_link", path, message)]
        damages = self._verify(version_path, damages_by_version)
        return [damage.inside(version.output, path) for damage in damages]

    # Writing

    @contextmanager
    def stage(self, output: str) -> Iterator[Staging]:
        """Creates a private directory for building a version, and removes it after the block."""
        require_output(output)
        with self.local.draft(output) as directory:
            (directory / CONTENT).mkdir()
            yield Staging(output, directory, self._content, before=self.published(output))

    def _content(self, output: str, version: str) -> str:
        """Returns the local folder with the content of a version.

        Raises:
            StorageError: the version was removed.
        """
        version_path = self._place(output, version)
        if version_path is None:
            raise StorageError(f"{output} was removed or replaced meanwhile; run again")
        return self.local.content(version_path)

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, Any],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """Publishes a staged directory as the current version of its output, atomically.

        Empty folders are not part of a version.

        Raises:
            StorageError: the directory was already committed, contains anything but files and
                `Staging.link`s, or links to a removed version.
            ChangedOutput: a file that the directory shares with another version is damaged.
        """
        output = staging.output
        if not staging.path.is_dir():
            message = "this staged directory was committed or removed; stage again"
            raise StorageError(f"{output}: {message}")
        files, unsynced = describe_files(staging, self._source)
        version, data = new_version(staging, recipe, summary, checks, files)
        (staging.directory / MANIFEST).write_bytes(data)
        if isinstance(self.objects, Bucket):
            self.objects.upload(staging, version)
        self.local.install(staging, version, unsynced if self.local is self.objects else None)
        self._require_versions({(link.output, link.version) for link in staging.links.values()})
        self._renew(output)
        self.objects.point(output, version.place)
        _LOG.debug("%s: version %s published", output, version.place)
        return version

    def _require_versions(self, keys: set[VersionKey]) -> None:
        """Raises `StorageError` if one of the versions was removed."""

        def require(key: VersionKey) -> None:
            self._content(*key)

        in_parallel(require, keys)

    def _source(self, source: Version | VersionName) -> tuple[str, Version] | None:
        """Returns the local folder of a version, and the version with its manifest.

        Returns None if the version was removed.
        """
        if isinstance(source, Version):
            return self.local.content(source.path), source
        with suppress(MissingOutput):
            version = self._linked(source)
            return self.local.content(version.path), version
        return None

    def _renew(self, output: str) -> bool:
        """Restarts the grace period of the published version of an output.

        Returns whether the output has a pointer.
        """
        place = self.objects.pointer(output)
        if place:
            self.objects.renew(f"{output}/{place}")
        return place is not None

    def remove(self, output: str) -> bool:
        """Removes the pointer of an output; returns whether the output had a pointer.

        `prune` removes the files after the grace period.
        """
        require_output(output)
        if not self._renew(output):
            return False
        self.objects.delete(f"{self.objects.pointers}{output}")
        return True

    def erase(self, output: str) -> bool:
        """Immediately removes an output with all versions, even while readers have it open.

        Returns whether anything was removed.
        """
        has_removed = self.remove(output)
        self.remove_leftovers()
        for place in self._places():
            for top in place.tops:
                has_removed |= place.delete_all(f"{top}{output}")
        if self.objects.pointer(output):  # another process has committed a version
            self.erase(output)
        return has_removed

    def _places(self) -> set[Folder | Bucket]:
        """Returns the folder, or the bucket and its cache."""
        return {self.objects, self.local}

    def prune(self, grace_seconds: float) -> list[str]:
        """Removes versions that have not been needed for a grace period, and abandoned drafts.

        A version is needed while it is published, during the grace period afterwards, and while a
        needed version links to it.

        Args:
            grace_seconds: the grace period by the store's clock. It must be longer than any build
                or reading of an output.

        Returns:
            The removed versions as `<output>@<version>`, sorted, then the paths of the drafts.
        """
        before = self.objects.now() - grace_seconds
        # The pointers are read before the ages. If a pointer moves in between, the earlier version
        # is kept, because its grace period has just restarted.
        names = self.outputs()
        places = in_parallel(self.objects.pointer, names)
        current = {f"{name}/{place}" for name, place in zip(names, places, strict=True)}
        ages = self.objects.ages()
        roots = {
            version_path
            for version_path, age in ages.items()
            if version_path in current or age >= before
        }
        removed = []
        for version_path in sorted(ages.keys() - self._with_linked(roots, ages)):
            output, _, place = version_path.rpartition("/")
            manifest = self._manifest(version_path)
            is_foreign = manifest is not None and manifest.output != output
            if not is_foreign and self.objects.pointer(output) != place:
                for storage in self._places():
                    storage.discard(version_path)
                removed.append(f"{output}@{place[:VERSION_LENGTH]}")
        if isinstance(self.objects, Bucket):
            for version_path, age in self.local.ages().items():
                if version_path not in ages and age < before:
                    self.local.discard(version_path)
            self.objects.abort_uploads(before)
        return removed + self.local.sweep()

    def _with_linked(self, roots: set[str], versions: Iterable[str]) -> set[str]:
        """Returns `roots` and the paths of all versions to which they link, even indirectly."""
        if roots >= set(versions):
            return roots
        places = defaultdict(set)
        for version_path in versions:
            places[_version_key(version_path)].add(version_path)
        needed: set[str] = set()
        level = roots
        while level:
            needed |= level
            linked = in_parallel(partial(self._places_of_links, places), level)
            level = set[str]().union(*linked) - needed
        return needed

    def _places_of_links(
        self, places: Mapping[VersionKey, set[str]], version_path: str
    ) -> set[str]:
        """Returns the paths of the versions to which a version links.

        For a linked version in several folders, returns only the folder that readers use.

        Args:
            places: maps the key of each version to the paths of its folders.
        """
        version = self._load(version_path)
        if version is None:
            return set()
        needed: set[str] = set()
        for path, link in version.manifest.links.items():
            candidates = places.get((link.output, link.version), set())
            if len(candidates) > 1:
                used = None
                if self.local is self.objects:
                    used = self.local.leads_to(version, path, link)
                used = used or self._place(link.output, link.version)
                if used in candidates:
                    candidates = {used}
            needed |= candidates
        return needed

    def remove_leftovers(self) -> list[str]:
        """Removes drafts of dead processes on this machine; returns their paths."""
        return self.local.sweep()

    # Documents

    def put_document(self, key: str, data: bytes) -> None:
        """Writes or replaces a small document, such as `quarantine/<id>.json`, atomically."""
        self.objects.put(require_document(key), data)

    def add_document(self, key: str, data: bytes) -> bool:
        """Writes a document unless its key exists; returns whether this call wrote it."""
        return self.objects.add(require_document(key), data)

    def get_document(self, key: str) -> bytes | None:
        """Returns the bytes of a document; None if it does not exist."""
        return self.objects.read(require_document(key))

    def delete_document(self, key: str) -> bool:
        """Removes a document; returns whether it existed."""
        exists = self.objects.head(require_document(key)) is not None
        if exists:
            self.objects.delete(key)
        return exists

    def delete_documents(self, folder: str) -> int:
        """Removes every document in a folder; returns how many there were."""
        count = len(self.list_documents(folder))
        self.objects.delete_all(require_document(folder))
        return count

    def list_documents(self, prefix: str) -> list[str]:
        """Returns the keys of the documents in the folder `prefix`, sorted."""
        folder = require_document(f"{prefix.rstrip('/')}/x")[:-1]
        keys = {info.key for info in self.objects.listing(folder)}
        return sorted(filter(is_document, keys))


def _version_key(version_path: str) -> VersionKey:
    output, _, place = version_path.rpartition("/")
    return output, place[:VERSION_LENGTH]


def open_store(url: str, cache: Path | None = None) -> Store:
    """Returns the store at a path, a `file://` URL or an `s3://` URL. It need not exist yet.

    Args:
        cache: the folder for local copies of buckets; each bucket gets its own subfolder.

    Raises:
        StorageError: the root is of another kind, or it is a bucket and `cache` is None.
    """
    if not is_bucket(url):
        return Store(local_path(url))
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    name = "/".join(bucket_of(url)).rstrip("/")
    part = hashlib.sha256(f"s3://{name}".encode()).hexdigest()[:16]
    return Store(Bucket(url, cache / f"store-{part}"))
