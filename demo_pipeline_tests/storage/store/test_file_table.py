"""The files of a version in little memory, and their text in a manifest."""

import hashlib
import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from demo_pipeline.store import versions
from demo_pipeline.store.store import Store, known_versions
from demo_pipeline.store.version_manifest import (
    FileEntry,
    FileTable,
    LinkEntry,
    Manifest,
    Recipe,
    make_manifest,
)

RECIPE = Recipe("sft", "1", "", {"trajectories": "1"})


def entry(number: int) -> FileEntry:
    sha256 = hashlib.sha256(b"%d" % number).hexdigest()
    return FileEntry(f'trajectories/demo_{number:06d}/ü"\\.png', number, sha256)


def manifest_of(files: int) -> Manifest:
    entries = map(entry, range(files))
    return make_manifest("sft", RECIPE, files=entries, links={}, summary={"a": [1]}, checks=())


@pytest.mark.parametrize("count", [0, 1, 1024, 3000])
def test_a_table_holds_its_entries_in_their_order(count: int) -> None:
    table = FileTable.of(map(entry, range(count)))
    assert list(table) == [entry(number) for number in range(count)]
    assert (len(table), table.size) == (count, sum(range(count)))
    assert table == FileTable.of(map(entry, range(count)))
    assert table != FileTable.of(map(entry, range(count + 1)))


def test_many_files_take_little_memory() -> None:
    tracemalloc.start()
    table = FileTable.of(map(entry, range(20_000)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / len(table) < 80


@pytest.mark.parametrize("count", [0, 1, 3000])
@pytest.mark.parametrize("chunk", [7, 1000, 10**9])
def test_a_manifest_is_read_in_chunks_of_any_size(count: int, chunk: int) -> None:
    manifest = manifest_of(count)
    data = manifest.to_bytes()
    chunks = (data[start : start + chunk] for start in range(0, len(data), chunk))
    read = Manifest.of_chunks(chunks) or Manifest.model_validate_json(data)
    assert read == manifest
    assert b"".join(manifest.chunks()) == data


@pytest.mark.parametrize("count", [0, 1, 1200])
def test_a_manifest_with_many_inputs_and_links_has_the_form_of_a_small_one(count: int) -> None:
    numbers = sorted(range(count), key=str, reverse=True)
    inputs = {f'left "\n {number}': f"ü{number}" for number in numbers}
    links = {f"trajectories/{number}": LinkEntry(f"t/{number}", "0" * 16) for number in numbers}
    recipe = replace(RECIPE, inputs=inputs)
    summary: dict[str, Any] = {"files": [], "inputs": {}, "text": '\n "inputs": {}'}
    manifest = make_manifest("index", recipe, files=[], links=links, summary=summary, checks=())
    data = manifest.to_bytes()
    value = json.loads(data)
    assert value["inputs"] == inputs
    assert {path: LinkEntry(**link) for path, link in value["links"].items()} == links
    assert value["summary"] == summary
    form = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1)
    assert data.decode() == f"{form}\n"
    assert Manifest.of_chunks(iter([data])) == manifest == manifest.as_read()


def test_a_manifest_in_another_form_is_read_too(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.stage("sft") as staging:
        (staging.path / "a.txt").write_text("a")
        version = store.commit(staging, RECIPE, {})
    text = json.dumps(json.loads(version.manifest.to_bytes())).encode()
    name = hashlib.sha256(text).hexdigest()[:16]
    place = store._layout.version("sft", name)
    place.mkdir()
    (place / "manifest.json").write_bytes(text)
    loaded = versions.load_version(store._layout, "sft", name)
    assert loaded is not None
    assert loaded.manifest == version.manifest
    (place / "manifest.json").write_bytes(text.replace(b"a.txt", b"b.txt"))
    assert versions.load_version(store._layout, "sft", name) is None


def commit(store: Store, name: str, text: str) -> str:
    with store.stage(f"trajectories/{name}") as staging:
        (staging.path / "task.json").write_text(text)
        version = store.commit(staging, Recipe("trajectories", "1", "", {}), {})
    return version.id


def opened(store: Store) -> dict[str, str]:
    with store.open_all(store.outputs("trajectories")) as versions:
        assert all(Path(folder, "task.json").is_file() for folder, _ in versions)
        return {version.output.rpartition("/")[2]: version.id for _, version in versions}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    for number in range(6):
        commit(made, f"d{number}", f"task {number}")
    return made


def test_known_versions_are_opened_without_their_manifests(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = opened(store)
    read: list[str] = []
    load = versions.load_version

    def noted(layout, output, version):
        read.append(output)
        return load(layout, output, version)

    monkeypatch.setattr(known_versions, "load_version", noted)
    assert opened(store) == before
    assert read == []
    for name, version in before.items():  # as a backup does
        manifest = store._layout.version(f"trajectories/{name}", version) / "manifest.json"
        os.link(manifest, manifest.with_suffix(".copy"))
    assert opened(store) == before
    assert len(read) == len(before)
    read.clear()
    assert opened(store) == before
    assert read == []
    changed = commit(store, "d3", "another task")
    assert opened(store) == {**before, "d3": changed}
    assert "trajectories/d3" in read


@pytest.mark.parametrize("harm", ["cut", "removed", "folder", "manifest"])
def test_damage_of_a_known_version_is_seen(store: Store, harm: str) -> None:
    before = opened(store)
    folder = store._layout.version("trajectories/d2", before["d2"])
    file = folder / ("manifest.json" if harm == "manifest" else "content/task.json")
    data = file.read_bytes()
    os.unlink(file)  # noqa: PTH108
    if harm == "cut":
        file.write_bytes(data[:-1])
    elif harm == "folder":
        file.mkdir()
    elif harm == "manifest":
        file.write_bytes(data.replace(b"task.json", b"tusk.json"))
    assert store.current("trajectories/d2") is None
    with store.open_all(store.outputs("trajectories")) as versions:
        found = {version.output for _, version in versions}
    assert found == {f"trajectories/d{number}" for number in (0, 1, 3, 4, 5)}
