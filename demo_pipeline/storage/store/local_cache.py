"""The local side of a store in a bucket: versions as folders, where every program can read them.

Belongs here: what is kept, believed and thrown away of a cache folder, which is laid out like a
local store. Nothing in it is the only copy of anything. Reading from the bucket is not done here.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.storage.store import gc, install
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.integrity import (
    has_all_files,
    load_version,
    parse_version,
    verify_version,
)
from demo_pipeline.storage.store.layout import CONTENT, MANIFEST, StoreLayout
from demo_pipeline.storage.store.local_store import LocalStore
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import Version

_MANIFESTS, _DAMAGED = ".manifests", ".damaged"


@dataclass(frozen=True, slots=True)
class CorruptObject:
    """An object that is not what its version's manifest says; `etag` is empty when it is gone."""

    key: str
    etag: str


class LocalCache:
    """A cache folder, shared by any number of processes of one machine.

    Args:
        root: the folder; created by the first write.
    """

    def __init__(self, root: Path) -> None:
        self.layout = StoreLayout(root.absolute())
        self.local = LocalStore(root)
        self._disk = Disk()

    def folder(self, version: Version) -> Path:
        """The version's directory: `content/` and `manifest.json`."""
        return self.layout.version(version.output, version.id)

    def content(self, version: Version) -> Path:
        """The version's content, for reading."""
        return self.folder(version) / CONTENT

    def known(self, output: str, version: str) -> Version | None:
        """The version, when its manifest is here and is what its id says."""
        try:
            data = self._manifest(output, version).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return load_version(self.layout, output, version)
        return parse_version(data, output, version)

    def remember(self, version: Version, manifest: bytes) -> None:
        """Keep the manifest of a version, without its files."""
        self._write(self._manifest(version.output, version.id), manifest)

    def has(self, version: Version) -> bool:
        """Whether every file is here in its size; the links' own files are not looked at."""
        loaded = load_version(self.layout, version.output, version.id)
        return loaded is not None and has_all_files(self.layout, version)

    @contextmanager
    def fetching(self, version: Version, manifest: bytes) -> Iterator[Staging | None]:
        """A directory to fetch a version into, put in place at the end; None if it is here by now.

        Others who want the same version wait meanwhile.
        """
        lock = self.layout.lock(f"{version.output}.fetch")
        with self._disk.lock(lock), self.local.stage(version.output) as staging:
            if self.has(version):
                yield None
                return
            yield staging
            self._disk.write(staging.directory / MANIFEST, manifest)
            self._disk.sync_tree(staging.directory)
            with self._disk.lock(self.layout.lock(version.output)):
                broken = install.install_version(
                    self.layout, self._disk, staging.directory, version
                )
            if broken:
                self._disk.remove_tree(broken)

    def point(self, version: Version) -> None:
        """Note that readers see this version: pruning spares it and what it links to."""
        if self.layout.pointed(version.output) != version.id:
            with self._disk.lock(self.layout.lock(version.output)):
                install.publish(self.layout, self._disk, version)

    def unpoint(self, output: str) -> None:
        """Note that readers see no version, or another than is noted here."""
        if self.layout.pointed(output):
            with self._disk.lock(self.layout.lock(output)):
                install.unpublish(self.layout, self._disk, output)

    def discard_if_changed(self, version: Version) -> None:
        """Throw the version's files away when one has another SHA-256 than recorded."""
        place = self.folder(version)
        if place.is_dir() and verify_version(self.layout, version.output, version.id, linked=False):
            trash = self.layout.draft()
            self._disk.make_folders(trash.parent)
            with self._disk.lock(self.layout.lock(version.output)):
                self._disk.replace(place, trash)
            self._disk.remove_tree(trash)

    def damage(self, output: str, version: str) -> CorruptObject | None:
        """What was found wrong with a version in the bucket, when something was."""
        try:
            key, etag = self._damaged(output, version).read_text().splitlines()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return CorruptObject(key, etag.removeprefix("etag "))

    def note_damage(self, output: str, version: str, damage: CorruptObject) -> None:
        """Remember that an object of a version is not what it should be."""
        self._write(self._damaged(output, version), f"{damage.key}\netag {damage.etag}\n".encode())

    def forget_damage(self, output: str, version: str) -> None:
        """The object was written again."""
        self._damaged(output, version).unlink(missing_ok=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for a moment."""
        folder = self.layout.draft()
        self._disk.make_folders(folder)
        try:
            with self._disk.hold(folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prune(self, current: Mapping[str, str], grace_seconds: float, now: float) -> list[str]:
        """Throw away what is not current, not linked by it, and was not for the grace period.

        Args:
            current: output → the version that readers of the bucket see.
            grace_seconds: longer than any reading takes.
            now: epoch seconds.

        Returns:
            The stale staging directories that went, relative to the folder.
        """
        for output in list(self.layout.links("")):
            if self.layout.pointed(output) != current.get(output):
                self.unpoint(output)
        for manifest in (self.layout.root / _MANIFESTS).rglob("*.json"):
            manifest.unlink(missing_ok=True)
        removed = gc.collect_garbage(self.layout, self._disk, grace_seconds, now)
        staging = f"{self.layout.staging.name}/"
        return [name for name in removed if name.startswith(staging)]

    def _manifest(self, output: str, version: str) -> Path:
        return self.layout.root / _MANIFESTS / output / f"{version}.json"

    def _damaged(self, output: str, version: str) -> Path:
        return self.layout.root / _DAMAGED / output / f"{version}.txt"

    def _write(self, path: Path, data: bytes) -> None:
        self._disk.write_atomically(path, data, self.layout.draft())
