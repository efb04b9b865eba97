"""Hard links: the same immutable bytes under a second name.

Belongs here: making a link, and recognising two names of one file.
"""

import os
import shutil
from pathlib import Path

FileId = tuple[int, int]
"""Device and inode: equal for all names of one file while the file exists."""


def link_or_copy(source: Path, destination: Path) -> None:
    """Make `destination` a hard link to `source`; a copy where the file system refuses a link.

    Only for files that never change. If `source` is a symbolic link, its target is linked.
    """
    try:
        os.link(source.resolve() if source.is_symlink() else source, destination)
    except OSError:
        shutil.copyfile(source, destination)


def file_id(path: Path) -> FileId | None:
    """The identity of the file at `path`, symbolic links followed; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
