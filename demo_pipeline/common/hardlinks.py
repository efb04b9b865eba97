"""Files that stand in two places.

Belongs here: the one way to have the same immutable bytes under a second name, and to tell that two
names are of one file.
"""

import os
import shutil
from pathlib import Path

FileId = tuple[int, int]
"""Device and inode: what all names of one file have in common, for as long as one of them is."""


def link_or_copy(source: Path, destination: Path) -> None:
    """A hard link, which costs nothing between files that never change; a copy where none can be.

    A `source` that is a symbolic link stands for the file it leads to.
    """
    try:
        os.link(source.resolve() if source.is_symlink() else source, destination)
    except OSError:
        shutil.copyfile(source, destination)


def file_id(path: Path) -> FileId | None:
    """What file a name is of, links followed; None without one."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
