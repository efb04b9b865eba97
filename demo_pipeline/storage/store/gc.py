"""Garbage collection in a local store: old versions, and what dead processes left behind.

Belongs here: which versions are needed, and the safe removal of the others.
"""

from collections.abc import Iterator
from pathlib import Path

from demo_pipeline.files.processes import has_ended
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.integrity import load_version
from demo_pipeline.storage.store.layout import (
    CONTENT,
    MANIFEST,
    StoreLayout,
    VersionKey,
    is_version_id,
    owner_of,
)
from demo_pipeline.storage.store.part_folder import PartFolder


def collect_garbage(layout: StoreLayout, disk: Disk, grace_seconds: float, now: float) -> list[str]:
    """Remove unneeded versions, abandoned staging and unused parts, older than the grace period.

    A version is needed while a pointer leads to it, for the grace period after the last pointer
    did, and while a needed version links to it.

    Returns:
        `<output>@<version>` of each version removed, sorted, then the staging directories' paths
        relative to the store.
    """
    before = now - grace_seconds
    PartFolder(layout, disk).collect(before)
    versions = sorted(_versions(layout))
    needed = _needed(layout, versions, before)
    removed = [
        f"{output}@{version}"
        for output, version in versions
        if (output, version) not in needed and _remove(layout, disk, (output, version), before)
    ]
    abandoned = sorted(path for path in _unfinished(layout.staging) if _is_old(path, before))
    return removed + [
        path.relative_to(layout.root).as_posix()
        for path in abandoned
        if _remove_unfinished(disk, path)
    ]


def remove_leftovers(layout: StoreLayout, disk: Disk) -> list[str]:
    """Remove drafts and staged directories whose process has ended, however new they are.

    Returns:
        Their paths relative to the store, sorted.
    """
    left = sorted(path for path in _unfinished(layout.staging) if has_ended(owner_of(path.name)))
    return [
        path.relative_to(layout.root).as_posix() for path in left if _remove_unfinished(disk, path)
    ]


def abandoned_staging(layout: StoreLayout, disk: Disk, before: float) -> list[str]:
    """Paths of old staging that no living process uses, relative to the store, sorted."""
    old = sorted(path for path in _unfinished(layout.staging) if _is_old(path, before))
    return [
        path.relative_to(layout.root).as_posix()
        for path in old
        if path.is_symlink() or not path.is_dir() or not disk.is_in_use(path)
    ]


def _versions(layout: StoreLayout) -> Iterator[VersionKey]:
    """Every version directory, referenced or not, complete or not."""
    pending = [layout.versions]
    while pending:
        folder = pending.pop()
        for path in _children(folder):
            is_version = is_version_id(path.name) and (
                (path / MANIFEST).exists() or (path / CONTENT).exists()
            )
            if is_version:
                yield folder.relative_to(layout.versions).as_posix(), path.name
            elif path.is_dir():
                pending.append(path)


def _needed(layout: StoreLayout, versions: list[VersionKey], before: float) -> set[VersionKey]:
    """Versions that are published or in their grace period, and all that these link to."""
    pending = [key for key in versions if _is_root(layout, key, before)]
    needed: set[VersionKey] = set()
    while pending:
        key = pending.pop()
        if key in needed:
            continue
        needed.add(key)
        loaded = load_version(layout, *key)
        if loaded:
            pending += [(link.output, link.version) for link in loaded.manifest.links.values()]
    return needed


def _is_root(layout: StoreLayout, key: VersionKey, before: float) -> bool:
    return layout.published_version(key[0]) == key[1] or not _is_old(layout.version(*key), before)


def _remove(layout: StoreLayout, disk: Disk, key: VersionKey, before: float) -> bool:
    """Remove a version unless a commit published it again meanwhile."""
    trash = layout.draft()
    disk.make_folders(trash.parent)
    with disk.lock(layout.lock(key[0])):
        folder = layout.version(*key)
        if _is_root(layout, key, before) or not folder.is_dir():
            return False
        disk.replace(folder, trash)
    disk.remove_tree(trash)
    return True


def _unfinished(folder: Path) -> Iterator[Path]:
    """Entries that begin with a dot, at any depth; other folders are parts of outputs' names."""
    pending = [folder]
    while pending:
        for path in _children(pending.pop()):
            if path.name.startswith("."):
                yield path
            elif path.is_dir():
                pending.append(path)


def _remove_unfinished(disk: Disk, path: Path) -> bool:
    """Remove a draft or a staged directory unless a living process uses it."""
    if path.is_symlink() or not path.is_dir():
        disk.unlink(path)
        return True
    if disk.is_in_use(path):
        return False
    disk.remove_tree(path)
    return True


def _is_old(path: Path, before: float) -> bool:
    try:
        return path.lstat().st_mtime < before
    except FileNotFoundError:
        return False


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
