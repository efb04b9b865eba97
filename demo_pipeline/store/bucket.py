"""The store in a bucket: objects, and a pointer that names the version that readers see.

Belongs here: keys, the order of a commit's steps, downloads, and garbage collection by the
bucket's own clock. A process that dies between any two steps leaves the last good version. Outputs
are built and read in a local cache, which is laid out like a store in a folder; nothing in it is
the only copy of anything. `versions/` is not hidden there: SeaweedFS does not list `.versions`.
"""

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from demo_pipeline.files.atomic_write import atomic_file, read_digest
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import CONTENT, MANIFEST, VersionKey, is_version_id, remove_tree
from demo_pipeline.store.names import POINTERS, RETIRED, VERSIONS, is_output
from demo_pipeline.store.objects import ObjectChangedError, ObjectInfo, list_all
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import (
    VERSION_LENGTH,
    CheckOutcome,
    FileEntry,
    LinkEntry,
    Recipe,
    Version,
    parse_version,
)
from demo_pipeline.store.versions import (
    OutputDamage,
    Staging,
    damages_of,
    has_all_files,
    is_linked,
    link_removed,
    place_link,
    publish,
    size_of,
    staged,
    unneeded_versions,
    verify_version,
    with_linked,
)

DEAD_SECONDS = 900.0  # after which a removal that did not end counts as dead
_REMOVAL_SECONDS = 300.0  # after which a removal stops by itself, well before it counts as dead
_REMOVING = b"removing "  # what a mark begins with while its version is removed
# An id of an output may look like that of a version.
_INSIDE = re.compile(
    rf"{VERSIONS}(.+?)/([0-9a-f]{{{VERSION_LENGTH}}})/(?:{MANIFEST}|{CONTENT}/.+)", re.DOTALL
)
_WORKERS = 16
_DOWNLOADS = 3
_SWAPS = 100  # of an object: one only fails when another process succeeds
_LOG = logging.getLogger(__package__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class BucketStore(Store):
    """A store in a bucket, each version built and read in a cache for this bucket alone.

    The cache may be removed whenever nothing reads it.

    Args:
        root: the folder of the cache.
        objects: the bucket.
    """

    def current(self, output: str, whole: Container[VersionKey] = ()) -> Version | None:  # noqa: ARG002
        """See `Store`."""
        return self.published(output)

    def is_complete(self, version: Version) -> bool:
        """See `Store`: by one listing."""
        stored = self._stored(version.key)
        sizes = {f"{CONTENT}/{path}": size for path, size in version.manifest.files.sizes()}
        same = (path in stored and stored[path].size == size for path, size in sizes.items())
        return MANIFEST in stored and all(same)

    def _pointed(self, output: str) -> str | None:
        stored = self.objects.read(f"{POINTERS}{output}")
        return _version_in(stored[0]) if stored else None

    def _outputs(self, folder: str) -> set[str]:
        listed = list_all(self.objects, f"{POINTERS}{folder}")
        names = (info.key.removeprefix(POINTERS) for info in listed)
        inside = (name for name in names if not folder or f"{name}/".startswith(f"{folder}/"))
        return set(filter(is_output, inside))

    def _keys(self, within: str) -> set[VersionKey]:
        prefix = f"{VERSIONS}{within}{'/' if within else ''}"
        keys = (_version_of(info.key) for info in list_all(self.objects, prefix))
        return super()._keys(within) | set(filter(None, keys))

    def _load(self, key: VersionKey) -> Version | None:
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            name, etag, _ = self._note(key).read_text().split("\n")
            info = self.objects.head(name)
            if (info.etag if info else "") == etag:  # it was not written again since
                return None
        return self._find(key)

    # A commit: before the local one, and after it

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """See `Store`.

        The objects are written first, the manifest after them, and then the pointer moves. Whoever
        else writes one of the objects at the same time writes the same bytes.
        """
        self._prepare(staging)
        version = super().commit(staging, recipe, summary, checks)
        key, folder = version.key, self._folder.version(*version.key)
        self._keep(key)

        def put(path: str) -> None:
            self.objects.put(f"{_prefix(key)}{path}", folder / path)

        in_parallel(put, [f"{CONTENT}/{path}" for path, _ in version.manifest.files.sizes()])
        put(MANIFEST)
        self._move_pointer(version)
        self._note(key).unlink(missing_ok=True)
        return version

    def _prepare(self, staging: Staging) -> None:
        """Keep the linked versions from being removed."""
        marked = self._marks() if staging.links else {}

        def keep(link: LinkEntry) -> None:
            key = (link.output, link.version)
            if key in marked:
                self._keep(key)
            if not self._exists(key):
                raise link_removed(staging.output, link)

        in_parallel(keep, staging.links.values())

    def _move_pointer(self, version: Version) -> None:
        name, data = f"{POINTERS}{version.output}", f"{version.id}\n".encode()
        for _ in range(_SWAPS):
            stored = self.objects.read(name)
            if stored and stored[0] == data:
                return
            if stored:
                self._retire(version.output, stored[0])
            if self._swap(name, data, stored[1].etag if stored else ""):
                return
        raise StorageError(
            f"{version.output}: too many processes commit it at the same time; run again"
        )

    def remove(self, output: str) -> None:
        """See `Store`."""
        super().remove(output)
        stored = self.objects.read(f"{POINTERS}{output}")
        if stored is not None:
            self._retire(output, stored[0])
            self.objects.delete(f"{POINTERS}{output}")

    def erase(self, output: str) -> bool:
        """See `Store`."""
        found = super().erase(output)
        tops = (f"{top}{output}/" for top in (VERSIONS, RETIRED))
        keys = [info.key for top in tops for info in list_all(self.objects, top)]
        in_parallel(self.objects.delete, keys)
        return found or bool(keys)

    def _swap(self, name: str, data: bytes, etag: str) -> bool:
        """Whether an object, which has this ETag or is missing, was replaced by this process."""
        try:
            self.objects.put(name, data, replaces=etag)
        except ObjectChangedError:  # by another process, unless only the answer was lost
            return (self.objects.read(name) or (b"",))[0] == data
        return True

    # Downloads

    def _find(self, key: VersionKey) -> Version | None:
        """The version, from the cache when its manifest is there; it is kept there."""
        version = self._folder.load(*key)
        stored = None if version else self.objects.read(f"{_prefix(key)}{MANIFEST}")
        if stored is None:
            return version
        version = parse_version([stored[0]], *key)
        if version:
            with self._folder.locked(key[0]):
                self._cache_manifest(version)
        return version

    def _cache_manifest(self, version: Version) -> None:
        if self._folder.load(*version.key) is None:
            self._write(Path(self._folder.manifest(*version.key)), version.manifest.chunks())

    def _bring(self, version: Version, pattern: str | None = None) -> None:
        """Download what the cache lacks; a version with those it links to is published there, too.

        Raises:
            MissingOutput: names the output that lacks a file.
        """
        with suppress(FileNotFoundError):  # needed from now on, for a collection of the cache
            os.utime(self._folder.version(*version.key))
        versions = {version.key: version}

        def load(keys: list[VersionKey]) -> Iterable[Version]:
            for key, one in zip(keys, in_parallel(self._find, keys), strict=True):
                if one is None:
                    raise MissingOutput(key[0])
                versions[key] = one
            return [versions[key] for key in keys]

        if pattern is None:
            with_linked([version.key], load)
        lacking = [one for one in versions.values() if not self._has(one, pattern)]
        workers = 1 if len(lacking) > 1 else _WORKERS
        in_parallel(partial(self._download, pattern, workers), lacking)
        if pattern is None and self._folder.published_version(version.output) != version.id:
            with self._folder.locked(version.output):
                publish(self._folder, version)

    def _has(self, version: Version, pattern: str | None) -> bool:
        if pattern is None:
            return has_all_files(self._folder, version)
        is_there = Path(self._folder.content(*version.key)).is_dir()
        return is_there and not self._lacking(version, pattern)

    def _lacking(self, version: Version, pattern: str | None) -> list[FileEntry]:
        """The matching files that the cache has not in their size."""
        content, files = self._folder.content(*version.key), version.manifest.files
        matching = (file for file in files if fnmatchcase(file.path, pattern or "*"))
        return [file for file in matching if size_of(f"{content}/{file.path}") != file.size]

    def _download(self, pattern: str | None, workers: int, version: Version) -> None:
        """Download the matching files that the cache lacks; of the whole version also the links."""
        folder, key = self._folder, version.key
        content, links = Path(folder.content(*key)), version.manifest.links
        with folder.locked(f"{key[0]}.fetch"), staged(folder, key[0]) as staging:
            files = self._lacking(version, pattern)  # another process may have got them meanwhile
            stored = self._stored(key) if pattern is None and files else {}

            def fetch(file: FileEntry) -> bool:
                dest = staging.path / file.path
                dest.parent.mkdir(parents=True, exist_ok=True)
                return self._fetch(key, file, stored.get(f"{CONTENT}/{file.path}"), dest)

            if not all(in_parallel(fetch, files, workers)):
                raise MissingOutput(version.output)
            with folder.locked(key[0]):
                self._cache_manifest(version)
                folder.make(content)
                for file in files:
                    (content / file.path).parent.mkdir(parents=True, exist_ok=True)
                    (staging.path / file.path).replace(content / file.path)
                for path, link in links.items() if pattern is None else ():
                    if not is_linked(folder, content / path, link):
                        (content / path).unlink(missing_ok=True)
                        place_link(folder, content / path, link)
        _LOG.debug("%s: version %s downloaded, %d files", *key, len(files))

    def _fetch(self, key: VersionKey, file: FileEntry, info: ObjectInfo | None, dest: Path) -> bool:
        """Download a file of a version to `dest`; another object in its place is noted."""
        name = f"{_prefix(key)}{CONTENT}/{file.path}"
        for _ in range(_DOWNLOADS):
            info = info or self.objects.head(name)
            if info is None or info.size != file.size:
                break
            with suppress(ObjectChangedError):
                self.objects.fetch(name, info.etag, dest)
                if read_digest(dest).sha256 == file.sha256:
                    return True
                dest.unlink()
            info = self.objects.head(name)
        self._note_damage(key, name, info)
        return False

    def _stored(self, key: VersionKey) -> Mapping[str, ObjectInfo]:
        """Path below a version's key → its object."""
        prefix = _prefix(key)
        return {info.key.removeprefix(prefix): info for info in list_all(self.objects, prefix)}

    def _exists(self, key: VersionKey) -> bool:
        return self.objects.head(f"{_prefix(key)}{MANIFEST}") is not None

    def _write(self, path: Path, chunks: Iterable[bytes]) -> None:
        self._folder.make(path.parent)
        with atomic_file(path, draft=self._folder.draft()) as file:
            file.writelines(chunks)

    # Damage: a corrupt object is remembered, so that a new build is made instead of it

    def _note(self, key: VersionKey) -> Path:
        return self._folder.root / ".damaged" / key[0] / f"{key[1]}.txt"

    def _note_damage(self, key: VersionKey, name: str, info: ObjectInfo | None) -> None:
        self._write(self._note(key), [f"{name}\n{info.etag if info else ''}\n".encode()])

    def _verify(self, key: VersionKey) -> list[OutputDamage]:
        """See `Store`: reads the bucket itself. What differs in the cache is removed there."""
        name = f"{_prefix(key)}{MANIFEST}"
        read = self.objects.read(name)
        version = parse_version([read[0]], *key) if read else None
        if version is None:
            self._note_damage(key, name, read[1] if read else None)
            return [OutputDamage.of_manifest(key[0])]
        folder = self._folder
        if folder.version(*key).is_dir() and verify_version(folder, *key, linked=False):
            with folder.locked(key[0]):
                remove_tree(folder.discard(folder.version(*key)))
        stored = self._stored(key)

        def differs(file: FileEntry) -> bool:
            dest = folder.draft()
            found = self._fetch(key, file, stored.get(f"{CONTENT}/{file.path}"), dest)
            dest.unlink(missing_ok=True)
            return not found

        files = list(version.manifest.files)
        checked = dict(zip((f.path for f in files), in_parallel(differs, files), strict=True))
        paths = stored.keys() - {MANIFEST}
        sizes = {path.removeprefix(f"{CONTENT}/"): stored[path].size for path in paths}
        links = version.manifest.links
        targets = {path: (link.output, link.version) for path, link in links.items()}
        whole = [path for path, target in targets.items() if self._exists(target)]
        damages = damages_of(version, sizes, lambda file: checked[file.path], whole)
        for path in whole:
            damages += self._verify(targets[path])
        return damages

    # Garbage collection. A version that is not needed any more has a mark, which says when it was
    # needed. A commit that needs the version replaces the mark, and a collection that removes the
    # version replaces it by an announcement: of the two, S3 lets one succeed, and the other sees
    # that and gives way.

    def _marks(self) -> dict[VersionKey, ObjectInfo]:
        marks = ((_marked(info.key), info) for info in list_all(self.objects, RETIRED))
        return {key: info for key, info in marks if key}

    def _mark(self, key: VersionKey) -> None:
        """Note that a version was needed until now."""
        self.objects.put(f"{RETIRED}{'/'.join(key)}", _nonce())

    def _retire(self, output: str, pointer: bytes) -> None:
        """Start the grace period of the version that a pointer names."""
        version = _version_in(pointer)
        if version:
            self._mark((output, version))

    def _keep(self, key: VersionKey) -> None:
        """Let no collection remove a version that has a mark.

        Raises:
            StorageError: a collection is removing it; times are compared by the bucket's clock.
        """
        name, clock = f"{RETIRED}{'/'.join(key)}", f"{RETIRED}clock"
        for _ in range(_SWAPS):
            mark = self.objects.read(name)
            if mark is None:
                return
            if mark[0].startswith(_REMOVING):
                self.objects.put(clock, b"")
                now = self.objects.head(clock) or mark[1]
                if mark[1].modified >= now.modified - DEAD_SECONDS:
                    break
            if self._swap(name, _nonce(), mark[1].etag):
                return
        raise StorageError(
            f"{key[0]}: garbage collection is removing an old version with the same content; "
            f"run again, after {DEAD_SECONDS / 60:.0f} minutes at the latest"
        )

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`; the same in the cache, of which only the drafts are named."""
        before = now - grace_seconds
        changed: dict[VersionKey, float] = {}
        for info in list_all(self.objects, VERSIONS):
            if key := _version_of(info.key):
                changed[key] = max(info.modified, changed.get(key, 0))
        marks, names = self._marks(), sorted(self._outputs(""))
        current = dict(zip(names, in_parallel(self._pointed, names), strict=True))
        needed_at = {
            key: max(at, marks[key].modified if key in marks else 0) for key, at in changed.items()
        }
        load = partial(in_parallel, self._find)
        unneeded = unneeded_versions(needed_at, current.items(), before, load)
        in_parallel(self._mark, [key for key in unneeded if key not in marks])
        marked = [key for key in unneeded if key in marks]
        removed = in_parallel(lambda key: self._remove(key, marks[key], now), marked)
        for info in list_all(self.objects, RETIRED):
            if _marked(info.key) not in changed and info.modified < before:
                self.objects.delete(info.key)
        for output in self._folder.published_outputs(""):
            if self._folder.published_version(output) != current.get(output):
                super().remove(output)
        gone = [f"{key[0]}@{key[1]}" for key, done in zip(marked, removed, strict=True) if done]
        drafts = super().collect(grace_seconds, now)
        return gone + [name for name in drafts if name.startswith(".staging/")]

    def _remove(self, key: VersionKey, mark: ObjectInfo, now: float) -> bool:
        """Remove a version, manifest first, unless a commit marked it as needed meanwhile."""
        began, stored = time.monotonic(), self.objects.read(mark.key)
        others = stored and stored[0].startswith(_REMOVING)
        if others and mark.modified >= now - DEAD_SECONDS:
            return False
        if not self._swap(mark.key, _REMOVING + _nonce(), mark.etag):
            return False
        needed, manifest = self._pointed(key[0]) == key[1], f"{_prefix(key)}{MANIFEST}"
        objects = [] if needed else [info.key for info in list_all(self.objects, _prefix(key))]
        for one in sorted(objects, key=lambda one: one != manifest):
            if time.monotonic() - began > _REMOVAL_SECONDS:
                needed = True
                break
            self.objects.delete(one)
        if needed:
            self._mark(key)
        else:
            self.objects.delete(mark.key)
        return not needed


def _prefix(key: VersionKey) -> str:
    """What the keys of one version begin with."""
    return f"{VERSIONS}{key[0]}/{key[1]}/"


def _version_of(key: str) -> VersionKey | None:
    """The version that an object below `versions/` belongs to; None for a foreign object."""
    found = _INSIDE.fullmatch(key)
    return (found[1], found[2]) if found else None


def _marked(key: str) -> VersionKey | None:
    """The version of a mark; None for a foreign object."""
    output, _, version = key.removeprefix(RETIRED).rpartition("/")
    return (output, version) if output and is_version_id(version) else None


def _version_in(pointer: bytes) -> str | None:
    text = pointer.decode("ascii", "replace").removesuffix("\n")
    return text if is_version_id(text) else None


def _nonce() -> bytes:
    """Other bytes each time, since equal bytes may have equal ETags."""
    return f"{secrets.token_hex(8)}\n".encode()


def in_parallel(
    function: Callable[[_Item], _Result], items: Iterable[_Item], workers: int = _WORKERS
) -> list[_Result]:
    """The results of a function that is called for every item in threads, in their order.

    The first error is raised after the calls that had begun have ended.
    """
    items = list(items)
    if len(items) < 2 or workers == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(workers, len(items))) as pool:
        return list(pool.map(function, items))
