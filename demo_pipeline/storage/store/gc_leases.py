"""Who wants a version in a bucket, and who removes it: small objects that never lie beside it.

Belongs here: the markers and the order in which they are written and looked at. A commit writes
`retired/` first and then looks for `removing/`; a collection the other way round, so that one of
the two always sees the other and gives way.
"""

import secrets
import time

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import ObjectChangedError, ObjectInfo, Objects
from demo_pipeline.storage.store.bucket_layout import deletion_lease_key, lease_key
from demo_pipeline.storage.store.layout import VersionKey

LEASE_SECONDS = 900.0  # after which a removal that did not end is taken for dead
_REMOVAL_SECONDS = 300.0  # after which a removal ends itself; well before others think it dead


def refresh_lease(objects: Objects, key: VersionKey) -> ObjectInfo:
    """Let the version's grace period begin now.

    The marker says something else each time, since the ETag of equal bytes may be equal.
    """
    return objects.put(lease_key(*key), _nonce())


def acquire_lease(objects: Objects, key: VersionKey) -> None:
    """Take up a version that is there already, so that no collection removes it.

    Raises:
        StorageError: one is at it; times are compared as the bucket's clock gives them.
    """
    now = refresh_lease(objects, key).modified
    removing = objects.head(deletion_lease_key(*key))
    if removing and removing.modified >= now - LEASE_SECONDS:
        raise StorageError(
            f"{key[0]}: an old version with the same content is being removed just now; "
            f"run again, after {LEASE_SECONDS / 60:.0f} minutes at the latest"
        )
    if removing:
        objects.delete(removing.key)


class DeletionLease:
    """The right to remove one version, for a few minutes.

    Args:
        objects: the bucket.
        key: output and version.
        wanted: the marker of the last time it was wanted, as it was when it was found to be old.
    """

    def __init__(self, objects: Objects, key: VersionKey, wanted: ObjectInfo | None) -> None:
        self._objects, self._key, self._wanted = objects, key, wanted
        self._began = time.monotonic()

    def begin(self, now: float) -> bool:
        """Whether it may begin; not when others are at it, or want the version by now.

        Args:
            now: epoch seconds; what an earlier removal left behind is judged by it.
        """
        marker = deletion_lease_key(*self._key)
        present = self._objects.head(marker)
        if present and present.modified >= now - LEASE_SECONDS:
            return False
        try:
            self._objects.put(
                marker,
                _nonce(),
                if_none_match=present is None,
                if_match=present.etag if present else None,
            )
        except ObjectChangedError:
            return False
        wanted = self._objects.head(lease_key(*self._key))
        if _etag(wanted) == _etag(self._wanted):
            return True
        self.end()
        return False

    def has_time(self) -> bool:
        """Whether it may still go on."""
        return time.monotonic() - self._began < _REMOVAL_SECONDS

    def end(self) -> None:
        """Let commits have the version again."""
        self._objects.delete(deletion_lease_key(*self._key))


def _etag(info: ObjectInfo | None) -> str:
    return info.etag if info else ""


def _nonce() -> bytes:
    return f"{secrets.token_hex(8)}\n".encode()
