"""Leases in a bucket: small objects that keep a commit and a collection from the same version.

Belongs here: both kinds of leases and the order in which they are written and read. A commit
refreshes the version's lease (`retired/`) and then looks for a deletion lease (`removing/`); a
collection writes the deletion lease and then looks at the version's lease. So at least one of the
two sees the other and gives way.
"""

import secrets
import time

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.objects.object_store import ObjectChangedError, ObjectInfo, Objects
from demo_pipeline.storage.store.bucket_layout import deletion_lease_key, lease_key
from demo_pipeline.storage.store.layout import VersionKey

LEASE_SECONDS = 900.0  # after which a deletion that did not end counts as dead
_DELETION_SECONDS = 300.0  # after which a deletion stops by itself, well before it counts as dead


def refresh_lease(objects: Objects, key: VersionKey) -> ObjectInfo:
    """Start the version's grace period again.

    The lease has other bytes each time, since equal bytes may have equal ETags.
    """
    return objects.put(lease_key(*key), _nonce())


def acquire_lease(objects: Objects, key: VersionKey) -> None:
    """Refresh the lease of a version that is in the bucket, so that no collection removes it.

    Raises:
        StorageError: a collection is removing it; times are compared by the bucket's clock.
    """
    now = refresh_lease(objects, key).modified
    deletion = objects.head(deletion_lease_key(*key))
    if deletion and deletion.modified >= now - LEASE_SECONDS:
        raise StorageError(
            f"{key[0]}: garbage collection is removing an old version with the same content; "
            f"run again, after {LEASE_SECONDS / 60:.0f} minutes at the latest"
        )
    if deletion:
        objects.delete(deletion.key)


class DeletionLease:
    """The right to delete one version, for a few minutes.

    Args:
        objects: the bucket.
        key: output and version.
        lease: the version's lease, as it was when the collection judged it to be old.
    """

    def __init__(self, objects: Objects, key: VersionKey, lease: ObjectInfo | None) -> None:
        self._objects, self._key, self._lease = objects, key, lease
        self._began = time.monotonic()

    def acquire(self, now: float) -> bool:
        """Whether it was acquired; not when another deletion runs or the lease was refreshed.

        Args:
            now: epoch seconds; decides whether another deletion counts as dead.
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
        lease = self._objects.head(lease_key(*self._key))
        if _etag(lease) == _etag(self._lease):
            return True
        self.release()
        return False

    def is_valid(self) -> bool:
        """Whether the deletion may still go on."""
        return time.monotonic() - self._began < _DELETION_SECONDS

    def release(self) -> None:
        """Let commits use the version again."""
        self._objects.delete(deletion_lease_key(*self._key))


def _etag(info: ObjectInfo | None) -> str:
    return info.etag if info else ""


def _nonce() -> bytes:
    return f"{secrets.token_hex(8)}\n".encode()
