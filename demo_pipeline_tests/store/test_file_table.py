"""The files of a version in little memory, and their text in a manifest."""

import hashlib
import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import (
    CheckOutcome,
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
    entries = FileTable(map(entry, range(files)))
    return make_manifest("sft", RECIPE, files=entries, links={}, summary={"a": [1]}, checks=())


@pytest.mark.parametrize("count", [0, 1, 3000])
@pytest.mark.parametrize("chunk", [7, 1000, 10**9])
def test_a_manifest_is_read_in_chunks_of_any_size(count: int, chunk: int) -> None:
    manifest = manifest_of(count)
    data = b"".join(manifest.chunks())
    assert (
        Manifest.of_chunks(data[start : start + chunk] for start in range(0, len(data), chunk))
        == manifest
    )


def test_a_manifest_of_many_files_is_read_and_written_in_little_memory() -> None:
    manifest = manifest_of(30_000)
    data = b"".join(manifest.chunks())
    tracemalloc.start()
    read = Manifest.of_chunks(data[start : start + 2**16] for start in range(0, len(data), 2**16))
    held, most = tracemalloc.get_traced_memory()
    assert held / 30_000 < 160
    assert most - held < 1_500_000
    tracemalloc.reset_peak()
    digest = hashlib.sha256()
    for chunk in read.chunks():
        digest.update(chunk)
    assert tracemalloc.get_traced_memory()[1] - held < 1_500_000
    tracemalloc.stop()
    assert digest.digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("count", [0, 1, 1200])
def test_a_manifest_has_the_bytes_of_a_plain_json_dump(count: int) -> None:
    numbers = sorted(range(count), key=str, reverse=True)
    manifest = make_manifest(
        "sft",
        replace(RECIPE, inputs={f'left "\n {number}': f"ü{number}" for number in numbers}),
        files=FileTable([FileEntry("a.json", 1, "cd" * 32), FileEntry('b/ü"\n.png', 2, "ab" * 32)]),
        links={f"trajectories/{number}": LinkEntry(f"t/{number}", "0" * 16) for number in numbers},
        summary={"files": [], "text": '\n "files": []', "entries": [{"path": "a", "size": 1}]},
        checks=(CheckOutcome("check", passed=True, metadata={"path": "a", "size": 1}),),
    )
    data = b"".join(manifest.chunks())
    values = json.loads(data)
    assert values == {
        **manifest.model_dump(mode="json"),
        "files": [file._asdict() for file in manifest.files],
    }
    plain = json.dumps(values, sort_keys=True, ensure_ascii=False, indent=1)
    assert data == f"{plain}\n".encode()
    assert Manifest.of_chunks(iter([data])) == manifest.as_read()


def commit(store: Store, name: str, text: str, other: str = "other.json") -> str:
    with store.stage(f"trajectories/{name}") as staging:
        (staging.path / "task.json").write_text(text)
        (staging.path / other).write_text("")
        version = store.commit(staging, Recipe("trajectories", "1", "", {}), {})
    return version.id


def opened(store: Store) -> dict[str, str]:
    versions = list(store.open_all(store.outputs("trajectories")))
    assert all(Path(folder, "task.json").is_file() for folder, _ in versions)
    return {version.output.rpartition("/")[2]: version.id for _, version in versions}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    for number in range(6):
        commit(made, f"d{number}", f"task {number}")
    return made


def test_many_versions_are_opened_as_current_finds_each(store: Store) -> None:
    before = opened(store)
    each = [store.current(f"trajectories/d{number}") for number in range(6)]
    assert list(before.values()) == [version.id for version in each if version]
    changed = commit(store, "d3", "another task")
    assert opened(store) == {**before, "d3": changed}
    odd = commit(store, "d4", "task", '"quoted" ü.json')
    assert opened(store) == {**before, "d3": changed, "d4": odd}
    Path(store.url, "trajectories/d2/task.json").unlink()
    whole = {**before, "d3": changed, "d4": odd}
    assert opened(store) == {name: version for name, version in whole.items() if name != "d2"}
