"""The folder of a store: paths, durable calls, locks, and the parts that builds keep.

Belongs here: what the file system does. What is written is decided by the store.
"""

import errno
import fcntl
import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.files.atomic_write import hidden_name, replace_synced, sync
from demo_pipeline.files.processes import this_process
from demo_pipeline.store.objects import make_folders
from demo_pipeline.store.version_manifest import VERSION_LENGTH

CONTENT, MANIFEST = "content", "manifest.json"
VersionKey = tuple[str, str]
"""Output and version id."""
_VERSIONS = ".versions"
_VERSION = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}")
_DIGEST = 32  # bytes of SHA-256 before the data of a part
_TOUCH_SECONDS = 3600.0
_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Folder:
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

    def content(self, output: str, version: str) -> str:
        """Path of the content of one version, as text, which is quicker to make."""
        return f"{self.root}/{_VERSIONS}/{output}/{version}/{CONTENT}"

    def manifest(self, output: str, version: str) -> str:
        """Path of the manifest of one version, as text."""
        return f"{self.root}/{_VERSIONS}/{output}/{version}/{MANIFEST}"

    def lock(self, name: str) -> Path:
        """The lock file of an output, or of something else that is done by one process."""
        return self.root / ".locks" / f"{name}.lock"

    def draft(self, output: str = "") -> Path:
        """A new name for what is unfinished or about to be removed, with its process's mark."""
        return self.staging / output / f"{hidden_name()}.{this_process().mark}"

    def link_target(self, path: Path, output: str, version: str) -> str:
        """The text of a link at `path`, anywhere below the root, to the content of a version."""
        up = "../" * str(path)[len(str(self.root)) + 1 :].count("/")
        return f"{up}{_VERSIONS}/{output}/{version}/{CONTENT}"

    def published_version(self, output: str) -> str | None:
        """The version that the pointer leads to, even a missing one; None without a pointer."""
        try:
            text = os.readlink(f"{self.root}/{output}")  # noqa: PTH115 - for every trajectory
        except OSError:  # missing, or not a link
            return None
        version = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        target = f"{'../' * output.count('/')}{_VERSIONS}/{output}/{version}/{CONTENT}"
        return version if text == target else None

    def links(self, folder: str) -> Iterator[str]:
        """Paths of the links at or below `folder` (empty: the root), hidden ones left out."""
        pending = [folder] if folder else _visible(self.root, "")
        while pending:
            name = pending.pop()
            if os.path.islink(f"{self.root}/{name}"):  # noqa: PTH114 - for every trajectory
                yield name
            else:
                pending += _visible(self.root, name)

    def unfinished(self) -> list[Path]:
        """Staged directories and drafts, sorted; other folders are parts of outputs' names."""
        found, pending = [], [self.staging]
        while pending:
            for path in children(pending.pop()):
                if path.name.startswith("."):
                    found.append(path)
                elif path.is_dir():
                    pending.append(path)
        return sorted(found)

    def make(self, path: Path) -> None:
        """See `make_folders`."""
        make_folders(path, self.root)

    def discard(self, path: Path) -> Path:
        """Take a folder out of its place in one step; returns where it is to be removed."""
        trash = self.draft()
        self.make(trash.parent)
        replace_synced(path, trash)
        return trash

    @contextmanager
    def locked(self, name: str, *, shared: bool = False) -> Iterator[None]:
        """Wait for a lock, which the end of the process ends, too."""
        path = self.lock(name)
        self.make(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def next_turn(self, name: str) -> int:
        """How often this was called for a name before; from 0."""
        with self.locked(name):
            path = self.lock(name)
            text = path.read_text()
            turn = int(text) if text.isdigit() else 0
            path.write_text(f"{turn + 1}")
        return turn


def children(folder: Path) -> list[Path]:
    """The entries of a folder; none when it is not one."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


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


def walk_files(content: Path, folder: str = "") -> Iterator[str]:
    """The `/`-separated path of every entry under `content` but folders, sorted.

    Of the entries of a folder only names are held: a dataset has many thousand pictures in one.
    """
    with os.scandir(f"{content}/{folder}") as entries:
        # The slash puts a folder where the paths of its files are in the order of all paths.
        names = sorted(
            f"{folder}{entry.name}{'/' if entry.is_dir(follow_symlinks=False) else ''}"
            for entry in entries
        )
    for name in names:
        if name.endswith("/"):
            yield from walk_files(content, name)
        else:
            yield name


def sync_tree(path: Path) -> None:
    """Sync every folder and regular file under `path`, deepest first."""
    for folder, _, files in os.walk(path, topdown=False):
        for name in sorted(files):
            file = Path(folder, name)
            if not file.is_symlink():
                sync(file)
        sync(Path(folder))


def remove_tree(path: Path) -> None:
    """Remove a folder that nobody reads, if it exists."""
    with suppress(FileNotFoundError):  # another process removes it, too
        shutil.rmtree(path)


@contextmanager
def marked_in_use(folder: Path) -> Iterator[None]:
    """Mark a folder as in use while the context is open, even if it is renamed meanwhile."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def is_in_use(folder: Path) -> bool:
    """Whether a living process marked `folder` as in use; True when that is unknown."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        return error.errno != errno.ELOOP  # a link is not in use
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)


class PartFolder:
    """Parts by key: the hex digest of everything that a part depends on.

    The folder may be removed at any time; then the next build makes every part anew.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def read(self, key: str) -> bytes | None:
        """The bytes that were kept under the key; None when they are gone or damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
        except OSError:
            return None
        if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
            return data[_DIGEST:]
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return None

    def has(self, key: str) -> bool:
        """Whether something is kept under the key; it may be damaged."""
        return self._path(key).is_file()

    def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, atomically; not when the folder cannot be written to."""
        path, draft = self._path(key), self._folder.draft()
        try:
            self._folder.make(draft.parent)
            self._folder.make(path.parent)
            # Not synced: a part that a power cut tears is found by its hash.
            draft.write_bytes(hashlib.sha256(data).digest() + data)
            draft.replace(path)
        except OSError as error:
            _LOG.debug("a part is not kept: %s", type(error).__name__)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def collect(self, before: float) -> None:
        """Remove the parts that were last used before a time, epoch seconds."""
        for path in self._folder.parts.glob("*/*"):
            with suppress(FileNotFoundError):  # another process removes it, too
                if path.stat().st_mtime < before:
                    path.unlink()

    @contextmanager
    def one_build(self, name: str) -> Iterator[float]:
        """Wait until no other process of this machine builds `name`; gives the seconds waited."""
        start = time.monotonic()
        with self._folder.locked(f"build.{name}"):
            yield time.monotonic() - start

    def _path(self, key: str) -> Path:
        return self._folder.parts / key[:2] / key
