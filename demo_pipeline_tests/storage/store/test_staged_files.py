"""Files of a commit that are not read again, and those that are."""

import json
import os
from pathlib import Path

import pytest

from demo_pipeline.common.hashing import FileDigest, read_digest
from demo_pipeline.storage.errors import ChangedOutput
from demo_pipeline.storage.store import disk as disk_module
from demo_pipeline.storage.store import staged_files
from demo_pipeline.storage.store.disk import Disk
from demo_pipeline.storage.store.file_table import FileEntry
from demo_pipeline.storage.store.local_store import LocalStore
from demo_pipeline.storage.store.version_manifest import (
    LinkEntry,
    Recipe,
    Version,
    make_manifest,
)

RECIPE = Recipe("sft", "1", "", {"trajectories": "1"})


def commit_source(store: LocalStore) -> Version:
    with store.stage("trajectories/d1") as staging:
        (staging.path / "picture.png").write_bytes(b"picture")
        os.utime(staging.path / "picture.png", (1, 1))
        return store.commit(staging, Recipe("trajectories", "1", "", {}), {})


def export(
    store: LocalStore, source: Version, text: str, previous: Version | None = None
) -> Version:
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

    monkeypatch.setattr(staged_files, "read_digest", noted)
    return names


def test_a_hard_link_of_the_version_before_is_not_read(tmp_path: Path, read: list[str]) -> None:
    store = LocalStore(tmp_path / "store")
    source = commit_source(store)
    before = export(store, source, "one\n")
    read.clear()
    after = export(store, source, "two\n", before)
    assert read == ["samples.jsonl"]
    assert store.verify("sft") == []
    assert next(iter(after.manifest.files)) == next(iter(before.manifest.files))


def test_a_file_that_was_written_to_since_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    source = commit_source(store)
    before = export(store, source, "one\n")
    (tmp_path / "store" / "trajectories" / "d1" / "picture.png").write_bytes(b"PICTURE")
    with pytest.raises(ChangedOutput):
        export(store, source, "two\n", before)


def test_a_large_directory_is_synced_by_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    store = LocalStore(tmp_path / "store", Disk(lambda call, path: calls.append((call, path.name))))
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
