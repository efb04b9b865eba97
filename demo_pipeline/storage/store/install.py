"""Putting versions in place in a local tree, and leading readers to them.

Belongs here: the few moves that a commit ends with. Whoever calls them holds the output's lock.
"""

import os
from pathlib import Path

from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.integrity import verify_version
from demo_pipeline.storage.store.layout import StoreLayout
from demo_pipeline.storage.store.version_manifest import Version


def install_version(layout: StoreLayout, disk: Disk, staged: Path, version: Version) -> Path | None:
    """Put the version's directory in place; the path of a broken one that it replaced."""
    place = layout.version(version.output, version.id)
    broken: Path | None = None
    disk.make_folders(place.parent)
    if os.path.lexists(place):
        if not verify_version(layout, version.output, version.id, linked=False):
            disk.touch(place)
            return None
        broken = layout.draft()
        disk.replace(place, broken)
    disk.replace(staged, place)
    return broken


def publish(layout: StoreLayout, disk: Disk, version: Version) -> None:
    """Let readers see the version from now on."""
    public = layout.public(version.output)
    if layout.pointed(version.output) == version.id:
        return
    _retire(layout, disk, version.output)
    disk.make_folders(public.parent)
    link = layout.draft()
    disk.link(link, layout.pointer(version.output, version.id))
    disk.replace(link, public)


def unpublish(layout: StoreLayout, disk: Disk, output: str) -> None:
    """Let readers see no version any more."""
    _retire(layout, disk, output)
    disk.unlink(layout.public(output))


def _retire(layout: StoreLayout, disk: Disk, output: str) -> None:
    """Start the grace period of the version that readers see now."""
    pointed = layout.pointed(output)
    if pointed and layout.version(output, pointed).is_dir():
        disk.touch(layout.version(output, pointed))
