"""Paths under a local store's root, and the rules for names of outputs and documents.

Belongs here: names, paths and the reading of links; nothing here opens or writes a file.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.files.atomic_write import hidden_name
from demo_pipeline.files.processes import this_process
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store.version_manifest import VERSION_LENGTH

CONTENT = "content"
MANIFEST = "manifest.json"
_VERSIONS = ".versions"
VersionKey = tuple[str, str]
"""Output and version id."""
_DOCUMENT_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_VERSION = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Paths under `root` (absolute).

    A staged directory is exactly as deep as the version it becomes, so that a relative link inside
    it is right before and after the version is installed.
    """

    root: Path

    @property
    def versions(self) -> Path:
        """The folder of all versions of all outputs."""
        return self.root / _VERSIONS

    @property
    def staging(self) -> Path:
        """The folder of everything unfinished or about to be removed; its entries are hidden."""
        return self.root / ".staging"

    @property
    def parts(self) -> Path:
        """The folder of parts that builds keep for the next build."""
        return self.root / ".parts"

    def pointer(self, output: str) -> Path:
        """The symbolic link through which readers see the published version."""
        return self.root / output

    def version(self, output: str, version: str) -> Path:
        """The directory of one version: `content/` and `manifest.json`."""
        return self.versions / output / version

    def content_text(self, output: str, version: str) -> str:
        """Path of the content of one version, as text, which is quicker to make."""
        return f"{self.root}/{_VERSIONS}/{output}/{version}/{CONTENT}"

    def manifest_text(self, output: str, version: str) -> str:
        """Path of the manifest of one version, as text."""
        return f"{self.root}/{_VERSIONS}/{output}/{version}/{MANIFEST}"

    def lock(self, output: str) -> Path:
        """The lock file of one output."""
        return self.root / ".locks" / f"{output}.lock"

    def staged(self, output: str) -> Path:
        """A new private directory to build a version in."""
        return self.staging / output / _owned_name()

    def draft(self) -> Path:
        """A new name for a file or folder that is unfinished, or about to be removed."""
        return self.staging / _owned_name()

    def pointer_target(self, output: str, version: str) -> str:
        """The text of the pointer of `output` when `version` is published."""
        return f"{'../' * output.count('/')}{_VERSIONS}/{output}/{version}/{CONTENT}"

    def published_version(self, output: str) -> str | None:
        """The version that the pointer leads to, even a missing one; None without a pointer."""
        try:
            text = os.readlink(f"{self.root}/{output}")  # noqa: PTH115 - for every trajectory
        except OSError:  # missing, or not a link
            return None
        version = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        return version if text == self.pointer_target(output, version) else None

    def other_case(self, output: str) -> str | None:
        """An output that this file system takes for `output`: its name differs only in case."""
        pointer = self.pointer(output)
        if not os.path.lexists(self.root / self.versions.name.upper()):
            return None  # the file system tells upper case from lower case
        if not os.path.lexists(pointer):
            return None
        names = {path.name.lower(): path.name for path in pointer.parent.iterdir()}
        known = names.get(pointer.name.lower(), pointer.name)
        return None if known == pointer.name else f"{output.rpartition('/')[0]}/{known}"

    def link_target(self, path: Path, output: str, version: str) -> str:
        """The text of a link at `path`, in a staged directory or a version, to another version."""
        up = "../" * str(path)[len(str(self.root)) + 1 :].count("/")
        return f"{up}{_VERSIONS}/{output}/{version}/{CONTENT}"

    def links(self, folder: str) -> Iterator[str]:
        """Paths of the links at or below `folder` (empty: the root), hidden ones left out."""
        pending = [folder] if folder else _visible(self.root, "")
        while pending:
            name = pending.pop()
            path = f"{self.root}/{name}"
            if os.path.islink(path):  # noqa: PTH114 - for every trajectory
                yield name
            else:
                pending += _visible(self.root, name)


def owner_of(name: str) -> str:
    """The mark of the process that made a staged directory or a draft with this name."""
    return name.rpartition(".")[2]


def _visible(root: Path, folder: str) -> list[str]:
    """Names below the root of the entries of a folder; none when it is not one."""
    try:
        names = os.listdir(root / folder)  # noqa: PTH208 - for every trajectory
    except (FileNotFoundError, NotADirectoryError):
        return []
    above = f"{folder}/" if folder else ""
    return [f"{above}{name}" for name in names if not name.startswith(".")]


def is_version_id(name: str) -> bool:
    """Whether a directory's name is a version id."""
    return _VERSION.fullmatch(name) is not None


def require_output(output: str) -> None:
    """Refuse a name that no output may have.

    Raises:
        StorageError: a part of it is not a safe id.
    """
    if not all(map(is_safe_id, output.split("/"))):
        raise StorageError(f"{output!r} cannot be the name of an output; join safe ids by `/`")


def is_document(key: str) -> bool:
    """Whether a document may have this key: at least one folder and a name, none of them hidden."""
    parts = key.split("/")
    return len(parts) > 1 and ".." not in key and all(map(_DOCUMENT_PART.fullmatch, parts))


def require_document(key: str) -> None:
    """Refuse a key that no document may have.

    Raises:
        StorageError: a part of it is hidden, too long, has `..` or other characters.
    """
    if not is_document(key):
        raise StorageError(
            f"{key!r} cannot be the key of a document; use e.g. `quarantine/<id>.json`"
        )


def _owned_name() -> str:
    return f"{hidden_name()}.{this_process().mark}"
