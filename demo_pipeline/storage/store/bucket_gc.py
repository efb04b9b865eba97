"""Garbage collection in a bucket: removing versions that nobody needs, complete or not.

Belongs here: which versions are needed, by the ages that the bucket itself reports, and the removal
of the others in an order that a commit can interrupt.
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
    """What a bucket holds.

    Attributes:
        changed: version → when its newest object was written, epoch seconds.
        leases: version → its lease.
        current: output → the version that readers see.
    """

    changed: Mapping[VersionKey, float]
    leases: Mapping[VersionKey, ObjectInfo]
    current: Mapping[str, str]

    def is_root(self, key: VersionKey, before: float) -> bool:
        """Whether readers see the version, or it was written or leased not long `before`."""
        lease = self.leases.get(key)
        newest = max(self.changed[key], lease.modified if lease else 0)
        return self.current.get(key[0]) == key[1] or newest >= before


def collect_bucket_garbage(
    objects: Objects, cache: LocalCache, grace_seconds: float, now: float
) -> tuple[list[str], Mapping[str, str]]:
    """Remove versions that nobody needed for the grace period, and their leases.

    A version is needed while a pointer names it, for the grace period after the last pointer did,
    and while a needed version links to it. Ages are those of the bucket's LastModified.

    Returns:
        `<output>@<version>` of each version removed, sorted; output → the version readers see.
    """
    before = now - grace_seconds
    inventory = take_inventory(objects)
    roots = [key for key in inventory.changed if inventory.is_root(key, before)]
    unneeded: list[VersionKey] = []
    if len(roots) < len(inventory.changed):
        unneeded = sorted(inventory.changed.keys() - _needed(objects, cache, roots))
    removed = in_parallel(partial(_remove, objects, inventory.leases, now), unneeded)
    _remove_stray_leases(objects, LEASES, inventory, before)
    _remove_stray_leases(objects, DELETION_LEASES, inventory, now - LEASE_SECONDS)
    names = [f"{key[0]}@{key[1]}" for key, done in zip(unneeded, removed, strict=True) if done]
    return names, inventory.current


def take_inventory(objects: Objects) -> BucketInventory:
    """Two listings, and the pointer of each output that has several versions."""
    changed: dict[VersionKey, float] = {}
    for info in list_all(objects, VERSIONS):
        version = version_of(info.key)
        if version:
            changed[version] = max(info.modified, changed.get(version, 0))
    leases = {
        key: info
        for info in list_all(objects, LEASES)
        if (key := version_of_lease(info.key, LEASES))
    }
    return BucketInventory(changed, leases, _current(objects, changed))


def _current(objects: Objects, versions: Iterable[VersionKey]) -> dict[str, str]:
    """Output → its published version; a published output's only version is taken for that."""
    count = Counter(output for output, _ in versions)
    published = published_outputs(objects)
    only = {output: version for output, version in versions if count[output] == 1}
    several = [output for output in published if output not in only]
    pointers = zip(several, in_parallel(partial(read_pointer, objects), several), strict=True)
    current = {output: only[output] for output in published if output in only}
    return current | {output: version for output, version in pointers if version}


def _needed(objects: Objects, cache: LocalCache, roots: list[VersionKey]) -> set[VersionKey]:
    """The roots and every version that they link to."""
    needed: set[VersionKey] = set()
    level = roots
    while level:
        needed.update(level)
        versions = in_parallel(partial(find_version, objects, cache, remember=False), level)
        links = (
            link for version in versions if version for link in version.manifest.links.values()
        )
        level = sorted({(link.output, link.version) for link in links} - needed)
    return needed


def _remove_stray_leases(
    objects: Objects, folder: str, inventory: BucketInventory, before: float
) -> None:
    """Remove old leases of versions that are not in the bucket."""
    for info in list(list_all(objects, folder)):
        missing = version_of_lease(info.key, folder) not in inventory.changed
        if missing and info.modified < before:
            objects.delete(info.key)


def _remove(
    objects: Objects, leases: Mapping[VersionKey, ObjectInfo], now: float, key: VersionKey
) -> bool:
    """Remove a version, manifest first, unless a commit refreshed its lease meanwhile."""
    deletion = DeletionLease(objects, key, leases.get(key))
    if not deletion.acquire(now):
        return False
    done = read_pointer(objects, key[0]) != key[1] and _delete_objects(objects, key, deletion)
    deletion.release()
    return done


def _delete_objects(objects: Objects, key: VersionKey, deletion: DeletionLease) -> bool:
    manifest = manifest_key(*key)
    names = [info.key for info in list_all(objects, version_prefix(*key))]
    for name in sorted(names, key=lambda name: name != manifest):
        if not deletion.is_valid():
            return False
        objects.delete(name)
    objects.delete(lease_key(*key))
    return True
