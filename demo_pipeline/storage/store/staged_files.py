"""Describing the files of a staged directory: sizes and digests for its manifest.

Belongs here: which files have to be read and synced. A file that is hard-linked from a committed
version was synced and read by that commit, and is read again only when something wrote to it since;
one that the version before has under the same path was read by that commit. Whole folders of such
links are described as they were before (linked_folders.py).
"""

import os
import stat
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.storage.errors import ChangedOutput, StorageError
from demo_pipeline.storage.store.committed_files import FilesByInode
from demo_pipeline.storage.store.file_table import FileEntry, FileTable
from demo_pipeline.storage.store.integrity import walk_files
from demo_pipeline.storage.store.layout import StoreLayout
from demo_pipeline.storage.store.linked_folders import LinkedFolders
from demo_pipeline.storage.store.part_folder import PartFolder
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import Version, VersionName


@dataclass(slots=True)
class StagedFiles:
    """What a staged directory holds.

    Attributes:
        entries: of all files, sorted by path.
        unsynced: paths of those that no commit has synced.
        folders: how many folders have files.
    """

    entries: FileTable = field(default_factory=FileTable)
    unsynced: list[str] = field(default_factory=list)
    folders: int = 0


def describe_files(layout: StoreLayout, parts: PartFolder, staging: Staging) -> StagedFiles:
    """Size and digest of every file of a staged directory.

    Args:
        layout: of the store.
        parts: where the entries of `Staging.linked` are kept.
        staging: the directory.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` differs from the
            manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or has a name that is
            not Unicode.
    """
    linked, describer = LinkedFolders(parts, staging), _Describer(layout, staging)
    expected = set(staging.links)
    for path, status in _plain_files(staging, expected, whole=linked.paths):
        if path not in linked.paths:
            describer.add(path, status)
        elif known := linked.unchanged(path):
            describer.found.entries.append_text(known.text, known.files, known.size)
            describer.found.folders += known.folders
        else:
            describer.expect_links_of(path)
            files = _plain_files(staging, expected, below=path)
            linked.describe(path, [describer.add(*file) for file in files])
    if expected:
        raise StorageError(
            f"{staging.output}: the link {min(expected)!r} was removed after it was created"
        )
    return describer.found


def _plain_files(
    staging: Staging, expected: set[str], below: str = "", whole: Container[str] = ()
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the entries of a staged directory but the links that are expected; see `walk_files`."""
    top = f"{staging.path}/"
    for path in walk_files(staging.path, below, whole):
        status = os.lstat(top + path)
        if path in expected and stat.S_ISLNK(status.st_mode):
            expected.discard(path)
            continue
        is_plain = stat.S_ISREG(status.st_mode) or path in whole
        if not is_plain or not _is_unicode(path):
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        yield path, status


class _Describer:
    """Describes the files of a staged directory, in the order of their paths."""

    def __init__(self, layout: StoreLayout, staging: Staging) -> None:
        self._staging, self.found = staging, StagedFiles()
        self._before = staging.previous_files()
        self._layout, self._folder = layout, "/"  # none
        self._all_sources = FilesByInode(layout, _likely_first(staging))
        self._sources = [self._all_sources]
        self._by_name: dict[str, Version | VersionName] = {}

    def expect_links_of(self, path: str) -> None:
        """Look first among the files of the source that a folder is named after."""
        if not self._by_name:
            sources = self._staging.hardlink_sources
            self._by_name = {source.output.rpartition("/")[2]: source for source in sources}
        source = self._by_name.get(path.split("/")[-2])
        self._sources = [FilesByInode(self._layout, [[source]])] if source else []
        self._sources.append(self._all_sources)

    def add(self, path: str, status: os.stat_result) -> tuple[FileEntry, float]:
        """Add the file at a path; returns its entry, and when it was written to, epoch seconds."""
        place = path.rpartition("/")[0]
        self.found.folders += place != self._folder
        self._folder = place
        known = (one.unchanged(path, status) for one in self._before)
        file = next(filter(None, known), None)
        if file is None and status.st_nlink > 1 and self._staging.hardlink_sources:
            file = self._described_link(path, status)
        elif file is None:
            file = self._described(path)
            self.found.unsynced.append(path)
        self.found.entries.append(file)
        return file, status.st_mtime

    def _described(self, path: str) -> FileEntry:
        return FileEntry(path, *read_digest(self._staging.path / path))

    def _described_link(self, path: str, status: os.stat_result) -> FileEntry:
        """Describe a hard link by its version; one that was written to since is compared."""
        known = next(filter(None, (source.find(status) for source in self._sources)), None)
        if known is None:
            self.found.unsynced.append(path)
        elif known.size == status.st_size and status.st_mtime < known.read_after:
            return FileEntry(path, known.size, known.sha256)
        described = self._described(path)
        if known is not None and known.sha256 != described.sha256:
            path_there = ascii(self._all_sources.path(known))[1:-1]
            raise ChangedOutput(known.version.output, path_there)
        return described


def _likely_first(staging: Staging) -> Iterable[Sequence[Version | VersionName]]:
    """The sources that the previous versions were not made of, then the others."""
    used = {content for one in staging.previous for content in one.manifest.inputs.values()}
    yield [source for source in staging.hardlink_sources if source.content not in used]
    yield [source for source in staging.hardlink_sources if source.content in used]


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
