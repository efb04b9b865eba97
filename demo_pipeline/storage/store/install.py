"""Installing versions in a local store, and publishing them to readers.

Belongs here: the moves at the end of a commit. The caller holds the output's lock.
"""

import logging
import os
from pathlib import Path

from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.integrity import verify_version
from demo_pipeline.storage.store.layout import StoreLayout
from demo_pipeline.storage.store.version_manifest import Version

_LOG = logging.getLogger(__package__)


def install_version(layout: StoreLayout, disk: Disk, staged: Path, version: Version) -> Path | None:
    """Move the staged directory to its version's place.

    Returns:
        Where a damaged version with the same id was moved to; None when nothing was replaced.
    """
    place = layout.version(version.output, version.id)
    damaged: Path | None = None
    disk.make_folders(place.parent)
    if os.path.lexists(place):
        if not verify_version(layout, version.output, version.id, linked=False):
            disk.touch(place)
            return None
        damaged = layout.draft()
        disk.replace(place, damaged)
    disk.replace(staged, place)
    return damaged


def publish(layout: StoreLayout, disk: Disk, version: Version) -> None:
    """Move the output's pointer to the version: readers see it from now on."""
    pointer = layout.pointer(version.output)
    if layout.published_version(version.output) == version.id:
        return
    _start_grace_period(layout, disk, version.output)
    disk.make_folders(pointer.parent)
    link = layout.draft()
    disk.link(link, layout.pointer_target(version.output, version.id))
    disk.replace(link, pointer)
    _LOG.debug("%s: version %s published", version.output, version.id)


def unpublish(layout: StoreLayout, disk: Disk, output: str) -> None:
    """Remove the output's pointer: readers see no version from now on."""
    _start_grace_period(layout, disk, output)
    disk.unlink(layout.pointer(output))


def _start_grace_period(layout: StoreLayout, disk: Disk, output: str) -> None:
    """Start the grace period of the version that is published now."""
    published = layout.published_version(output)
    if published and layout.version(output, published).is_dir():
        disk.touch(layout.version(output, published))
