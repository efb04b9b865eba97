"""A private directory in which a stage makes its output.

Belongs here: what a stage may do there besides writing files, which is to link other versions.
"""

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.store.layout import CONTENT, StoreLayout
from demo_pipeline.storage.store.version_manifest import LinkEntry, Version


@dataclass(frozen=True, slots=True)
class Staging:
    """One output in the making. Write files under `path`; it is gone when the context ends.

    Attributes:
        output: its name.
        layout: of the local tree it lies in.
        directory: what becomes the version's directory.
        links: path under `path` → the version linked there.
        hardlink_sources: versions whose files may stand under `path` as hard links; they are synced
            already; a commit refuses those that are no longer what their manifests say.
    """

    output: str
    layout: StoreLayout
    directory: Path
    links: dict[str, LinkEntry] = field(default_factory=dict)
    hardlink_sources: list[Version] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder to write into."""
        return self.directory / CONTENT

    def link(self, relative_path: str, version: Version) -> None:
        """Let `relative_path` be the content of another version, without a copy.

        The link is readable at once, and stays so after the commit.

        Raises:
            StorageError: the path leads out of the staged directory or is taken.
        """
        self.link_to(relative_path, LinkEntry(output=version.output, version=version.id))

    def link_to(self, relative_path: str, entry: LinkEntry) -> None:
        """The same for a version of which only output and id are known."""
        pure = PurePosixPath(relative_path)
        key = str(pure)
        if pure.is_absolute() or ".." in pure.parts or key == ".":
            raise StorageError(f"{self.output}: {key!r} is no path inside an output")
        path = self.path / pure
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(self.layout.link(path, entry.output, entry.version))
        except FileExistsError:
            raise StorageError(f"{self.output}: {key!r} is there already") from None
        self.links[key] = entry
