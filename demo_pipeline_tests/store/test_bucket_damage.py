"""Damage in a bucket or its cache is never served, is reported, and is repaired by a new commit."""

import pytest

from demo_pipeline.runs.export import export_datasets
from demo_pipeline.store.errors import MissingOutput
from demo_pipeline.store.store import Store
from demo_pipeline_tests.store.faulty import Fault, FaultyObjects
from demo_pipeline_tests.store.making_outputs import contents, put, seen
from demo_pipeline_tests.store.memory_objects import MemoryObjects

FILES = {"a.txt": "alpha", "deep/b.txt": "beta"}
OUTPUT = "events/d1"


@pytest.fixture
def objects():
    return MemoryObjects(shuffle=7, page=3)


@pytest.fixture
def store(objects, tmp_path):
    return Store(tmp_path / "cache", objects)


@pytest.fixture
def machines(tmp_path):
    """Another machine each time: a store over the same bucket with an empty cache."""
    count = iter(range(1000))
    return lambda objects: Store(tmp_path / f"machine-{next(count)}", objects)


def file_key(version, path):
    return f"versions/{version.output}/{version.id}/content/{path}"


@pytest.mark.parametrize("damage", ["missing", "short", "manifest", "all", "link"])
def test_a_damaged_cache_is_fetched_again(store, tmp_path, damage):
    linked = put(store, "trajectories/d1", {"task.json": "{}"})
    version = put(store, OUTPUT, FILES, {"d1": linked})
    folder = tmp_path / "cache/.versions" / OUTPUT / version.id
    wanted = seen(store, OUTPUT)
    if damage == "missing":
        (folder / "content/deep/b.txt").unlink()
    elif damage == "short":
        (folder / "content/deep/b.txt").write_text("bet")
    elif damage == "manifest":
        (folder / "manifest.json").write_text("{")
    elif damage == "link":
        (tmp_path / "cache/.versions/trajectories/d1" / linked.id / "content/task.json").unlink()
    else:
        folder.rename(tmp_path / "elsewhere")
    assert store.current(OUTPUT) == version
    assert seen(store, OUTPUT) == wanted


def test_a_torn_manifest_in_the_cache_is_read_again(objects, store, machines, tmp_path):
    version = put(store, OUTPUT, FILES)
    reader = machines(objects)
    assert reader.current(OUTPUT) == version
    (torn,) = (tmp_path / "machine-0/.versions").rglob("*.json")
    torn.write_text("{")
    assert reader.current(OUTPUT) == version


@pytest.mark.parametrize("path", ["deep/b.txt", "../manifest.json"])
@pytest.mark.parametrize("bytes_there", [None, b"bet", b"ateb"])
def test_damage_in_the_bucket_is_never_served_and_a_new_commit_repairs_it(
    objects, store, machines, path, bytes_there
):
    version = put(store, OUTPUT, FILES)
    reader = machines(objects)
    key = file_key(version, path).replace("content/../", "")
    before = objects.stored[key].data
    objects.delete(key) if bytes_there is None else objects.place(key, bytes_there)
    with pytest.raises(MissingOutput, match=OUTPUT):
        seen(reader, OUTPUT)
    assert reader.current(OUTPUT) is None
    assert reader.verify(OUTPUT)
    assert put(machines(objects), OUTPUT, FILES) == version
    assert objects.stored[key].data == before
    assert seen(reader, OUTPUT) == FILES
    assert reader.verify(OUTPUT) == []


def test_damage_behind_a_link_names_the_damaged_output(objects, store, machines):
    trajectory = put(store, "trajectories/d1", {"task.json": "one"})
    put(store, "dataset", {}, {"trajectories/d1": trajectory})
    objects.place(file_key(trajectory, "task.json"), b"eno")
    reader = machines(objects)
    with pytest.raises(MissingOutput, match=r"^trajectories/d1: "):
        seen(reader, "dataset")
    damages = [(found.output, found.file) for found in reader.verify("dataset")]
    assert damages == [("trajectories/d1", "trajectories/d1/task.json")]
    put(store, "trajectories/d1", {"task.json": "one"})
    assert seen(reader, "dataset") == {"trajectories/d1/task.json": "one"}
    objects.delete(f"versions/trajectories/d1/{trajectory.id}/manifest.json")
    assert [found.code for found in reader.verify("dataset")] == ["broken_link"]


def test_verifying_reads_the_bucket_and_not_the_cache(objects, store):
    version = put(store, OUTPUT, FILES)
    objects.place(file_key(version, "a.txt"), b"alphA")
    objects.place(file_key(version, "new.txt"), b"")
    objects.delete(file_key(version, "deep/b.txt"))
    assert [(found.code, found.file) for found in store.verify(OUTPUT)] == [
        ("changed_file", "events/d1/a.txt"),
        ("missing_file", "events/d1/deep/b.txt"),
        ("unexpected_file", "events/d1/new.txt"),
    ]
    assert store.current(OUTPUT) is None
    objects.delete(file_key(version, "new.txt"))
    put(store, OUTPUT, FILES)
    assert store.verify(OUTPUT) == []


def test_an_export_never_copies_a_changed_cache(store, tmp_path):
    version = put(store, "sft", FILES)
    (tmp_path / "cache/.versions/sft" / version.id / "content/a.txt").write_text("alphA")
    export_datasets(store, tmp_path / "out")
    assert contents(tmp_path / "out/sft") == FILES


@pytest.mark.parametrize("fault", [Fault(1, "cut"), Fault(2, "cut")])
def test_a_torn_download_is_noticed_and_tried_again(objects, store, machines, fault):
    put(store, OUTPUT, FILES)
    reader = machines(FaultyObjects(objects, fault, methods=frozenset({"fetch"})))
    assert seen(reader, OUTPUT) == FILES


def test_an_object_swapped_between_listing_and_reading_is_noticed(objects, store, machines):
    put(store, OUTPUT, FILES)
    swapped = Fault(1, "swap", swapped=b"ahpla")
    reader = machines(FaultyObjects(objects, swapped, methods=frozenset({"fetch"})))
    with pytest.raises(MissingOutput):
        seen(reader, OUTPUT)


def test_an_invalid_pointer_is_ignored_and_the_next_commit_replaces_it(objects, store):
    for nonsense in (b"", b"\xff\xfe", b"../../etc/passwd", b"0" * 16 + b"x"):
        objects.place("pointers/sft", nonsense)
        assert store.current("sft") is None
        assert [found.code for found in store.verify("sft")] == ["missing_output"]
        put(store, "sft", FILES)
        assert seen(store, "sft") == FILES
