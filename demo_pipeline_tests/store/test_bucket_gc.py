"""Garbage collection in a bucket and its cache, by the bucket's clock."""

import os

import pytest

from demo_pipeline.store.bucket import BucketStore
from demo_pipeline_tests.store.making_outputs import put, seen, write
from demo_pipeline_tests.store.memory_objects import MemoryObjects, keys

DAY = 86_400.0
LATER = 4e9  # epoch seconds, long after any file of these tests


class Clock:
    def __init__(self):
        self.now = LATER

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def objects(clock):
    return MemoryObjects(clock, shuffle=3, page=2)


@pytest.fixture
def store(objects, tmp_path):
    return BucketStore(tmp_path / "cache", objects)


def cached(tmp_path):
    """Outputs and versions in the cache."""
    manifests = (tmp_path / "cache/.versions").rglob("manifest.json")
    return {str(path.parent.relative_to(tmp_path / "cache/.versions")) for path in manifests}


def test_replaced_versions_are_removed_after_the_grace_period_and_not_before(store, objects, clock):
    old = put(store, "sft", {"a": "old"})
    clock.now += 10 * DAY
    put(store, "sft", {"a": "new"})
    assert store.collect(DAY, now=clock.now + DAY) == []
    assert store.collect(DAY, now=clock.now + DAY + 1) == [f"sft@{old.id}"]
    assert seen(store, "sft") == {"a": "new"}
    assert store.collect(DAY, now=clock.now + DAY + 1) == []
    assert not any(old.id in key for key in keys(objects))


def test_an_unpublished_output_is_removed_after_the_grace_period(store, objects, clock):
    version = put(store, "sft", {"a": "old"})
    clock.now += 10 * DAY
    store.remove("sft")
    assert store.collect(DAY, now=clock.now + DAY) == []
    assert store.collect(DAY, now=clock.now + DAY + 1) == [f"sft@{version.id}"]
    assert list(keys(objects)) == []


def test_objects_of_a_dead_upload_are_marked_then_removed_and_those_of_a_slow_upload_stay(
    store, objects, clock
):
    put(store, "sft", {"a": "1"})
    prefix = "versions/sft/0123456789abcdef/content"
    objects.place(f"{prefix}/a", b"", modified=LATER)
    objects.place(f"{prefix}/b", b"", modified=LATER + DAY)
    clock.now = LATER + 2 * DAY
    assert store.collect(DAY, now=clock.now) == []
    assert not any(key.startswith("retired/") for key in keys(objects))
    clock.now += 1
    assert store.collect(DAY, now=clock.now) == []
    assert store.collect(DAY, now=clock.now + DAY) == []
    assert store.collect(DAY, now=clock.now + DAY + 1) == ["sft@0123456789abcdef"]
    assert seen(store, "sft") == {"a": "1"}


def test_an_id_that_looks_like_a_version_is_not_taken_for_one(store, clock):
    put(store, "events/0123456789abcdef", {"a": "kept", "content/a": "", "manifest.json": ""})
    assert store.collect(0, now=clock.now + 1) == []
    assert len(seen(store, "events/0123456789abcdef")) == 3


def test_the_cache_keeps_what_is_current_and_what_it_links(store, objects, clock, tmp_path):
    first = put(store, "trajectories/d1", {"task.json": "first"})
    index = put(store, "dataset", {}, {"trajectories/d1": first})
    put(store, "sft", {"a": "old"})
    elsewhere = BucketStore(tmp_path / "elsewhere", objects)
    second = put(elsewhere, "trajectories/d1", {"task.json": "second"})
    put(elsewhere, "sft", {"a": "new"})
    seen(store, "trajectories/d1")
    linked = {f"dataset/{index.id}", f"trajectories/d1/{first.id}"}
    assert cached(tmp_path) > linked
    assert store.collect(DAY, now=0) == []
    assert len(cached(tmp_path)) == 4
    store.collect(DAY, now=clock.now)
    assert cached(tmp_path) == linked | {f"trajectories/d1/{second.id}"}
    assert seen(store, "sft") == {"a": "new"}


def test_a_cached_version_that_is_read_outlives_its_replacement_by_the_grace_period(
    store, objects, tmp_path
):
    put(store, "sft", {"a": "old"})
    for path in (tmp_path / "cache/.versions/sft").iterdir():
        os.utime(path, (0, 0))
    folder = store.open("sft")[0]
    put(BucketStore(tmp_path / "elsewhere", objects), "sft", {"a": "new"})
    seen(store, "sft")
    retired = (tmp_path / "cache/.versions/sft").stat().st_mtime
    store.collect(DAY, now=retired + 60)
    assert (folder / "a").read_text() == "old"
    store.collect(DAY, now=retired + 2 * DAY)
    assert not folder.exists()
    assert seen(store, "sft") == {"a": "new"}


def test_staging_of_living_processes_stays(store, clock):
    with store.stage("sft") as staging:
        write(staging.path, {"a": "alive"})
        assert store.collect(0, now=clock.now + DAY) == []
        assert (staging.path / "a").read_text() == "alive"
