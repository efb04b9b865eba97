"""Tests which files `prune` removes from a store in a folder and in a bucket."""

import errno
import os
from pathlib import Path

import pytest

from demo_pipeline.store.bucket import Bucket
from demo_pipeline.store.store import Store, open_store
from demo_pipeline_tests.store.making_outputs import age, put, recipe, seen, write

DAY = 86_400.0
ALL = -5.0  # grace period in seconds with which `prune` also removes versions made just now


def test_replaced_versions_go_after_the_grace_period_and_not_before(either):
    old = put(either, "sft", {"a": "old"})
    put(either, "sft", {"a": "new"})
    assert either.prune(DAY) == []
    assert either.prune(ALL) == [f"sft@{old.id}"]
    assert seen(either, "sft") == {"a": "new"}
    assert either.prune(ALL) == []


@pytest.mark.parametrize("again", [True, False])
def test_the_grace_period_begins_when_a_version_is_superseded(tmp_path, again):
    store = Store(tmp_path)
    put(store, "sft", {"a": "old"})
    age(store)
    path = store.open("sft")[0]
    if again:
        put(store, "sft", {"a": "new"})
    else:
        assert store.remove("sft")
    assert store.prune(DAY) == []
    assert (path / "a").read_text() == "old"


def test_what_a_needed_version_links_stays_through_any_number_of_links(either):
    first = put(either, "trajectories/d1", {"task.json": "first"})
    index = put(either, "dataset", {}, {"trajectories/d1": first})
    put(either, "datasets/all", {}, {"dataset": index})
    second = put(either, "trajectories/d1", {"task.json": "second"})
    put(either, "dataset", {}, {"trajectories/d1": second})
    put(either, "trajectories/d1", {"task.json": "third"})
    assert either.prune(ALL) == []
    assert seen(either, "datasets/all")["dataset/trajectories/d1/task.json"] == "first"
    either.remove("datasets/all")
    gone = {name.partition("@")[0] for name in either.prune(ALL)}
    assert gone == {"datasets/all", "dataset", "trajectories/d1"}
    assert seen(either, "dataset") == {"trajectories/d1/task.json": "second"}


def test_of_equal_versions_only_the_linked_one_stays(either):
    """Each `run --force` publishes the same bytes in another folder."""
    for _ in range(3):
        version = put(either, "trajectories/d1", {"task.json": "same"})
    put(either, "dataset", {}, {"trajectories/d1": version})
    either.prune(ALL)
    assert [left.place for _, left in either.versions("trajectories")] == [version.place]
    assert seen(either, "dataset") == {"trajectories/d1/task.json": "same"}


def test_a_version_in_its_grace_period_keeps_what_it_links(tmp_path):
    store = Store(tmp_path)
    first = put(store, "trajectories/d1", {"task.json": "first"})
    index = put(store, "dataset", {}, {"trajectories/d1": first})
    put(store, "trajectories/d1", {"task.json": "second"})
    put(store, "dataset", {"index.json": "[]"})
    age(store)
    os.utime(tmp_path / ".versions" / index.path)
    assert store.prune(DAY) == []
    age(store)
    assert store.prune(DAY) == [f"dataset@{index.id}", f"trajectories/d1@{first.id}"]


@pytest.mark.parametrize("folder", [".versions/sft", "trajectories"])
def test_a_folder_that_cannot_be_listed_does_not_pass_for_an_empty_one(
    tmp_path, monkeypatch, folder
):
    store = Store(tmp_path)
    scanned = os.scandir
    put(store, "trajectories/one", {"a": "1"})
    put(store, "sft", {"a": "old"})

    def refusing(place):
        if str(place) == f"{tmp_path}/{folder}":
            raise PermissionError(place)
        return scanned(place)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        list(store.versions()) if folder[0] == "." else store.outputs()


def test_drafts_of_dead_processes_are_removed_and_of_living_ones_kept(tmp_path):
    store = Store(tmp_path)
    with store.stage("events/d1") as staging:
        write(staging.path, {"a": "alive"})
        dead = staging.directory.with_name(".dead")
        dead.mkdir()
        assert store.local.abandoned() == [".staging/events/d1/.dead"]
        assert store.local.is_building("events/d1")
        assert store.prune(DAY) == [".staging/events/d1/.dead"]
        store.commit(staging, recipe(), {})
    assert seen(store, "events/d1") == {"a": "alive"}
    assert not store.local.is_building("events/d1")
    assert list((tmp_path / ".staging").iterdir()) == []


def test_an_id_that_looks_like_a_version_is_not_taken_for_one(either):
    name = "events/0123456789abcdef-01234567"
    put(either, name, {"a": "kept"})
    assert either.prune(ALL) == []
    assert seen(either, name) == {"a": "kept"}


def test_prune_frees_space_on_a_full_disk(tmp_path, monkeypatch):
    store = Store(tmp_path)
    put(store, "sft", {"a": "old"})
    put(store, "sft", {"a": "new"})

    def full(*_args, **_named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for name in ("mkdir", "symlink", "link", "rename", "replace"):
        monkeypatch.setattr(os, name, full)
    for name in ("mkdir", "symlink_to", "hardlink_to", "rename", "replace", "touch", "write_bytes"):
        monkeypatch.setattr(Path, name, full)
    assert len(store.prune(ALL)) == 1
    assert len(list((tmp_path / ".versions/sft").iterdir())) == 1


def test_a_store_under_a_longer_prefix_is_left_alone(moto_url, tmp_path):
    outer = open_store(moto_url, tmp_path / "outer")
    inner = open_store(f"{moto_url}/versions", tmp_path / "inner")
    put(inner, "events/d1", {"a": "theirs"})
    put(outer, "events/d1", {"a": "old"})
    put(outer, "events/d1", {"a": "new"})
    assert len(outer.prune(ALL)) == 1
    assert open_store(f"{moto_url}/versions", tmp_path / "fresh").open("events/d1")
    assert inner.verify("events/d1") == []


def test_abandoned_multipart_uploads_are_aborted(moto_url, tmp_path):
    bucket = Bucket(f"{moto_url}/pre", tmp_path)
    place = f"versions/events/d1/{'0' * 16}-{'1' * 8}/content/a.bin"
    for key in (place, "mine/large.bin"):
        bucket.call("create_multipart_upload", key)
    Store(bucket).prune(DAY)  # in moto, every multipart upload was started years ago
    left = [pending["Key"] for pending in bucket.call("list_multipart_uploads")["Uploads"]]
    assert left == ["pre/mine/large.bin"]


def test_the_cache_drops_versions_that_the_bucket_no_longer_has(moto_url, tmp_path):
    store = open_store(moto_url, tmp_path)
    old = put(store, "sft", {"a": "old"})
    put(store, "sft", {"a": "new"})
    other = open_store(moto_url, tmp_path / "other")
    assert other.prune(ALL) == [f"sft@{old.id}"]
    assert list(tmp_path.glob(f"store-*/.versions/{old.path}"))
    assert store.prune(ALL) == []
    assert not list(tmp_path.glob(f"store-*/.versions/{old.path}"))
    assert seen(store, "sft") == {"a": "new"}
