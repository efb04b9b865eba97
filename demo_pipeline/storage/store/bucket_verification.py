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
    Expected,
    expected_files,
    fetch_file,
    manifest_damage,
    read_version_manifest,
)
from demo_pipeline.storage.store.integrity import OutputDamage, finding
from demo_pipeline.storage.store.layout import CONTENT, MANIFEST, VersionKey
from demo_pipeline.storage.store.local_cache import CorruptObject, WorkingCopy
from demo_pipeline.storage.store.version_manifest import Version


def verify(objects: Objects, copy: WorkingCopy, key: VersionKey) -> list[OutputDamage]:
    """Every difference between a version in the bucket, what it links to, and the manifests.

    A file of the working copy that was changed is thrown away, so that the next reader gets the
    bytes that were verified here.
    """
    found = read_version_manifest(objects, key)
    if found is None:
        copy.note_damage(*key, manifest_damage(objects, key))
        return [finding(key[0], "damaged_manifest", MANIFEST, "is missing or was changed")]
    version = found[1]
    copy.discard_if_changed(version)
    there = {info.key: info for info in list_all(objects, version_prefix(*key))}
    problems = _changed(objects, copy, version, there)
    for path, link in version.manifest.links.items():
        target = (link.output, link.version)
        if objects.head(manifest_key(*target)) is None:
            problems.append(finding(key[0], "broken_link", path, f"no longer {link.output}"))
        else:
            problems += verify(objects, copy, target)
    return problems + _unexpected(version, there)


def _changed(
    objects: Objects, copy: WorkingCopy, version: Version, there: dict[str, ObjectInfo]
) -> list[OutputDamage]:
    files = expected_files(version)
    with copy.scratch() as scratch:

        def damage(path: str) -> CorruptObject | None:
            dest = scratch / secrets.token_hex(8)
            found = fetch_file(objects, files[path], there.get(files[path].key), dest)
            dest.unlink(missing_ok=True)
            return found

        damages = zip(files, in_parallel(damage, list(files)), strict=True)
    found = [(path, one) for path, one in damages if one]
    for _, one in found:
        copy.note_damage(version.output, version.id, one)
    return [_problem(version.output, path, files[path], there) for path, _ in found]


def _problem(
    output: str, path: str, expected: Expected, there: dict[str, ObjectInfo]
) -> OutputDamage:
    info = there.get(expected.key)
    if info is None:
        return finding(output, "missing_file", path, "is missing")
    if info.size != expected.size:
        message = f"has {info.size} bytes, expected {expected.size}"
        return finding(output, "changed_file", path, message)
    return finding(output, "changed_file", path, "has another SHA-256 than recorded")


def _unexpected(version: Version, there: dict[str, ObjectInfo]) -> list[OutputDamage]:
    prefix = version_prefix(version.output, version.id)
    known = {one.key for one in expected_files(version).values()} | {f"{prefix}{MANIFEST}"}
    extra = sorted(key.removeprefix(f"{prefix}{CONTENT}/") for key in there.keys() - known)
    return [
        finding(version.output, "unexpected_file", path, "was put there by something else")
        for path in extra
    ]
