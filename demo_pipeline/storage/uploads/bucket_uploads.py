"""Uploads in a bucket: listed page by page, downloaded one demonstration at a time.

Belongs here: `Uploads` over any `Objects`. A file is downloaded as the very object that was listed,
or not at all.
"""

import logging
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from demo_pipeline.files.processes import has_ended, this_process
from demo_pipeline.files.recording_files import RECORDING_FILES, oversized_files
from demo_pipeline.problems import DemonstrationError
from demo_pipeline.settings import DEFAULT_LIMITS, LimitSettings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import safe_id
from demo_pipeline.storage.objects.object_store import (
    ObjectChangedError,
    ObjectInfo,
    Objects,
    list_all,
)
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.uploads import fingerprint
from demo_pipeline.storage.uploads.fingerprint import ListedFile
from demo_pipeline.storage.uploads.upload_listing import (
    UploadedDemonstration,
    changed_while_read,
    folder_files,
    folder_names,
    folder_problem,
)

_ABANDONED_SECONDS = 3600.0  # a living reader marks its folder as in use long before that
_LOG = logging.getLogger(__package__)


class BucketUploads:
    """See `Uploads`.

    Args:
        objects: the root.
        cache: a local folder for downloads, created when needed; None: the system's temporary
            folder.
        limits: larger files are not downloaded.
    """

    copies: Final = True

    def __init__(
        self, objects: Objects, cache: Path | None = None, limits: LimitSettings = DEFAULT_LIMITS
    ) -> None:
        self._objects, self._limits = objects, limits
        self._cache = (cache or Path(tempfile.gettempdir()) / "demo_pipeline") / "uploads"
        self._disk = Disk()

    @property
    def url(self) -> str:
        """The root's URL, without credentials."""
        return self._objects.url

    @property
    def objects(self) -> Objects:
        """See `Uploads`."""
        return self._objects

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """See `Uploads`: one listing of all objects, however many folders there are."""
        files: dict[str, set[str]] = defaultdict(set)
        for info in list_all(self._objects):
            name, slash, file = info.key.partition("/")
            if slash and name and not name.startswith("."):
                files[name] |= {file} & set(RECORDING_FILES)
        single = {key: names[0] for key, names in _by_id(set(files)).items() if len(names) == 1}
        return [_described(key, name, files[name]) for key, name in sorted(single.items())]

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """See `Uploads`."""
        folders = _by_id(folder_names(self._objects))
        return {key: tuple(names) for key, names in sorted(folders.items()) if len(names) > 1}

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """See `Uploads`."""
        names, files = folder_files(self._objects, demonstration)
        three = set(files) & set(RECORDING_FILES)
        return _described(demonstration, names[0], three) if len(names) == 1 else None

    def identity(self, demonstration: str) -> str | None:
        """See `Uploads`: over names, ETags and sizes."""
        return fingerprint.upload_listing_fingerprint(self, demonstration)

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        """See `Uploads`: a private folder with the recording's files that were uploaded.

        Raises:
            StorageError: the bucket cannot be read, or the disk is full.
        """
        names, files = folder_files(self._objects, demonstration)
        if len(names) != 1:
            raise DemonstrationError(folder_problem(demonstration, names))
        listed = (ListedFile(name, info.etag, info.size) for name, info in files.items())
        if identity is not None and fingerprint.listing_fingerprint(listed) != identity:
            raise DemonstrationError(changed_while_read(demonstration, "."))
        sizes = {name: info.size for name, info in files.items()}
        if too_large := oversized_files(sizes, self._limits):  # before they are downloaded
            raise DemonstrationError([replace(p, demonstration=demonstration) for p in too_large])
        with self._private_folder() as folder:
            for name, info in files.items():
                if name in RECORDING_FILES:
                    self._fetch(demonstration, info, folder / name)
                elif info.size <= self._limits.max_log_bytes:
                    # Discovery requests no run when one of these changes, so that costs nothing.
                    with suppress(DemonstrationError):
                        self._fetch(demonstration, info, folder / name)
            yield folder

    def _fetch(self, demonstration: str, info: ObjectInfo, dest: Path) -> None:
        try:
            self._objects.fetch(info.key, info.etag, dest)
        except ObjectChangedError:
            raise DemonstrationError(changed_while_read(demonstration, dest.name)) from None
        if dest.stat().st_size != info.size:
            raise DemonstrationError(changed_while_read(demonstration, dest.name))
        _LOG.debug("%s: downloaded %s, %d bytes", demonstration, dest.name, info.size)

    @contextmanager
    def _private_folder(self) -> Iterator[Path]:
        """A folder that is removed at the end, or by another process when this process dies."""
        try:
            self._cache.mkdir(parents=True, exist_ok=True)
            self.remove_leftovers()
            folder = Path(tempfile.mkdtemp(dir=self._cache, prefix=f"{this_process().mark}."))
        except OSError as error:
            raise StorageError(
                f"the folder for downloads cannot be written to ({type(error).__name__}); "
                "set DEMO_PIPELINE_CACHE to a writable folder"
            ) from None
        try:
            with self._disk.mark_in_use(folder):
                yield folder
        finally:
            self._disk.remove_tree(folder)

    def remove_leftovers(self) -> list[str]:
        """See `Uploads`; of processes that are not known, what is older than an hour."""
        before = time.time() - _ABANDONED_SECONDS
        removed = []
        for folder in self._cache.iterdir() if self._cache.is_dir() else ():
            try:
                old = folder.stat().st_mtime < before or has_ended(folder.name.partition(".")[0])
            except FileNotFoundError:  # removed by its reader
                continue
            if old and not self._disk.is_in_use(folder):
                self._disk.remove_tree(folder)
                removed.append(folder.name)
        return removed


def _by_id(names: set[str]) -> dict[str, list[str]]:
    """Safe id → names of the folders that have it, sorted."""
    folders: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        folders[safe_id(name)].append(name)
    return folders


def _described(key: str, name: str, files: set[str]) -> UploadedDemonstration:
    return UploadedDemonstration(key, name, tuple(sorted(files)))
