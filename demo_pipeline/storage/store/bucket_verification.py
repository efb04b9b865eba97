"""Reading every byte of a version back from a bucket.

Belongs here: what the objects of a version are against what its manifest says.
"""

import secrets

from demo_pipeline.storage.objects.object_store import ObjectInfo, Objects, list_all
from demo_pipeline.storage.store.bucket_layout import (
    in_parallel,
    manifest_key,
    version_prefix,
)
from demo_pipeline.storage.store.bucket_versions import (
    ExpectedObject,
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
    objects: Objects, copy: LocalCache, key: VersionKey
) -> list[OutputDamage]:
    """Every difference between a version in the bucket, what it links to, and the manifests.

    A file of the working copy that was changed is thrown away, so that the next reader gets the
    bytes that were verified here.
    """
    found = read_version_manifest(objects, key)
    if found is None:
        copy.note_damage(*key, corrupt_manifest(objects, key))
        return [output_damage(key[0], "damaged_manifest", MANIFEST, "is missing or was changed")]
    version = found[1]
    copy.discard_if_changed(version)
    there = {info.key: info for info in list_all(objects, version_prefix(*key))}
    problems = _changed(objects, copy, version, there)
    for path, link in version.manifest.links.items():
        target = (link.output, link.version)
        if objects.head(manifest_key(*target)) is None:
            problems.append(output_damage(key[0], "broken_link", path, f"no longer {link.output}"))
        else:
            problems += verify_bucket_version(objects, copy, target)
    return problems + _unexpected(version, there)


def _changed(
    objects: Objects, copy: LocalCache, version: Version, there: dict[str, ObjectInfo]
) -> list[OutputDamage]:
    files = expected_files(version)
    with copy.scratch() as scratch:

        def damage(path: str) -> CorruptObject | None:
            dest = scratch / secrets.token_hex(8)
            found = fetch_verified(objects, files[path], there.get(files[path].key), dest)
            dest.unlink(missing_ok=True)
            return found

        damages = zip(files, in_parallel(output_damage, list(files)), strict=True)
    found = [(path, one) for path, one in damages if one]
    for _, one in found:
        copy.note_damage(version.output, version.id, one)
    return [_problem(version.output, path, files[path], there) for path, _ in found]


def _problem(
    output: str, path: str, expected: ExpectedObject, there: dict[str, ObjectInfo]
) -> OutputDamage:
    info = there.get(expected.key)
    if info is None:
        return output_damage(output, "missing_file", path, "is missing")
    if info.size != expected.size:
        message = f"has {info.size} bytes, expected {expected.size}"
        return output_damage(output, "changed_file", path, message)
    return output_damage(output, "changed_file", path, "has another SHA-256 than recorded")


def _unexpected(version: Version, there: dict[str, ObjectInfo]) -> list[OutputDamage]:
    prefix = version_prefix(version.output, version.id)
    known = {one.key for one in expected_files(version).values()} | {f"{prefix}{MANIFEST}"}
    extra = sorted(key.removeprefix(f"{prefix}{CONTENT}/") for key in there.keys() - known)
    return [
        output_damage(version.output, "unexpected_file", path, "was put there by something else")
        for path in extra
    ]
