"""Files of a commit that are not read again, and those that are."""

import os
from pathlib import Path

import pytest

from demo_pipeline.store import store as store_module
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline.store.store import Store
from demo_pipeline.store.version_manifest import Recipe, Version
from demo_pipeline.store.versions import TURNS
from demo_pipeline_tests.store.making_outputs import recorded_calls

RECIPE = Recipe("sft", "1", "", {"trajectories": "1"})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def picture(store: Store, version: Version) -> Path:
    return Path(store._folder.content(version.output, version.id)) / "picture.png"


def commit_sources(store: Store, count: int) -> list[Version]:
    made = []
    for number in range(count):
        with store.stage(f"trajectories/d{number}") as staging:
            (staging.path / "picture.png").write_bytes(f"picture {number}".encode())
            os.utime(staging.path / "picture.png", (1, 1))
            made.append(store.commit(staging, Recipe("trajectories", "1", "", {}), {}))
    return made


def export(store: Store, sources: list[Version], text: str) -> Version:
    with store.stage("sft") as staging:
        (staging.path / "samples.jsonl").write_text(text)
        for number, source in enumerate(sources):
            os.link(picture(store, source), staging.path / f"{number}.png")
        staging.hardlink_sources.extend(source.name for source in sources)
        return store.commit(staging, RECIPE, {})


def rot(path: Path) -> None:
    """Change a byte as a bad disk does: no time changes."""
    times = path.stat()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_the_linked_files_of_few_versions_are_compared_in_every_build(store: Store) -> None:
    sources = commit_sources(store, 3)
    before = export(store, sources, "one\n")
    rot(picture(store, sources[1]))
    with pytest.raises(ChangedOutput, match=r"trajectories/d1/picture\.png was changed"):
        export(store, sources, "two\n")
    assert store.current("sft") == before


@pytest.mark.parametrize("rotten", [0, 7, 39])
def test_a_rotten_picture_among_many_is_found_within_the_stated_number_of_builds(
    store: Store, rotten: int
) -> None:
    sources = commit_sources(store, 40)
    rot(picture(store, sources[rotten]))
    found = []
    for build in range(TURNS):
        try:
            export(store, sources, f"{build}\n")
        except ChangedOutput as error:
            found.append(error.output)
    assert found == [f"trajectories/d{rotten}"]


def test_a_file_of_many_that_was_written_to_since_is_found_at_once(store: Store) -> None:
    sources = commit_sources(store, 40)
    for source in sources[::5]:
        picture(store, source).write_bytes(b"PICTURE")
        with pytest.raises(ChangedOutput, match=f"{source.output}/"):
            export(store, sources, "one\n")
        picture(store, source).write_bytes(b"picture " + source.output[14:].encode())
    assert export(store, sources, "one\n") == store.current("sft")


def test_a_large_directory_is_synced_by_one_call(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_MANY", 5)
    whole: list[Path] = []

    def sync_whole(path: Path) -> bool:
        whole.append(path)
        return True

    monkeypatch.setattr(store_module, "sync_file_system", sync_whole)
    with store.stage("sft") as staging:
        for number in range(20):
            (staging.path / f"{number}.txt").write_text("text")
        calls = recorded_calls(monkeypatch)
        store.commit(staging, RECIPE, {})
    assert whole == [staging.directory]
    assert not any(path.name.endswith(".txt") for call, path in calls if call == "fsync")
    assert store.verify("sft") == []
