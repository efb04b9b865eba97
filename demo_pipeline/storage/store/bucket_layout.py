"""Keys of a store in a bucket, and the thread pool for requests to it.

Belongs here: the names of objects, and reading them back. `versions/` is not hidden as in a local
store, because SeaweedFS does not list `.versions`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store.layout import (
    CONTENT,
    MANIFEST,
    VersionKey,
    is_version_id,
    require_document,
)

VERSIONS, POINTERS, LEASES, DELETION_LEASES = "versions/", "pointers/", "retired/", "removing/"
WORKERS = 16
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def version_prefix(output: str, version: str) -> str:
    """What the keys of one version begin with."""
    return f"{VERSIONS}{output}/{version}/"


def content_key(output: str, version: str, path: str) -> str:
    """The key of one file of a version."""
    return f"{version_prefix(output, version)}{CONTENT}/{path}"


def manifest_key(output: str, version: str) -> str:
    """The key of a version's manifest, which is written last."""
    return f"{version_prefix(output, version)}{MANIFEST}"


def pointer_key(output: str) -> str:
    """The key of the pointer: the object that names the version readers see."""
    return f"{POINTERS}{output}"


def lease_key(output: str, version: str) -> str:
    """The key of the version's lease; its age is the time since the version was last needed."""
    return f"{LEASES}{output}/{version}"


def deletion_lease_key(output: str, version: str) -> str:
    """The key of the deletion lease, which exists while the version is being removed."""
    return f"{DELETION_LEASES}{output}/{version}"


def version_of(key: str) -> VersionKey | None:
    """The version that an object below `versions/` belongs to; None for a foreign object."""
    parts = key.removeprefix(VERSIONS).split("/")
    for place in range(1, len(parts) - 1):
        rest = parts[place + 1 :]
        inside = rest == [MANIFEST] or (rest[0] == CONTENT and len(rest) > 1)
        if is_version_id(parts[place]) and inside:
            return "/".join(parts[:place]), parts[place]
    return None


def version_of_lease(key: str, folder: str) -> VersionKey | None:
    """The version of a lease in a folder of leases; None for a foreign object."""
    output, _, version = key.removeprefix(folder).rpartition("/")
    return (output, version) if output and is_version_id(version) else None


def is_output(name: str) -> bool:
    """Whether an output may have this name."""
    return all(map(is_safe_id, name.split("/")))


def require_bucket_document(key: str) -> None:
    """Refuse a key that no document may have, or that the store itself uses.

    Raises:
        StorageError: the key is refused.
    """
    require_document(key)
    if key.startswith((VERSIONS, POINTERS, LEASES, DELETION_LEASES)):
        raise StorageError(f"{key!r} cannot be the key of a document: the store uses that folder")


def in_parallel(
    function: Callable[[_Item], _Result], items: Sequence[_Item], workers: int = WORKERS
) -> list[_Result]:
    """Call the function for every item in threads.

    Returns:
        The results in the order of the items. The first error is raised after the calls that had
        begun have ended.
    """
    if len(items) < 2 or workers == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(workers, len(items))) as pool:
        return list(pool.map(function, items))
