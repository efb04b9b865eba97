"""Garbage collection in a folder: old versions, and what dead processes left behind.

Belongs here: which versions are needed, and the safe removal of the others.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from demo_pipeline.files.processes import has_ended
from demo_pipeline.store.folder import (
    CONTENT,
    MANIFEST,
    Folder,
    PartFolder,
    VersionKey,
    children,
    is_in_use,
    is_version_id,
    remove_tree,
)
from demo_pipeline.store.version_manifest import Version
from demo_pipeline.store.versions import load_version

LOCK = ".collect"
"""Held by a collection, and shared by the commits that run at the same time."""


def collect_folder(folder: Folder, before: float) -> list[str]:
    """Remove versions, abandoned staging and parts that were last needed before a time.

    A version is needed while a pointer leads to it, for the grace period after the last pointer
    did, and while a needed version links to it. While it is decided, nothing is published.

    Returns:
        `<output>@<version>` of each version removed, sorted, then the staging directories' paths
        relative to the store.
    """
    if not folder.root.is_dir():
        return []
    PartFolder(folder).collect(before)
    with folder.locked(LOCK):
        versions = sorted(all_versions(folder))
        roots = [
            key
            for key in versions
            if folder.published_version(key[0]) == key[1]
            or not _is_old(folder.version(*key), before)
        ]
        needed = set(versions)
        if len(roots) < len(versions):
            needed = needed_versions(roots, lambda keys: [load_version(folder, *k) for k in keys])
        unneeded = [key for key in versions if key not in needed]
        trash = [folder.discard(folder.version(*key)) for key in unneeded]
    for path in trash:
        remove_tree(path)
    old = [path for path in folder.unfinished() if _is_old(path, before)]
    return [f"{output}@{version}" for output, version in unneeded] + _remove(folder, old)


def needed_versions(
    roots: Iterable[VersionKey],
    load: Callable[[list[VersionKey]], Iterable[Version | None]],
) -> set[VersionKey]:
    """The roots and every version that they link to; `load` gives many versions."""
    needed: set[VersionKey] = set()
    level = sorted(roots)
    while level:
        needed.update(level)
        manifests = (version.manifest for version in load(level) if version)
        links = {(link.output, link.version) for one in manifests for link in one.links.values()}
        level = sorted(links - needed)
    return needed


def remove_leftovers(folder: Folder) -> list[str]:
    """Remove drafts and staged directories whose process has ended, however new they are.

    Returns:
        Their paths relative to the store, sorted.
    """
    ended = (path for path in folder.unfinished() if has_ended(path.name.rpartition(".")[2]))
    return _remove(folder, list(ended))


def abandoned(folder: Folder, before: float) -> list[str]:
    """Paths of old staging that no living process uses, relative to the store, sorted."""
    old = (path for path in folder.unfinished() if _is_old(path, before))
    return [path.relative_to(folder.root).as_posix() for path in old if not is_in_use(path)]


def _remove(folder: Folder, unfinished: list[Path]) -> list[str]:
    """Remove drafts and staged directories unless a living process uses them; returns names."""
    unused = [path for path in unfinished if not is_in_use(path)]
    for path in unused:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            remove_tree(path)
    return [path.relative_to(folder.root).as_posix() for path in unused]


def all_versions(folder: Folder) -> Iterator[VersionKey]:
    """Every version directory, referenced or not, complete or not."""
    pending = [folder.versions]
    while pending:
        above = pending.pop()
        for path in children(above):
            is_version = is_version_id(path.name) and (
                (path / MANIFEST).exists() or (path / CONTENT).exists()
            )
            if is_version:
                yield above.relative_to(folder.versions).as_posix(), path.name
            elif path.is_dir():
                pending.append(path)


def _is_old(path: Path, before: float) -> bool:
    try:
        return path.lstat().st_mtime < before
    except FileNotFoundError:
        return False
