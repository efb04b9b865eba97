"""Versions on their way to a bucket and back, each file proven to be what its manifest says.

Belongs here: finding, uploading and downloading one version, and what closes over its links. Which
version is current is not known here.
"""

import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from demo_pipeline.common.hashing import read_digest
from demo_pipeline.storage.errors import MissingOutput
from demo_pipeline.storage.objects.object_store import (
    ObjectChangedError,
    ObjectInfo,
    Objects,
    list_all,
)
from demo_pipeline.storage.store.bucket_layout import (
    WORKERS,
    content_key,
    in_parallel,
    manifest_key,
    version_prefix,
)
from demo_pipeline.storage.store.gc_leases import acquire_lease
from demo_pipeline.storage.store.integrity import parse_version
from demo_pipeline.storage.store.layout import CONTENT, MANIFEST, VersionKey
from demo_pipeline.storage.store.local_cache import CorruptObject, LocalCache
from demo_pipeline.storage.store.version_manifest import Version

_ATTEMPTS = 3
Infos = dict[str, ObjectInfo]  # by key


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """What an object has to be."""

    key: str
    size: int
    sha256: str


def expected_files(version: Version) -> dict[str, ExpectedObject]:
    """Path under `content/` → what its object has to be."""
    return {
        file.path: ExpectedObject(
            content_key(version.output, version.id, file.path), file.size, file.sha256
        )
        for file in version.manifest.files
    }


def read_version_manifest(objects: Objects, key: VersionKey) -> tuple[bytes, Version] | None:
    """A version's manifest; None when it is missing or not what its id says."""
    found = objects.read(manifest_key(*key))
    version = parse_version(found[0], *key) if found else None
    return (found[0], version) if found and version else None


def corrupt_manifest(objects: Objects, key: VersionKey) -> CorruptObject:
    """What stands where a version's manifest should be."""
    info = objects.head(manifest_key(*key))
    return CorruptObject(manifest_key(*key), info.etag if info else "")


def find_version(
    objects: Objects, copy: LocalCache, key: VersionKey, *, remember: bool = True
) -> Version | None:
    """The version, from the working copy when it is known there."""
    known = copy.known(*key)
    if known:
        return known
    found = read_version_manifest(objects, key)
    if found is None:
        return None
    if remember:
        copy.remember(found[1], found[0])
    return found[1]


def with_linked_versions(objects: Objects, copy: LocalCache, version: Version) -> list[Version]:
    """The version itself, then all that it links to, through any number of links.

    Raises:
        MissingOutput: one of these is not there.
    """
    found = {(version.output, version.id): version}
    level = [version]
    while level:
        links = {
            (one.output, one.version) for each in level for one in each.manifest.links.values()
        }
        keys = sorted(links - found.keys())
        level = in_parallel(partial(_require, objects, copy), keys)
        found |= dict(zip(keys, level, strict=True))
    return list(found.values())


def fetch_version(objects: Objects, copy: LocalCache, version: Version) -> None:
    """Have the version and all that it links to in the working copy, whole.

    Raises:
        MissingOutput: a file of one of them is gone from the bucket, or is another.
    """
    _, *linked = with_linked_versions(objects, copy, version)
    missing = [one for one in linked if not copy.has(one)]
    workers = 1 if len(missing) > 1 else WORKERS
    in_parallel(partial(_download, objects, copy, workers), missing)
    if not copy.has(version):
        _download(objects, copy, WORKERS, version)


def upload_version(objects: Objects, copy: LocalCache, version: Version) -> None:
    """Write every object of a version that is not there already, its manifest last.

    Raises:
        StorageError: a collection removes the version at this moment.
    """
    folder = copy.folder(version)
    there = _there(objects, version)
    if there:
        acquire_lease(objects, (version.output, version.id))
        there = _there(objects, version)
    with copy.scratch() as scratch:
        files = expected_files(version)
        put = partial(_put, objects, there, scratch)
        in_parallel(lambda path: put(files[path], folder / CONTENT / path), list(files))
        manifest = folder / MANIFEST
        key = manifest_key(version.output, version.id)
        put(ExpectedObject(key, *read_digest(manifest)), manifest)


def fetch_verified(
    objects: Objects, expected: ExpectedObject, info: ObjectInfo | None, dest: Path
) -> CorruptObject | None:
    """Put an object at `dest` if it is what it has to be, else say what is there."""
    for _ in range(_ATTEMPTS):
        if info is None or info.size != expected.size:
            break
        try:
            objects.fetch(expected.key, info.etag, dest)
        except ObjectChangedError:
            pass
        else:
            if read_digest(dest).sha256 == expected.sha256:
                return None
            dest.unlink()
        info = objects.head(expected.key)
    return CorruptObject(expected.key, info.etag if info else "")


def _download(objects: Objects, copy: LocalCache, workers: int, version: Version) -> None:
    """Have one version in the working copy; its links are not followed."""
    key = (version.output, version.id)
    found = read_version_manifest(objects, key)
    if found is None:
        copy.note_damage(*key, corrupt_manifest(objects, key))
        raise MissingOutput(version.output)
    with copy.fetching(version, found[0]) as staging:
        if staging is None:
            return
        there = _there(objects, version)
        files = expected_files(version)

        def fetch_one(path: str) -> CorruptObject | None:
            dest = staging.path / path
            dest.parent.mkdir(parents=True, exist_ok=True)
            return fetch_verified(objects, files[path], there.get(files[path].key), dest)

        for damage in in_parallel(fetch_one, list(files), workers):
            if damage:
                copy.note_damage(*key, damage)
                raise MissingOutput(version.output)
        for path, link in version.manifest.links.items():
            staging.link_to(path, link)


def _put(
    objects: Objects, there: Infos, scratch: Path, expected: ExpectedObject, source: Path
) -> None:
    """Write an object unless it is there with the same bytes."""
    present = there.get(expected.key)
    if present is None:
        try:
            objects.put(expected.key, source, if_none_match=True)
        except ObjectChangedError:
            present = objects.head(expected.key)
    if present is not None:
        dest = scratch / secrets.token_hex(8)
        if fetch_verified(objects, expected, present, dest):
            objects.put(expected.key, source, if_match=present.etag)
        else:
            dest.unlink()


def _require(objects: Objects, copy: LocalCache, key: VersionKey) -> Version:
    version = find_version(objects, copy, key)
    if version is None:
        raise MissingOutput(key[0])
    return version


def _there(objects: Objects, version: Version) -> Infos:
    prefix = version_prefix(version.output, version.id)
    return {info.key: info for info in list_all(objects, prefix)}
