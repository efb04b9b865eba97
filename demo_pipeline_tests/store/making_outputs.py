"""Small outputs and what readers see of them, for the tests of this folder."""

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
    """Commit `files` (path → text) and links as the current version of `output`."""
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
    """What a reader gets, with links followed."""
    path = store.open(output)[0]
    return contents(path)


def contents(folder: Path) -> dict[str, str]:
    """Path → text of every file, with links followed."""
    texts: dict[str, str] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            texts |= {f"{entry.name}/{path}": text for path, text in contents(entry).items()}
        else:
            texts[entry.name] = entry.read_text()
    return texts


def recorded_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Every `fsync` and `rename` of this process from now on, with its path, in their order."""
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
    """Write other bytes in the place of a version's file (or manifest), or remove it."""
    key = f"versions/{version.path}/{file}"
    if isinstance(store.objects, Bucket):
        store.objects.delete(key) if data is None else store.objects.put(key, data)
    elif data is None:
        Path(store.url, f".{key}").unlink()
    else:
        Path(store.url, f".{key}").write_bytes(data)


def elsewhere(store: Store) -> Store:
    """The store as a machine sees it that has nothing of a bucket in its cache."""
    if not isinstance(store.objects, Bucket):
        return store
    cache = store.objects.cache.root
    return Store(Bucket(store.url, cache.with_name(f"{cache.name}-elsewhere")))


def age(store: Store, days: float = 100.0) -> None:
    """Let everything in a folder, or in the cache of a bucket, be older than it is."""
    place = store.objects
    root = place.cache.root if isinstance(place, Bucket) else Path(place.url)
    for path in root.rglob("*"):
        then = path.lstat().st_mtime - days * 86_400
        os.utime(path, (then, then), follow_symlinks=False)


class Counting(Bucket):
    """A bucket that notes every operation and its key.

    The object `swapped` is replaced by another process just before it is downloaded.
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
        """The keys that were read since the last question."""
        read = [key for method, key in self.calls if method == "get_object"]
        self.calls.clear()
        return read
