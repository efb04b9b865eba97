"""Finding the files of committed versions again: by inode, and by path.

Belongs here: what a commit may take from earlier commits instead of reading a file. What is decided
by it is in staged_files.py.
"""

import os
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.storage.store.file_table import FileEntry
from demo_pipeline.storage.store.integrity import load_version
from demo_pipeline.storage.store.layout import CONTENT, StoreLayout
from demo_pipeline.storage.store.version_manifest import Version, VersionName

_CLOCK_SECONDS = 2  # writes within one tick of a coarse clock have the same time
_DIGEST = 32  # bytes of SHA-256


class CommittedFile(NamedTuple):
    """A file of a committed version.

    Attributes:
        version: the version.
        number: of the file in its manifest.
        size: bytes.
        sha256: hex digest.
        read_after: epoch seconds; the commit read every file later than that.
    """

    version: VersionName
    number: int
    size: int
    sha256: str
    read_after: float


class FilesByInode:
    """The files of versions that have other names, too, by device and inode; 60 bytes each.

    Args:
        layout: of the store.
        groups: the versions; those of a group are read when no earlier group has a file.
    """

    def __init__(
        self, layout: StoreLayout, groups: Iterable[Sequence[Version | VersionName]]
    ) -> None:
        self._layout, self._groups = layout, iter(groups)
        self._tables: list[_InodeTable] = []

    def find(self, status: os.stat_result) -> CommittedFile | None:
        """The committed file that this is another name of."""
        for table in self._read():
            found = table.find(status)
            if found:
                return found
        return None

    def path(self, file: CommittedFile) -> str:
        """The path of a file below its version's content."""
        loaded = load_version(self._layout, file.version.output, file.version.id)
        files = enumerate(loaded.manifest.files if loaded else ())
        return next((entry.path for number, entry in files if number == file.number), "")

    def _read(self) -> "Iterator[_InodeTable]":
        yield from self._tables
        for versions in self._groups:
            self._tables.append(_InodeTable.of(self._layout, versions))
            yield self._tables[-1]


@dataclass(slots=True)
class _InodeTable:
    versions: list[tuple[VersionName, float]] = field(default_factory=list)
    starts: "array[int]" = field(default_factory=lambda: array("Q"))  # first file of each version
    devices: set[int] = field(default_factory=set)
    inodes: "array[int]" = field(default_factory=lambda: array("Q"))
    numbers: "array[int]" = field(default_factory=lambda: array("I"))  # in their manifests
    sizes: "array[int]" = field(default_factory=lambda: array("Q"))
    digests: bytearray = field(default_factory=bytearray)
    order: "array[int]" = field(default_factory=lambda: array("I"))  # files by inode
    ordered: "array[int]" = field(default_factory=lambda: array("Q"))  # their inodes

    @classmethod
    def of(cls, layout: StoreLayout, versions: Sequence[Version | VersionName]) -> "_InodeTable":
        table = cls()
        for version in versions:
            table._add(layout, version)
        import numpy as np  # noqa: PLC0415 - commands that only look at a store need none

        inodes = np.frombuffer(table.inodes, np.uint64)
        order = np.argsort(inodes, kind="stable")
        table.order = array("I", order.astype(np.uint32).tobytes())
        table.ordered = array("Q", inodes[order].tobytes())
        return table

    def _add(self, layout: StoreLayout, version: Version | VersionName) -> None:
        loaded = load_version(layout, version.output, version.id)
        if loaded is None:
            return
        content = layout.version(version.output, version.id) / CONTENT
        self.versions.append((loaded.name, read_after(content)))
        self.starts.append(len(self.inodes))
        for number, file in enumerate(loaded.manifest.files):
            try:
                status = os.stat(f"{content}/{file.path}")  # noqa: PTH116 - very many
            except OSError:
                continue
            if status.st_nlink == 1:
                continue  # it has no other name
            self.inodes.append(status.st_ino)
            self.devices.add(status.st_dev)
            self.numbers.append(number)
            self.sizes.append(file.size)
            self.digests += bytes.fromhex(file.sha256)

    def find(self, status: os.stat_result) -> CommittedFile | None:
        place = bisect_left(self.ordered, status.st_ino)
        found = place < len(self.ordered) and self.ordered[place] == status.st_ino
        if not found or self.devices != {status.st_dev}:
            return None
        number = self.order[place]
        owner = bisect_left(self.starts, number + 1) - 1
        version, read = self.versions[owner]
        digest = self.digests[_DIGEST * number : _DIGEST * number + _DIGEST].hex()
        return CommittedFile(version, self.numbers[number], self.sizes[number], digest, read)


class PreviousFiles:
    """The files of a version that was committed before."""

    def __init__(self, layout: StoreLayout, version: Version) -> None:
        content = layout.version(version.output, version.id) / CONTENT
        self._top, self._read_after = f"{content}/", read_after(content)
        self._files = version.manifest.files

    def find(self, path: str, sha256: str) -> tuple[str, bool] | None:
        """Where the file with these bytes is that the version has under a path; None without one.

        Returns:
            Its full path, and whether it may be hard-linked: a commit that finds it under the same
            path takes its digest from this version.
        """
        known = self._files.find(path)
        if known is None or known.sha256 != sha256:
            return None
        place = self._top + path
        try:
            status = os.lstat(place)
            is_old = status.st_mtime < self._read_after
            if status.st_size != known.size or not stat.S_ISREG(status.st_mode):
                return None
            if not is_old and read_digest(Path(place)).sha256 != sha256:
                return None
        except OSError:
            return None
        return place, is_old

    def unchanged(self, path: str, status: os.stat_result) -> FileEntry | None:
        """The entry of the same file under the same path, if nothing wrote to it since."""
        known = self._files.find(path)
        if known is None or known.size != status.st_size:
            return None
        if status.st_mtime >= self._read_after:
            return None
        try:
            old = os.lstat(self._top + path)
        except OSError:
            return None
        return known if (old.st_dev, old.st_ino) == (status.st_dev, status.st_ino) else None


def read_after(content: Path) -> float:
    """A time before a commit read the files of a version; 0 when it cannot be known.

    The folder got its last entry before its files were read for the manifest.
    """
    try:
        return content.stat().st_mtime - _CLOCK_SECONDS
    except OSError:
        return 0.0
