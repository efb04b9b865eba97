"""Comparing written files with what their inputs give.

Belongs here: problems that name the file, never what is in it.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from demo_pipeline.files.system_errors import raise_system_trouble
from demo_pipeline.problems import Problem

_REMEDY = "build it again; if that does not help, this is a defect of the pipeline: report it"
_BLOCK = 2**20  # bytes
_PACKAGE_LOG = logging.getLogger("demo_pipeline")


def differing_files(
    folder: Path, expected: Mapping[str, bytes | Path], besides: Collection[str] | None = ()
) -> list[Problem]:
    """How the files below a folder differ from what they should be; links are not followed.

    Args:
        folder: the folder.
        expected: path below the folder → its content, or the file that it is a link to or copy of.
        besides: further paths that must be there, whatever they contain; None: any may be.
    """
    paths = folder.rglob("*") if besides is not None else map(folder.joinpath, expected)
    written = {path.relative_to(folder).as_posix() for path in paths if path.is_file()}
    wanted = {*expected, *(besides or ())}
    problems = [_differs(name, "is missing") for name in sorted(wanted - written)]
    problems += [_differs(name, "does not belong here") for name in sorted(written - wanted)]
    for name in sorted(written & expected.keys()):
        try:
            same = _is_same(folder / name, expected[name])
        except OSError as error:
            raise_system_trouble(error)
            same = False
        if not same:
            problems.append(_differs(name, "differs from what the inputs give"))
    return problems


def differing_build(folder: Path, build: Callable[[Path], object]) -> list[Problem]:
    """How the files of a folder differ from those that a build writes into an empty one."""
    with TemporaryDirectory(dir=folder.parent) as made:
        level = _PACKAGE_LOG.level
        _PACKAGE_LOG.setLevel(logging.CRITICAL)  # the build has said it all
        try:
            build(Path(made))
        finally:
            _PACKAGE_LOG.setLevel(level)
        files = {path.relative_to(made).as_posix(): path for path in Path(made).rglob("*")}
        return differing_files(folder, {name: p for name, p in files.items() if p.is_file()})


def _is_same(path: Path, expected: bytes | Path) -> bool:
    if isinstance(expected, bytes):
        return path.read_bytes() == expected
    if path.samefile(expected):
        return True
    if path.stat().st_size != expected.stat().st_size:
        return False
    with path.open("rb") as one, expected.open("rb") as other:
        return all(block == other.read(_BLOCK) for block in iter(partial(one.read, _BLOCK), b""))


def _differs(file: str, message: str) -> Problem:
    return Problem("differs", file, message, remedy=_REMEDY)
