"""Integrity of committed versions: comparing a directory with its manifest.

Belongs here: reading versions back and naming their damage. Nothing here writes.
"""

import hashlib
import os
import stat
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from demo_pipeline.files.atomic_write import read_digest
from demo_pipeline.storage.errors import ChangedOutput
from demo_pipeline.storage.store.file_table import FileEntry
from demo_pipeline.storage.store.layout import CONTENT, MANIFEST, StoreLayout
from demo_pipeline.storage.store.version_manifest import (
    VERSION_LENGTH,
    LinkEntry,
    Manifest,
    Version,
    version_id,
)

_CHUNK = 2**16  # bytes of a manifest in memory
_PICTURES = (".png", ".jpg")


@dataclass(frozen=True, slots=True)
class OutputDamage:
    """A difference between a committed output and its manifest.

    Attributes:
        output: name of the output that the file belongs to.
        code: `missing_output`, `damaged_manifest`, `missing_file`, `changed_file`, `broken_link` or
            `unexpected_file`.
        file: path below the store's root, in printable ASCII.
        message: what is wrong with it.
    """

    output: str
    code: str
    file: str
    message: str

    def as_error(self) -> ChangedOutput:
        """The error of a reader who needs the file."""
        return ChangedOutput(self.output, self.file.removeprefix(f"{self.output}/"))


def load_version(layout: StoreLayout, output: str, version: str) -> Version | None:
    """The version with this id; None when its manifest is missing or does not match the id."""
    path = layout.manifest_text(output, version)
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - for every trajectory
            return _parsed(iter(partial(file.read, _CHUNK), b""), output, version) or parse_version(
                Path(path).read_bytes(), output, version
            )
    except (FileNotFoundError, NotADirectoryError):
        return None


def parse_version(data: bytes, output: str, version: str) -> Version | None:
    """The version whose manifest has these bytes; None when they do not match its id."""
    if version_id(data) != version:
        return None
    try:
        manifest = Manifest.of_chunks(iter([data])) or Manifest.model_validate_json(data)
    except ValueError:
        return None
    return Version(version, manifest) if manifest.output == output else None


def _parsed(chunks: Iterator[bytes], output: str, version: str) -> Version | None:
    """The version whose manifest has these bytes in the usual form; one chunk is in memory."""
    digest = hashlib.sha256()

    def noted() -> Iterator[bytes]:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk

    try:
        manifest = Manifest.of_chunks(noted())
    except ValueError:
        return None
    same = digest.hexdigest()[:VERSION_LENGTH] == version
    return Version(version, manifest) if manifest and same and manifest.output == output else None


def has_all_files(layout: StoreLayout, version: Version) -> bool:
    """Whether every file exists in its size and every link leads to an existing version."""
    content = layout.version(version.output, version.id) / CONTENT
    return has_sizes(str(content), version.manifest.files.sizes()) and all(
        is_linked(content / path, layout, link) for path, link in version.manifest.links.items()
    )


def has_sizes(folder: str, files: Iterable[tuple[str, int]]) -> bool:
    """Whether a folder exists with these plain files, given by path and bytes."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:  # relative to the folder: the system looks up half as many names
        return all(_size(path, descriptor) == size for path, size in files)
    finally:
        os.close(descriptor)


def is_linked(path: Path, layout: StoreLayout, link: LinkEntry) -> bool:
    """Whether `path` is a link to the content of that version, and the version exists."""
    try:
        text = os.readlink(path)  # noqa: PTH115 - for every trajectory
    except OSError:  # missing, or not a link
        return False
    manifest = layout.manifest_text(link.output, link.version)
    same = text == layout.link_target(path, link.output, link.version)
    return same and os.path.isfile(manifest)  # noqa: PTH113


def walk_files(content: Path, below: str = "", whole: Container[str] = ()) -> Iterator[str]:
    """The `/`-separated path of every entry under `content` but folders, sorted.

    Args:
        content: the folder.
        below: path of a folder in it, with a slash at the end; only entries below it are given.
        whole: paths of folders, with a slash at the end, that are given instead of their entries.
    """
    pending = _children(content, below)
    while pending:
        path = pending.pop()
        if path.endswith("/") and path not in whole:
            pending += _children(content, path)
        else:
            yield path


def _children(content: Path, folder: str) -> list[str]:
    """The paths of a folder's entries, folders' with a slash at the end; the last first.

    The slash puts a folder where the paths of its files are in the order of all paths. Of the
    entries nothing else is held: a dataset has many thousand pictures in a folder.
    """
    with os.scandir(f"{content}/{folder}") as entries:
        found = [
            f"{folder}{entry.name}{'/' if entry.is_dir(follow_symlinks=False) else ''}"
            for entry in entries
        ]
    return sorted(found, reverse=True)


def verify_version(
    layout: StoreLayout, output: str, version: str, *, linked: bool = True
) -> list[OutputDamage]:
    """Every difference between a version and its manifest; reads every byte.

    With `linked`, the linked versions are verified too.
    """
    loaded = load_version(layout, output, version)
    if loaded is None:
        return [output_damage(output, "damaged_manifest", MANIFEST, "is missing or was changed")]
    content = layout.version(output, version) / CONTENT
    damages = [
        damage for file in loaded.manifest.files if (damage := _file_damage(output, content, file))
    ]
    for path, link in loaded.manifest.links.items():
        if not is_linked(content / path, layout, link):
            message = f"does not lead to {link.output} any more"
            damages.append(output_damage(output, "broken_link", path, message))
        elif linked:
            damages += verify_version(layout, link.output, link.version)
    return damages + _unexpected(loaded, content)


def document_damage(content: Path, output: str) -> OutputDamage | None:
    """The first difference between the files of a version but its pictures, and its manifest.

    Args:
        content: the version's folder, in a store or a cache.
        output: its name.
    """
    try:
        data = (content.parent / MANIFEST).read_bytes()
    except OSError:
        data = b""
    loaded = parse_version(data, output, content.parent.name)
    if loaded is None:
        return output_damage(output, "damaged_manifest", MANIFEST, "is missing or was changed")
    documents = (file for file in loaded.manifest.files if not file.path.endswith(_PICTURES))
    return next(filter(None, (_file_damage(output, content, file) for file in documents)), None)


def missing_output_damage(output: str) -> OutputDamage:
    """The damage of an output without any version."""
    return output_damage(output, "missing_output", ".", "was never built, or was removed")


def output_damage(output: str, code: str, path: str, message: str) -> OutputDamage:
    """The damage of the file at `path` in an output."""
    return OutputDamage(output, code, f"{output}/{ascii(path)[1:-1]}", message)


def _file_damage(output: str, content: Path, file: FileEntry) -> OutputDamage | None:
    size = _size(content / file.path)
    if size is None:
        return output_damage(output, "missing_file", file.path, "is missing")
    if size != file.size:
        message = f"has {size} bytes, expected {file.size}"
        return output_damage(output, "changed_file", file.path, message)
    if read_digest(content / file.path).sha256 != file.sha256:
        return output_damage(
            output, "changed_file", file.path, "has another SHA-256 than its manifest"
        )
    return None


def _unexpected(version: Version, content: Path) -> list[OutputDamage]:
    known = {file.path for file in version.manifest.files} | set(version.manifest.links)
    extra = [path for path in walk_files(content) if path not in known] if content.is_dir() else []
    return [
        output_damage(version.output, "unexpected_file", path, "does not belong to the output")
        for path in extra
    ]


def _size(path: Path | str, folder: int | None = None) -> int | None:
    """Bytes of a plain file, None for anything else; `folder` is what the path begins at."""
    try:
        status = os.stat(path, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
