"""Versions in a bucket: objects, and a pointer that names the version that readers see.

Belongs here: keys, the order of a commit's steps, downloads, and garbage collection by the
bucket's own clock. A process that dies between any two steps leaves the last good version. Outputs
are built and read in a local cache, which is laid out like a store in a folder; nothing in it is
the only copy of anything. `versions/` is not hidden there: SeaweedFS does not list `.versions`.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

from demo_pipeline.files.atomic_write import atomic_file, read_digest
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.folder import (
    CONTENT,
    MANIFEST,
    Folder,
    VersionKey,
    is_old,
    is_version_id,
    remove_tree,
    sync_tree,
)
from demo_pipeline.store.names import POINTERS, RETIRED, VERSIONS, is_output
from demo_pipeline.store.objects import ObjectChangedError, ObjectInfo, Objects, list_all
from demo_pipeline.store.version_manifest import FileEntry, LinkEntry, Version, parse_version
from demo_pipeline.store.versions import (
    OutputDamage,
    Staging,
    collect_folder,
    damages_of,
    has_all_files,
    install,
    link_removed,
    manifest_damage,
    publish,
    size_of,
    staged,
    unneeded_versions,
    unpublish,
    verify_version,
    with_linked,
)

DEAD_SECONDS = 900.0  # after which a removal that did not end counts as dead
_REMOVAL_SECONDS = 300.0  # after which a removal stops by itself, well before it counts as dead
_REMOVING = b"removing "  # what a mark begins with while its version is removed
_WORKERS = 16
_DOWNLOADS = 3
_SWAPS = 100  # of an object: one only fails when another process succeeds
_LOG = logging.getLogger(__package__)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class BucketVersions:
    """Versions as objects, each built and read in `folder`, a cache for this bucket alone.

    The cache may be removed whenever nothing reads it.
    """

    def __init__(self, objects: Objects, folder: Folder) -> None:
        self.objects, self._folder = objects, folder

    def pointed(self, output: str) -> str | None:
        """The version that readers see, whether or not it exists; None without a valid pointer."""
        stored = self.objects.read(f"{POINTERS}{output}")
        return _version_in(stored[0]) if stored else None

    def outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        listed = list_all(self.objects, f"{POINTERS}{folder}")
        names = (info.key.removeprefix(POINTERS) for info in listed)
        inside = (name for name in names if not folder or f"{name}/".startswith(f"{folder}/"))
        return set(filter(is_output, inside))

    def load(self, key: VersionKey) -> Version | None:
        """The version, whose manifest the cache keeps; None when it is known to be damaged."""
        with suppress(FileNotFoundError, NotADirectoryError, ValueError):
            name, etag, _ = self._note(key).read_text().split("\n")
            info = self.objects.head(name)
            if (info.etag if info else "") == etag:  # it was not written again since
                return None
        return self._find(key)

    def is_complete(self, version: Version) -> bool:
        """Whether every file exists in its size: by one listing."""
        stored = self._stored(version.key)
        sizes = {f"{CONTENT}/{path}": size for path, size in version.manifest.files.sizes()}
        same = (path in stored and stored[path].size == size for path, size in sizes.items())
        return MANIFEST in stored and all(same)

    # A commit: before the local one, and after it

    def prepare(self, staging: Staging) -> None:
        """Refuse an output inside another, and keep the linked versions from being removed.

        Raises:
            StorageError: also when a linked version was removed meanwhile.
        """
        output = staging.output
        parts = output.split("/")
        above = ["/".join(parts[:length]) for length in range(1, len(parts))]
        taken = [name for name in above if self.objects.head(f"{POINTERS}{name}")]
        if not taken and self.objects.list_page(f"{POINTERS}{output}/", limit=1).objects:
            taken = [f"{output}/…"]
        if taken:  # a local copy of the store could not hold both
            raise StorageError(
                f"{output}: {taken[0]} is an output already, and an output cannot be inside "
                "another; remove it, or choose another name"
            )
        marked = self._marks() if staging.links else {}

        def keep(link: LinkEntry) -> None:
            key = (link.output, link.version)
            if key in marked:
                self._keep(key)
            if not self._exists(key):
                raise link_removed(output, link)

        in_parallel(keep, staging.links.values())

    def publish(self, version: Version) -> None:
        """Write the objects, the manifest after them, and move the pointer.

        Whoever else writes one of the objects at the same time writes the same bytes.
        """
        key, folder = version.key, self._folder.version(*version.key)
        self._keep(key)

        def put(path: str) -> None:
            self.objects.put(f"{_prefix(key)}{path}", folder / path)

        in_parallel(put, [f"{CONTENT}/{path}" for path, _ in version.manifest.files.sizes()])
        put(MANIFEST)
        self._move_pointer(version)
        self._note(key).unlink(missing_ok=True)

    def _move_pointer(self, version: Version) -> None:
        name, data = f"{POINTERS}{version.output}", f"{version.id}\n".encode()
        for _ in range(_SWAPS):
            stored = self.objects.read(name)
            if stored and stored[0] == data:
                return
            if stored:
                self._retire(version.output, stored[0])
            if self._swap(name, data, stored[1] if stored else None):
                return
        raise StorageError(
            f"{version.output}: too many processes commit it at the same time; run again"
        )

    def unpublish(self, output: str) -> None:
        """Remove the pointer of an output, if it has one."""
        stored = self.objects.read(f"{POINTERS}{output}")
        if stored is not None:
            self._retire(output, stored[0])
            self.objects.delete(f"{POINTERS}{output}")

    def keys(self, within: str = "") -> set[VersionKey]:
        """Every version in the bucket below a folder, complete or not."""
        prefix = f"{VERSIONS}{within}{'/' if within else ''}"
        keys = (_version_of(info.key) for info in list_all(self.objects, prefix))
        return set(filter(None, keys))

    def erase(self, output: str) -> bool:
        """Remove every object of an output's versions; returns whether there were any."""
        tops = (f"{top}{output}/" for top in (VERSIONS, RETIRED))
        keys = [info.key for top in tops for info in list_all(self.objects, top)]
        in_parallel(self.objects.delete, keys)
        remove_tree(self._folder.root / ".files" / output)
        return bool(keys)

    def _swap(self, name: str, data: bytes, before: ObjectInfo | None) -> bool:
        """Whether an object, which has this state or is missing, was replaced by this process."""
        etag = before.etag if before else None
        try:
            self.objects.put(name, data, if_none_match=before is None, if_match=etag)
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
                if self._folder.load(*key) is None:
                    self._write(Path(self._folder.manifest(*key)), stored[0])
        return version

    def bring(self, version: Version) -> None:
        """Download the version and every version it links to into the cache, and publish it there.

        Pruning keeps it there while it is published.

        Raises:
            MissingOutput: names the output that lacks a file.
        """

        def load(keys: list[VersionKey]) -> list[Version]:
            found = in_parallel(self._find, keys)
            missing = [key[0] for key, one in zip(keys, found, strict=True) if one is None]
            if missing:
                raise MissingOutput(missing[0])
            return [one for one in found if one]

        linked = with_linked([version.key], load) - {version.key}
        versions = [one for one in load(sorted(linked)) if not self._has(one)]
        workers = 1 if len(versions) > 1 else _WORKERS
        in_parallel(partial(self._download, workers), versions)
        if not self._has(version):
            self._download(_WORKERS, version)
        if self._folder.published_version(version.output) != version.id:
            with self._folder.locked(version.output):
                publish(self._folder, version)

    def bring_files(self, version: Version, pattern: str) -> Path:
        """Have the version's own files that match a glob in a folder, at least.

        They stay in the cache until a collection finds them old.

        Raises:
            MissingOutput: one of them is missing.
        """
        if self._has(version):
            return Path(self._folder.content(*version.key))
        folder = self._folder.root / ".files" / version.output / version.id
        matching = (file for file in version.manifest.files if fnmatchcase(file.path, pattern))
        wanted = [file for file in matching if size_of(f"{folder}/{file.path}") != file.size]
        with staged(self._folder, version.output) as staging:
            self._fetch_all(version, wanted, staging.path, {}, _WORKERS)
            for file in wanted:
                (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
                (staging.path / file.path).replace(folder / file.path)
        return folder

    def _has(self, version: Version) -> bool:
        """Whether the cache has every file in its size; linked versions do not count."""
        loaded = self._folder.load(*version.key)
        return loaded is not None and has_all_files(self._folder, version)

    def _download(self, workers: int, version: Version) -> None:
        """Download one version, whose linked versions are in the cache already."""
        folder, key = self._folder, version.key
        with folder.locked(f"{key[0]}.fetch"), staged(folder, key[0]) as staging:
            if self._has(version):  # another process has downloaded it meanwhile
                return

            files = list(version.manifest.files)
            self._fetch_all(version, files, staging.path, self._stored(key), workers)
            for path, link in version.manifest.links.items():
                staging.link(path, link)
            with (staging.directory / MANIFEST).open("wb") as file:
                file.writelines(version.manifest.chunks())
            sync_tree(staging.directory)
            with folder.locked(key[0]):
                install(folder, staging.directory, version)
        _LOG.debug("%s: version %s downloaded, %d files", *key, len(version.manifest.files))

    def _fetch_all(
        self,
        version: Version,
        files: Sequence[FileEntry],
        folder: Path,
        stored: Mapping[str, ObjectInfo],
        workers: int,
    ) -> None:
        """Download files of a version; `stored` are its objects, as far as they are known."""

        def fetch(file: FileEntry) -> bool:
            dest = folder / file.path
            dest.parent.mkdir(parents=True, exist_ok=True)
            return self._fetch(version.key, file, stored.get(f"{CONTENT}/{file.path}"), dest)

        if not all(in_parallel(fetch, files, workers)):
            raise MissingOutput(version.output)

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

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.make(path.parent)
        with atomic_file(path, draft=self._folder.draft()) as file:
            file.write(data)

    # Damage: a corrupt object is remembered, so that a new build is made instead of it

    def _note(self, key: VersionKey) -> Path:
        return self._folder.root / ".damaged" / key[0] / f"{key[1]}.txt"

    def _note_damage(self, key: VersionKey, name: str, info: ObjectInfo | None) -> None:
        self._write(self._note(key), f"{name}\n{info.etag if info else ''}\n".encode())

    def verify(self, key: VersionKey) -> list[OutputDamage]:
        """Every difference between a version in the bucket and its manifest; reads every byte."""
        name = f"{_prefix(key)}{MANIFEST}"
        read = self.objects.read(name)
        version = parse_version([read[0]], *key) if read else None
        if version is None:
            self._note_damage(key, name, read[1] if read else None)
            return [manifest_damage(key[0])]
        folder = self._folder  # what differs in the cache is removed there, single files always
        remove_tree(folder.root / ".files" / "/".join(key))
        if Path(folder.content(*key)).is_dir() and verify_version(folder, *key, linked=False):
            with folder.locked(key[0]):
                remove_tree(folder.discard(folder.version(*key)))
        stored = self._stored(key)

        def differs(file: FileEntry) -> bool:
            dest = self._folder.draft()
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
            damages += self.verify(targets[path])
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
        name = f"{RETIRED}{'/'.join(key)}"
        for _ in range(_SWAPS):
            mark = self.objects.read(name)
            if mark is None:
                return
            if mark[0].startswith(_REMOVING):
                now = self.objects.put(f"{RETIRED}clock", b"").modified
                if mark[1].modified >= now - DEAD_SECONDS:
                    break
            if self._swap(name, _nonce(), mark[1]):
                return
        raise StorageError(
            f"{key[0]}: garbage collection is removing an old version with the same content; "
            f"run again, after {DEAD_SECONDS / 60:.0f} minutes at the latest"
        )

    def collect(self, before: float, now: float) -> list[str]:
        """Remove versions that nobody needed since a time; the same in the cache.

        A version that no commit has marked as replaced is marked, and goes at a later collection.

        Returns:
            `<output>@<version>` of each version removed, sorted, then drafts in the cache.
        """
        changed: dict[VersionKey, float] = {}
        for info in list_all(self.objects, VERSIONS):
            if key := _version_of(info.key):
                changed[key] = max(info.modified, changed.get(key, 0))
        marks, names = self._marks(), sorted(self.outputs(""))
        current = dict(zip(names, in_parallel(self.pointed, names), strict=True))
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
        gone = [f"{key[0]}@{key[1]}" for key, done in zip(marked, removed, strict=True) if done]
        folder = self._folder  # the cache
        for output in folder.published_outputs(""):
            if folder.published_version(output) != current.get(output):
                unpublish(folder, output)
        for single in (folder.root / ".files").rglob("*"):
            if single.is_file() and is_old(single, before):
                single.unlink(missing_ok=True)
        drafts = collect_folder(folder, before)
        return gone + [name for name in drafts if name.startswith(".staging/")]

    def _remove(self, key: VersionKey, mark: ObjectInfo, now: float) -> bool:
        """Remove a version, manifest first, unless a commit marked it as needed meanwhile."""
        began, stored = time.monotonic(), self.objects.read(mark.key)
        others = stored and stored[0].startswith(_REMOVING)
        if others and mark.modified >= now - DEAD_SECONDS:
            return False
        if not self._swap(mark.key, _REMOVING + _nonce(), mark):
            return False
        needed, manifest = self.pointed(key[0]) == key[1], f"{_prefix(key)}{MANIFEST}"
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
    parts = key.removeprefix(VERSIONS).split("/")
    for place in range(1, len(parts) - 1):
        rest = parts[place + 1 :]
        inside = rest == [MANIFEST] or (rest[0] == CONTENT and len(rest) > 1)
        if is_version_id(parts[place]) and inside:
            return "/".join(parts[:place]), parts[place]
    return None


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
