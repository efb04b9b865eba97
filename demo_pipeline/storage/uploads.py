"""Where recordings arrive: one folder a demonstration, three files in each.

Belongs here: the listing and opening of uploads, for a local root. What the files say is the
recording's subject. Nothing here writes.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id, may_stand_for_another, safe_id
from demo_pipeline.storage.urls import local_path

FILES = ("input_log.jsonl", "meta.json", "recording.mp4")


@dataclass(frozen=True, slots=True)
class UploadedDemonstration:
    r"""One folder of the uploads.

    Attributes:
        id: safe id, the demonstration's name everywhere else.
        name: the folder's own name; bytes that are no UTF-8 are written `\xNN`.
        files: which of `FILES` are there, sorted.
    """

    id: str
    name: str
    files: tuple[str, ...]


class Uploads(Protocol):
    """A root that recordings arrive under."""

    @property
    def url(self) -> str:
        """The root as it was given, without credentials."""
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

    def open(self, demonstration: str) -> AbstractContextManager[Path]:
        """A local folder that holds the demonstration's files, for reading, while it is open.

        Raises:
            DemonstrationError: no such demonstration, several folders for one id, or a file that
                is a link to somewhere outside the root.
        """
        ...


def open_uploads(url: str) -> Uploads:
    """The uploads under a path or a `file://` URL; the folder need not exist before it is listed.

    Raises:
        StorageError: for a root of another kind.
    """
    return LocalUploads(local_path(url))


class LocalUploads:
    """Folders directly under one local root. Links that lead outside it are not followed."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self._root)

    def list_demonstrations(self) -> list[UploadedDemonstration]:
        """See `Uploads`.

        Raises:
            StorageError: the root is not there.
        """
        single = {key: names[0] for key, names in self._folders().items() if len(names) == 1}
        return [self._describe(key, name) for key, name in sorted(single.items())]

    def collisions(self) -> dict[str, tuple[str, ...]]:
        """See `Uploads`."""
        several = {key: names for key, names in self._folders().items() if len(names) > 1}
        return {key: tuple(map(_printable, names)) for key, names in sorted(several.items())}

    def find(self, demonstration: str) -> UploadedDemonstration | None:
        """See `Uploads`."""
        names = self._names(demonstration)
        return self._describe(demonstration, names[0]) if len(names) == 1 else None

    @contextmanager
    def open(self, demonstration: str) -> Iterator[Path]:
        """See `Uploads`: the folder itself."""
        names = self._names(demonstration)
        if len(names) != 1:
            raise DemonstrationError(_no_single_folder(demonstration, list(map(_printable, names))))
        folder = self._root / names[0]
        outside = [path for path in (folder, *(folder / f for f in FILES)) if self._leaves(path)]
        if outside:
            raise DemonstrationError([_leads_outside(demonstration, folder, p) for p in outside])
        yield folder

    def _folders(self) -> dict[str, list[str]]:
        """Safe id → names of the folders that have it, sorted."""
        folders: dict[str, list[str]] = defaultdict(list)
        try:
            with os.scandir(self._root) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            raise StorageError(
                f"{self._root}: no folder of uploads there; create it, or set DEMO_PIPELINE_UPLOADS"
            ) from None
        for name in sorted(names):
            if (self._root / name).is_dir():
                folders[safe_id(name)].append(name)
        return folders

    def _names(self, demonstration: str) -> list[str]:
        """Names of the folders with this id, listing the root only when that is needed."""
        plain = is_safe_id(demonstration) and not may_stand_for_another(demonstration)
        if plain and self._root.is_dir():
            return [demonstration] if (self._root / demonstration).is_dir() else []
        return self._folders().get(demonstration, [])

    def _describe(self, key: str, name: str) -> UploadedDemonstration:
        folder = self._root / name
        inside = () if self._leaves(folder) else FILES
        files = (f for f in inside if (folder / f).is_file() and not self._leaves(folder / f))
        return UploadedDemonstration(key, _printable(name), tuple(files))

    def _leaves(self, path: Path) -> bool:
        """Whether `path` is a link to somewhere outside the root."""
        return path.is_symlink() and not _within(path, self._root)


def _within(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links
        return False


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _no_single_folder(demonstration: str, names: list[str]) -> Problem:
    if not names:
        return Problem(
            "missing_upload",
            ".",
            "no folder of the uploads has this id",
            remedy="upload it, or check the id",
            demonstration=demonstration,
        )
    return Problem(
        "id_collision",
        ".",
        f"{len(names)} folders have this id: {', '.join(map(repr, names))}",
        remedy="rename all but one of them",
        demonstration=demonstration,
    )


def _leads_outside(demonstration: str, folder: Path, path: Path) -> Problem:
    return Problem(
        "link_outside",
        "." if path == folder else path.name,
        "is a link to somewhere outside the uploads, which is not followed",
        remedy="put the file itself there",
        demonstration=demonstration,
    )
