"""Taking away versions in a bucket that nobody needs any more, whole or not.

Belongs here: which versions are needed, by what the bucket itself says of their age, and the
removal of the others in an order that a commit can interrupt.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from demo_pipeline.storage.objects.object_store import ObjectInfo, Objects, list_all
from demo_pipeline.storage.store.bucket_layout import (
    DELETION_LEASES,
    LEASES,
    VERSIONS,
    in_parallel,
    lease_key,
    manifest_key,
    version_of,
    version_of_lease,
    version_prefix,
)
from demo_pipeline.storage.store.bucket_pointers import published_outputs, read_pointer
from demo_pipeline.storage.store.bucket_versions import find_version
from demo_pipeline.storage.store.gc_leases import LEASE_SECONDS, DeletionLease
from demo_pipeline.storage.store.layout import VersionKey
from demo_pipeline.storage.store.local_cache import LocalCache


@dataclass(frozen=True, slots=True)
class BucketInventory:
    """What is in the bucket.

    Attributes:
        changed: version → when its newest object was written, epoch seconds.
        markers: version → the marker of the last time it was wanted.
        current: output → the version that readers see.
    """

    changed: Mapping[VersionKey, float]
    markers: Mapping[VersionKey, ObjectInfo]
    current: Mapping[str, str]

    def is_root(self, key: VersionKey, before: float) -> bool:
        """Whether readers see it, or something wanted it not long before."""
        marker = self.markers.get(key)
        wanted = max(self.changed[key], marker.modified if marker else 0)
        return self.current.get(key[0]) == key[1] or wanted >= before


def collect_bucket_garbage(
    objects: Objects, copy: LocalCache, grace_seconds: float, now: float
) -> tuple[list[str], Mapping[str, str]]:
    """Remove versions that nobody needed for the grace period, and markers of such.

    A version is needed while a pointer says so, for the grace period after the last one did, and
    while a needed version links to it. Ages are those of the bucket's LastModified.

    Returns:
        `<output>@<version>` of each version removed, sorted; output → the version readers see.
    """
    before = now - grace_seconds
    found = take_inventory(objects)
    roots = [key for key in found.changed if found.is_root(key, before)]
    unneeded: list[VersionKey] = []
    if len(roots) < len(found.changed):
        unneeded = sorted(found.changed.keys() - _needed(objects, copy, roots))
    removed = in_parallel(partial(_remove, objects, found.markers, now), unneeded)
    _sweep(objects, LEASES, found, before)
    _sweep(objects, DELETION_LEASES, found, now - LEASE_SECONDS)
    names = [f"{key[0]}@{key[1]}" for key, done in zip(unneeded, removed, strict=True) if done]
    return names, found.current


def take_inventory(objects: Objects) -> BucketInventory:
    """Two listings, and the pointer of each output that has several versions."""
    changed: dict[VersionKey, float] = {}
    for info in list_all(objects, VERSIONS):
        version = version_of(info.key)
        if version:
            changed[version] = max(info.modified, changed.get(version, 0))
    markers = {
        key: info
        for info in list_all(objects, LEASES)
        if (key := version_of_lease(info.key, LEASES))
    }
    return BucketInventory(changed, markers, _current(objects, changed))


def _current(objects: Objects, versions: Iterable[VersionKey]) -> dict[str, str]:
    """The only version of an output that has a pointer is taken for the one it says."""
    count = Counter(output for output, _ in versions)
    seen = published_outputs(objects)
    only = {output: version for output, version in versions if count[output] == 1}
    asked = [output for output in seen if output not in only]
    answers = zip(asked, in_parallel(partial(read_pointer, objects), asked), strict=True)
    current = {output: only[output] for output in seen if output in only}
    return current | {output: version for output, version in answers if version}


def _needed(objects: Objects, copy: LocalCache, roots: list[VersionKey]) -> set[VersionKey]:
    """The roots and all that they link to."""
    needed: set[VersionKey] = set()
    level = roots
    while level:
        needed.update(level)
        found = in_parallel(partial(find_version, objects, copy, remember=False), level)
        entries = (entry for one in found if one for entry in one.manifest.links.values())
        level = sorted({(entry.output, entry.version) for entry in entries} - needed)
    return needed


def _sweep(objects: Objects, folder: str, found: BucketInventory, before: float) -> None:
    """Remove old markers of versions that are not there."""
    for info in list(list_all(objects, folder)):
        if version_of_lease(info.key, folder) not in found.changed and info.modified < before:
            objects.delete(info.key)


def _remove(
    objects: Objects, markers: Mapping[VersionKey, ObjectInfo], now: float, key: VersionKey
) -> bool:
    """Remove a version, manifest first, unless a commit takes it up again meanwhile."""
    removal = DeletionLease(objects, key, markers.get(key))
    if not removal.begin(now):
        return False
    done = read_pointer(objects, key[0]) != key[1] and _delete_objects(objects, key, removal)
    removal.end()
    return done


def _delete_objects(objects: Objects, key: VersionKey, removal: DeletionLease) -> bool:
    manifest = manifest_key(*key)
    names = [info.key for info in list_all(objects, version_prefix(*key))]
    for name in sorted(names, key=lambda name: name != manifest):
        if not removal.has_time():
            return False
        objects.delete(name)
    objects.delete(lease_key(*key))
    return True
