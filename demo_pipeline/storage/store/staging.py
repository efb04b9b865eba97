"""Staging: the private directory in which a stage builds its output.

Belongs here: what a stage may do in it besides writing files, which is to link other versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.store.committed_files import PreviousFiles
from demo_pipeline.storage.store.layout import CONTENT, StoreLayout
from demo_pipeline.storage.store.version_manifest import LinkEntry, Version, VersionName


@dataclass(frozen=True, slots=True)
class Staging:
    """An output that is being built. Write files under `path`; the context's end removes it.

    Attributes:
        output: its name.
        layout: of the local store it belongs to.
        directory: what becomes the version's directory.
        links: path under `path` → the version linked there.
        hardlink_sources: versions whose files may be hard-linked under `path`; they are synced
            already. A commit refuses a file that differs from its version's manifest.
        previous: versions whose files are not read again where they are hard-linked under the same
            path and were not written to since.
        linked: folders under `path` that hold nothing but hard links of committed files, in groups,
            each with a key that stands for the names and the bytes of all files of its folders.
    """

    output: str
    layout: StoreLayout
    directory: Path
    links: dict[str, LinkEntry] = field(default_factory=dict)
    hardlink_sources: list[Version | VersionName] = field(default_factory=list)
    previous: list[Version] = field(default_factory=list)
    linked: list[tuple[str, Sequence[str]]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The folder to write into."""
        return self.directory / CONTENT

    def previous_files(self) -> list[PreviousFiles]:
        """The files of the versions before."""
        return [PreviousFiles(self.layout, version) for version in self.previous]

    def link(self, relative_path: str, version: Version | VersionName) -> None:
        """Link `relative_path` to the content of another version.

        The link is readable at once and after the commit.

        Raises:
            StorageError: the path leads out of the staged directory or is taken.
        """
        self.link_to(relative_path, LinkEntry(output=version.output, version=version.id))

    def link_to(self, relative_path: str, entry: LinkEntry) -> None:
        """As `link`, for a version of which only output and id are known."""
        pure = PurePosixPath(relative_path)
        key = str(pure)
        if pure.is_absolute() or ".." in pure.parts or key == ".":
            raise StorageError(f"{self.output}: {key!r} is not a path inside an output")
        path = self.path / pure
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(self.layout.link_target(path, entry.output, entry.version))
        except FileExistsError:
            raise StorageError(f"{self.output}: {key!r} exists already") from None
        self.links[key] = entry
