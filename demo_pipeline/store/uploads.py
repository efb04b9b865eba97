"""The uploads: recordings as they arrive, one folder with three files per demonstration.

Belongs here: listing them, reading one unchanged, and its fingerprints. A folder's name is the
demonstration's id, and a folder whose name cannot be one is refused. Nothing here writes to the
uploads. Those in a bucket are downloaded one demonstration at a time, each file as the very object
that was listed or not at all; those in a folder are read in place, and links that lead outside it
are refused.
"""

import hashlib
import logging
import tempfile
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
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
    """One folder of the uploads: its name, and the files of `RECORDING_FILES` in it, sorted."""

    id: str
    files: tuple[str, ...]


class Uploads:
    """A root that recordings arrive under: a folder or a bucket.

    Args:
        objects: the root as keys and bytes.
        cache: a local folder for downloads, created when needed; None: the system's temporary
            folder.

    Attributes:
        objects: for code that only lists.
        url: the root as it was configured, without credentials.
        is_stored: whether the store has a demonstration of an id; set by who knows the store.
        copies: whether `open` downloads, so that the first stage keeps a copy of the files.
    """

    def __init__(self, objects: Objects, cache: Path | None = None) -> None:
        self.objects = objects
        self.url = objects.url
        self.copies = isinstance(objects, Bucket)
        self.is_stored: Callable[[str], bool] = lambda _: False
        self._cache = Folder(cache or _default_cache())

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """Every visible folder whose name can be an id, complete or not, sorted.

        In a bucket by one listing of all objects, however many folders there are.

        Raises:
            StorageError: the uploads cannot be listed.
        """
        found = sorted(self.objects.by_folder().items())
        usable = self.usable(name for name, _ in found)
        return [_described(name, files) for name, files in found if name in usable]

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """The demonstration with this id; None without its folder."""
        files = self._files(demonstration)
        return None if files is None else _described(demonstration, files)

    def misnamed(self) -> list[str]:
        """The visible folders that are refused, since their names cannot be ids: `NAME_RULE`."""
        names = self.objects.folders()
        return sorted({*names} - self.usable(names))

    def usable(self, names: Iterable[str]) -> set[str]:
        """Those of the folders' names that can be ids.

        Two that differ only by case would be one on Windows and macOS: of such ones the only one
        that the store has is kept.
        """
        alike = defaultdict[str, list[str]](list)
        for name in filter(is_safe_id, names):
            alike[name.lower()].append(name)
        known = self.is_stored
        kept = (same if len(same) == 1 else [*filter(known, same)] for same in alike.values())
        return {same[0] for same in kept if len(same) == 1}

    def listed(self, demonstration: str) -> str | None:
        """The listing fingerprint of the present upload; None when no folder has this id.

        Nothing is read for it.
        """
        files = self._files(demonstration)
        return None if files is None else listing_fingerprint(files)

    def identity(self, demonstration: str) -> str | None:
        """The upload's fingerprint for a recipe: it changes when one of the three files does.

        Over their bytes in a folder; nothing is downloaded for it. None when they cannot be read.
        """
        if self.copies:
            return self.listed(demonstration)
        try:
            with self.open(demonstration) as folder:
                return _folder_fingerprint(folder)
        except (DemonstrationError, OSError) as error:
            raise_system_trouble(error)
            return None

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        """A local folder with the demonstration's files, for reading while the context is open.

        Raises:
            DemonstrationError: no folder has the id, a file is a link to outside the root or cannot
                be read, or the upload is not the expected one (`upload_changed`).
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
            now = listing_fingerprint(files) if self.copies else _folder_fingerprint(folder)
            if identity != now:
                raise DemonstrationError(changed_while_read(demonstration, "."))
        with self._private_folder() if self.copies else nullcontext(folder) as place:
            if self.copies:
                self._download(demonstration, files, place)
            yield place

    def remove(self, demonstration: str) -> bool:
        """Remove the uploaded folder, for ever; returns whether there was one.

        A link is removed, not what it leads to.
        """
        return is_safe_id(demonstration) and self.objects.delete_all(demonstration)

    def remove_leftovers(self) -> list[str]:
        """Remove downloads of processes of this machine that have ended; returns their names."""
        return self._cache.sweep() if self.copies else []

    def _files(self, demonstration: str) -> dict[str, ObjectInfo] | None:
        """Name → file, of those that are known; None when no folder has this id."""
        files = self.objects.files(demonstration) if is_safe_id(demonstration) else None
        known = (*RECORDING_FILES, *OTHER_FILES)
        return None if files is None else {name: files[name] for name in known if name in files}

    def _refused(self, demonstration: str) -> Iterator[Problem]:
        """Yield what is wrong with files of a folder; one byte of each is read."""
        objects = self.objects
        if not isinstance(objects, Folder):
            return
        for name in (".", *RECORDING_FILES):
            key = demonstration if name == "." else f"{demonstration}/{name}"
            path = objects.root / key
            try:
                if path.is_symlink() and not objects.holds(key):
                    yield _link_outside(name)
                elif path.is_file():
                    with path.open("rb") as file:
                        file.read(1)
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as error:
                raise_system_trouble(error)
                yield _unreadable(name, error)

    def _download(self, demonstration: str, files: dict[str, ObjectInfo], folder: Path) -> None:
        for name, info in files.items():
            if name in RECORDING_FILES:
                self._fetch(demonstration, info, folder / name)
            elif info.size <= MAX_BYTES[LOG_FILE]:
                # Discovery requests no run when one of these changes, so that costs nothing.
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
        """A folder that is removed at the end, or by another process when this process dies."""
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
    """The uploads under a path, a `file://` or an `s3://` URL; see `Uploads`. Nothing is read yet.

    Raises:
        StorageError: another kind of root, or a URL with credentials.
    """
    place = (cache or _default_cache()) / "uploads"
    objects = Bucket(url, place) if is_bucket(url) else Folder(local_path(url))
    return Uploads(objects, place)


def _default_cache() -> Path:
    return Path(tempfile.gettempdir()) / "demo_pipeline"


def listing_fingerprint(files: Mapping[str, ObjectInfo]) -> str:
    """SHA-256, in hex, over the sorted (name, ETag, bytes) of the three files; others count not."""
    present = ((name, files[name]) for name in RECORDING_FILES if name in files)
    text = "".join(f"{name} {info.etag} {info.size}\n" for name, info in sorted(present))
    return hashlib.sha256(text.encode()).hexdigest()


def _folder_fingerprint(folder: Path) -> str:
    """SHA-256 over `name sha256` lines of the three files, as far as they exist, by name.

    For a complete upload it equals the `fingerprint` of the recording's manifest.
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


def _described(name: str, files: Container[str]) -> UploadedDemonstration:
    return UploadedDemonstration(name, tuple(file for file in RECORDING_FILES if file in files))


def _missing(demonstration: str) -> Problem:
    message = "no folder of the uploads has this id"
    remedy = "upload the recording, or check the id"
    return Problem("missing_upload", ".", message, remedy=remedy, demonstration=demonstration)


def changed_while_read(demonstration: str, file: str) -> Problem:
    """The problem of an upload that was replaced while it was read."""
    return Problem(
        "upload_changed",
        file,
        "changed while it was read",
        remedy="nothing to do; discovery requests another run when it is stable",
        demonstration=demonstration,
    )
