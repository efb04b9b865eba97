"""The store: outputs that are published and read as a whole, in a folder or in a bucket.

This module decides about the order of operations, which is the same for folders and buckets.
folder.py and bucket.py carry them out. Writers, readers and `prune` need no locks: a commit never
writes into a folder that exists; a process that moves or removes a pointer first renews the age of
the version behind it; and `prune` removes no version before its grace period is over. A process
that dies between any two steps leaves the last good version.
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

_READS = 3  # attempts to read a pointer, which may move before its version is read
_LOG = logging.getLogger(__package__)


class Store:
    """Outputs by name (`events/<id>`, `dataset`, …), each with immutable versions.

    Every method raises `StorageError` for a name that does not consist of safe ids joined by `/`.

    Args:
        place: the folder, which the first write creates, or the bucket.

    Attributes:
        objects: the folder or the bucket, for files that people put beside the outputs.
        url: the root as it was configured, without credentials.
        local: the folder in which outputs are built and read: the store's own, or a bucket's cache.
    """

    def __init__(self, place: Path | Folder | Bucket) -> None:
        if isinstance(place, Path):
            place = Folder(place)
        self.objects: Folder | Bucket = place
        self.url = place.url
        self.local = place.cache if isinstance(place, Bucket) else place

    # Reading

    def current(self, output: str, whole: Container[VersionKey] = ()) -> Version | None:
        """The published version; None if there is none, or if it is not complete.

        `whole`: versions that the caller knows to be complete.
        """
        version = self.published(output)
        if version and (version.key in whole or self.is_complete(version)):
            return version
        return None

    def published(self, output: str) -> Version | None:
        """The published version, whether or not it is complete."""
        require_output(output)
        for _ in range(_READS):
            place = self.objects.pointer(output)
            if place is None:
                return None
            if version := self._load(f"{output}/{place}"):
                return version
        return None

    def is_complete(self, version: Version) -> bool:
        """Whether every file exists in its size. A bucket has every file of a manifest."""
        return isinstance(self.objects, Bucket) or self.objects.is_whole(version)

    def open(
        self, output: str, files: str | None = None, whole: Container[VersionKey] = ()
    ) -> tuple[Path, Version]:
        """A local folder with the content of the current version, links included. Do not write.

        The folder does not change when another version is committed. `prune` removes it a grace
        period later.

        Args:
            output: its name.
            files: a glob for readers of a few files of a large output. From a bucket, only the
                output's own files whose paths match are downloaded, and no linked outputs. The
                folder may contain other files, too.
            whole: see `current`.

        Raises:
            MissingOutput: `current` is None, or one of these files or a linked output is missing.
            ChangedOutput: a downloaded file differs from its manifest.
        """
        version = self.current(output, whole)
        if version is None:
            raise MissingOutput(output)
        return self.open_version(version, files), version

    def open_all(self, outputs: Iterable[str]) -> Iterator[tuple[str, Version]]:
        """Like `open`, for very many outputs. Outputs that are not complete are left out.

        The folders are strings, which take a tenth of the memory of a `Path`.
        """
        for version in filter(None, map(self.current, outputs)):
            with suppress(MissingOutput):
                self.open_version(version, None)
                yield self.local.content(version.at), version

    def open_version(self, version: Version, pattern: str | None = "*") -> Path:
        """Like `open`, for any version, published or not.

        `pattern`: a glob for the version's own files; None: all files and all linked versions.
        """
        content = Path(self.local.content(version.at))
        if isinstance(self.objects, Bucket):
            content.mkdir(parents=True, exist_ok=True)
            self.local.renew(version.at)
            bring = partial(self._bring_file, self.objects, version)
            in_parallel(bring, self.local.lacking(version, pattern))
            if pattern is None:
                in_parallel(partial(self._bring_link, version), version.manifest.links)
        return content

    def _bring_file(self, bucket: Bucket, version: Version, file: FileEntry) -> None:
        """Download a file of a version into the cache."""
        place = Path(self.local.content(version.at), file.path)
        with self.local.incoming(place, version.output) as draft:
            with draft.open("w+b") as out:
                digest = bucket.download(version, file, out)
            if digest is None:
                raise MissingOutput(version.output)
            if digest != file.sha256:
                raise ChangedOutput(version.output, ascii_path(file.path))

    def _bring_link(self, version: Version, path: str) -> None:
        """Download the version that a link of another version leads to, and write the link."""
        link = version.manifest.links[path]
        at = self.local.linked(version, path, link)
        cached = self._load(at) if at else None
        if cached and not cached.manifest.links and not any(self.local.lacking(cached)):
            return
        linked = self._linked(link)
        self.open_version(linked, None)
        place = f"{self.local.content(version.at)}/{path}"
        self.local.set_link(place, linked.at, version.output)

    def outputs(self, prefix: str = "") -> list[str]:
        """The names of the published outputs at or below the folder `prefix`, sorted."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(filter(is_output, self.objects.outputs(folder)))

    def versions(self, within: str = "") -> Iterator[tuple[str, Version | None]]:
        """Yield every output with each of its versions; None for a version with a damaged manifest.

        `within`: the name of a single output, or of a folder of outputs.
        """
        for at in sorted(self.objects.ages(within)):
            yield at.rpartition("/")[0], self._load(at)

    def _load(self, at: str) -> Version | None:
        """The version; None if its manifest is missing, damaged, or names another output."""
        output, _, place = at.rpartition("/")
        manifest = self._manifest(at)
        if manifest is None or manifest.output != output:
            return None
        return Version(place[:VERSION_LENGTH], manifest, place)

    def _manifest(self, at: str) -> Manifest | None:
        """The manifest of a version; None if it is missing or damaged. A cache keeps a copy."""
        output, _, place = at.rpartition("/")
        manifest = parse_manifest(self.local.manifest(at), place)
        if manifest is None and isinstance(self.objects, Bucket):
            data = self.objects.manifest(at)
            manifest = parse_manifest(data, place)
            if data and manifest:
                copy = Path(self.local.content(at)).with_name(MANIFEST)
                with self.local.incoming(copy, output) as draft:
                    draft.write_bytes(data)
        return manifest

    def _place(self, output: str, version: str) -> str | None:
        """Any complete folder of a version. All folders of the same version have equal bytes."""
        place = self.objects.pointer(output)
        if place and place[:VERSION_LENGTH] == version and self._exists(f"{output}/{place}"):
            return f"{output}/{place}"
        for at in sorted(self.objects.ages(output)):
            if _version_key(at) == (output, version) and self._exists(at):
                return at
        return None

    def _exists(self, at: str) -> bool:
        return self.objects.manifest(at) is not None

    def _linked(self, link: LinkEntry | VersionName) -> Version:
        """The version that a link names. Raises `MissingOutput` if it was removed."""
        version_id = link.id if isinstance(link, VersionName) else link.version
        at = self._place(link.output, version_id)
        version = self._load(at) if at else None
        if version is None:
            raise MissingOutput(link.output)
        return version

    # Damage

    def verify(
        self, output: str, damages_by_version: dict[str, list[OutputDamage]] | None = None
    ) -> list[OutputDamage]:
        """Compare the current version with its manifest, byte by byte; returns every difference.

        Damages of linked versions are included. A caller who verifies many outputs passes the same
        `damages_by_version` to each call, so that every version is read once.
        """
        require_output(output)
        if damages_by_version is None:
            damages_by_version = {}
        place = self.objects.pointer(output)
        if place is None:
            message = "was never built, or was removed"
            return [OutputDamage.of(output, "missing_output", ".", message)]
        return self._verify(f"{output}/{place}", damages_by_version)

    def _verify(
        self, at: str, damages_by_version: dict[str, list[OutputDamage]]
    ) -> list[OutputDamage]:
        if at in damages_by_version:
            return damages_by_version[at]
        output = at.rpartition("/")[0]
        version = self._load(at)
        if version is None:
            message = "is missing or was changed"
            damages = [OutputDamage.of(output, "damaged_manifest", MANIFEST, message)]
        else:
            digests = self.objects.digests(version)
            damages = damages_of(version, self.objects.sizes(at), digests)
            for path, link in version.manifest.links.items():
                damages += self._verify_link(version, path, link, damages_by_version)
        damages_by_version[at] = damages
        return damages

    def _verify_link(
        self,
        version: Version,
        path: str,
        link: LinkEntry,
        damages_by_version: dict[str, list[OutputDamage]],
    ) -> list[OutputDamage]:
        if isinstance(self.objects, Folder):
            at = self.objects.linked(version, path, link)
        else:
            at = self._place(link.output, link.version)
        if at is None:
            message = f"does not lead to {link.output} any more"
            return [OutputDamage.of(version.output, "broken_link", path, message)]
        damages = self._verify(at, damages_by_version)
        return [damage.inside(version.output, path) for damage in damages]

    # Writing

    @contextmanager
    def stage(self, output: str) -> Iterator[Staging]:
        """A private directory to build a version in. It is always removed at the end."""
        require_output(output)
        with self.local.draft(output) as directory:
            (directory / CONTENT).mkdir()
            yield Staging(output, directory, self._content, before=self.published(output))

    def _content(self, output: str, version: str) -> str:
        """The local folder with the content of a version. Raises `StorageError` if it is gone."""
        at = self._place(output, version)
        if at is None:
            raise StorageError(f"{output} was removed or replaced meanwhile; run again")
        return self.local.content(at)

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, Any],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """Publish a staged directory as the output's current version, atomically.

        Readers see the old version or the new version. Empty folders are not part of a version.

        Raises:
            StorageError: the directory was committed already, contains something other than files
                and `Staging.link`s, or links to a version that was removed.
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
        """Raise `StorageError` if one of the versions was removed."""

        def require(key: VersionKey) -> None:
            self._content(*key)

        in_parallel(require, keys)

    def _source(self, source: Version | VersionName) -> tuple[str, Version] | None:
        """The local folder of a version whose files are shared, and the version; None if gone."""
        if isinstance(source, Version):
            return self.local.content(source.at), source
        with suppress(MissingOutput):
            version = self._linked(source)
            return self.local.content(version.at), version
        return None

    def _renew(self, output: str) -> bool:
        """Start the grace period of the published version now; returns whether there is one."""
        place = self.objects.pointer(output)
        if place:
            self.objects.renew(f"{output}/{place}")
        return place is not None

    def remove(self, output: str) -> bool:
        """Unpublish an output, whose files `prune` removes later; returns whether it existed."""
        require_output(output)
        if not self._renew(output):
            return False
        self.objects.delete(f"{self.objects.pointers}{output}")
        return True

    def erase(self, output: str) -> bool:
        """Remove an output with all of its versions at once, even while readers have it open.

        Returns whether anything was removed.
        """
        has_removed = self.remove(output)
        self.remove_leftovers()
        for place in self._places():
            for top in place.tops:
                has_removed |= place.delete_all(f"{top}{output}")
        if self.objects.pointer(output):  # a commit ended meanwhile
            self.erase(output)
        return has_removed

    def _places(self) -> set[Folder | Bucket]:
        """Where versions are stored: in a bucket also in its cache."""
        return {self.objects, self.local}

    def prune(self, grace_seconds: float) -> list[str]:
        """Remove versions that have not been needed for `grace_seconds`, and abandoned drafts.

        A version is needed while a pointer names it, for the grace period after that, and while a
        needed version links to it. `grace_seconds` must be longer than any output takes to be built
        or read. Ages are measured by the store's own clock.

        Returns the removed versions as `<output>@<version>`, sorted, then the paths of the drafts.
        """
        before = self.objects.now() - grace_seconds
        # The pointers are read first. A version that a pointer leaves after that has been renewed,
        # so that its age shows that it was needed.
        names = self.outputs()
        places = in_parallel(self.objects.pointer, names)
        current = {f"{name}/{place}" for name, place in zip(names, places, strict=True)}
        ages = self.objects.ages()
        roots = {at for at, age in ages.items() if at in current or age >= before}
        removed = []
        for at in sorted(ages.keys() - self._with_linked(roots, ages)):
            output, _, place = at.rpartition("/")
            manifest = self._manifest(at)
            is_foreign = manifest is not None and manifest.output != output
            if not is_foreign and self.objects.pointer(output) != place:
                for storage in self._places():
                    storage.discard(at)
                removed.append(f"{output}@{place[:VERSION_LENGTH]}")
        if isinstance(self.objects, Bucket):
            for at, age in self.local.ages().items():
                if at not in ages and age < before:
                    self.local.discard(at)
            self.objects.abort_uploads(before)
        return removed + self.local.sweep()

    def _with_linked(self, roots: set[str], versions: Iterable[str]) -> set[str]:
        """The roots, and all of the versions that they link to, directly or indirectly."""
        if roots >= set(versions):
            return roots
        places = defaultdict(set)
        for at in versions:
            places[_version_key(at)].add(at)
        needed: set[str] = set()
        level = roots
        while level:
            needed |= level
            linked = in_parallel(partial(self._places_of_links, places), level)
            level = set[str]().union(*linked) - needed
        return needed

    def _places_of_links(self, places: Mapping[VersionKey, set[str]], at: str) -> set[str]:
        """The places of the versions that a version links to.

        If a linked version is stored in several places, only the place that readers use is needed.
        """
        version = self._load(at)
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
        """Remove drafts of dead processes of this machine; returns their paths."""
        return self.local.sweep()

    # Documents

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, atomically."""
        self.objects.put(require_document(key), data)

    def add_document(self, key: str, data: bytes) -> bool:
        """Write a document if it does not exist; returns whether this call wrote it."""
        return self.objects.add(require_document(key), data)

    def get_document(self, key: str) -> bytes | None:
        """The bytes of a document; None if it does not exist."""
        return self.objects.read(require_document(key))

    def delete_document(self, key: str) -> bool:
        """Remove a document; returns whether it existed."""
        exists = self.objects.head(require_document(key)) is not None
        if exists:
            self.objects.delete(key)
        return exists

    def delete_documents(self, folder: str) -> int:
        """Remove every document in a folder; returns how many there were."""
        count = len(self.list_documents(folder))
        self.objects.delete_all(require_document(folder))
        return count

    def list_documents(self, prefix: str) -> list[str]:
        """The keys of the documents in the folder `prefix`, sorted."""
        folder = require_document(f"{prefix.rstrip('/')}/x")[:-1]
        keys = {info.key for info in self.objects.listing(folder)}
        return sorted(filter(is_document, keys))


def _version_key(at: str) -> VersionKey:
    output, _, place = at.rpartition("/")
    return output, place[:VERSION_LENGTH]


def open_store(url: str, cache: Path | None = None) -> Store:
    """The store at a path, a `file://` URL or an `s3://` URL; it need not exist yet.

    Args:
        url: the root.
        cache: the folder for local copies of buckets; each store gets its own subfolder.

    Raises:
        StorageError: the root is of another kind, or is a bucket and has no `cache`.
    """
    if not is_bucket(url):
        return Store(local_path(url))
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    name = "/".join(bucket_of(url)).rstrip("/")
    part = hashlib.sha256(f"s3://{name}".encode()).hexdigest()[:16]
    return Store(Bucket(url, cache / f"store-{part}"))
