"""The local cache of a store in a bucket: versions as folders, which every program can read.

Belongs here: what the cache folder keeps, trusts and removes; it is laid out like a local store.
Nothing in it is the only copy of anything. Requests to the bucket are made elsewhere.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.storage.store import gc
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.install import install_version, publish, unpublish
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

_MANIFESTS, _DAMAGED, _FILES = ".manifests", ".damaged", ".files"


@dataclass(frozen=True, slots=True)
class CorruptObject:
    """An object that differs from its version's manifest; `etag` is empty when it is missing."""

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
        self._disk = Disk(root=self.layout.root)

    def folder(self, version: Version) -> Path:
        """The version's directory: `content/` and `manifest.json`."""
        return self.layout.version(version.output, version.id)

    def content(self, version: Version) -> Path:
        """The version's content, for reading."""
        return self.folder(version) / CONTENT

    def single_files(self, version: Version) -> Path:
        """Where single files of the version are kept while the version is not in the cache."""
        return self.layout.root / _FILES / version.output / version.id

    def known_version(self, output: str, version: str) -> Version | None:
        """The version, when its manifest is in the cache and matches its id."""
        try:
            data = self._manifest(output, version).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return load_version(self.layout, output, version)
        return parse_version(data, output, version)

    def remember_manifest(self, version: Version, manifest: bytes) -> None:
        """Keep the manifest of a version, without its files."""
        self._write(self._manifest(version.output, version.id), manifest)

    def has(self, version: Version) -> bool:
        """Whether every file is in the cache in its size; files of linked versions do not count."""
        loaded = load_version(self.layout, version.output, version.id)
        return loaded is not None and has_all_files(self.layout, version)

    @contextmanager
    def install_fetched(self, version: Version, manifest: bytes) -> Iterator[Staging | None]:
        """A staged directory to download a version into, which is installed at the end.

        It is None when another process installed the version meanwhile; processes that want the
        same version wait for each other.
        """
        lock = self.layout.lock(f"{version.output}.fetch")
        with self._disk.lock(lock), self.local.stage(version.output) as staging:
            if self.has(version):
                yield None
                return
            yield staging
            self._disk.write(staging.directory / MANIFEST, [manifest])
            self._disk.sync_tree(staging.directory)
            with self._disk.lock(self.layout.lock(version.output)):
                damaged = install_version(self.layout, self._disk, staging.directory, version)
            if damaged:
                self._disk.remove_tree(damaged)

    def publish(self, version: Version) -> None:
        """Note that readers see this version: pruning keeps it and what it links to."""
        if self.layout.published_version(version.output) != version.id:
            with self._disk.lock(self.layout.lock(version.output)):
                publish(self.layout, self._disk, version)

    def unpublish(self, output: str) -> None:
        """Note that readers do not see the noted version any more."""
        if self.layout.published_version(output):
            with self._disk.lock(self.layout.lock(output)):
                unpublish(self.layout, self._disk, output)

    def discard_if_changed(self, version: Version) -> None:
        """Remove the version from the cache when a file has another SHA-256 than its manifest.

        Single files of it are removed in any case: they are few.
        """
        folder = self.folder(version)
        shutil.rmtree(self.single_files(version), ignore_errors=True)
        if folder.is_dir() and verify_version(
            self.layout, version.output, version.id, linked=False
        ):
            trash = self.layout.draft()
            self._disk.make_folders(trash.parent)
            with self._disk.lock(self.layout.lock(version.output)):
                self._disk.replace(folder, trash)
            self._disk.remove_tree(trash)

    def known_damage(self, output: str, version: str) -> CorruptObject | None:
        """The corrupt object that was noted for a version in the bucket, if any."""
        try:
            key, etag = self._damaged(output, version).read_text().splitlines()
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return CorruptObject(key, etag.removeprefix("etag "))

    def note_damage(self, output: str, version: str, corrupt: CorruptObject) -> None:
        """Remember a corrupt object of a version."""
        text = f"{corrupt.key}\netag {corrupt.etag}\n"
        self._write(self._damaged(output, version), text.encode())

    def forget_damage(self, output: str, version: str) -> None:
        """Forget the corrupt object, since it was written again."""
        self._damaged(output, version).unlink(missing_ok=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder."""
        folder = self.layout.draft()
        self._disk.make_folders(folder)
        try:
            with self._disk.mark_in_use(folder):
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def prune(self, current: Mapping[str, str], grace_seconds: float, now: float) -> list[str]:
        """Remove versions that are neither current nor linked, after the grace period.

        Args:
            current: output → the version that readers of the bucket see.
            grace_seconds: longer than any reader keeps a version open.
            now: epoch seconds.

        Returns:
            The abandoned staging directories that were removed, relative to the folder.
        """
        for output in list(self.layout.links("")):
            if self.layout.published_version(output) != current.get(output):
                self.unpublish(output)
        for manifest in (self.layout.root / _MANIFESTS).rglob("*.json"):
            manifest.unlink(missing_ok=True)
        for folder, _, names in os.walk(self.layout.root / _FILES):
            for name in names:
                file = Path(folder, name)
                with suppress(FileNotFoundError):  # another process removes it, too
                    if file.stat().st_mtime < now - grace_seconds:
                        file.unlink()
        removed = gc.collect_garbage(self.layout, self._disk, grace_seconds, now)
        staging = f"{self.layout.staging.name}/"
        return [name for name in removed if name.startswith(staging)]

    def _manifest(self, output: str, version: str) -> Path:
        return self.layout.root / _MANIFESTS / output / f"{version}.json"

    def _damaged(self, output: str, version: str) -> Path:
        return self.layout.root / _DAMAGED / output / f"{version}.txt"

    def _write(self, path: Path, data: bytes) -> None:
        self._disk.write_atomically(path, data, self.layout.draft())
