"""The store in a bucket: versions as objects, and a pointer that names the one readers see.

Belongs here: keys, the order of a commit's steps, downloads, and garbage collection by the
bucket's own clock. A process that dies between any two steps leaves the last good version. Outputs
are built and read in a local cache, which is laid out like a store in a folder; nothing in it is
the only copy of anything. `versions/` is not hidden there: SeaweedFS does not list `.versions`.
"""

import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from demo_pipeline.files.atomic_write import atomic_file, read_digest
from demo_pipeline.store.collect import collect_folder, needed_versions
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import (
    CONTENT,
    MANIFEST,
    VersionKey,
    is_version_id,
    remove_tree,
    sync_tree,
)
from demo_pipeline.store.names import is_output, require_output
from demo_pipeline.store.objects import ObjectChangedError, ObjectInfo, Objects, list_all
from demo_pipeline.store.store import POINTERS, REMOVED, REMOVING, RETIRED, VERSIONS, Store
from demo_pipeline.store.version_manifest import (
    CheckOutcome,
    FileEntry,
    LinkEntry,
    Recipe,
    Version,
)
from demo_pipeline.store.versions import (
    OutputDamage,
    Staging,
    damages_of,
    has_all_files,
    load_version,
    manifest_damage,
    parse_version,
    verify_version,
)

DEAD_SECONDS = 900.0  # after which a removal that did not end counts as dead
_REMOVAL_SECONDS = 300.0  # after which a removal stops by itself, well before it counts as dead
_WORKERS = 16
_DOWNLOADS = 3
_MOVES = 100  # of a pointer: one only fails when another commit succeeds
_LOG = logging.getLogger(__package__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Stored = Mapping[str, ObjectInfo]
"""Path below a version's key → its object."""


class BucketStore(Store):
    """A `Store` over objects.

    Args:
        objects: the bucket.
        cache: folder of the local cache, for this bucket alone; it may be removed whenever nothing
            reads it.
    """

    def __init__(self, objects: Objects, cache: Path) -> None:
        super().__init__(cache)
        self._objects = objects

    def is_complete(self, version: Version) -> bool:
        """See `Store`: by one listing."""
        stored = self._stored(_key(version))
        sizes = {f"{CONTENT}/{path}": size for path, size in version.manifest.files.sizes()}
        same = (path in stored and stored[path].size == size for path, size in sizes.items())
        return MANIFEST in stored and all(same)

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """See `Store`: first the local cache, then the objects, the manifest and the pointer."""
        self._require_separate(staging.output)
        self._keep_links(staging)
        version = super().commit(staging, recipe, summary, checks)
        self._upload(version)
        self._move_pointer(version)
        self._note(_key(version)).unlink(missing_ok=True)
        return version

    def remove(self, output: str) -> None:
        """See `Store`."""
        require_output(output)
        stored = self._objects.read(f"{POINTERS}{output}")
        if stored is not None:
            self._retire(output, stored[0])
            self._objects.delete(f"{POINTERS}{output}")
        super().remove(output)

    def versions(self) -> Iterator[tuple[str, Version | None]]:
        """See `Store`: in the bucket, and what only this machine's cache has."""
        return ((key[0], self._find(key)) for key in self._version_keys())

    def _version_keys(self) -> list[VersionKey]:
        there = {_version_of(info.key) for info in list_all(self._objects, VERSIONS)}
        return sorted({*filter(None, there), *super()._version_keys()})

    def erase(self, output: str) -> bool:
        """See `Store`: in the bucket, then in this machine's cache."""
        self.remove(output)
        folders = (VERSIONS, RETIRED, REMOVING)
        keys = [info.key for one in folders for info in list_all(self._objects, f"{one}{output}/")]
        in_parallel(self._objects.delete, keys)
        remove_tree(self._folder.root / ".files" / output)
        return super().erase(output) or bool(keys)

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`: ages are by the bucket's clock there, by this machine's in the cache.

        A version that no commit has marked as replaced is marked, and goes at a later collection.
        """
        removed, current = self._collect(now - grace_seconds, now)
        for output in list(self._folder.links("")):
            if self._folder.published_version(output) != current.get(output):
                super().remove(output)
        for place, _, names in os.walk(self._folder.root / ".files"):
            for file in (Path(place, name) for name in names):
                with suppress(FileNotFoundError):  # another process removes it, too
                    if file.stat().st_mtime < now - grace_seconds:
                        file.unlink()
        cached = collect_folder(self._folder, now - grace_seconds)
        return removed + [name for name in cached if name.startswith(".staging/")]

    # Pointers

    def _pointed(self, output: str) -> str | None:
        stored = self._objects.read(f"{POINTERS}{output}")
        return _version_in(stored[0]) if stored else None

    def _published_outputs(self, folder: str) -> set[str]:
        listed = list_all(self._objects, f"{POINTERS}{folder}")
        names = (info.key.removeprefix(POINTERS) for info in listed)
        inside = (name for name in names if not folder or f"{name}/".startswith(f"{folder}/"))
        return set(filter(is_output, inside))

    def _move_pointer(self, version: Version) -> None:
        """Publish the version: readers see it from now on."""
        key, data = f"{POINTERS}{version.output}", f"{version.id}\n".encode()
        for _ in range(_MOVES):
            stored = self._objects.read(key)
            if stored and stored[0] == data:
                return
            etag = stored[1].etag if stored else None
            if stored:
                self._retire(version.output, stored[0])
            with suppress(ObjectChangedError):
                self._objects.put(key, data, if_none_match=not stored, if_match=etag)
                return
        raise StorageError(
            f"{version.output}: too many processes commit it at the same time; run again"
        )

    def _retire(self, output: str, pointer: bytes) -> None:
        """Start the grace period of the version that a pointer names."""
        version = _version_in(pointer)
        if version:
            self._objects.put(f"{RETIRED}{output}/{version}", _nonce())

    def _require_separate(self, output: str) -> None:
        """Refuse an output inside another: a local copy of the store could not hold both."""
        parts = output.split("/")
        above = ["/".join(parts[:length]) for length in range(1, len(parts))]
        taken = [name for name in above if self._objects.head(f"{POINTERS}{name}")]
        if not taken and self._objects.list_page(f"{POINTERS}{output}/", limit=1).objects:
            taken = [f"{output}/…"]
        if taken:
            raise StorageError(
                f"{output}: {taken[0]} is an output already, and an output cannot be inside "
                "another; remove it, or choose another name"
            )

    # Versions

    def _new_draft(self) -> Path:
        """A name for a download."""
        self._folder.make(self._folder.staging)
        return self._folder.draft()

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.make(path.parent)
        with atomic_file(path, draft=self._new_draft()) as file:
            file.write(data)

    def _has(self, version: Version) -> bool:
        """Whether every file is in the cache in its size; files of linked versions do not count."""
        loaded = load_version(self._folder, version.output, version.id)
        return loaded is not None and has_all_files(self._folder, version)

    def _load(self, key: VersionKey) -> Version | None:
        return None if self._is_damaged(key) else self._find(key)

    def _seems_whole(self, version: Version) -> bool:  # noqa: ARG002 - only a download tells
        return True

    def _find(self, key: VersionKey) -> Version | None:
        """The version, from the local cache when its manifest is there; it is kept there."""
        version = load_version(self._folder, *key)
        stored = None if version else self._objects.read(f"{_prefix(key)}{MANIFEST}")
        if stored is None:
            return version
        version = parse_version(iter([stored[0]]), *key)
        if version:
            with self._folder.locked(key[0]):
                if load_version(self._folder, *key) is None:
                    self._write(Path(self._folder.manifest(*key)), stored[0])
        return version

    def _stored(self, key: VersionKey) -> _Stored:
        prefix = _prefix(key)
        return {info.key.removeprefix(prefix): info for info in list_all(self._objects, prefix)}

    def _bring(self, version: Version) -> None:
        """Download the version and every version it links to into the local cache.

        Pruning keeps it there while it is published.
        """

        def load(keys: list[VersionKey]) -> list[Version]:
            found = in_parallel(self._find, keys)
            missing = [key[0] for key, one in zip(keys, found, strict=True) if one is None]
            if missing:
                raise MissingOutput(missing[0])
            return [one for one in found if one]

        linked = needed_versions([_key(version)], load) - {_key(version)}
        versions = [one for one in load(sorted(linked)) if not self._has(one)]
        workers = 1 if len(versions) > 1 else _WORKERS
        in_parallel(partial(self._download, workers), versions)
        if not self._has(version):
            self._download(_WORKERS, version)
        if self._folder.published_version(version.output) != version.id:
            with self._folder.locked(version.output):
                self._publish(version)

    def _bring_files(self, version: Version, pattern: str) -> Path:
        """Download some files; they stay in the local cache until `collect` finds them old."""
        if self._has(version):
            return self._content(version)
        folder = self._folder.root / ".files" / version.output / version.id
        wanted = [file for file in version.manifest.files if fnmatchcase(file.path, pattern)]

        def fetch(file: FileEntry) -> bool:
            place, draft = folder / file.path, self._new_draft()
            if place.is_file() and place.stat().st_size == file.size:
                return True
            place.parent.mkdir(parents=True, exist_ok=True)
            found = self._fetch(_key(version), file, None, draft)
            if found:
                draft.replace(place)
            return found

        if not all(in_parallel(fetch, wanted)):
            raise MissingOutput(version.output)
        return folder

    def _download(self, workers: int, version: Version) -> None:
        """Download one version, whose linked versions are in the cache already."""
        key = _key(version)
        stored = self._stored(key)
        with self._folder.locked(f"{key[0]}.fetch"), self.stage(key[0]) as staging:
            if self._has(version):  # another process has downloaded it meanwhile
                return

            def fetch(file: FileEntry) -> bool:
                dest = staging.path / file.path
                dest.parent.mkdir(parents=True, exist_ok=True)
                return self._fetch(key, file, stored.get(f"{CONTENT}/{file.path}"), dest)

            if not all(in_parallel(fetch, list(version.manifest.files), workers)):
                raise MissingOutput(version.output)
            for path, link in version.manifest.links.items():
                staging.link(path, link)
            with (staging.directory / MANIFEST).open("wb") as file:
                file.writelines(version.manifest.chunks())
            sync_tree(staging.directory)
            with self._folder.locked(key[0]):
                damaged = self._install(staging.directory, version)
            if damaged:
                remove_tree(damaged)
        _LOG.debug("%s: version %s downloaded, %d files", *key, len(version.manifest.files))

    def _fetch(self, key: VersionKey, file: FileEntry, info: ObjectInfo | None, dest: Path) -> bool:
        """Download a file of a version to `dest`; another object in its place is noted."""
        name = f"{_prefix(key)}{CONTENT}/{file.path}"
        for _ in range(_DOWNLOADS):
            info = info or self._objects.head(name)
            if info is None or info.size != file.size:
                break
            with suppress(ObjectChangedError):
                self._objects.fetch(name, info.etag, dest)
                if read_digest(dest).sha256 == file.sha256:
                    return True
                dest.unlink()
            info = self._objects.head(name)
        self._note_damage(key, name, info)
        return False

    def _note(self, key: VersionKey) -> Path:
        return self._folder.root / ".damaged" / key[0] / f"{key[1]}.txt"

    def _note_damage(self, key: VersionKey, name: str, info: ObjectInfo | None) -> None:
        """Remember a corrupt object of a version, so that a new build is made instead of it."""
        self._write(self._note(key), f"{name}\n{info.etag if info else ''}\n".encode())

    def _is_damaged(self, key: VersionKey) -> bool:
        """Whether a corrupt object is known, and was not written again since."""
        try:
            name, etag, _ = self._note(key).read_text().split("\n")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return False
        info = self._objects.head(name)
        if (info.etag if info else "") == etag:
            return True
        self._note(key).unlink(missing_ok=True)
        return False

    def _upload(self, version: Version) -> None:
        """Write every object of a version, its manifest last.

        Whoever else writes one at the same time writes the same bytes.
        """
        key, folder = _key(version), self._folder.version(version.output, version.id)
        if self._objects.list_page(_prefix(key), limit=1).objects:
            self._keep(key)

        def put(path: str) -> None:
            self._objects.put(f"{_prefix(key)}{path}", folder / path)

        in_parallel(put, [f"{CONTENT}/{path}" for path, _ in version.manifest.files.sizes()])
        put(MANIFEST)

    def _verify(self, key: VersionKey) -> list[OutputDamage]:
        """Reads the bucket, and removes a changed version from the local cache."""
        name = f"{_prefix(key)}{MANIFEST}"
        read = self._objects.read(name)
        version = parse_version(iter([read[0]]), *key) if read else None
        if version is None:
            self._note_damage(key, name, read[1] if read else None)
            return [manifest_damage(key[0])]
        self._discard_if_changed(key)
        stored = self._stored(key)

        def differs(file: FileEntry) -> bool:
            dest = self._new_draft()
            try:
                return not self._fetch(key, file, stored.get(f"{CONTENT}/{file.path}"), dest)
            finally:
                dest.unlink(missing_ok=True)

        files = list(version.manifest.files)
        checked = dict(zip((f.path for f in files), in_parallel(differs, files), strict=True))
        sizes: dict[str, int | None] = {
            path.removeprefix(f"{CONTENT}/"): info.size
            for path, info in stored.items()
            if path != MANIFEST
        }
        links = version.manifest.links
        targets = {path: (link.output, link.version) for path, link in links.items()}
        broken = {path for path, one in targets.items() if not self._exists(one)}
        damages = damages_of(version, sizes, lambda file: checked[file.path], broken)
        for path in targets.keys() - broken:
            damages += self._verify(targets[path])
        return damages

    def _exists(self, key: VersionKey) -> bool:
        return self._objects.head(f"{_prefix(key)}{MANIFEST}") is not None

    def _discard_if_changed(self, key: VersionKey) -> None:
        """Remove a version from the cache when a file has another SHA-256 than its manifest.

        Single files of it are removed in any case: they are few.
        """
        shutil.rmtree(self._folder.root / ".files" / key[0] / key[1], ignore_errors=True)
        content = Path(self._folder.content(*key))
        if content.is_dir() and verify_version(self._folder, *key, linked=False):
            with self._folder.locked(key[0]):
                trash = self._folder.discard(content.parent)
            remove_tree(trash)

    # Garbage collection: a commit marks a version that it needs and then looks for a removal; a
    # collection announces the removal and then looks at the mark. So at least one of the two sees
    # the other and gives way.

    def _keep(self, key: VersionKey) -> None:
        """Mark a version that is in the bucket as needed, so that no collection removes it.

        Raises:
            StorageError: a collection is removing it; times are compared by the bucket's clock.
        """
        now = self._objects.put(f"{RETIRED}{'/'.join(key)}", _nonce()).modified
        removal = self._objects.head(f"{REMOVING}{'/'.join(key)}")
        if removal and removal.modified >= now - DEAD_SECONDS:
            raise StorageError(
                f"{key[0]}: garbage collection is removing an old version with the same content; "
                f"run again, after {DEAD_SECONDS / 60:.0f} minutes at the latest"
            )
        if removal:
            self._objects.delete(removal.key)

    def _keep_links(self, staging: Staging) -> None:
        """Keep the linked versions; refuse links to those that were removed meanwhile."""
        if not staging.links:
            return
        marked = {_marked(info.key, RETIRED) for info in list_all(self._objects, RETIRED)}

        def keep(link: LinkEntry) -> bool:
            key = (link.output, link.version)
            if key in marked:
                self._keep(key)
            return self._exists(key)

        links = list(staging.links.values())
        kept = in_parallel(keep, links)
        for link in (link for link, done in zip(links, kept, strict=True) if not done):
            raise StorageError(f"{staging.output}: {link.output} {REMOVED}")

    def _collect(self, before: float, now: float) -> tuple[list[str], Mapping[str, str]]:
        """Remove versions that nobody needed since a time, and stray marks.

        Returns:
            `<output>@<version>` of each version removed, sorted; output → the version readers see.
        """
        changed: dict[VersionKey, float] = {}
        for info in list_all(self._objects, VERSIONS):
            key = _version_of(info.key)
            if key:
                changed[key] = max(info.modified, changed.get(key, 0))
        marks = {_marked(info.key, RETIRED): info for info in list_all(self._objects, RETIRED)}
        names = self.outputs()
        current = dict(zip(names, in_parallel(self._pointed, names), strict=True))
        needed_at = {
            key: max(time, marks[key].modified if key in marks else 0)
            for key, time in changed.items()
        }
        roots = [
            key for key, at in needed_at.items() if current.get(key[0]) == key[1] or at >= before
        ]
        unneeded: list[VersionKey] = []
        if len(roots) < len(changed):
            load = partial(in_parallel, self._find)
            unneeded = sorted(changed.keys() - needed_versions(roots, load))
        in_parallel(self._mark, [key for key in unneeded if key not in marks])
        old = [key for key in unneeded if key in marks]
        removed = in_parallel(lambda key: self._remove(key, marks[key], now), old)
        for folder, limit in ((RETIRED, before), (REMOVING, now - DEAD_SECONDS)):
            for info in list(list_all(self._objects, folder)):
                if _marked(info.key, folder) not in changed and info.modified < limit:
                    self._objects.delete(info.key)
        gone = [f"{key[0]}@{key[1]}" for key, done in zip(old, removed, strict=True) if done]
        return gone, {name: version for name, version in current.items() if version}

    def _mark(self, key: VersionKey) -> None:
        self._objects.put(f"{RETIRED}{'/'.join(key)}", _nonce())

    def _remove(self, key: VersionKey, mark: ObjectInfo, now: float) -> bool:
        """Remove a version, manifest first, unless a commit marked it as needed meanwhile."""
        began, name = time.monotonic(), f"{REMOVING}{'/'.join(key)}"
        present = self._objects.head(name)
        if present and present.modified >= now - DEAD_SECONDS:
            return False
        etag, own = present.etag if present else None, _nonce()
        try:
            self._objects.put(name, own, if_none_match=present is None, if_match=etag)
        except ObjectChangedError:  # of another collection, unless only the answer was lost
            stored = self._objects.read(name)
            if stored is None or stored[0] != own:
                return False
        marked = self._objects.head(mark.key)
        needed = marked is None or marked.etag != mark.etag or self._pointed(key[0]) == key[1]
        manifest = f"{_prefix(key)}{MANIFEST}"
        objects = [] if needed else [info.key for info in list_all(self._objects, _prefix(key))]
        for one in sorted(objects, key=lambda one: one != manifest):
            if time.monotonic() - began > _REMOVAL_SECONDS:
                needed = True
                break
            self._objects.delete(one)
        if not needed:
            self._objects.delete(mark.key)
        self._objects.delete(name)
        return not needed


def _key(version: Version) -> VersionKey:
    return version.output, version.id


def _prefix(key: VersionKey) -> str:
    """What the keys of one version begin with."""
    return f"{VERSIONS}{key[0]}/{key[1]}/"


def _version_of(key: str) -> VersionKey | None:
    """The version that an object below `versions/` belongs to; None for a foreign object."""
    parts = key.removeprefix(VERSIONS).split("/")
    for place in range(1, len(parts) - 1):
        rest = parts[place + 1 :]
        inside = rest == [MANIFEST] or (rest[0] == CONTENT and len(rest) > 1)
        if is_version_id(parts[place]) and inside:
            return "/".join(parts[:place]), parts[place]
    return None


def _marked(key: str, folder: str) -> VersionKey | None:
    """The version of a mark in a folder of marks; None for a foreign object."""
    output, _, version = key.removeprefix(folder).rpartition("/")
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
    """Call the function for every item in threads.

    Returns:
        The results in the order of the items. The first error is raised after the calls that had
        begun have ended.
    """
    items = list(items)
    if len(items) < 2 or workers == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(workers, len(items))) as pool:
        return list(pool.map(function, items))
