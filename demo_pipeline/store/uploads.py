"""The uploads: recordings as they arrive, one folder with three files per demonstration.

Belongs here: finding an upload by its id, reading it unchanged, and its fingerprints. Nothing here
writes to the uploads. Those in a bucket are downloaded one demonstration at a time, each file as
the very object that was listed or not at all; those in a folder are read in place, and links that
lead outside it are refused.
"""

import hashlib
import logging
import stat
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from demo_pipeline.files.atomic_write import combined_digest, file_digest
from demo_pipeline.files.recording_files import OTHER_FILES, RECORDING_FILES, oversized_files
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DEFAULT_LIMITS, LimitSettings
from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.errors import ObjectChangedError, StorageError
from demo_pipeline.store.folder import (
    Folder,
    ObjectInfo,
    Objects,
    list_all,
    list_folders,
    remove_tree,
)
from demo_pipeline.store.names import (
    is_bucket,
    is_folder_name,
    is_safe_id,
    local_path,
    printable_name,
    safe_id,
)
from demo_pipeline.store.versions import CONTENT

_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class UploadedDemonstration:
    """One folder of the uploads, with a safe id, which names the demonstration everywhere else.

    The name is the folder's own, printable; `files` are those of `RECORDING_FILES` in it, sorted.
    """

    id: str
    name: str
    files: tuple[str, ...]


class Uploads:
    """A root that recordings arrive under, over any objects.

    Args:
        objects: the root as keys and bytes.
        cache: a local folder for downloads, created when needed; None: the system's temporary
            folder.
        limits: larger files are not downloaded.

    Attributes:
        objects: for code that only lists.
        copies: whether `open` downloads, so that the first stage keeps a copy of the files.
    """

    copies = True

    def __init__(
        self, objects: Objects, cache: Path | None = None, limits: LimitSettings = DEFAULT_LIMITS
    ) -> None:
        self.objects, self._limits = objects, limits
        self._cache = Folder(cache or _default_cache())

    @property
    def url(self) -> str:
        """The root as it was configured, without credentials."""
        return self.objects.url

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """Every visible folder, complete or not, sorted by id; collisions are left out.

        In a bucket by one listing of all objects, however many folders there are.

        Raises:
            StorageError: the uploads cannot be listed.
        """
        found = self._folders()
        return [
            _described(key, names[0], found[names[0]])
            for key, names in sorted(_by_id(found).items())
            if len(names) == 1
        ]

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """Ids that several folders have, each with the folders' names, sorted."""
        several = {key: names for key, names in _by_id(self._folders()).items() if len(names) > 1}
        return {key: tuple(map(printable_name, names)) for key, names in sorted(several.items())}

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """The demonstration with this id; None unless exactly one folder has it."""
        names, files = self._found(demonstration)
        return _described(demonstration, names[0], files) if len(names) == 1 else None

    def identity(self, demonstration: str) -> str | None:
        """The upload's fingerprint for a recipe: it changes when one of the three files does.

        Nothing is downloaded for it. None when the upload cannot be read.
        """
        return upload_listing_fingerprint(self, demonstration)

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        """A local folder with the demonstration's files, for reading while the context is open.

        Raises:
            DemonstrationError: no folder or several folders have the id, a file is a link to
                outside the root, or the upload is not the expected one (`upload_changed`).
            StorageError: the uploads cannot be read, or the disk is full.
        """
        names, files = folder_files(self.objects, demonstration)
        _require_one(demonstration, names)
        if identity is not None and _listed_fingerprint(files) != identity:
            raise DemonstrationError(changed_while_read(demonstration, "."))
        self._refuse_large(demonstration, {name: info.size for name, info in files.items()})
        with self._private_folder() as folder:
            for name, info in files.items():
                if name in RECORDING_FILES:
                    self._fetch(demonstration, info, folder / name)
                elif info.size <= self._limits.max_log_bytes:
                    # Discovery requests no run when one of these changes, so that costs nothing.
                    with suppress(DemonstrationError):
                        self._fetch(demonstration, info, folder / name)
            yield folder

    def remove(self, demonstration: str) -> bool:
        """Remove the uploaded folders with this id, for ever; returns whether there were any."""
        names, _ = self._found(demonstration)
        keys = [info.key for name in names for info in list_all(self.objects, f"{name}/")]
        for key in keys:
            self.objects.delete(key)
        return bool(names)

    def remove_leftovers(self) -> list[str]:
        """Remove downloads of processes of this machine that have ended; returns their names."""
        return self._cache.sweep()

    def _folders(self) -> Mapping[str, Iterable[str]]:
        """Name → files of the folders directly under the root that are not hidden."""
        files: dict[str, set[str]] = defaultdict(set)
        for info in list_all(self.objects):
            name, slash, file = info.key.partition("/")
            if slash and name and not name.startswith("."):
                files[name].add(file)
        return files

    def _found(self, demonstration: str) -> tuple[list[str], Iterable[str]]:
        """The folders with this id and, when there is exactly one, its files."""
        return folder_files(self.objects, demonstration)

    def _refuse_large(self, demonstration: str, sizes: dict[str, int]) -> None:
        """Refuse files that are too large before any is read."""
        if too_large := oversized_files(sizes, self._limits):
            raise DemonstrationError([replace(p, demonstration=demonstration) for p in too_large])

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
            yield folder / CONTENT


class _LocalUploads(Uploads):
    """Folders directly under one local root. Links that lead outside it are not followed."""

    copies = False

    def __init__(self, root: Path, limits: LimitSettings = DEFAULT_LIMITS) -> None:
        self._root, self._place = root, Folder(root)
        super().__init__(self._place, limits=limits)

    def identity(self, demonstration: str) -> str | None:
        """See `Uploads`: over the bytes of the files."""
        try:
            with self.open(demonstration) as folder:
                return _folder_fingerprint(folder)
        except (DemonstrationError, OSError) as error:
            raise_system_trouble(error)
            return None

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        """See `Uploads`: the folder itself."""
        names, _ = self._found(demonstration)
        _require_one(demonstration, names)
        folder = self._root / names[0]
        outside = [name for name in (".", *RECORDING_FILES) if self._place.leaves(folder / name)]
        refused = [
            Problem(
                "link_outside",
                name,
                "is a link to itself or to outside the uploads folder, and such links are not "
                "followed",
                remedy="replace the link by the file or folder itself",
            )
            for name in outside
        ] or list(_unreadable(folder))
        if refused:
            raise DemonstrationError([replace(p, demonstration=demonstration) for p in refused])
        sizes = {n: (folder / n).stat().st_size for n in self._files(names[0])}
        self._refuse_large(demonstration, sizes)
        if identity is not None and _folder_fingerprint(folder) != identity:
            raise DemonstrationError(changed_while_read(demonstration, "."))
        yield folder

    def remove(self, demonstration: str) -> bool:
        """See `Uploads`: a link is removed, not what it leads to."""
        names, _ = self._found(demonstration)
        for name in names:
            remove_tree(self._root / name)
        return bool(names)

    def remove_leftovers(self) -> list[str]:
        """See `Uploads`: nothing is ever written here."""
        return []

    def _folders(self) -> Mapping[str, Iterable[str]]:
        return {name: self._files(name) for name in self._names()}

    def _names(self) -> list[str]:
        return list(filter(self._is_folder, self._place.names()))

    def _found(self, demonstration: str) -> tuple[list[str], Iterable[str]]:
        if is_folder_name(demonstration) and self._root.is_dir():  # then no other has the id
            names = [demonstration] if self._is_folder(demonstration) else []
        else:
            names = _by_id(self._names()).get(demonstration, [])
        return names, self._files(names[0]) if len(names) == 1 else ()

    def _is_folder(self, name: str) -> bool:
        """Also what cannot be examined, such as a link to itself."""
        return _is(stat.S_ISDIR, self._root / name, unknown=True)

    def _files(self, name: str) -> list[str]:
        """The files of a folder that may be read."""
        folder = self._root / name
        return [
            file
            for file in (() if self._place.leaves(folder) else RECORDING_FILES)
            if _is(stat.S_ISREG, folder / file) and not self._place.leaves(folder / file)
        ]


def open_uploads(
    url: str, cache: Path | None = None, limits: LimitSettings = DEFAULT_LIMITS
) -> Uploads:
    """The uploads under a path, a `file://` or an `s3://` URL; see `Uploads`. Nothing is read yet.

    Raises:
        StorageError: another kind of root, or a URL with credentials.
    """
    if is_bucket(url):
        place = (cache or _default_cache()) / "uploads"
        return Uploads(Bucket(url, place), place, limits)
    return _LocalUploads(local_path(url), limits)


def _default_cache() -> Path:
    return Path(tempfile.gettempdir()) / "demo_pipeline"


def listing_fingerprint(files: Iterable[tuple[str, str, int]]) -> str:
    """SHA-256, in hex, over the sorted (name, ETag, bytes) of the three files; others count not."""
    rows = sorted((name, etag, size) for name, etag, size in files if name in RECORDING_FILES)
    text = "".join(f"{name} {etag} {size}\n" for name, etag, size in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def upload_listing_fingerprint(uploads: Uploads, demonstration: str) -> str | None:
    """Listing fingerprint of the present upload; None unless exactly one folder has this id.

    Discovery and buckets, which must not download files, use it; local uploads use one over bytes.
    """
    names, files = folder_files(uploads.objects, demonstration)
    return _listed_fingerprint(files) if len(names) == 1 else None


def _listed_fingerprint(files: Mapping[str, ObjectInfo]) -> str:
    return listing_fingerprint((name, info.etag, info.size) for name, info in files.items())


def _folder_fingerprint(folder: Path) -> str:
    """SHA-256 over `name sha256` lines of the three files, as far as they exist, by name.

    For a complete upload it equals the `fingerprint` of the recording's manifest.
    """
    present = (name for name in RECORDING_FILES if (folder / name).is_file())
    return combined_digest((name, file_digest(folder / name).sha256) for name in present)


def folder_files(objects: Objects, demonstration: str) -> tuple[list[str], dict[str, ObjectInfo]]:
    """The folders with this id and, when there is exactly one, file name → object of it.

    When the id is the folder's name, only that folder is listed; else all folders' names are, too.
    """
    if not is_safe_id(demonstration):
        return [], {}
    names = [demonstration]
    if not is_folder_name(demonstration):
        names = sorted(
            name for name in set(list_folders(objects)) if safe_id(name) == demonstration
        )
    if len(names) != 1:
        return names, {}
    prefix = f"{names[0]}/"
    infos = {info.key.removeprefix(prefix): info for info in list_all(objects, prefix)}
    known = (*RECORDING_FILES, *OTHER_FILES)
    return names if infos else [], {file: infos[file] for file in known if file in infos}


def _by_id(names: Iterable[str]) -> dict[str, list[str]]:
    """Safe id → names of the folders that have it, sorted."""
    folders: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names):
        folders[safe_id(name)].append(name)
    return folders


def _described(key: str, name: str, files: Iterable[str]) -> UploadedDemonstration:
    known = tuple(sorted({*files} & {*RECORDING_FILES}))
    return UploadedDemonstration(key, printable_name(name), known)


def _is(kind: Callable[[int], bool], path: Path, *, unknown: bool = False) -> bool:
    """Whether what `path` leads to is of a kind; `unknown`: what is said when that is refused."""
    try:
        return kind(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return unknown


def _unreadable(folder: Path) -> Iterator[Problem]:
    """The existing files that cannot be read, and why; one byte of each is tried."""
    for name in RECORDING_FILES:
        try:
            if (folder / name).is_file():
                with (folder / name).open("rb") as file:
                    file.read(1)
        except FileNotFoundError:  # removed meanwhile
            continue
        except OSError as error:
            raise_system_trouble(error)
            message = f"exists and cannot be read ({type(error).__name__})"
            remedy = (
                "let the pipeline's user read it and its folder, then run the demonstration "
                "again: discovery does not notice changed permissions"
            )
            yield Problem("unreadable_file", name, message, remedy=remedy)


def _require_one(demonstration: str, names: list[str]) -> None:
    """Refuse an id that no folder, or several folders, have; `names` are the folders'."""
    if len(names) == 1:
        return
    if names:
        code, remedy = "id_collision", "rename all but one of them"
        shown = ", ".join(repr(printable_name(name)) for name in names)
        message = f"{len(names)} folders have this id: {shown}"
    else:
        code, message = "missing_upload", "no folder of the uploads has this id"
        remedy = "upload the recording, or check the id"
    problem = Problem(code, ".", message, remedy=remedy, demonstration=demonstration)
    raise DemonstrationError(problem)


def changed_while_read(demonstration: str, file: str) -> Problem:
    """The problem of an upload that was replaced while it was read."""
    return Problem(
        "upload_changed",
        file,
        "changed while it was read",
        remedy="nothing to do; discovery requests another run when it is stable",
        demonstration=demonstration,
    )
