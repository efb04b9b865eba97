"""Where recordings arrive: one folder a demonstration, three files in each.

Belongs here: what every kind of uploads root can do, in one protocol, and the opening of one by its
URL. What the files say is the recording's subject. Nothing here writes to the uploads.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from demo_pipeline.storage.objects.object_store import Objects
from demo_pipeline.storage.objects.urls import is_bucket, local_path
from demo_pipeline.storage.uploads.bucket_uploads import BucketUploads
from demo_pipeline.storage.uploads.local_uploads import LocalUploads
from demo_pipeline.storage.uploads.upload_listing import UploadedDemonstration


class Uploads(Protocol):
    """A root that recordings arrive under."""

    @property
    def url(self) -> str:
        """The root as it was given, without credentials."""
        ...

    @property
    def objects(self) -> Objects:
        """The same root as keys and bytes, for whoever only lists."""
        ...

    @property
    def copies(self) -> bool:
        """Whether `open` downloads, so that `raw_recordings` keeps what it got."""
        ...

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """Every folder that is not hidden, complete or not, sorted by id, collisions left out."""
        ...

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """Ids that several folders meet on, each with the folders' names, sorted."""
        ...

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """The demonstration with this id; None when there is none, or more than one."""
        ...

    def identity(self, demonstration: str) -> str | None:
        """What a recipe names as the upload: changes when one of the three files does.

        Nothing is downloaded for it. None when the upload cannot be read.
        """
        ...

    def open(self, demonstration: str, identity: str | None = None) -> AbstractContextManager[Path]:
        """A local folder that holds the demonstration's files, for reading, while it is open.

        Args:
            demonstration: its id.
            identity: the upload that is meant; None: whichever lies there.

        Raises:
            DemonstrationError: no such demonstration, several folders for one id, a file that is a
                link to somewhere outside the root, or another upload than is meant
                (`upload_changed`).
        """
        ...


def open_uploads(url: str, cache: Path | None = None) -> Uploads:
    """The uploads under a path, a `file://` or an `s3://` URL; nothing is looked at yet.

    Args:
        url: the root.
        cache: a local folder for downloads; None: the system's temporary one.

    Raises:
        StorageError: for a root of another kind, or a URL with credentials.
    """
    if is_bucket(url):
        from demo_pipeline.storage.objects.s3_objects import S3Objects  # noqa: PLC0415 - costs 0.6 s

        return BucketUploads(S3Objects(url), cache)
    return LocalUploads(local_path(url))
