"""The store: outputs that are published and read as a whole, in a folder or in a bucket.

Belongs here: what other packages may ask of it, and what happens in which order, the same for both.
How it is done is in folder.py and bucket.py. There are no locks between writers, readers and
`prune`: no commit writes into a folder that exists, whoever moves or removes a pointer first renews
the age of the version that it named, and nothing goes before its grace period is over. A process
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

_READS = 3  # of a pointer whose version is gone: it moved meanwhile
_LOG = logging.getLogger(__package__)


class Store:
    """Outputs by name (`events/<id>`, `dataset`, …), each a directory with immutable versions.

    Every method raises `StorageError` for a name that is not safe ids joined by `/`.

    Args:
        place: the folder, which is created by the first write, or the bucket.

    Attributes:
        objects: for what people put beside the outputs.
        url: the root as it was configured, without credentials.
        local: the folder that outputs are built and read in: the store's own, or a bucket's cache.
    """

    def __init__(self, place: Path | Folder | Bucket) -> None:
        self.objects = Folder(place) if isinstance(place, Path) else place
        self.url = self.objects.url
        self.local = self.objects if isinstance(self.objects, Folder) else self.objects.cache

    # Reading

    def current(self, output: str, whole: Container[VersionKey] = ()) -> Version | None:
        """The published version; None without one, or when it is not complete.

        `whole`: versions whose files the caller knows to be there.
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
            version = self._load(f"{output}/{place}") if place else None
            if version or place is None:
                return version
        return None

    def is_complete(self, version: Version) -> bool:
        """Whether every file is there in its size; in a bucket the manifest says so."""
        return isinstance(self.objects, Bucket) or self.objects.is_whole(version)

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
            ChangedOutput: a file that was downloaded differs from its manifest.
        """
        version = self.current(output, whole)
        if version is None:
            raise MissingOutput(output)
        return self.open_version(version, files), version

    def open_all(self, outputs: Iterable[str]) -> Iterator[tuple[str, Version]]:
        """Yield what `open` gives of very many outputs; those without a whole version are left out.

        The folders are text, which takes a tenth of the memory of a `Path`.
        """
        for version in filter(None, map(self.current, outputs)):
            with suppress(MissingOutput):
                self.open_version(version, None)
                yield self.local.content(version.at), version

    def open_version(self, version: Version, pattern: str | None = "*") -> Path:
        """Like `open`, for a version that `versions` gave, published or not.

        `pattern`: a glob of the own files that are wanted; None: all, and what it links to.
        """
        content = Path(self.local.content(version.at))
        if isinstance(self.objects, Bucket):
            content.mkdir(parents=True, exist_ok=True)
            self.local.renew(version.at)
            bring = partial(self._bring_file, self.objects, version)
            in_parallel(bring, self.local.lacking(version, pattern))
            if pattern is None:
                links = version.manifest.links.items()
                in_parallel(lambda link: self._bring_link(version, *link), links)
        return content

    def _bring_file(self, bucket: Bucket, version: Version, file: FileEntry) -> None:
        place = Path(self.local.content(version.at), file.path)
        with self.local.incoming(place, version.output) as draft:
            with draft.open("w+b") as out:
                digest = bucket.download(version, file, out)
            if digest is None:
                raise MissingOutput(version.output)
            if digest != file.sha256:
                raise ChangedOutput(version.output, ascii_path(file.path))

    def _bring_link(self, version: Version, path: str, link: LinkEntry) -> None:
        known = self.local.linked(version, path, link)
        kept = self._load(known) if known else None
        if kept and not kept.manifest.links and not any(self.local.lacking(kept)):
            return
        linked = self._linked(link)
        self.open_version(linked, None)
        place = f"{self.local.content(version.at)}/{path}"
        self.local.set_link(place, linked.at, version.output)

    def outputs(self, prefix: str = "") -> list[str]:
        """Names of the published outputs at or below the folder `prefix`, sorted."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(filter(is_output, self.objects.outputs(folder)))

    def versions(self, within: str = "") -> Iterator[tuple[str, Version | None]]:
        """Yield every version of every output, published or not; None: its manifest is damaged.

        `within`: only of this output, or of those in a folder of this name.
        """
        for at in sorted(self.objects.ages(within)):
            yield at.rpartition("/")[0], self._load(at)

    def _load(self, at: str) -> Version | None:
        """A version; None when its manifest is missing, damaged, or of another store's output."""
        output, _, place = at.rpartition("/")
        manifest = self._manifest(at)
        if manifest is None or manifest.output != output:
            return None
        return Version(place[:VERSION_LENGTH], manifest, place)

    def _manifest(self, at: str) -> Manifest | None:
        """The manifest of a version; None when it is missing or damaged. A cache keeps it."""
        output, _, place = at.rpartition("/")
        found = parse_manifest(self.local.manifest(at), place)
        if found is None and isinstance(self.objects, Bucket):
            data = self.objects.manifest(at)
            found = parse_manifest(data, place)
            if data and found:
                kept = Path(self.local.content(at)).with_name(MANIFEST)
                with self.local.incoming(kept, output) as draft:
                    draft.write_bytes(data)
        return found

    def _place(self, output: str, version: str) -> str | None:
        """Where any whole folder of a version is: folders of one id hold the same bytes."""
        place = self.objects.pointer(output)
        if place and place[:VERSION_LENGTH] == version and self._is_there(f"{output}/{place}"):
            return f"{output}/{place}"
        found = (at for at in sorted(self.objects.ages(output)) if _id(at) == (output, version))
        return next(filter(self._is_there, found), None)

    def _is_there(self, at: str) -> bool:
        return self.objects.manifest(at) is not None

    def _linked(self, link: LinkEntry | VersionName) -> Version:
        """The version that a link names. Raises `MissingOutput` when it is gone."""
        output = link.output
        key = link.id if isinstance(link, VersionName) else link.version
        at = self._place(output, key)
        version = self._load(at) if at else None
        if version is None:
            raise MissingOutput(output)
        return version

    # Damage

    def verify(
        self, output: str, known: dict[str, list[OutputDamage]] | None = None
    ) -> list[OutputDamage]:
        """Every difference between the current version and its manifest; reads every byte.

        What is wrong with a version that it links to is wrong with it, too. `known` keeps what was
        found of each version for later calls.
        """
        require_output(output)
        place = self.objects.pointer(output)
        if place is None:
            message = "was never built, or was removed"
            return [OutputDamage.of(output, "missing_output", ".", message)]
        return self._verify(f"{output}/{place}", {} if known is None else known)

    def _verify(self, at: str, known: dict[str, list[OutputDamage]]) -> list[OutputDamage]:
        if at in known:
            return known[at]
        output = at.rpartition("/")[0]
        version = self._load(at)
        if version is None:
            message = "is missing or was changed"
            found = [OutputDamage.of(output, "damaged_manifest", MANIFEST, message)]
        else:
            digests = self.objects.digests(version)
            found = damages_of(version, self.objects.sizes(at), digests)
            for path, link in version.manifest.links.items():
                found += self._verify_link(version, path, link, known)
        known[at] = found
        return found

    def _verify_link(
        self,
        version: Version,
        path: str,
        link: LinkEntry,
        known: dict[str, list[OutputDamage]],
    ) -> list[OutputDamage]:
        at = self._place(link.output, link.version)
        if isinstance(self.objects, Folder):
            at = self.objects.linked(version, path, link)
        if at is None:
            message = f"does not lead to {link.output} any more"
            return [OutputDamage.of(version.output, "broken_link", path, message)]
        return [one.inside(version.output, path) for one in self._verify(at, known)]

    # Writing

    @contextmanager
    def stage(self, output: str) -> Iterator[Staging]:
        """A private directory to build a version in; removed at the end in any case."""
        require_output(output)
        with self.local.draft(output) as directory:
            (directory / CONTENT).mkdir()
            yield Staging(output, directory, self._content, before=self.published(output))

    def _content(self, output: str, version: str) -> str:
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

        Readers see the old version or the new one. Empty folders are not part of a version.

        Raises:
            StorageError: the directory holds anything but files and `Staging.link`s, was committed
                already, or links a version that was removed.
            ChangedOutput: a file that it shares with another version is damaged.
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
        links = {(link.output, link.version) for link in staging.links.values()}
        in_parallel(lambda link: self._content(*link), links)  # they are still there
        self._renew(output)
        self.objects.point(output, version.place)
        _LOG.debug("%s: version %s published", output, version.place)
        return version

    def _source(self, source: Version | VersionName) -> tuple[str, Version] | None:
        """What a staged directory may share files with: its local folder, and the version."""
        with suppress(MissingOutput):
            version = source if isinstance(source, Version) else self._linked(source)
            return self.local.content(version.at), version
        return None

    def _renew(self, output: str) -> bool:
        """Start the grace period of the version that is published now; whether there is one."""
        place = self.objects.pointer(output)
        if place:
            self.objects.renew(f"{output}/{place}")
        return place is not None

    def remove(self, output: str) -> bool:
        """Unpublish the output; a later `prune` removes its files. Returns whether it was there."""
        require_output(output)
        if not self._renew(output):
            return False
        self.objects.delete(f"{self.objects.pointers}{output}")
        return True

    def erase(self, output: str) -> bool:
        """Remove the output with all of its versions at once, also for readers that have it open.

        Returns whether anything was there.
        """
        found = self.remove(output)
        self.remove_leftovers()
        for place in self._places():
            for top in place.tops:
                found |= place.delete_all(f"{top}{output}")
        if self.objects.pointer(output):  # of a commit that ended meanwhile
            self.erase(output)
        return found

    def _places(self) -> set[Folder | Bucket]:
        """Where versions are: also in the cache of a bucket."""
        return {self.objects, self.local}

    def prune(self, grace_seconds: float) -> list[str]:
        """Remove what was not needed for `grace_seconds`; returns its names.

        These are `<output>@<version>`, sorted, then the paths of abandoned drafts. A version is
        needed while a pointer names it, for the grace period after that, and while a needed version
        links to it. `grace_seconds` is longer than any output is built or read; ages are by the
        store's own clock.
        """
        before = self.objects.now() - grace_seconds
        # Pointers first: what one of them named until now is renewed before it is replaced.
        names = self.outputs()
        places = in_parallel(self.objects.pointer, names)
        current = {f"{name}/{place}" for name, place in zip(names, places, strict=True)}
        ages = self.objects.ages()
        roots = {at for at, age in ages.items() if at in current or age >= before}
        gone = []
        for at in sorted(ages.keys() - self._with_linked(roots, ages)):
            output, _, place = at.rpartition("/")
            manifest = self._manifest(at)
            is_foreign = manifest is not None and manifest.output != output
            if not is_foreign and self.objects.pointer(output) != place:
                for each in self._places():
                    each.discard(at)
                gone.append(f"{output}@{place[:VERSION_LENGTH]}")
        if isinstance(self.objects, Bucket):
            for at, age in self.local.ages().items():
                if at not in ages and age < before:
                    self.local.discard(at)
            self.objects.abort_uploads(before)
        return gone + self.local.sweep()

    def _with_linked(self, roots: set[str], known: Iterable[str]) -> set[str]:
        """The roots, and every version that they link to, directly or not."""
        found = set[str]()
        level = roots
        if roots >= set(known):
            return roots
        places = defaultdict(set)
        for at in known:
            places[_id(at)].add(at)
        while level:
            found |= level
            level = set[str]().union(*in_parallel(partial(self._needs, places), level)) - found
        return found

    def _needs(self, places: Mapping[VersionKey, set[str]], at: str) -> set[str]:
        """Where the versions are that one links to; of equal ones that which readers take."""
        version = self._load(at)
        found = set[str]()
        for path, link in version.manifest.links.items() if version else ():
            alike = places.get((link.output, link.version), set())
            if version and len(alike) > 1:
                is_here = self.local is self.objects
                taken = self.local.leads_to(version, path, link) if is_here else None
                taken = taken or self._place(link.output, link.version)
                alike = alike & {taken} or alike
            found |= alike
        return found

    def remove_leftovers(self) -> list[str]:
        """Remove drafts of processes of this machine that have ended; returns their paths."""
        return self.local.sweep()

    # Documents

    def put_document(self, key: str, data: bytes) -> None:
        """Write or replace a small document, e.g. `quarantine/<id>.json`, atomically."""
        self.objects.put(require_document(key), data)

    def add_document(self, key: str, data: bytes) -> bool:
        """Write a document unless there is one; returns whether this call wrote it."""
        return self.objects.add(require_document(key), data)

    def get_document(self, key: str) -> bytes | None:
        """A document's bytes; None when it does not exist."""
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
        """Keys of the documents in the folder `prefix`, sorted."""
        folder = require_document(f"{prefix.rstrip('/')}/x")[:-1]
        return sorted({i.key for i in self.objects.listing(folder) if is_document(i.key)})


def _id(at: str) -> VersionKey:
    output, _, place = at.rpartition("/")
    return output, place[:VERSION_LENGTH]


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
    if cache is None:
        raise StorageError("a store in a bucket needs a cache folder; set DEMO_PIPELINE_CACHE")
    name = "/".join(bucket_of(url)).rstrip("/")
    part = hashlib.sha256(f"s3://{name}".encode()).hexdigest()[:16]
    return Store(Bucket(url, cache / f"store-{part}"))
