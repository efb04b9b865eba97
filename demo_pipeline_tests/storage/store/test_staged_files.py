"""Files of a commit that are not read again, and those that are."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from demo_pipeline.store import folder as disk_module
from demo_pipeline.store import versions
from demo_pipeline.store.errors import ChangedOutput, StorageError
from demo_pipeline.store.folder import Disk
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import (
    FileEntry,
    LinkEntry,
    Recipe,
    Version,
    make_manifest,
)

from demo_pipeline.files.atomic_write import FileDigest, read_digest

Change = Callable[[Path], object]
RECIPE = Recipe("sft", "1", "", {"trajectories": "1"})


def commit_source(store: Store) -> Version:
    with store.stage("trajectories/d1") as staging:
        (staging.path / "picture.png").write_bytes(b"picture")
        os.utime(staging.path / "picture.png", (1, 1))
        return store.commit(staging, Recipe("trajectories", "1", "", {}), {})


def export(store: Store, source: Version, text: str, previous: Version | None = None) -> Version:
    with store.stage("sft") as staging:
        (staging.path / "samples.jsonl").write_text(text)
        place = store._layout.version(source.output, source.id) / "content" / "picture.png"
        os.link(place, staging.path / "picture.png")
        staging.hardlink_sources.append(source.name)
        staging.previous.extend([previous] if previous else [])
        return store.commit(staging, RECIPE, {})


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read for their digest."""
    names: list[str] = []

    def noted(path: Path) -> FileDigest:
        names.append(path.name)
        return read_digest(path)

    monkeypatch.setattr(versions, "read_digest", noted)
    return names


def test_a_hard_link_of_the_version_before_is_not_read(tmp_path: Path, read: list[str]) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    before = export(store, source, "one\n")
    read.clear()
    after = export(store, source, "two\n", before)
    assert read == ["samples.jsonl"]
    assert store.verify("sft") == []
    assert next(iter(after.manifest.files)) == next(iter(before.manifest.files))


def test_a_file_that_was_written_to_since_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    before = export(store, source, "one\n")
    (tmp_path / "store" / "trajectories" / "d1" / "picture.png").write_bytes(b"PICTURE")
    with pytest.raises(ChangedOutput):
        export(store, source, "two\n", before)


def export_folder(
    store: Store, source: Version, *, key: str = "k", change: Change = lambda _: None
) -> Version:
    """Commit a folder of links that is declared; `change` gets the folder before the commit."""
    with store.stage("sft") as staging:
        folder = staging.path / "trajectories" / "d1"
        folder.mkdir(parents=True)
        place = store._layout.version(source.output, source.id) / "content" / "picture.png"
        os.link(place, folder / "picture.png")
        (staging.path / "samples.jsonl").write_text("one")
        os.utime(staging.path, (1000, 1000))  # files that were written in 1970 are old
        staging.hardlink_sources.append(source.name)
        staging.linked.append((key, ["trajectories/d1"]))
        change(folder)
        return store.commit(staging, RECIPE, {})


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are described one by one."""
    paths: list[str] = []
    add = versions._Describer.add

    def noted(self, path, entry):
        paths.append(path)
        return add(self, path, entry)

    monkeypatch.setattr(versions._Describer, "add", noted)
    return paths


def test_a_folder_of_links_is_described_once(tmp_path: Path, described: list[str]) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    described.clear()
    before = export_folder(store, source)
    assert described == ["samples.jsonl", "trajectories/d1/picture.png"]
    described.clear()
    assert export_folder(store, source) == before
    assert described == ["samples.jsonl"]
    export_folder(store, source, key="another")
    assert described[1:] == ["samples.jsonl", "trajectories/d1/picture.png"]
    assert store.verify("sft") == []


@pytest.mark.parametrize("harm", ["removed", "copied", "other size", "folder"])
def test_a_folder_that_is_not_as_before_is_described_anew(
    tmp_path: Path, described: list[str], harm: str
) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    export_folder(store, source)

    def change(folder: Path) -> None:
        picture = folder / "picture.png"
        picture.unlink()
        if harm == "copied":
            picture.write_bytes(b"another")
        elif harm == "other size":
            picture.write_bytes(b"longer picture")
            os.utime(picture, (1, 1))
        elif harm == "folder":
            picture.mkdir()
            (picture / "inside.txt").write_text("text")

    described.clear()
    made = export_folder(store, source, change=change)
    found = [file.path for file in made.manifest.files]
    assert described == found
    assert ("trajectories/d1/picture.png" in found) == (harm in ("copied", "other size"))
    assert store.verify("sft") == []


def test_a_link_in_a_known_folder_that_was_written_to_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    export_folder(store, source)
    (tmp_path / "store" / "trajectories" / "d1" / "picture.png").write_bytes(b"PICTURE")
    with pytest.raises(ChangedOutput):
        export_folder(store, source)


def test_files_that_were_written_just_now_are_not_known(
    tmp_path: Path, described: list[str]
) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    os.utime(tmp_path / "store" / "trajectories" / "d1" / "picture.png", (999, 999))
    for _ in range(2):
        described.clear()
        export_folder(store, source)
        assert described == ["samples.jsonl", "trajectories/d1/picture.png"]


def test_what_is_known_of_folders_may_be_lost(tmp_path: Path, described: list[str]) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    before = export_folder(store, source)
    for part in (tmp_path / "store" / ".parts").glob("*/*"):
        data = bytearray(part.read_bytes())
        data[-1] ^= 1
        part.write_bytes(data)
    described.clear()
    assert export_folder(store, source) == before
    assert len(described) == 2


def test_a_link_in_a_declared_folder_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    source = commit_source(store)
    with pytest.raises(StorageError, match="not a plain file"):
        export_folder(store, source, change=lambda folder: (folder / "x").symlink_to("samples"))


def test_a_large_directory_is_synced_by_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    store = Store(tmp_path / "store", Disk(lambda call, path: calls.append((call, path.name))))
    monkeypatch.setattr(disk_module, "_MANY", 5)
    with store.stage("sft") as staging:
        for number in range(20):
            (staging.path / f"{number}.txt").write_text("text")
        calls.clear()
        store.commit(staging, RECIPE, {})
    synced = [name for call, name in calls if call == "fsync"]
    assert staging.directory.name in synced
    assert not any(name.endswith(".txt") for name in synced)
    assert store.verify("sft") == []


def test_a_manifest_has_the_bytes_of_a_plain_json_dump() -> None:
    manifest = make_manifest(
        "sft",
        RECIPE,
        files=[FileEntry('b/ü"\n.png', 2, "ab" * 32), FileEntry("a.json", 1, "cd" * 32)],
        links={"trajectories/d1": LinkEntry(output="trajectories/d1", version="0" * 16)},
        summary={"files": [], "text": '\n "files": []'},
        checks=(),
    )
    values = manifest.model_dump(mode="json")
    plain = json.dumps(values, sort_keys=True, ensure_ascii=False, indent=1)
    assert manifest.to_bytes() == f"{plain}\n".encode()
    assert type(manifest).model_validate_json(manifest.to_bytes()) == manifest
