"""Verifying a version in a bucket: every byte of it is read.

Belongs here: comparing the objects of a version with its manifest.
"""

from demo_pipeline.files.atomic_write import hidden_name
from demo_pipeline.storage.objects.object_store import ObjectInfo, Objects, list_all
from demo_pipeline.storage.store.bucket_layout import in_parallel, manifest_key, version_prefix
from demo_pipeline.storage.store.bucket_versions import (
    ExpectedObject,
    ObjectsByKey,
    corrupt_manifest,
    expected_files,
    fetch_verified,
    read_version_manifest,
)
from demo_pipeline.storage.store.integrity import OutputDamage, output_damage
from demo_pipeline.storage.store.layout import CONTENT, MANIFEST, VersionKey
from demo_pipeline.storage.store.local_cache import CorruptObject, LocalCache
from demo_pipeline.storage.store.version_manifest import Version


def verify_bucket_version(
    objects: Objects, cache: LocalCache, key: VersionKey
) -> list[OutputDamage]:
    """Every difference between a version in the bucket, the versions it links to, and manifests.

    A version in the local cache with a changed file is removed, so that the next reader gets the
    bytes that were verified here.
    """
    read = read_version_manifest(objects, key)
    if read is None:
        cache.note_damage(*key, corrupt_manifest(objects, key))
        return [output_damage(key[0], "damaged_manifest", MANIFEST, "is missing or was changed")]
    version = read[1]
    cache.discard_if_changed(version)
    stored = {info.key: info for info in list_all(objects, version_prefix(*key))}
    damages = _changed(objects, cache, version, stored)
    for path, link in version.manifest.links.items():
        target = (link.output, link.version)
        if objects.head(manifest_key(*target)) is None:
            message = f"does not lead to {link.output} any more"
            damages.append(output_damage(key[0], "broken_link", path, message))
        else:
            damages += verify_bucket_version(objects, cache, target)
    return damages + _unexpected(version, stored)


def _changed(
    objects: Objects, cache: LocalCache, version: Version, stored: ObjectsByKey
) -> list[OutputDamage]:
    files = expected_files(version)
    with cache.scratch() as scratch:

        def check(path: str) -> CorruptObject | None:
            dest = scratch / hidden_name()
            corrupt = fetch_verified(objects, files[path], stored.get(files[path].key), dest)
            dest.unlink(missing_ok=True)
            return corrupt

        checked = zip(files, in_parallel(check, list(files)), strict=True)
    corrupt_files = {path: corrupt for path, corrupt in checked if corrupt}
    for corrupt in corrupt_files.values():
        cache.note_damage(version.output, version.id, corrupt)
    return [
        _describe(version.output, path, files[path], stored.get(files[path].key))
        for path in corrupt_files
    ]


def _describe(
    output: str, path: str, expected: ExpectedObject, info: ObjectInfo | None
) -> OutputDamage:
    if info is None:
        return output_damage(output, "missing_file", path, "is missing")
    if info.size != expected.size:
        message = f"has {info.size} bytes, expected {expected.size}"
        return output_damage(output, "changed_file", path, message)
    return output_damage(output, "changed_file", path, "has another SHA-256 than its manifest")


def _unexpected(version: Version, stored: ObjectsByKey) -> list[OutputDamage]:
    prefix = version_prefix(version.output, version.id)
    known = {file.key for file in expected_files(version).values()} | {f"{prefix}{MANIFEST}"}
    extra = sorted(key.removeprefix(f"{prefix}{CONTENT}/") for key in stored.keys() - known)
    return [
        output_damage(version.output, "unexpected_file", path, "does not belong to the output")
        for path in extra
    ]
