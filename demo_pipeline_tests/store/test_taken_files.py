"""Tests that files taken over from another output are linked in a folder and not hashed again."""

import os

import pytest

from demo_pipeline.files.atomic_write import link_or_copy
from demo_pipeline.store.errors import ChangedOutput
from demo_pipeline.store.folder import Folder
from demo_pipeline.store.store import Store
from demo_pipeline.store.versions import Version
from demo_pipeline_tests.store.making_outputs import elsewhere, put, recipe, recorded_calls, write

FILES = {"a.txt": "alpha", "deep/b.txt": "beta"}


def take(store: Store, source: Version) -> Version:
    """Commits an output with a file of its own and a file of the version `source`."""
    folder = store.open_version(source)
    with store.stage("steps/d1") as staging:
        staging.hardlink_sources.append(source.name)
        write(staging.path, {"own.txt": "own"})
        link_or_copy(folder / "a.txt", staging.path / "taken.txt")
        return store.commit(staging, recipe(), {})


def test_a_taken_file_is_a_link_that_is_neither_read_nor_synced_again(tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    source = put(store, "trees/d1", FILES)
    calls = recorded_calls(monkeypatch)
    version = take(store, source)
    assert {path.name for call, path in calls if call == "fsync"} >= {"own.txt", "manifest.json"}
    assert "taken.txt" not in {path.name for _, path in calls}
    taken = tmp_path / "store/steps/d1/taken.txt"
    assert taken.stat().st_ino == (tmp_path / "store/trees/d1/a.txt").stat().st_ino
    assert store.verify("steps/d1") == []
    assert [file.size for file in version.manifest.files] == [3, 5]


def test_damage_of_a_taken_file_is_named_in_every_output_that_holds_it(either):
    source = put(either, "trees/d1", FILES)
    folder = either.open_version(source)
    (folder / "a.txt").write_text("alphA")  # in the folder, or in the cache of the bucket
    version = take(either, source)
    put(either, "dataset", {}, {"steps/d1": version})
    other = elsewhere(either)
    problems = other.verify("steps/d1") + other.verify("dataset")
    files = {problem.file for problem in problems}
    assert files == {"steps/d1/taken.txt", "dataset/steps/d1/taken.txt"}
    put(either, "steps/d1", {"own.txt": "own", "taken.txt": "alpha"})
    assert other.verify("steps/d1") == []


def test_another_size_is_refused_at_once(either):
    source = put(either, "trees/d1", FILES)
    (either.open_version(source) / "a.txt").write_text("alph")
    if isinstance(either.objects, Folder):
        assert either.current("trees/d1") is None
        with pytest.raises(ChangedOutput, match=r"trees/d1/a\.txt was changed"):
            take(either, source)
    assert either.current("steps/d1") is None


def test_two_names_of_one_new_file_are_both_described(tmp_path):
    store = Store(tmp_path)
    with store.stage("trees/d1") as staging:
        (staging.path / "1.json").write_text("{}")
        os.link(staging.path / "1.json", staging.path / "2.json")
        version = store.commit(staging, recipe(), {})
    assert len({file.sha256 for file in version.manifest.files}) == 1
