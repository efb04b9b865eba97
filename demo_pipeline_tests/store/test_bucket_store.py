"""The store in a bucket, read by machines with an empty cache.

Damage in the bucket or its cache is never served, is reported, and is repaired by a new commit.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.runs.export import export_datasets
from demo_pipeline.store.bucket import BucketStore
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline.store.store import Store, open_store
from demo_pipeline_tests.store.faulty import Fault, FaultyObjects
from demo_pipeline_tests.store.making_outputs import contents, put, recipe, seen, write
from demo_pipeline_tests.store.memory_objects import MemoryObjects, keys

FILES = {"a.txt": "alpha", "deep/b.txt": "beta"}
OUTPUT = "events/d1"


@pytest.fixture
def objects():
    return MemoryObjects(shuffle=7, page=3)


@pytest.fixture
def store(objects, tmp_path):
    return BucketStore(tmp_path / "cache", objects)


@pytest.fixture
def machines(tmp_path):
    """Another machine each time: a store over the same bucket with an empty cache."""
    count = iter(range(1000))
    return lambda objects: BucketStore(tmp_path / f"machine-{next(count)}", objects)


def file_key(version, path):
    return f"versions/{version.output}/{version.id}/content/{path}"


def test_objects_are_the_bytes_that_a_local_store_has(objects, store, tmp_path):
    here = put(Store(tmp_path / "local"), OUTPUT, FILES)
    there = put(store, OUTPUT, FILES)
    assert there == here
    folder = tmp_path / "local/.versions" / OUTPUT / here.id
    local = {str(path.relative_to(folder)): path.read_bytes() for path in files_of(folder)}
    prefix = f"versions/{OUTPUT}/{here.id}/"
    assert {
        key.removeprefix(prefix): each.data
        for key, each in objects.stored.items()
        if key.startswith(prefix)
    } == local
    assert objects.stored[f"pointers/{OUTPUT}"].data == f"{here.id}\n".encode()
    assert len(objects.stored) == len(local) + 1


@settings(max_examples=10, deadline=None)
@given(
    st.dictionaries(
        st.lists(st.sampled_from("abc").map("dir-{}".format), max_size=2).map("/".join),
        st.text("aü\n", max_size=8),
        max_size=4,
    )
)
def test_another_machine_reads_what_was_committed(tmp_path_factory, folders):
    tmp_path, objects = tmp_path_factory.mktemp("any"), MemoryObjects(shuffle=1, page=2)
    files = {f"{folder}/file ü".lstrip("/"): text for folder, text in folders.items()}
    version = put(BucketStore(tmp_path / "a", objects), OUTPUT, files)
    reader = BucketStore(tmp_path / "b", objects)
    assert seen(reader, OUTPUT) == files
    assert reader.current(OUTPUT) == version
    assert reader.verify(OUTPUT) == []


def test_another_machine_sees_the_new_version_at_once(objects, store, machines):
    reader = machines(objects)
    put(store, "sft", {"a": "1"})
    assert seen(reader, "sft") == {"a": "1"}
    put(store, "sft", {"a": "2"})
    assert seen(reader, "sft") == {"a": "2"}
    store.remove("sft")
    assert reader.current("sft") is None
    with pytest.raises(MissingOutput):
        seen(reader, "sft")


def test_links_are_fetched_through_any_number_of_links(objects, store, machines):
    first = put(store, "trajectories/d1", {"task.json": "first"})
    index = put(store, "dataset", {"index.json": "[]"}, {"trajectories/d1": first})
    put(store, "datasets/all", {}, {"dataset": index, "again/d1": first})
    put(store, "trajectories/d1", {"task.json": "second"})
    reader = machines(objects)
    assert seen(reader, "datasets/all") == {
        "dataset/index.json": "[]",
        "dataset/trajectories/d1/task.json": "first",
        "again/d1/task.json": "first",
    }
    assert seen(reader, "trajectories/d1") == {"task.json": "second"}
    assert reader.verify("datasets/all") == []


def test_what_was_fetched_is_not_fetched_again(objects, store, machines):
    links = {
        f"trajectories/d{n}": put(store, f"trajectories/d{n}", {"task.json": str(n), "b": ""})
        for n in range(40)
    }
    put(store, "dataset", {"index.json": "[]"}, links)
    watched = FaultyObjects(objects)
    reader = machines(watched)
    assert len(seen(reader, "dataset")) == 81
    assert sum(method == "fetch" for method, _ in watched.calls) == 81
    watched.calls.clear()
    assert len(seen(reader, "dataset")) == 81
    assert reader.current("dataset") is not None
    assert watched.calls == [("read", "pointers/dataset")] * 2


def test_current_fetches_no_files(objects, store, machines):
    version = put(store, OUTPUT, FILES)
    watched = FaultyObjects(objects)
    reader = machines(watched)
    assert reader.current(OUTPUT) == reader.current(OUTPUT) == version
    manifest = f"versions/{OUTPUT}/{version.id}/manifest.json"
    pointer = ("read", f"pointers/{OUTPUT}")
    assert watched.calls == [pointer, ("read", manifest), pointer]


def test_a_pointer_moved_by_another_process_is_moved_again(objects, store, machines):
    old = put(store, "sft", {"a": "old"})
    counted = FaultyObjects(objects, methods=frozenset({"put"}))
    put(machines(counted), "sft", {"a": "1"})
    assert counted.calls[-1] == ("put", "pointers/sft")
    swapped = Fault(len(counted.calls), "swap", swapped=f"{old.id}\n".encode())
    put(machines(FaultyObjects(objects, swapped, methods=counted.methods)), "sft", {"a": "2"})
    assert seen(store, "sft") == {"a": "2"}


def test_a_version_that_was_opened_elsewhere_can_be_linked(objects, store, machines):
    put(store, "trajectories/d1", {"task.json": "one"})
    other = machines(objects)
    version = other.open("trajectories/d1")[1]
    with other.stage("dataset") as staging:
        staging.link("trajectories/d1", version)
        assert (staging.path / "trajectories/d1/task.json").read_text() == "one"
        other.commit(staging, recipe(), {})
    assert seen(store, "dataset") == {"trajectories/d1/task.json": "one"}


@pytest.mark.parametrize("folder", ["versions", "pointers", "retired"])
def test_documents_cannot_use_the_folders_of_the_store(store, folder):
    with pytest.raises(StorageError, match="cannot be the key of a document"):
        store.put_document(f"{folder}/sft", b"")
    with pytest.raises(StorageError, match="cannot be the key of a document"):
        store.list_documents(folder)


def test_foreign_objects_are_not_outputs(store, objects):
    put(store, "sft", FILES)
    for key in ("pointers/a b", "pointers/.x", "versions/x", "versions/sft/y", "quarantine/ä/x"):
        objects.place(key, b"")
    assert store.outputs() == ["sft"]
    assert store.list_documents("quarantine") == []
    assert store.collect(0, now=1e12) == []
    assert seen(store, "sft") == FILES


def test_readers_never_see_a_mixture_while_machines_commit(objects, machines):
    done = threading.Event()

    def commit(name):
        writer = machines(objects)
        for turn in range(6):
            put(writer, "sft", dict.fromkeys(("a", "deep/b"), f"{name}-{turn % 3}"))

    def read():
        reader, reads = machines(objects), 0
        while not done.is_set() or not reads:
            if reader.outputs("sft"):
                assert len(set(seen(reader, "sft").values())) == 1
                reads += 1
        return reads

    with ThreadPoolExecutor(4) as pool:
        reading = pool.submit(read)
        writing = [pool.submit(commit, name) for name in "xyz"]
        try:
            for writer in writing:
                writer.result()
        finally:
            done.set()
        assert reading.result() > 0
    assert machines(objects).verify("sft") == []
    manifests = [key for key in keys(objects) if key.endswith("/manifest.json")]
    assert len(manifests) == 9


def test_two_readers_of_one_cache_download_once(objects, store, tmp_path):
    put(store, OUTPUT, FILES)
    watched = FaultyObjects(objects)
    readers = [BucketStore(tmp_path / "shared", watched) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda reader: seen(reader, OUTPUT), readers)) == [FILES] * 4
    assert sum(method == "fetch" for method, _ in watched.calls) == len(FILES)


def test_a_bucket_needs_a_cache_folder_and_each_bucket_has_its_own(tmp_path):
    with pytest.raises(StorageError, match="cache folder"):
        open_store("s3://bucket/store")
    folders = set()
    for url in ("s3://bucket/store", "s3://bucket/other", "s3://bucket/store/"):
        store = open_store(url, tmp_path)
        with store.stage("sft") as staging:
            write(staging.path, FILES)
            folders.add(staging.folder.root)
    assert len(folders) == 2
    assert all(folder.parent == tmp_path for folder in folders)


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


def test_other_bytes_in_the_bucket_are_never_served_nor_taken_from_the_cache(
    objects, store, machines
):
    version = put(store, OUTPUT, FILES)
    objects.place(file_key(version, "a.txt"), b"alphA")
    reader = machines(objects)
    with pytest.raises(MissingOutput, match=OUTPUT):
        seen(reader, OUTPUT)
    assert reader.current(OUTPUT) is None
    assert [found.code for found in store.verify(OUTPUT)] == ["changed_file"]
    assert store.current(OUTPUT) is None
    assert put(machines(objects), OUTPUT, FILES) == version
    assert seen(reader, OUTPUT) == FILES


def test_a_reader_of_damage_behind_a_link_is_told_the_damaged_output(objects, store, machines):
    trajectory = put(store, "trajectories/d1", {"task.json": "one"})
    put(store, "dataset", {}, {"trajectories/d1": trajectory})
    objects.place(file_key(trajectory, "task.json"), b"eno")
    with pytest.raises(MissingOutput, match=r"^trajectories/d1: "):
        seen(machines(objects), "dataset")


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


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
