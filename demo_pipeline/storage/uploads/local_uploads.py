"""Uploads in a local folder, read in place.

Belongs here: finding the folders and refusing links that lead outside. Nothing here writes.
"""

import os
import stat
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from demo_pipeline.files.recording_files import RECORDING_FILES, oversized_files
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DEFAULT_LIMITS, LimitSettings
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import printable_name, safe_id
from demo_pipeline.storage.objects.folder_objects import FolderObjects
from demo_pipeline.storage.uploads import fingerprint
from demo_pipeline.storage.uploads.upload_listing import (
    UploadedDemonstration,
    changed_while_read,
    folder_problem,
    is_folder_name,
)


class LocalUploads:
    """Folders directly under one local root. Links that lead outside it are not followed."""

    copies: Final = False

    def __init__(self, root: Path, limits: LimitSettings = DEFAULT_LIMITS) -> None:
        self._root, self._limits = root, limits

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self._root)

    @property
    def objects(self) -> FolderObjects:
        """See `Uploads`."""
        return FolderObjects(self._root)

    def identity(self, demonstration: str) -> str | None:
        """See `Uploads`: over the bytes of the files."""
        try:
            with self.open(demonstration) as folder:
                return fingerprint.folder_fingerprint(folder)
        except (DemonstrationError, OSError) as error:
            raise_system_trouble(error)
            return None

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """See `Uploads`.

        Raises:
            StorageError: the root does not exist.
        """
        single = {key: names[0] for key, names in self._folders().items() if len(names) == 1}
        return [self._describe(key, name) for key, name in sorted(single.items())]

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """See `Uploads`."""
        several = {key: names for key, names in self._folders().items() if len(names) > 1}
        return {key: tuple(map(printable_name, names)) for key, names in sorted(several.items())}

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """See `Uploads`."""
        names = self._names(demonstration)
        return self._describe(demonstration, names[0]) if len(names) == 1 else None

    def remove_leftovers(self) -> list[str]:
        """See `Uploads`: nothing is ever written here."""
        return []

    @contextmanager
    def open(self, demonstration: str, identity: str | None = None) -> Iterator[Path]:
        """See `Uploads`: the folder itself."""
        names = self._names(demonstration)
        if len(names) != 1:
            raise DemonstrationError(
                folder_problem(demonstration, list(map(printable_name, names)))
            )
        folder = self._root / names[0]
        outside = [
            path for path in (folder, *(folder / f for f in RECORDING_FILES)) if self._leaves(path)
        ]
        if outside:
            raise DemonstrationError([_leads_outside(demonstration, folder, p) for p in outside])
        refused = {file: type(error).__name__ for file, error in _unreadable(folder)}
        if refused:
            raise DemonstrationError(
                [_refused(demonstration, file, reason) for file, reason in refused.items()]
            )
        sizes = {file: (folder / file).stat().st_size for file in _files_of(folder)}
        if too_large := oversized_files(sizes, self._limits):  # before they are hashed
            raise DemonstrationError([replace(p, demonstration=demonstration) for p in too_large])
        if identity is not None and fingerprint.folder_fingerprint(folder) != identity:
            raise DemonstrationError(changed_while_read(demonstration, "."))
        yield folder

    def _folders(self) -> dict[str, list[str]]:
        """Safe id → names of the folders that have it, sorted."""
        folders: dict[str, list[str]] = defaultdict(list)
        try:
            with os.scandir(self._root) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            raise StorageError(
                f"{self._root}: the uploads folder does not exist; "
                "create it, or set DEMO_PIPELINE_UPLOADS"
            ) from None
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else type(error).__name__
            raise StorageError(f"{self._root}: cannot be listed: {reason}") from None
        for name in sorted(names):
            if _is_folder(self._root / name):
                folders[safe_id(name)].append(name)
        return folders

    def _names(self, demonstration: str) -> list[str]:
        """Names of the folders with this id; the root is only listed when that is needed."""
        if is_folder_name(demonstration) and self._root.is_dir():
            return [demonstration] if _is_folder(self._root / demonstration) else []
        return self._folders().get(demonstration, [])

    def _describe(self, key: str, name: str) -> UploadedDemonstration:
        folder = self._root / name
        inside = () if self._leaves(folder) else RECORDING_FILES
        files = (f for f in inside if _is_file(folder / f) and not self._leaves(folder / f))
        return UploadedDemonstration(key, printable_name(name), tuple(files))

    def _leaves(self, path: Path) -> bool:
        """Whether `path` is a link to somewhere outside the root."""
        try:
            return path.is_symlink() and not _within(path, self._root)
        except OSError:  # of its folder; `open` reports it
            return False


def _within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # of its folder
        return False


def _is_folder(path: Path) -> bool:
    """Whether it is a folder; also what cannot be examined, such as a link to itself, counts."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _files_of(folder: Path) -> list[str]:
    return [name for name in RECORDING_FILES if _is_file(folder / name)]


def _unreadable(folder: Path) -> Iterator[tuple[str, OSError]]:
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
            yield name, error


def _leads_outside(demonstration: str, folder: Path, path: Path) -> Problem:
    return Problem(
        "link_outside",
        "." if path == folder else path.name,
        "is a link to itself or to outside the uploads folder, and such links are not followed",
        remedy="replace the link by the file or folder itself",
        demonstration=demonstration,
    )


def _refused(demonstration: str, file: str, reason: str) -> Problem:
    return Problem(
        "unreadable_file",
        file,
        f"exists and cannot be read ({reason})",
        remedy="let the pipeline's user read it and its folder, then run the demonstration again: "
        "discovery does not notice changed permissions",
        demonstration=demonstration,
    )
