"""Files that stand in two places.

Belongs here: the one way to have the same immutable bytes under a second name.
"""

import os
import shutil
from pathlib import Path


def place(source: Path, destination: Path) -> None:
    """A hard link, which costs nothing between files that never change; a copy where none can be.

    A `source` that is a symbolic link stands for the file it leads to.
    """
    try:
        os.link(source.resolve() if source.is_symlink() else source, destination)
    except OSError:
        shutil.copyfile(source, destination)
