"""Folders of hard links that earlier commits have described: their entries in the manifest.

Belongs here: keeping the entries, and when they hold: while every file is there in its size and was
not written to since it was described.
"""

import hashlib
import json
import os
import stat
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from demo_pipeline.storage.store.committed_files import read_after
from demo_pipeline.storage.store.file_table import BETWEEN, FileEntry, sizes_by_path
from demo_pipeline.storage.store.part_folder import PartFolder
from demo_pipeline.storage.store.staging import Staging

_FORM = "linked folders 1"
_KIND = 0o170000  # the bits of a mode that tell a file from a folder


class FolderText(NamedTuple):
    """The entries of a folder's files.

    Attributes:
        text: as in the manifest.
        files: how many.
        size: bytes of the files together.
        folders: how many they are in.
    """

    text: bytes
    files: int
    size: int
    folders: int


@dataclass(slots=True)
class _Group:
    """Folders that are kept together.

    Attributes:
        key: of the part; empty: nothing is kept.
        before: files were described before this time, epoch seconds.
        texts: folder → its entries.
        wanted: how many folders were not asked for yet.
        made: entries that were described anew.
        is_new: some were.
    """

    key: str
    before: float
    texts: dict[str, str]
    wanted: int
    made: dict[str, str] = field(default_factory=dict)
    is_new: bool = False


class LinkedFolders:
    """The declared folders of a staged directory, asked for one after the other.

    Args:
        parts: where entries are kept.
        staging: the directory.

    Attributes:
        paths: of all of them, each with a slash at the end.
    """

    def __init__(self, parts: PartFolder, staging: Staging) -> None:
        self._parts, self._staging = parts, staging
        self.paths = {
            f"{folder}/": number
            for number, (_, folders) in enumerate(staging.linked)
            for folder in folders
        }
        self._open: dict[int, _Group] = {}
        self._read_after = read_after(staging.path)

    def unchanged(self, path: str) -> FolderText | None:
        """The entries of a folder, if they are known and hold; then `describe` is not called."""
        group = self._group(path)
        kept = group.texts.get(path)
        found = self._holds(kept.encode(), group.before) if kept is not None else None
        if kept is None or found is None:
            return None
        self._note(path, kept)
        return found

    def describe(self, path: str, files: Sequence[tuple[FileEntry, float]]) -> None:
        """Keep the entries of a folder for the next commit.

        Args:
            path: of the folder.
            files: its entries, each with the time when the file was written, epoch seconds.
        """
        group = self._group(path)
        group.is_new = True
        if any(written >= self._read_after for _, written in files):
            group.key = ""  # such a file may change within the same tick of the clock
        self._note(path, BETWEEN.decode().join(entry.text for entry, _ in files))

    def _holds(self, text: bytes, before: float) -> FolderText | None:
        top, size = f"{self._staging.path}/", 0
        files = sizes_by_path(text)
        try:
            for path, expected in files:
                status = os.lstat(top + path)
                if (
                    status.st_size != expected
                    or status.st_mtime >= before
                    or status.st_mode & _KIND != stat.S_IFREG
                ):
                    return None
                size += expected
        except OSError:
            return None
        folders = len({path.rpartition("/")[0] for path, _ in files})
        return FolderText(text, len(files), size, folders)

    def _group(self, path: str) -> _Group:
        number = self.paths[path]
        if number not in self._open:
            key, folders = self._staging.linked[number]
            name = hashlib.sha256(json.dumps([_FORM, key]).encode()).hexdigest()
            data = self._parts.read(name)
            before, texts = json.loads(zlib.decompress(data)) if data else (0.0, {})
            self._open[number] = _Group(name, before, texts, len(folders))
        return self._open[number]

    def _note(self, path: str, text: str) -> None:
        number = self.paths[path]
        group = self._open[number]
        group.made[path] = text
        group.wanted -= 1
        if group.wanted:
            return
        if group.is_new and group.key:
            data = json.dumps([self._read_after, group.made]).encode()
            self._parts.write(group.key, zlib.compress(data, 1))
        del self._open[number]
