"""Walking a local folder in the order of keys, from any key on, lazily.

Belongs here: the rule which entries under a root count as objects and folders.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.storage.errors import StorageError

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A file or folder under the root, with links followed.

    Attributes:
        parts: of its key; entries are ordered by them.
        status: of what a link leads to.
    """

    parts: Parts
    status: os.stat_result

    @property
    def key(self) -> str:
        """`/`-separated."""
        return "/".join(self.parts)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.status.st_mode)


def list_folder(root: Path, folder: str, start: str = "", since: str = "") -> Iterator[FolderEntry]:
    """Files and folders directly in `folder` (a key, empty for the root), by name.

    Args:
        root: where keys begin.
        folder: nothing is yielded when it does not exist.
        start: what the names begin with.
        since: names before it are skipped.

    Raises:
        StorageError: the folder cannot be read.
    """
    base = tuple(folder.split("/")) if folder else ()
    try:
        with os.scandir(root / folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name >= since)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself is no folder
            return
        place = ascii(folder) if folder else "the root"
        raise StorageError(
            f"{place}: cannot be listed ({os.strerror(error.errno or 0)}); check its permissions"
        ) from None
    real_root = root.resolve()
    if not (root / folder).resolve().is_relative_to(real_root):
        return
    for name in names:
        if name.startswith(".") or not name.startswith(start):
            continue
        status = _status(root / folder / name, real_root)
        if status:
            yield FolderEntry((*base, name), status)


def files_after(root: Path, folder: str, start: str, after: Parts) -> Iterator[FolderEntry]:
    """Every file in `folder`, at any depth, whose parts come after `after`.

    A link to a folder is followed directly under the root alone, where it may be an upload. Below,
    links between neighbours would have a path for each way through them.

    Args:
        root: where keys begin.
        folder: a key, empty for the root.
        start: what the names directly in `folder` begin with.
        after: parts of a key; empty for the beginning.
    """
    depth = len(folder.split("/")) if folder else 0
    base = tuple(folder.split("/")) if folder else ()
    since = after[depth] if after[:depth] == base and len(after) > depth else ""
    for entry in list_folder(root, folder, start, since):
        if entry.is_folder:
            if _is_walked(root, entry.parts):
                # One folder that cannot be read hides no other; listing it alone reports it.
                with suppress(StorageError):
                    yield from files_after(root, entry.key, "", after)
        elif entry.parts > after:
            yield entry


def _status(path: Path, real_root: Path) -> os.stat_result | None:
    """Status of what `path` leads to; None unless that is a file or folder inside the root."""
    try:
        if path.is_symlink() and not path.resolve().is_relative_to(real_root):
            return None
        status = path.stat()
    except (OSError, RuntimeError):  # removed meanwhile, or a loop of links
        return None
    known = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return status if known else None


def _is_walked(root: Path, parts: Parts) -> bool:
    """Whether a folder is no link, or one directly under the root to a folder inside the root."""
    path = root.joinpath(*parts)
    return not path.is_symlink() or (len(parts) == 1 and path.resolve() != root.resolve())
