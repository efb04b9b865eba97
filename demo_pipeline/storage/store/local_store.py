"""The store in a local folder: versions as directories, and a symbolic link that readers follow.

Belongs here: staging, committing and reading on a POSIX file system. A process that dies at any
moment leaves the last good version, and nothing unfinished that a reader can see.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pydantic import JsonValue

from demo_pipeline.storage.errors import MissingOutput, StorageError
from demo_pipeline.storage.store import documents, gc
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.install import install_version, publish, unpublish
from demo_pipeline.storage.store.integrity import (
    OutputDamage,
    has_all_files,
    is_linked,
    load_version,
    missing_output_damage,
    verify_version,
)
from demo_pipeline.storage.store.known_versions import open_versions
from demo_pipeline.storage.store.layout import CONTENT, MANIFEST, StoreLayout, require_output
from demo_pipeline.storage.store.part_folder import PartFolder
from demo_pipeline.storage.store.staged_files import describe_files
from demo_pipeline.storage.store.staging import Staging
from demo_pipeline.storage.store.version_manifest import (
    VERSION_LENGTH,
    CheckOutcome,
    Recipe,
    Version,
    VersionName,
    make_manifest,
)


class LocalStore:
    """A `Store` under one local folder, which is created by the first write.

    Args:
        root: the folder; everything of the store is on its file system.
        disk: its file-system calls; tests pass one that fails.
    """

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self._layout = StoreLayout(root.absolute())
        self._disk = disk or Disk(root=self._layout.root)

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self._layout.root)

    def current(self, output: str) -> Version | None:
        """See `Store`."""
        version = self.published(output)
        return version if version and has_all_files(self._layout, version) else None

    def published(self, output: str) -> Version | None:
        """See `Store`."""
        require_output(output)
        published = self._layout.published_version(output)
        return load_version(self._layout, output, published) if published else None

    def is_complete(self, version: Version) -> bool:
        """See `Store`."""
        return has_all_files(self._layout, version)

    @contextmanager
    def open(self, output: str) -> Iterator[tuple[Path, Version]]:
        """See `Store`: the version's own folder, which no later commit touches."""
        version = self.current(output)
        if version is None:
            raise MissingOutput(output)
        yield self._layout.version(output, version.id) / CONTENT, version

    def open_files(
        self,
        output: str,
        pattern: str,  # noqa: ARG002 - every file is on this machine
    ) -> AbstractContextManager[tuple[Path, Version]]:
        """See `Store`."""
        return self.open(output)

    @contextmanager
    def open_all(self, outputs: Sequence[str]) -> Iterator[list[tuple[str, VersionName]]]:
        """See `Store`."""
        yield [
            (self._layout.content_text(name.output, name.id), name)
            for name in open_versions(self._layout, self.parts, outputs)
        ]

    @contextmanager
    def stage(self, output: str) -> Iterator[Staging]:
        """See `Store`."""
        require_output(output)
        self._require_free(output)
        staging = Staging(output, self._layout, self._layout.staged(output))
        self._disk.make_folders(staging.directory)
        try:
            with self._disk.mark_in_use(staging.directory):
                self._disk.make_folders(staging.path)
                yield staging
        finally:
            self._disk.remove_tree(staging.directory)

    def commit(
        self,
        staging: Staging,
        recipe: Recipe,
        summary: Mapping[str, JsonValue],
        checks: Sequence[CheckOutcome] = (),
    ) -> Version:
        """See `Store`."""
        output = staging.output
        if not staging.path.is_dir():
            raise StorageError(
                f"{output}: this staged directory was committed or removed; stage again"
            )
        files = describe_files(self._layout, self.parts, staging)
        manifest = make_manifest(
            output, recipe, files=files.entries, links=staging.links, summary=summary, checks=checks
        )
        digest = self._disk.write(staging.directory / MANIFEST, manifest.chunks())
        version = Version(digest[:VERSION_LENGTH], manifest.as_read())
        self._disk.sync_staged(staging.directory, CONTENT, files.unsynced, files.folders)
        with self._disk.lock(self._layout.lock(output)):
            self._require_free(output)
            self._require_links(staging)
            damaged = install_version(self._layout, self._disk, staging.directory, version)
            publish(self._layout, self._disk, version)
        if damaged:
            self._disk.remove_tree(damaged)
        return version

    def outputs(self, prefix: str = "") -> list[str]:
        """See `Store`."""
        folder = prefix.rstrip("/")
        if folder:
            require_output(folder)
        return sorted(
            name for name in self._layout.links(folder) if self._layout.published_version(name)
        )

    def remove(self, output: str) -> None:
        """See `Store`."""
        require_output(output)
        if not self._layout.pointer(output).is_symlink():
            return
        with self._disk.lock(self._layout.lock(output)):
            unpublish(self._layout, self._disk, output)

    def verify(self, output: str) -> list[OutputDamage]:
        """See `Store`."""
        require_output(output)
        published = self._layout.published_version(output)
        if published is None:
            return [missing_output_damage(output)]
        return verify_version(self._layout, output, published)

    def collect(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`."""
        return gc.collect_garbage(self._layout, self._disk, grace_seconds, now)

    @property
    def parts(self) -> PartFolder:
        """See `Store`."""
        return PartFolder(self._layout, self._disk)

    def remove_leftovers(self) -> list[str]:
        """See `Store`."""
        return gc.remove_leftovers(self._layout, self._disk)

    def abandoned(self, grace_seconds: float, now: float) -> list[str]:
        """See `Store`."""
        return gc.abandoned_staging(self._layout, self._disk, now - grace_seconds)

    def put_document(self, key: str, data: bytes) -> None:
        """See `Store`."""
        documents.put(self._layout, self._disk, key, data)

    def get_document(self, key: str) -> bytes | None:
        """See `Store`."""
        return documents.get(self._layout, key)

    def delete_document(self, key: str) -> bool:
        """See `Store`."""
        return documents.delete(self._layout, self._disk, key)

    def list_documents(self, prefix: str) -> list[str]:
        """See `Store`."""
        return documents.list_keys(self._layout, prefix)

    def _require_free(self, output: str) -> None:
        """Refuse to commit where the store's own link is not the only thing."""
        pointer = self._layout.pointer(output)
        above = [path for path in pointer.parents if path.is_relative_to(self._layout.root)][:-1]
        wrong = [path for path in above if path.is_symlink()]
        wrong += [pointer] if os.path.lexists(pointer) and not pointer.is_symlink() else []
        if wrong:
            name = wrong[0].relative_to(self._layout.root).as_posix()
            raise StorageError(
                f"{output}: {name} in the store was not written by the store; move it away"
            )
        other = self._layout.other_case(output)
        if other:
            raise StorageError(
                f"{output}: its name differs from {other} only in case, and the store's file "
                "system does not tell the two apart; rename one of the folders"
            )

    def _require_links(self, staging: Staging) -> None:
        """Refuse links to versions that were removed meanwhile."""
        for path, link in staging.links.items():
            if not is_linked(staging.path / path, self._layout, link):
                raise StorageError(
                    f"{staging.output}: {link.output} was removed or replaced meanwhile; run again"
                )
