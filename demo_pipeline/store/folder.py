"""The folder of a store, or of a bucket's local cache: paths, durable calls, locks.

Belongs here: what the file system does. What is written is decided by the store.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from demo_pipeline.files.atomic_write import hidden_name, replace_synced, sync
from demo_pipeline.files.processes import has_ended, is_running, this_process
from demo_pipeline.store.objects import make_folders
from demo_pipeline.store.version_manifest import VERSION_LENGTH, Version, read_version

CONTENT, MANIFEST = "content", "manifest.json"
VersionKey = tuple[str, str]
"""Output and version id."""
VERSIONS_FOLDER = ".versions"
_VERSION = re.compile(rf"[0-9a-f]{{{VERSION_LENGTH}}}")


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths under `root` (absolute). Those made for each of many trajectories are plain text.

    A staged directory is exactly as deep as the version it becomes, so that a relative link inside
    it is right before and after the version is installed.
    """

    root: Path

    @property
    def staging(self) -> Path:
        """The folder of everything unfinished or about to be removed; its entries are hidden."""
        return self.root / ".staging"

    def pointer(self, output: str) -> Path:
        """The symbolic link through which readers see the published version."""
        return self.root / output

    def version(self, output: str, version: str) -> Path:
        """The directory of one version: `content/` and `manifest.json`."""
        return self.root / VERSIONS_FOLDER / output / version

    def content(self, output: str, version: str) -> str:
        """Path of the content of one version."""
        return f"{self.root}/{VERSIONS_FOLDER}/{output}/{version}/{CONTENT}"

    def manifest(self, output: str, version: str) -> str:
        """Path of the manifest of one version."""
        return f"{self.root}/{VERSIONS_FOLDER}/{output}/{version}/{MANIFEST}"

    def load(self, output: str, version: str) -> Version | None:
        """The version with this id; None when its manifest is missing or does not match the id."""
        return read_version(self.manifest(output, version), output, version)

    def draft(self, output: str = "") -> Path:
        """A new name for what is unfinished or about to be removed, with its process's mark."""
        draft = self.staging / output / f"{hidden_name()}.{this_process().mark}"
        self.make(draft.parent)
        return draft

    def link_target(self, path: Path | str, output: str, version: str) -> str:
        """The text of a link at `path`, anywhere below the root, to the content of a version."""
        up = "../" * str(path)[len(str(self.root)) + 1 :].count("/")
        return f"{up}{VERSIONS_FOLDER}/{output}/{version}/{CONTENT}"

    def published_version(self, output: str) -> str | None:
        """The version that the pointer leads to, even a missing one; None without a pointer."""
        try:
            text = os.readlink(f"{self.root}/{output}")  # noqa: PTH115 - for every trajectory
        except OSError:  # missing, or not a link
            return None
        version = text.removesuffix(f"/{CONTENT}").rpartition("/")[2]
        target = f"{'../' * output.count('/')}{VERSIONS_FOLDER}/{output}/{version}/{CONTENT}"
        return version if text == target else None

    def published_outputs(self, folder: str) -> set[str]:
        """The outputs with a pointer at or below a folder; empty: all."""
        if folder and self.published_version(folder):
            return {folder}
        found = set[str]()
        for place, folders, files in os.walk(self.root / folder, onerror=_unlisted):
            above = place[len(str(self.root)) + 1 :]
            found |= {f"{above}/{name}".lstrip("/") for name in (*folders, *files)}
            folders[:] = [name for name in folders if name[0] != "."]
        return set(filter(self.published_version, found))

    def versions(self, within: str = "") -> Iterator[VersionKey]:
        """Every version directory below a folder, published or not, complete or not."""
        top = self.root / VERSIONS_FOLDER
        for place, folders, files in os.walk(top / within, onerror=_unlisted):
            above, _, name = place[len(str(top)) + 1 :].rpartition("/")
            if is_version_id(name) and (CONTENT in folders or MANIFEST in files):
                folders.clear()
                yield above, name

    def make(self, path: Path) -> None:
        """See `make_folders`."""
        make_folders(path, self.root)

    def discard(self, path: Path) -> Path:
        """Take a folder out of its place in one step; returns where it is to be removed."""
        trash = self.draft()
        replace_synced(path, trash)
        return trash

    @contextmanager
    def locked(self, name: str, *, shared: bool = False) -> Iterator[int]:
        """Wait for a lock, which the end of the process ends, too; gives its file."""
        path = self.root / ".locks" / f"{name}.lock"
        self.make(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)

    def next_turn(self, name: str) -> int:
        """How often this was called for a name before; from 0."""
        with self.locked(f"turn.{name}") as file:
            text = os.pread(file, 20, 0)
            turn = int(text) if text.isdigit() else 0
            os.pwrite(file, b"%d" % (turn + 1), 0)
        return turn

    def unfinished(self, before: float | None) -> list[Path]:
        """Drafts and staged directories of processes that have ended, sorted.

        With a time only those that were last changed `before` it, then also those of processes of
        which nothing is known.
        """
        found = list[Path]()
        for place, folders, files in os.walk(self.staging, onerror=_unlisted):
            found += [Path(place, name) for name in (*folders, *files) if name[0] == "."]
            folders[:] = [name for name in folders if name[0] != "."]
        marked = ((path, path.name.rpartition(".")[2]) for path in sorted(found))
        if before is None:
            return [path for path, mark in marked if has_ended(mark)]
        return [path for path, mark in marked if is_old(path, before) and not is_running(mark)]

    def remove_unfinished(self, before: float | None) -> list[str]:
        """Remove what is `unfinished`; returns its paths relative to the root."""
        paths = self.unfinished(before)
        for path in paths:
            remove_tree(path)
        return [path.relative_to(self.root).as_posix() for path in paths]


def is_version_id(name: str) -> bool:
    """Whether a directory's name is a version id."""
    return _VERSION.fullmatch(name) is not None


def is_old(path: Path, before: float) -> bool:
    """Whether something was last changed before a time; not when another process removes it."""
    try:
        return path.lstat().st_mtime < before
    except FileNotFoundError:
        return False


def _unlisted(error: OSError) -> None:
    """Let no folder pass for an empty one: what it holds would be rebuilt, or collected."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def walk_files(content: Path | str, folder: str = "") -> Iterator[str]:
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
        for file in (Path(folder, name) for name in sorted(files)):
            if not file.is_symlink():
                sync(file)
        sync(Path(folder))


def remove_tree(path: Path) -> None:
    """Remove a file, a link, or a folder that nobody reads, if it exists."""
    with suppress(FileNotFoundError):  # another process removes it, too
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
