"""Describing the files of a staged directory: sizes and digests for its manifest.

Belongs here: which files have to be read and synced. A file that is hard-linked from a committed
version was synced and read by that commit, and is read again only when something wrote to it since;
one that the version before has under the same path was read by that commit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import DirEntry

from demo_pipeline.common.hashing import read_digest
from demo_pipeline.storage.errors import ChangedOutput, StorageError
from demo_pipeline.storage.store.committed_files import FilesByInode, PreviousFiles
from demo_pipeline.storage.store.file_table import FileEntry, FileTable
from demo_pipeline.storage.store.integrity import walk_files
from demo_pipeline.storage.store.layout import StoreLayout
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


def describe_files(layout: StoreLayout, staging: Staging) -> StagedFiles:
    """Size and digest of every file of a staged directory.

    Raises:
        ChangedOutput: a file that is hard-linked from one of `hardlink_sources` differs from the
            manifest of its version.
        StorageError: an entry is neither a plain file nor one of the links, or has a name that is
            not Unicode.
    """
    found = StagedFiles()
    before = [PreviousFiles(layout, version) for version in staging.previous]
    sources = FilesByInode(layout, _likely_first(staging))
    folder = ""
    for path, entry in _plain_files(staging):
        place = path[: -len(entry.name)]
        found.folders += place != folder
        folder = place
        status = entry.stat(follow_symlinks=False)
        known = (one.unchanged(path, status) for one in before)
        file = next(filter(None, known), None)
        if file is None and status.st_nlink > 1 and staging.hardlink_sources:
            file = _described_link(staging, sources, path, entry, found)
        elif file is None:
            file = _described(staging, path)
            found.unsynced.append(path)
        found.entries.append(file)
    return found


def _plain_files(staging: Staging) -> Iterator[tuple[str, "DirEntry[str]"]]:
    """Yield the entries of a staged directory but the links that are expected."""
    expected = set(staging.links)
    for path, entry in walk_files(staging.path):
        if entry.is_symlink() and path in expected:
            expected.discard(path)
            continue
        if not entry.is_file(follow_symlinks=False) or not _is_unicode(path):
            raise StorageError(
                f"{staging.output}: {path!r} is not a plain file with a Unicode name; "
                "write a copy, or link a version with `Staging.link`"
            )
        yield path, entry
    if expected:
        raise StorageError(
            f"{staging.output}: the link {min(expected)!r} was removed after it was created"
        )


def _described(staging: Staging, path: str) -> FileEntry:
    return FileEntry(path, *read_digest(staging.path / path))


def _described_link(
    staging: Staging, sources: FilesByInode, path: str, entry: "DirEntry[str]", found: StagedFiles
) -> FileEntry:
    """Describe a hard link by its version; one that was written to since is compared."""
    status = entry.stat(follow_symlinks=False)
    known = sources.find(status)
    if known is None:
        found.unsynced.append(path)
    elif known.size == status.st_size and status.st_mtime < known.read_after:
        return FileEntry(path, known.size, known.sha256)
    described = _described(staging, path)
    if known is not None and known.sha256 != described.sha256:
        raise ChangedOutput(known.version.output, ascii(sources.path(known))[1:-1])
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
