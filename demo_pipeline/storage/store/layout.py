"""Where each thing lies under a local store's root, and how outputs may be named.

Belongs here: names and paths, and the reading of links; nothing here opens or writes a file.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.common.atomic_write import hidden_name
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.ids import is_safe_id
from demo_pipeline.storage.store.version_manifest import VERSION_LENGTH

CONTENT = "content"
MANIFEST = "manifest.json"
_DOCUMENT_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
VersionKey = tuple[str, str]  # output, version id
_VERSION = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Paths under `root` (absolute).

    A staged directory lies exactly as deep as the version it becomes, so that a relative link
    inside it is right before and after it is put in place.
    """

    root: Path

    @property
    def versions(self) -> Path:
        """All versions of all outputs."""
        return self.root / ".versions"

    @property
    def staging(self) -> Path:
        """Everything unfinished or on its way out; names of its entries begin with a dot."""
        return self.root / ".staging"

    def public(self, output: str) -> Path:
        """The link that readers know."""
        return self.root / output

    def version(self, output: str, version: str) -> Path:
        """The directory of one version: `content/` and `manifest.json`."""
        return self.versions / output / version

    def lock(self, output: str) -> Path:
        """The lock file of one output."""
        return self.root / ".locks" / f"{output}.lock"

    def staged(self, output: str) -> Path:
        """A new private directory to build a version in."""
        return self.staging / output / hidden_name()

    def draft(self) -> Path:
        """A new name for a file or folder that is unfinished, or about to be removed."""
        return self.staging / hidden_name()

    def pointer(self, output: str, version: str) -> str:
        """What the public link of `output` says when it points to `version`."""
        target = self.version(output, version) / CONTENT
        return os.path.relpath(target, self.public(output).parent)

    def pointed(self, output: str) -> str | None:
        """The version that the public link points to, whether or not it exists."""
        try:
            text = str(self.public(output).readlink())
        except OSError:  # not there, or not a link
            return None
        version = Path(text).parent.name
        return version if text == self.pointer(output, version) else None

    def link(self, path: Path, output: str, version: str) -> str:
        """What a link at `path`, inside a staged directory or a version, says to lead there."""
        up = "../" * (len(path.relative_to(self.root).parts) - 1)
        return f"{up}{self.version(output, version).relative_to(self.root).as_posix()}/{CONTENT}"

    def links(self, folder: str) -> Iterator[str]:
        """Paths of the links at or below `folder` (empty: the root), hidden ones left out."""
        pending = [self.root / folder] if folder else _visible(self.root)
        while pending:
            path = pending.pop()
            if path.is_symlink():
                yield path.relative_to(self.root).as_posix()
            elif path.is_dir():
                pending += _visible(path)


def _visible(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def is_version_id(name: str) -> bool:
    """Whether a directory's name is that of a version."""
    return _VERSION.fullmatch(name) is not None


def require_output(output: str) -> None:
    """Refuse a name that no output may have.

    Raises:
        StorageError: a part of it is no safe id.
    """
    if not all(map(is_safe_id, output.split("/"))):
        raise StorageError(f"{output!r} is no name of an output; use safe ids joined by `/`")


def is_document(key: str) -> bool:
    """Whether a document may have this key: a folder at least, then a name, none of them hidden."""
    parts = key.split("/")
    return len(parts) > 1 and ".." not in key and all(map(_DOCUMENT_PART.fullmatch, parts))


def require_document(key: str) -> None:
    """Refuse a key that no document may have.

    Raises:
        StorageError: a part of it is hidden, too long, has `..` or other characters.
    """
    if not is_document(key):
        raise StorageError(f"{key!r} is no key of a document; use e.g. `quarantine/<id>.json`")
