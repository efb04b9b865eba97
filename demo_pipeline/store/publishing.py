"""Publishing and collecting versions in a folder: of a store, or of a bucket's local cache.

Belongs here: the order of the steps. A process that dies at any moment leaves the last good
version, and nothing unfinished that a reader can see.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from demo_pipeline.files.atomic_write import replace_synced, sync, sync_file_system
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import COLLECTION, MANIFEST, Folder, VersionKey, remove_tree
from demo_pipeline.store.version_manifest import (
    CheckOutcome,
    LinkEntry,
    Recipe,
    Version,
    make_manifest,
    write_version,
)
from demo_pipeline.store.versions import (
    Staging,
    describe_files,
    has_all_files,
    is_linked,
    verify_version,
)

_MANY = 1000  # files and folders that are synced by one call for the file system
_LOG = logging.getLogger(__package__)


@contextmanager
def staged(folder: Folder, output: str) -> Iterator[Staging]:
    """A private directory to build a version in; removed at the end in any case."""
    staging = Staging(output, folder, folder.draft(output))
    try:
        folder.make(staging.path)
        yield staging
    finally:
        remove_tree(staging.directory)


def commit_staged(
    staging: Staging,
    recipe: Recipe,
    summary: Mapping[str, JsonValue],
    checks: Sequence[CheckOutcome],
) -> Version:
    """See `Store.commit`."""
    folder, output = staging.folder, staging.output
    if not staging.path.is_dir():
        raise StorageError(f"{output}: this staged directory was committed or removed; stage again")
    files, unsynced = describe_files(staging, recipe.stage)
    manifest = make_manifest(
        output, recipe, files=files, links=staging.links, summary=summary, checks=checks
    )
    version = write_version(staging.directory / MANIFEST, manifest)
    _sync_staged(staging, unsynced)
    with folder.locked(output), folder.locked(COLLECTION, shared=True):
        require_free(folder, output)
        for path, link in staging.links.items():
            if not is_linked(folder, staging.path / path, link):
                raise link_removed(output, link)
        install(folder, staging.directory, version)
        publish(folder, version)
    return version


def link_removed(output: str, link: LinkEntry) -> StorageError:
    """The error of a commit whose link leads nowhere any more."""
    return StorageError(f"{output}: {link.output} was removed or replaced meanwhile; run again")


def _sync_staged(staging: Staging, files: Sequence[str]) -> None:
    """Sync some files of a staged directory, and all of its folders."""
    folders = [Path(folder) for folder, _, _ in os.walk(staging.directory, topdown=False)]
    if len(files) + len(folders) <= _MANY or not sync_file_system(staging.directory):
        for path in [*(staging.path / file for file in files), *folders]:
            sync(path)


def install(folder: Folder, staged_version: Path, version: Version) -> None:
    """Move a staged directory to its version's place; the caller holds the output's lock."""
    place = folder.version(*version.key)
    folder.make(place.parent)
    if os.path.lexists(place):
        if has_all_files(folder, version) and not verify_version(
            folder, *version.key, linked=False
        ):
            os.utime(place)
            return
        remove_tree(folder.discard(place))
    replace_synced(staged_version, place)


def publish(folder: Folder, version: Version) -> None:
    """Move the pointer of an output, whose lock the caller holds: readers see the version."""
    if folder.published_version(version.output) == version.id:
        return
    _start_grace_period(folder, version.output)
    pointer, link = folder.pointer(version.output), folder.draft()
    folder.make(pointer.parent)
    link.symlink_to(folder.link_target(pointer, *version.key))
    replace_synced(link, pointer)
    _LOG.debug("%s: version %s published", *version.key)


def unpublish(folder: Folder, output: str) -> None:
    """Remove the pointer of an output, if it has one."""
    pointer = folder.pointer(output)
    if pointer.is_symlink():
        with folder.locked(output):
            _start_grace_period(folder, output)
            pointer.unlink(missing_ok=True)
            sync(pointer.parent)


def _start_grace_period(folder: Folder, output: str) -> None:
    """Start the grace period of the version that is published now."""
    published = folder.published_version(output)
    if published and folder.version(output, published).is_dir():
        os.utime(folder.version(output, published))


def require_free(folder: Folder, output: str) -> None:
    """Refuse to commit where the store's own link is not the only thing. Raises `StorageError`."""
    pointer, root = folder.pointer(output), folder.root
    above = [root / parent for parent in Path(output).parents if str(parent) != "."]
    foreign = [path for path in above if path.is_symlink()]
    if os.path.lexists(pointer) and not pointer.is_symlink():
        foreign.append(pointer)
    if foreign:
        name = foreign[0].relative_to(root).as_posix()
        raise StorageError(
            f"{output}: {name} in the store was not written by the store; move it away"
        )
    ignores_case = os.path.lexists(root / ".VERSIONS")
    if ignores_case and os.path.lexists(pointer):
        names = {path.name.lower(): path.name for path in pointer.parent.iterdir()}
        known = names.get(pointer.name.lower(), pointer.name)
        if known != pointer.name:
            raise StorageError(
                f"{output}: its name differs from {output.rpartition('/')[0]}/{known} only in "
                "case, and the store's file system does not tell the two apart; rename one of "
                "the folders"
            )


def collect_folder(folder: Folder, before: float) -> list[str]:
    """Remove versions and abandoned staging that were last needed before a time.

    While it is decided, nothing is published. Returns `<output>@<version>` of each version removed,
    sorted, then the staging directories' paths below the root.
    """
    if not folder.root.is_dir():
        return []
    with folder.locked(COLLECTION):
        needed_at = {key: folder.version(*key).stat().st_mtime for key in folder.versions()}
        current = {(output, folder.published_version(output)) for output, _ in needed_at}
        old = unneeded_versions(
            needed_at, current, before, lambda keys: [folder.load(*key) for key in keys]
        )
        trash = [folder.discard(folder.version(*key)) for key in old]
    for path in trash:
        remove_tree(path)
    return [f"{output}@{version}" for output, version in old] + folder.remove_unfinished(before)


Load = Callable[[list[VersionKey]], Iterable[Version | None]]
"""Gives many versions; None for one that is damaged."""


def unneeded_versions(
    needed_at: Mapping[VersionKey, float],
    current: Iterable[tuple[str, str | None]],
    before: float,
    load: Load,
) -> list[VersionKey]:
    """The versions that were last needed before a time, sorted.

    A version is needed while it is one of `current`, for the grace period after that, and while a
    needed version links to it. `needed_at` are all versions, with the time as far as it is known.
    """
    published = set(current)
    roots = {key for key, at in needed_at.items() if key in published or at >= before}
    if len(roots) == len(needed_at):
        return []
    return sorted(needed_at.keys() - with_linked(roots, load))


def with_linked(roots: Iterable[VersionKey], load: Load) -> set[VersionKey]:
    """The roots and every version that they link to, directly or not."""
    found: set[VersionKey] = set()
    level = sorted(roots)
    while level:
        found.update(level)
        manifests = (version.manifest for version in load(level) if version)
        links = {(link.output, link.version) for one in manifests for link in one.links.values()}
        level = sorted(links - found)
    return found
