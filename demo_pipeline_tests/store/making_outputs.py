"""Makes, reads and damages small outputs, for the tests of this folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Recipe, Version

Files = Mapping[str, str]


def recipe(code_version: str = "1", **inputs: str) -> Recipe:
    return Recipe("events", code_version, "settings", inputs)


def put(store: Store, output: str, files: Files, links: Mapping[str, Version] | None = None):
    """Commits `files` (path → text) and links as the current version of `output`."""
    with store.stage(output) as staging:
        write(staging.path, files)
        for path, version in (links or {}).items():
            staging.link(path, version)
        return store.commit(staging, recipe(), {"files": len(files)})


def write(folder: Path, files: Files) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def seen(store: Store, output: str) -> dict[str, str]:
    """Returns path → text of every file that a reader of an output gets, with links followed."""
    path = store.open(output)[0]
    return contents(path)


def contents(folder: Path) -> dict[str, str]:
    """Returns path → text of every file in a folder, with links followed."""
    texts: dict[str, str] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            texts |= {f"{entry.name}/{path}": text for path, text in contents(entry).items()}
        else:
            texts[entry.name] = entry.read_text()
    return texts


def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Returns a list that records every later `fsync` and `rename` with its path, in order."""
    calls: list[tuple[str, Path]] = []
    fsync = os.fsync
    replace = Path.replace
    rename = Path.rename

    def synced(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        calls.append(("fsync", Path(f"/proc/self/fd/{number}").readlink()))
        fsync(descriptor)

    def replaced(self: Path, target: Path) -> Path:
        calls.append(("rename", target))
        return replace(self, target)

    def renamed(self: Path, target: Path) -> Path:
        calls.append(("rename", target))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(Path, "rename", renamed)
    return calls


def spoil(store: Store, version: Version, file: str, data: bytes | None) -> None:
    """Replaces a file of a version, or its manifest, by `data`; None removes the file."""
    key = f"versions/{version.path}/{file}"
    if isinstance(store.objects, Bucket):
        if data is None:
            store.objects.delete(key)
        else:
            store.objects.put(key, data)
    elif data is None:
        Path(store.url, f".{key}").unlink()
    else:
        Path(store.url, f".{key}").write_bytes(data)


def elsewhere(store: Store) -> Store:
    """Returns the same store with an empty cache, as on another machine.

    A store in a folder has no cache and is returned unchanged.
    """
    if not isinstance(store.objects, Bucket):
        return store
    cache = store.objects.cache.root
    return Store(Bucket(store.url, cache.with_name(f"{cache.name}-elsewhere")))


def age(store: Store, days: float = 100.0) -> None:
    """Makes all files of a store in a folder, or of the cache of a bucket, `days` older."""
    place = store.objects
    root = place.cache.root if isinstance(place, Bucket) else Path(place.url)
    for path in root.rglob("*"):
        then = path.lstat().st_mtime - days * 86_400
        os.utime(path, (then, then), follow_symlinks=False)


class Counting(Bucket):
    """A bucket that records every operation and its key.

    Just before the object with the key `swapped` is downloaded, its content is replaced, as if by
    another process.
    """

    swapped = ""

    def __init__(self, url: str, cache: Path) -> None:
        super().__init__(url, cache)
        self.calls: list[tuple[str, str]] = []

    def call(self, method: str, key: str = "", **arguments: Any) -> Any:
        self.calls.append((method, key))
        return super().call(method, key, **arguments)

    def fetch(self, key: str, etag: str, dest: Path) -> None:
        if key == self.swapped:
            self.put(key, b"foreign bytes")
        super().fetch(key, etag, dest)

    def downloads(self) -> list[str]:
        """Returns the keys of the objects that were read since the last call."""
        read = [key for method, key in self.calls if method == "get_object"]
        self.calls.clear()
        return read
