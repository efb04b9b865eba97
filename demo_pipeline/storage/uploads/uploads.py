"""The uploads: recordings as they arrive, one folder with three files per demonstration.

Belongs here: the protocol of every uploads root, and opening a root by its URL. The recording
package reads the files. Nothing here writes to the uploads.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from demo_pipeline.settings import DEFAULT_LIMITS, LimitSettings
from demo_pipeline.storage.objects.object_store import Objects
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.uploads.bucket_uploads import BucketUploads
from demo_pipeline.storage.uploads.local_uploads import LocalUploads
from demo_pipeline.storage.uploads.upload_listing import UploadedDemonstration


class Uploads(Protocol):
    """A root that recordings arrive under."""

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        ...

    @property
    def objects(self) -> Objects:
        """The same root as keys and bytes, for code that only lists."""
        ...

    @property
    def copies(self) -> bool:
        """Whether `open` downloads, so that the first stage keeps a copy of the files."""
        ...

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """Every visible folder, complete or not, sorted by id; collisions are left out."""
        ...

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """Ids that several folders have, each with the folders' names, sorted."""
        ...

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """The demonstration with this id; None unless exactly one folder has it."""
        ...

    def identity(self, demonstration: str) -> str | None:
        """The upload's fingerprint for a recipe: it changes when one of the three files does.

        Nothing is downloaded for it. None when the upload cannot be read.
        """
        ...

    def remove_leftovers(self) -> list[str]:
        """Remove downloads of processes of this machine that have ended; returns their names."""
        ...

    def open(self, demonstration: str, identity: str | None = None) -> AbstractContextManager[Path]:
        """A local folder with the demonstration's files, for reading while the context is open.

        Args:
            demonstration: its id.
            identity: of the expected upload; None: any.

        Raises:
            DemonstrationError: no folder or several folders have the id, a file is a link to
                outside the root, or the upload is not the expected one (`upload_changed`).
        """
        ...


def open_uploads(
    url: str, cache: Path | None = None, limits: LimitSettings = DEFAULT_LIMITS
) -> Uploads:
    """The uploads under a path, a `file://` or an `s3://` URL; nothing is read yet.

    Args:
        url: the root.
        cache: a local folder for downloads; None: the system's temporary folder.
        limits: uploads with larger files are refused before anything is read.

    Raises:
        StorageError: another kind of root, or a URL with credentials.
    """
    if is_bucket(url):
        from demo_pipeline.storage.objects.s3_objects import S3Objects  # noqa: PLC0415 - costs 0.6 s

        return BucketUploads(S3Objects(url), cache, limits)
    return LocalUploads(local_path(url), limits)
