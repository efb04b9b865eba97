"""Describing the files of a staged directory: sizes and digests for its manifest.

Belongs here: which files have to be read and synced. A file that is hard-linked from a committed
version was synced and read by that commit, and is read again only when something wrote to it since;
one that the version before has under the same path was read by that commit.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from demo_pipeline.common.hardlinks import FileId, file_id
from demo_pipeline.common.hashing import read_digest
from demo_pipeline.storage.errors import ChangedOutput, StorageError
from demo_pipeline.storage.store.integrity import load_version, walk_files
from demo_pipeline.storage.store.layout import CONTENT, StoreLayout
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import FileEntry, Version, VersionName

_CLOCK_SECONDS = 2  # writes within one tick of a coarse clock have the same time


@dataclass(slots=True)
class StagedFiles:
    """What a staged directory holds.

    Attributes:
        entries: of all files, sorted by path.
        unsynced: paths of those that no commit has synced.
        folders: how many folders have files.
    """

    entries: list[FileEntry] = field(default_factory=list)
    unsynced: list[str] = field(default_factory=list)
    folders: int = 0


class _CommittedFile(NamedTuple):
    output: str
    file: FileEntry
    read_after: float  # epoch seconds; the commit read every file later than that


class _Linked(NamedTuple):
    path: str
    identity: FileId
    size: int
    written: float  # epoch seconds


def describe_files(layout: StoreLayout, staging: Staging) -> StagedFiles:
    """Size and digest of every file of a staged directory.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` differs from the
            manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or has a name that is
            not Unicode.
    """
    found, before = StagedFiles(), _Previous.of(layout, staging.previous)
    linked, expected, folder = list[_Linked](), set(staging.links), ""
    for path, entry in walk_files(staging.path):
        if entry.is_symlink() and path in expected:
            expected.discard(path)
            continue
        if not entry.is_file(follow_symlinks=False) or not _is_unicode(path):
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        place = path[: -len(entry.name)]
        found.folders += place != folder
        folder = place
        status = entry.stat(follow_symlinks=False)
        known = before.unchanged(path, status)
        if known:
            found.entries.append(known)
        elif status.st_nlink > 1 and staging.hardlink_sources:
            identity = (status.st_dev, status.st_ino)
            linked.append(_Linked(path, identity, status.st_size, status.st_mtime))
        else:
            found.entries.append(_described(staging, path))
            found.unsynced.append(path)
    if expected:
        raise StorageError(
            f"{staging.output}: the link {min(expected)!r} was removed after it was created"
        )
    _describe_linked(layout, staging, linked, found)
    found.entries.sort(key=lambda file: file.path)
    return found


def _described(staging: Staging, path: str) -> FileEntry:
    return FileEntry(path, *read_digest(staging.path / path))


def _describe_linked(
    layout: StoreLayout, staging: Staging, linked: list[_Linked], found: StagedFiles
) -> None:
    """Describe hard links by their versions; those that were written to since are compared."""
    committed: dict[FileId, _CommittedFile] = {}
    wanted = {link.identity for link in linked}
    for sources in _likely_first(staging):
        if wanted:
            committed |= _committed_files(layout, sources, wanted)
            wanted -= committed.keys()
    for link in linked:
        known = committed.get(link.identity)
        if known is None:
            found.unsynced.append(link.path)
        elif known.file.size == link.size and link.written < known.read_after:
            found.entries.append(FileEntry(link.path, known.file.size, known.file.sha256))
            continue
        described = _described(staging, link.path)
        found.entries.append(described)
        if known is not None and known.file.sha256 != described.sha256:
            raise ChangedOutput(known.output, ascii(known.file.path)[1:-1])


def _likely_first(staging: Staging) -> Iterable[Sequence[Version | VersionName]]:
    """The sources that the previous versions were not made of, then the others."""
    used = {content for one in staging.previous for content in one.manifest.inputs.values()}
    yield [source for source in staging.hardlink_sources if source.content not in used]
    yield [source for source in staging.hardlink_sources if source.content in used]


def _committed_files(
    layout: StoreLayout, versions: Iterable[Version | VersionName], wanted: set[FileId]
) -> dict[FileId, _CommittedFile]:
    """The wanted files of committed versions, by device and inode."""
    files: dict[FileId, _CommittedFile] = {}
    for version in versions:
        loaded = load_version(layout, version.output, version.id)
        content = layout.version(version.output, version.id) / CONTENT
        read_after = _read_after(content)
        for file in loaded.manifest.files if loaded else ():
            identity = file_id(content / file.path)
            if identity in wanted:
                files[identity] = _CommittedFile(version.output, file, read_after)
    return files


def _read_after(content: Path) -> float:
    """A time before a commit read the files of a version; 0 when it cannot be known.

    The folder got its last entry before its files were read for the manifest.
    """
    try:
        return content.stat().st_mtime - _CLOCK_SECONDS
    except OSError:
        return 0.0


@dataclass(frozen=True, slots=True)
class _Previous:
    """The files of versions that were committed before, by path."""

    files: Mapping[str, tuple[FileEntry, str, float]]

    @classmethod
    def of(cls, layout: StoreLayout, versions: Sequence[Version]) -> "_Previous":
        files: dict[str, tuple[FileEntry, str, float]] = {}
        for version in versions:
            content = layout.version(version.output, version.id) / CONTENT
            read_after = _read_after(content)
            top = f"{content}/"
            files |= {file.path: (file, top, read_after) for file in version.manifest.files}
        return cls(files)

    def unchanged(self, path: str, status: os.stat_result) -> FileEntry | None:
        """The entry of the same file under the same path, if nothing wrote to it since."""
        known = self.files.get(path)
        if known is None or known[0].size != status.st_size or status.st_mtime >= known[2]:
            return None
        try:
            old = os.lstat(known[1] + path)
        except OSError:
            return None
        return known[0] if (old.st_dev, old.st_ino) == (status.st_dev, status.st_ino) else None


def _is_unicode(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
