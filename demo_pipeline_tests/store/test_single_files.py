"""Reading a few files of a large output: a bucket downloads no others."""

import os

import pytest

from demo_pipeline.store.bucket import BucketStore
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline_tests.store.faulty import FaultyObjects
from demo_pipeline_tests.store.making_outputs import contents, put
from demo_pipeline_tests.store.memory_objects import MemoryObjects

FILES = {"a.parquet": "alpha", "deep/b.png": "picture", "deep/c.parquet": "gamma"}


@pytest.fixture
def objects():
    return MemoryObjects(shuffle=3)


@pytest.fixture
def version(objects, tmp_path):
    writer = BucketStore(tmp_path / "writer", objects)
    linked = put(writer, "trajectories/d1", {"screenshot.png": "picture"})
    return put(writer, "dataset", FILES, {"d1": linked})


@pytest.fixture
def fetching(objects):
    """The bucket, with every download noted."""
    return FaultyObjects(objects, methods=frozenset({"fetch"}))


@pytest.fixture
def reader(fetching, tmp_path):
    return BucketStore(tmp_path / "cache", fetching)


def read(store, pattern):
    folder, version = store.open("dataset", pattern)
    return contents(folder), version


def test_both_kinds_of_store_give_the_files_and_their_version(either):
    version = put(either, "dataset", FILES)
    seen, of_version = read(either, "a.parquet")
    assert of_version == version
    assert seen["a.parquet"] == "alpha"
    with pytest.raises(MissingOutput):
        either.open("sft", "*")


def test_only_what_matches_is_downloaded_and_only_once(version, reader, fetching):
    assert read(reader, "*.parquet") == ({"a.parquet": "alpha", "deep/c.parquet": "gamma"}, version)
    assert len(fetching.calls) == 2
    assert read(reader, "a.parquet")[0]["a.parquet"] == "alpha"
    assert len(fetching.calls) == 2


@pytest.mark.usefixtures("version")
def test_an_open_version_is_not_downloaded_again(reader, fetching):
    reader.open("dataset")
    fetching.calls.clear()
    assert read(reader, "a.parquet")[0]["a.parquet"] == "alpha"
    assert fetching.calls == []


@pytest.mark.parametrize("damage", ["changed", "deleted"])
def test_a_damaged_object_is_never_handed_out(version, reader, objects, damage):
    key = f"versions/dataset/{version.id}/content/a.parquet"
    if damage == "changed":
        objects.put(key, b"ALPHA")
    else:
        objects.delete(key)
    with pytest.raises(MissingOutput):
        read(reader, "a.parquet")
    assert reader.current("dataset") is None


@pytest.mark.usefixtures("version")
def test_a_short_file_in_the_cache_is_downloaded_again(reader, tmp_path):
    read(reader, "a.parquet")
    [file] = (tmp_path / "cache").rglob("a.parquet")
    file.write_text("alp")
    assert read(reader, "a.parquet")[0]["a.parquet"] == "alpha"


@pytest.mark.usefixtures("version")
def test_a_changed_file_in_the_cache_is_forgotten_by_a_verification(reader, tmp_path):
    read(reader, "a.parquet")
    [file] = (tmp_path / "cache").rglob("a.parquet")
    file.write_text("ALPHA")
    assert reader.verify("dataset") == []
    assert read(reader, "a.parquet")[0]["a.parquet"] == "alpha"


def test_the_files_of_a_version_that_was_not_read_for_long_are_collected(reader, version, tmp_path):
    read(reader, "*.parquet")
    folder = tmp_path / "cache/.versions/dataset" / version.id
    reader.collect(3600, folder.stat().st_mtime + 1)
    assert read(reader, "a.parquet")[0]["a.parquet"] == "alpha"
    os.utime(folder, (1000, 1000))
    read(reader, "a.parquet")
    reader.collect(3600, folder.stat().st_mtime + 1)
    assert folder.exists()
    os.utime(folder, (1000, 1000))
    reader.collect(3600, 10_000)
    assert not folder.exists()
    assert read(reader, "a.parquet")[0] == {"a.parquet": "alpha"}
