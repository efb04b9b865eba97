"""Uploading versions to a bucket and downloading them; every file is compared with its manifest.

Belongs here: finding, uploading and downloading a version and what it links to. Publishing a
version is in bucket_pointers.py.
"""

import logging
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from demo_pipeline.files.atomic_write import hidden_name, read_digest
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
_LOG = logging.getLogger(__package__)
ObjectsByKey = dict[str, ObjectInfo]


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """Key, bytes and SHA-256 (hex) that an object has to have."""

    key: str
    size: int
    sha256: str


def expected_files(version: Version) -> dict[str, ExpectedObject]:
    """Path under `content/` → its object."""
    return {
        file.path: ExpectedObject(
            content_key(version.output, version.id, file.path), file.size, file.sha256
        )
        for file in version.manifest.files
    }


def read_version_manifest(objects: Objects, key: VersionKey) -> tuple[bytes, Version] | None:
    """A version's manifest; None when it is missing or does not match the version's id."""
    stored = objects.read(manifest_key(*key))
    version = parse_version(stored[0], *key) if stored else None
    return (stored[0], version) if stored and version else None


def corrupt_manifest(objects: Objects, key: VersionKey) -> CorruptObject:
    """The object that a version's manifest should be."""
    info = objects.head(manifest_key(*key))
    return CorruptObject(manifest_key(*key), info.etag if info else "")


def find_version(
    objects: Objects, cache: LocalCache, key: VersionKey, *, remember: bool = True
) -> Version | None:
    """The version, from the local cache when its manifest is there."""
    cached = cache.known_version(*key)
    if cached:
        return cached
    read = read_version_manifest(objects, key)
    if read is None:
        return None
    if remember:
        cache.remember_manifest(read[1], read[0])
    return read[1]


def has_all_objects(objects: Objects, version: Version) -> bool:
    """Whether a listing shows the manifest and every file of the version in its size."""
    stored = _stored_objects(objects, version)
    files = expected_files(version).values()
    return manifest_key(version.output, version.id) in stored and all(
        file.key in stored and stored[file.key].size == file.size for file in files
    )


def with_linked_versions(objects: Objects, cache: LocalCache, version: Version) -> list[Version]:
    """The version itself, then every version that it links to, directly or not.

    Raises:
        MissingOutput: one of these is not in the bucket.
    """
    versions = {(version.output, version.id): version}
    level = [version]
    while level:
        links = {
            (link.output, link.version)
            for linking in level
            for link in linking.manifest.links.values()
        }
        keys = sorted(links - versions.keys())
        level = in_parallel(partial(_require_version, objects, cache), keys)
        versions |= dict(zip(keys, level, strict=True))
    return list(versions.values())


def fetch_version(objects: Objects, cache: LocalCache, version: Version) -> None:
    """Download the version and every version it links to into the local cache.

    Raises:
        MissingOutput: a file of one of them is missing in the bucket, or was changed.
    """
    _, *linked = with_linked_versions(objects, cache, version)
    missing = [link for link in linked if not cache.has(link)]
    workers = 1 if len(missing) > 1 else WORKERS
    in_parallel(partial(_download, objects, cache, workers), missing)
    if not cache.has(version):
        _download(objects, cache, WORKERS, version)


def fetch_files(objects: Objects, cache: LocalCache, version: Version, pattern: str) -> Path:
    """Download the files of a version whose paths match a glob pattern, none of linked versions.

    Returns:
        A folder with these files, and perhaps with others of the version.

    Raises:
        MissingOutput: one of these files is missing in the bucket, or was changed.
    """
    if cache.has(version):
        return cache.content(version)
    folder = cache.single_files(version)
    files = {
        path: file for path, file in expected_files(version).items() if fnmatchcase(path, pattern)
    }
    missing = [path for path, file in files.items() if not _is_file(folder / path, file.size)]
    with cache.scratch() as scratch:

        def fetch(path: str) -> CorruptObject | None:
            download, place = scratch / hidden_name(), folder / path
            info = objects.head(files[path].key)
            corrupt = fetch_verified(objects, files[path], info, download)
            if corrupt is None:
                place.parent.mkdir(parents=True, exist_ok=True)
                download.replace(place)
            return corrupt

        for corrupt in in_parallel(fetch, missing):
            if corrupt:
                cache.note_damage(version.output, version.id, corrupt)
                raise MissingOutput(version.output)
    return folder


def _is_file(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def upload_version(objects: Objects, cache: LocalCache, version: Version) -> None:
    """Write every object of a version that is not in the bucket already, its manifest last.

    Raises:
        StorageError: a collection is removing the version.
    """
    folder = cache.folder(version)
    stored = _stored_objects(objects, version)
    if stored:
        acquire_lease(objects, (version.output, version.id))
        stored = _stored_objects(objects, version)
    with cache.scratch() as scratch:
        files = expected_files(version)
        put = partial(_put, objects, stored, scratch)
        in_parallel(lambda path: put(files[path], folder / CONTENT / path), list(files))
        manifest = folder / MANIFEST
        key = manifest_key(version.output, version.id)
        put(ExpectedObject(key, *read_digest(manifest)), manifest)


def fetch_verified(
    objects: Objects, expected: ExpectedObject, info: ObjectInfo | None, dest: Path
) -> CorruptObject | None:
    """Download an object to `dest`; returns the object that is stored when it is another."""
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


def _download(objects: Objects, cache: LocalCache, workers: int, version: Version) -> None:
    """Download one version into the local cache, without the versions it links to."""
    key = (version.output, version.id)
    read = read_version_manifest(objects, key)
    if read is None:
        cache.note_damage(*key, corrupt_manifest(objects, key))
        raise MissingOutput(version.output)
    with cache.install_fetched(version, read[0]) as staging:
        if staging is None:
            return
        stored = _stored_objects(objects, version)
        files = expected_files(version)

        def fetch_file(path: str) -> CorruptObject | None:
            dest = staging.path / path
            dest.parent.mkdir(parents=True, exist_ok=True)
            return fetch_verified(objects, files[path], stored.get(files[path].key), dest)

        for corrupt in in_parallel(fetch_file, list(files), workers):
            if corrupt:
                cache.note_damage(*key, corrupt)
                raise MissingOutput(version.output)
        for path, link in version.manifest.links.items():
            staging.link_to(path, link)
    _LOG.debug("%s: version %s downloaded, %d files", *key, len(files))


def _put(
    objects: Objects, stored: ObjectsByKey, scratch: Path, expected: ExpectedObject, source: Path
) -> None:
    """Write an object unless it is stored with the same bytes."""
    present = stored.get(expected.key)
    if present is None:
        try:
            objects.put(expected.key, source, if_none_match=True)
        except ObjectChangedError:
            present = objects.head(expected.key)
    if present is not None:
        dest = scratch / hidden_name()
        if fetch_verified(objects, expected, present, dest):
            objects.put(expected.key, source, if_match=present.etag)
        else:
            dest.unlink()


def _require_version(objects: Objects, cache: LocalCache, key: VersionKey) -> Version:
    version = find_version(objects, cache, key)
    if version is None:
        raise MissingOutput(key[0])
    return version


def _stored_objects(objects: Objects, version: Version) -> ObjectsByKey:
    prefix = version_prefix(version.output, version.id)
    return {info.key: info for info in list_all(objects, prefix)}
