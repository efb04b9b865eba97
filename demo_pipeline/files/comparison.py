"""Compares written files with their expected content, which is computed again from the inputs.

Problems name the file and never quote its content.
"""

import filecmp
import logging
import os
from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demo_pipeline.files.atomic_write import FileDigest, read_digest
from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

_REMEDY = "build it again; if that does not help, this is a defect of the pipeline: report it"
_PACKAGE_LOG = logging.getLogger("demo_pipeline")


Expected = bytes | Path | str | FileDigest
"""Expected content: the bytes, the path of a file with the same content, or size and SHA-256."""


def differing_files(
    folder: Path, expected: Mapping[str, Expected], besides: Collection[str] | None = ()
) -> list[Problem]:
    """Returns a problem for each file below a folder that is missing, superfluous or different.

    Symbolic links are not followed.

    Args:
        expected: maps paths relative to the folder to the expected content.
        besides: paths of additional files, which must exist with any content. If it is None,
            additional files are ignored.
    """
    device = folder.stat().st_dev
    if besides is None:
        inodes = {name: 0 for name in expected if (folder / name).is_file()}
        expected_names = set(expected)
    else:
        inodes = dict(files_below(folder))
        expected_names = {*expected, *besides}
    missing = sorted(expected_names - inodes.keys())
    foreign = sorted(inodes.keys() - expected_names)
    problems = [_differs(name, "is missing") for name in missing]
    problems += [_differs(name, "does not belong here") for name in foreign]
    for name in sorted(inodes.keys() & expected.keys()):
        try:
            is_same = _is_same(f"{folder}/{name}", (inodes[name], device), expected[name])
        except OSError as error:
            raise_system_trouble(error)
            is_same = False
        if not is_same:
            problems.append(_differs(name, "differs from what the inputs give"))
    return problems


def files_below(folder: Path | str, without: Container[str] = ()) -> Iterator[tuple[str, int]]:
    """Yields the relative path and the inode of each file below a folder.

    Links to folders, and the folders in `without`, are skipped.
    """
    top = f"{folder}/"
    unread_folders = [""]
    while unread_folders:
        above = unread_folders.pop()
        with os.scandir(f"{top}{above}") as entries:  # three times as fast as `os.walk`
            for entry in entries:
                if not entry.is_dir():
                    yield f"{above}{entry.name}", entry.inode()
                elif not entry.is_symlink() and f"{above}{entry.name}" not in without:
                    unread_folders.append(f"{above}{entry.name}/")


@contextmanager
def silence() -> Iterator[None]:
    """Suppresses the package's log in a `with` block, for checks that repeat work of the build."""
    level = _PACKAGE_LOG.level
    _PACKAGE_LOG.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _PACKAGE_LOG.setLevel(level)


def _is_same(path: str, identity: tuple[int, int], expected: Expected) -> bool:
    """Returns whether a file has the expected content.

    Args:
        identity: inode (0 if unknown) and device of the file. If the expected file has the same
            inode and device, the bytes are not compared.
    """
    if isinstance(expected, bytes):
        return Path(path).read_bytes() == expected
    if isinstance(expected, FileDigest):
        return read_digest(Path(path)) == expected
    status = os.stat(expected)  # noqa: PTH116 - faster; called for every screenshot
    if identity == (status.st_ino, status.st_dev):
        return True
    # The cache of `filecmp` trusts file times, but two quick writes can have the same time.
    filecmp.clear_cache()
    return filecmp.cmp(path, expected, shallow=False)


def _differs(file: str, message: str) -> Problem:
    return Problem("differs", file, message, remedy=_REMEDY)
