"""Comparing written files with what their inputs give.

Belongs here: problems that name the file, never what is in it.
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
"""The content of a file, another file with the same content, or its size and SHA-256."""


def differing_files(
    folder: Path, expected: Mapping[str, Expected], besides: Collection[str] | None = ()
) -> list[Problem]:
    """How the files below a folder differ from what they should be; links are not followed.

    Args:
        folder: the folder.
        expected: path below the folder → what it should be.
        besides: further paths that must be there, whatever they contain; None: any may be.
    """
    device = folder.stat().st_dev
    named = ((name, 0) for name in expected if (folder / name).is_file())
    written = dict(files_below(folder) if besides is not None else named)
    wanted = {*expected, *(besides or ())}
    problems = [_differs(name, "is missing") for name in sorted(wanted - written.keys())]
    problems += [_differs(name, "does not belong here") for name in sorted(written.keys() - wanted)]
    for name in sorted(written.keys() & expected.keys()):
        try:
            same = _is_same(f"{folder}/{name}", (written[name], device), expected[name])
        except OSError as error:
            raise_system_trouble(error)
            same = False
        if not same:
            problems.append(_differs(name, "differs from what the inputs give"))
    return problems


def files_below(folder: Path | str, without: Container[str] = ()) -> Iterator[tuple[str, int]]:
    """Yield path and inode of each file below a folder; neither links nor `without` are entered."""
    top = f"{folder}/"
    left = [""]
    while left:
        above = left.pop()
        with os.scandir(f"{top}{above}") as entries:  # `os.walk` takes thrice the time
            for entry in entries:
                if not entry.is_dir():
                    yield f"{above}{entry.name}", entry.inode()
                elif not entry.is_symlink() and f"{above}{entry.name}" not in without:
                    left.append(f"{above}{entry.name}/")


@contextmanager
def silence() -> Iterator[None]:
    """What is done once more for a check logs nothing: the build has said it all."""
    level = _PACKAGE_LOG.level
    _PACKAGE_LOG.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _PACKAGE_LOG.setLevel(level)


def _is_same(path: str, identity: tuple[int, int], expected: Expected) -> bool:
    """Whether a file is as expected; `identity`: its inode, as far as it is known, and device."""
    if isinstance(expected, bytes):
        return Path(path).read_bytes() == expected
    if isinstance(expected, FileDigest):
        return read_digest(Path(path)) == expected
    wanted = os.stat(expected)  # noqa: PTH116 - of every picture
    if identity == (wanted.st_ino, wanted.st_dev):
        return True
    filecmp.clear_cache()  # it knows a file by the time of its last write, which has ticks
    return filecmp.cmp(path, expected, shallow=False)


def _differs(file: str, message: str) -> Problem:
    return Problem("differs", file, message, remedy=_REMEDY)
