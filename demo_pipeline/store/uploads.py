"""The uploads: the folder or bucket in which recordings arrive.

Each demonstration is a folder with three files. The name of the folder is the id of the
demonstration. Local files are read in place, and links that lead out of the uploads are rejected. A
download from a bucket fails if an object changes after it was listed. Only `Uploads.remove` changes
the uploads.
"""

import hashlib
import logging
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.files.recording_files import (
    LOG_FILE,
    MAX_BYTES,
    OTHER_FILES,
    RECORDING_FILES,
    oversized_files,
)
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.store.bucket import Bucket, Objects
from demo_pipeline.store.errors import ObjectChangedError, StorageError
from demo_pipeline.store.folder import Folder, ObjectInfo
from demo_pipeline.store.names import is_bucket, is_safe_id, local_path

NAME_RULE = (
    "a folder's name is the demonstration id: at most 128 letters, digits, `.`, `_` and `-`, a "
    "letter or digit first, no `..`, no `.`, `.json` or `.lock` at the end, and not the name of "
    "another folder in other case; rename it"
)
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class UploadedDemonstration:
    """A folder of the uploads.

    Attributes:
        id: the name of the folder.
        files: the names in `RECORDING_FILES` that exist in the folder, sorted.
    """

    id: str
    files: tuple[str, ...]


class Uploads:
    """Lists and reads the uploads.

    Args:
        objects: the folder or bucket.
        cache: a folder for downloads; None for the system's temporary folder.

    Attributes:
        url: the root as it was configured, without credentials.
        is_stored: returns whether the store has outputs for a demonstration id. The workspace sets
            this function.
        copies: whether `open` downloads the files.
    """

    def __init__(self, objects: Objects, cache: Path | None = None) -> None:
        self.objects = objects
        self.url = objects.url
        self.copies = isinstance(objects, Bucket)
        self.is_stored: Callable[[str], bool] = _in_no_store
        self._cache = Folder(cache or _default_cache())

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """Returns every visible folder whose name can be an id, sorted.

        Folders with missing files are included. A bucket is listed only once.

        Raises:
            StorageError: the uploads cannot be listed.
        """
        files_by_name = self.objects.by_folder()
        usable_names = sorted(self.usable(files_by_name))
        return [_uploaded(name, files_by_name[name]) for name in usable_names]

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """Returns the demonstration with this id; None if it has no folder."""
        files = self._files(demonstration)
        return None if files is None else _uploaded(demonstration, files)

    def misnamed(self) -> list[str]:
        """Returns the names of visible folders that are ignored because they break `NAME_RULE`."""
        names = self.objects.folders()
        return sorted({*names} - self.usable(names))

    def usable(self, names: Iterable[str]) -> set[str]:
        """Returns the names of folders that can be ids of demonstrations.

        Names that differ only in case are the same folder on Windows and macOS. Of several such
        names, one is usable only if it alone has outputs in the store.
        """
        names_by_lower_case = defaultdict[str, list[str]](list)
        for name in filter(is_safe_id, names):
            names_by_lower_case[name.lower()].append(name)
        usable_names = set()
        for candidates in names_by_lower_case.values():
            if len(candidates) == 1:
                usable_names.update(candidates)
                continue
            stored_names = [name for name in candidates if self.is_stored(name)]
            if len(stored_names) == 1:
                usable_names.update(stored_names)
        return usable_names

    def listed(self, demonstration: str) -> str | None:
        """Returns a fingerprint of the listing of a folder; None if no folder has this id.

        The files are not read.
        """
        files = self._files(demonstration)
        return None if files is None else listing_fingerprint(files)

    def identity(self, demonstration: str) -> str | None:
        """Returns a fingerprint that changes when one of the three files of an upload changes.

        It is a hash of the files' content or, in a bucket, of their names, ETags and sizes. Returns
        None if the files cannot be read.
        """
        if self.copies:
            return self.listed(demonstration)
        try:
            with self.open(demonstration) as folder:
                return _folder_fingerprint(folder)
        except (DemonstrationError, OSError) as error:
            raise_system_trouble(error)
            return None

    def last_change(self, demonstration: str) -> float:
        """Returns the time of an upload's last write, move or replacement, in epoch seconds.

        This is the latest ctime of the folder and the three files. Works only for local uploads.

        Raises:
            OSError: the folder or a file does not exist.
        """
        folder = f"{self.url}/{demonstration}"
        last = 0.0
        for path in (folder, *(f"{folder}/{name}" for name in RECORDING_FILES)):
            for status in (os.stat(path), os.lstat(path)):  # noqa: PTH116 - target and link
                last = max(last, status.st_ctime)
        return last

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        """Yields a local folder with the files of a demonstration, for reading during the block.

        Args:
            identity: the expected fingerprint of the upload; None for any.

        Raises:
            DemonstrationError: the folder is missing, a file is unreadable or links out of the
                root, or the fingerprint differs (`upload_changed`).
            StorageError: the uploads cannot be read, or the disk is full.
        """
        files = self._files(demonstration)
        if files is None:
            raise DemonstrationError(_missing(demonstration))
        sizes = {name: info.size for name, info in files.items()}
        problems = [*self._refused(demonstration)] or oversized_files(sizes)
        if problems:
            raise DemonstrationError([replace(p, demonstration=demonstration) for p in problems])
        folder = Path(self.objects.url, demonstration)
        if identity is not None:
            if self.copies:
                present_identity = listing_fingerprint(files)
            else:
                present_identity = _folder_fingerprint(folder)
            if identity != present_identity:
                raise DemonstrationError(changed_while_read(demonstration, "."))
        if not self.copies:
            yield folder
            return
        with self._private_folder() as private_folder:
            self._download(demonstration, files, private_folder)
            yield private_folder

    def remove(self, demonstration: str) -> bool:
        """Deletes the folder of an upload; returns whether it existed.

        If the folder is a link, only the link is deleted.
        """
        return is_safe_id(demonstration) and self.objects.delete_all(demonstration)

    def remove_leftovers(self) -> list[str]:
        """Removes the downloads of dead processes on this machine; returns their names."""
        return self._cache.sweep() if self.copies else []

    def _files(self, demonstration: str) -> dict[str, ObjectInfo] | None:
        """Returns a dictionary from names to the files of a recording.

        Returns None if no folder has this id. Files that do not belong to a recording are left out.
        """
        if not is_safe_id(demonstration):
            return None
        files = self.objects.files(demonstration)
        if files is None:
            return None
        names = (*RECORDING_FILES, *OTHER_FILES)
        return {name: files[name] for name in names if name in files}

    def _refused(self, demonstration: str) -> Iterator[Problem]:
        """Yields a problem for each file that cannot be read, or that is a link out of the uploads.

        Yields nothing if the uploads are in a bucket.
        """
        objects = self.objects
        if not isinstance(objects, Folder):
            return
        for name in (".", *RECORDING_FILES):
            key = f"{demonstration}/{name}".removesuffix("/.")
            path = objects.root / key
            try:
                if path.is_symlink() and not objects.holds(key):
                    yield _link_outside(name)
                elif path.is_file():
                    with path.open("rb") as file:
                        file.read(1)
            except FileNotFoundError:  # another process has removed it
                continue
            except OSError as error:
                raise_system_trouble(error)
                yield _unreadable(name, error)

    def _download(self, demonstration: str, files: dict[str, ObjectInfo], folder: Path) -> None:
        for name, info in files.items():
            if name in RECORDING_FILES:
                self._fetch(demonstration, info, folder / name)
            elif info.size <= MAX_BYTES[LOG_FILE]:
                # An optional file that changes during the download is left out. No run is started
                # to add it later, because its changes do not count as changes of the upload.
                with suppress(DemonstrationError):
                    self._fetch(demonstration, info, folder / name)

    def _fetch(self, demonstration: str, info: ObjectInfo, dest: Path) -> None:
        with suppress(ObjectChangedError):
            self.objects.fetch(info.key, info.etag, dest)
            if dest.stat().st_size == info.size:
                _LOG.debug("%s: downloaded %s, %d bytes", demonstration, dest.name, info.size)
                return
        raise DemonstrationError(changed_while_read(demonstration, dest.name))

    @contextmanager
    def _private_folder(self) -> Iterator[Path]:
        """Creates a folder for downloads and removes it after the block."""
        with ExitStack() as stack:
            try:
                self.remove_leftovers()
                folder = stack.enter_context(self._cache.draft("downloads"))
            except OSError as error:
                raise StorageError(
                    f"the folder for downloads cannot be written to ({type(error).__name__}); "
                    "set DEMO_PIPELINE_CACHE to a writable folder"
                ) from None
            yield folder


def open_uploads(url: str, cache: Path | None = None) -> Uploads:
    """Returns the uploads at a path, a `file://` URL or an `s3://` URL.

    Raises:
        StorageError: the root is of another kind, or the URL contains credentials.
    """
    place = (cache or _default_cache()) / "uploads"
    if is_bucket(url):
        return Uploads(Bucket(url, place), place)
    return Uploads(Folder(local_path(url)), place)


def _in_no_store(_: str) -> bool:
    return False


def _default_cache() -> Path:
    return Path(tempfile.gettempdir()) / "demo_pipeline"


def listing_fingerprint(files: Mapping[str, ObjectInfo]) -> str:
    """Returns a SHA-256, in hex, over the names, ETags and sizes of the `RECORDING_FILES`."""
    present = ((name, files[name]) for name in RECORDING_FILES if name in files)
    text = "".join(f"{name} {info.etag} {info.size}\n" for name, info in sorted(present))
    return hashlib.sha256(text.encode()).hexdigest()


def _folder_fingerprint(folder: Path) -> str:
    """Returns a SHA-256 over the names and SHA-256s of those `RECORDING_FILES` that exist.

    For a complete recording, this is the `fingerprint` in the manifest of the stage
    `raw_recordings`.
    """
    present = (name for name in RECORDING_FILES if (folder / name).is_file())
    return combined_digest((name, file_digest(folder / name).sha256) for name in present)


def _link_outside(name: str) -> Problem:
    message = "is a link to itself or to outside the uploads folder; such links are not followed"
    remedy = "replace the link by the file or folder itself"
    return Problem("link_outside", name, message, remedy=remedy)


def _unreadable(name: str, error: OSError) -> Problem:
    message = f"exists and cannot be read ({type(error).__name__})"
    remedy = (
        "let the pipeline's user read it and its folder, then run the demonstration again: "
        "discovery does not notice changed permissions"
    )
    return Problem("unreadable_file", name, message, remedy=remedy)


def _uploaded(name: str, files: Container[str]) -> UploadedDemonstration:
    return UploadedDemonstration(name, tuple(file for file in RECORDING_FILES if file in files))


def _missing(demonstration: str) -> Problem:
    message = "no folder of the uploads has this id"
    remedy = "upload the recording, or check the id"
    return Problem("missing_upload", ".", message, remedy=remedy, demonstration=demonstration)


def changed_while_read(demonstration: str, file: str) -> Problem:
    """Returns the problem of an upload that was replaced while it was read."""
    return Problem(
        "upload_changed",
        file,
        "changed while it was read",
        remedy="nothing to do; discovery requests another run when it is stable",
        demonstration=demonstration,
    )
