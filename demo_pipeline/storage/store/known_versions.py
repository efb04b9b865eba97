"""Opening very many versions of a local store, most of which an earlier process has opened before.

Belongs here: what is kept of a version so that its manifest need not be read again, and when that
holds: while the manifest is the same file and was not written to, and every file has its size.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from demo_pipeline.files.atomic_write import cut_into_parts
from demo_pipeline.storage.store.integrity import has_all_files, has_sizes, load_version
from demo_pipeline.storage.store.layout import StoreLayout
from demo_pipeline.storage.store.part_folder import PartFolder
from demo_pipeline.storage.store.version_manifest import VersionName

_FORM = "known versions 1"


@dataclass(frozen=True, slots=True)
class _Fact:
    """What is known of a version: content, manifest file, and path and size of its files."""

    content: str
    manifest: tuple[int, ...]
    files: tuple[tuple[str, int], ...]


def open_versions(
    layout: StoreLayout, parts: PartFolder, outputs: Sequence[str]
) -> Iterator[VersionName]:
    """Yield the current version of each output that has one, as `LocalStore.current` finds it.

    Args:
        layout: of the store.
        parts: where facts are kept.
        outputs: sorted names.
    """
    published = [(output, layout.published_version(output)) for output in outputs]
    for some in cut_into_parts(published, outputs):
        key = hashlib.sha256(json.dumps([_FORM, some]).encode()).hexdigest()
        data = parts.read(key)
        kept = json.loads(zlib.decompress(data)) if data else {}
        made: dict[str, Any] = {}
        is_new = False
        for output, version in some:
            if version is None:
                continue
            fact = _Fact(*kept[output]) if output in kept else None
            if fact is None or not _holds(layout, output, version, fact):
                fact, is_new = _read(layout, output, version), True
            if fact is None:
                continue
            made[output] = (fact.content, fact.manifest, fact.files)
            yield VersionName(output, version, fact.content)
        if is_new and len(made) == len(some):
            parts.write(key, zlib.compress(json.dumps(made).encode(), 1))


def _read(layout: StoreLayout, output: str, version: str) -> _Fact | None:
    """Read the manifest; None when it or a file is damaged."""
    manifest = _identity(layout, output, version)
    loaded = load_version(layout, output, version)
    if loaded is None or not has_all_files(layout, loaded):
        return None
    files = tuple((file.path, file.size) for file in loaded.manifest.files)
    # Of a version with links its manifest is always read.
    return _Fact(loaded.content, () if loaded.manifest.links else manifest, files)


def _holds(layout: StoreLayout, output: str, version: str, fact: _Fact) -> bool:
    """Whether the manifest is the file that was read, and every file exists in its size."""
    if not fact.manifest or tuple(fact.manifest) != _identity(layout, output, version):
        return False
    try:
        return has_sizes(layout.content_text(output, version), fact.files)
    except OSError:
        return False


def _identity(layout: StoreLayout, output: str, version: str) -> tuple[int, ...]:
    """What changes when anything writes to or replaces the manifest."""
    try:
        status = os.lstat(layout.manifest_text(output, version))
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
