import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from demo_pipeline.store import store as store_module
from demo_pipeline.store import versions
from demo_pipeline.store.store import open_store
from demo_pipeline_tests.store.making_outputs import put, recipe, seen, write

DAY = 86_400.0
LATER = 4e9  # epoch seconds, long after any file of these tests


def age(root, seconds=LATER):
    """Set every modification time in the store to `seconds` after the epoch."""
    for path in [root, *root.rglob("*")]:
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def test_replaced_versions_are_removed_after_the_grace_period_and_not_before(tmp_path):
    store = open_store(str(tmp_path))
    old = put(store, "sft", {"a": "old"})
    put(store, "sft", {"a": "new"})
    age(tmp_path)
    assert store.collect(DAY, now=LATER + DAY) == []
    assert store.collect(DAY, now=LATER + DAY + 1) == [f"sft@{old.id}"]
    assert seen(store, "sft") == {"a": "new"}
    assert store.collect(DAY, now=LATER + DAY + 1) == []


@pytest.mark.parametrize("folder", [".versions/sft", "trajectories"])
def test_a_folder_that_cannot_be_listed_does_not_pass_for_an_empty_one(
    tmp_path, monkeypatch, folder
):
    store, scanned = open_store(str(tmp_path)), os.scandir
    put(store, "trajectories/one", {"a": "1"})
    put(store, "sft", {"a": "old"})

    def refusing(place):
        if str(place) == f"{tmp_path}/{folder}":
            raise PermissionError(place)
        return scanned(place)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        list(store.versions()) if folder[0] == "." else store.outputs()


def test_the_grace_period_begins_when_another_version_is_published(tmp_path):
    store = open_store(str(tmp_path))
    put(store, "sft", {"a": "old"})
    age(tmp_path, 0)
    path = store.open("sft")[0]
    put(store, "sft", {"a": "new"})
    changed = (tmp_path / ".versions/sft").stat().st_mtime
    assert store.collect(DAY, now=changed + 60) == []
    assert (path / "a").read_text() == "old"


def test_what_a_current_output_links_stays_through_any_number_of_links(tmp_path):
    store = open_store(str(tmp_path))
    first = put(store, "trajectories/d1", {"task.json": "first"})
    index = put(store, "dataset", {}, {"trajectories/d1": first})
    put(store, "datasets/all", {}, {"dataset": index})
    second = put(store, "trajectories/d1", {"task.json": "second"})
    put(store, "dataset", {}, {"trajectories/d1": second})
    put(store, "trajectories/d1", {"task.json": "third"})
    age(tmp_path)
    assert store.collect(DAY, now=LATER + 2 * DAY) == []
    assert seen(store, "datasets/all")["dataset/trajectories/d1/task.json"] == "first"
    store.remove("datasets/all")
    age(tmp_path)
    removed = store.collect(DAY, now=LATER + 2 * DAY)
    assert {name.partition("@")[0] for name in removed} == {
        "datasets/all",
        "dataset",
        "trajectories/d1",
    }
    assert f"trajectories/d1@{first.id}" in removed
    assert seen(store, "dataset") == {"trajectories/d1/task.json": "second"}


def test_a_version_in_its_grace_period_keeps_what_it_links(tmp_path):
    store = open_store(str(tmp_path))
    first = put(store, "trajectories/d1", {"task.json": "first"})
    index = put(store, "dataset", {}, {"trajectories/d1": first})
    put(store, "trajectories/d1", {"task.json": "second"})
    put(store, "dataset", {"index.json": "[]"})
    age(tmp_path, 0)
    os.utime(tmp_path / ".versions/dataset" / index.id, (LATER, LATER))
    assert store.collect(DAY, now=LATER + 1) == []
    assert store.collect(DAY, now=LATER + DAY + 1) == [
        f"dataset@{index.id}",
        f"trajectories/d1@{first.id}",
    ]


def test_staging_of_living_processes_stays_and_of_dead_ones_is_removed(tmp_path):
    code = (
        "import os, sys; from demo_pipeline.store.store import open_store\n"
        "with open_store(sys.argv[1]).stage('sft') as s: (s.path / 'a').touch(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    store = open_store(str(tmp_path))
    (dead,) = (tmp_path / ".staging/sft").iterdir()
    with store.stage("sft") as staging:
        write(staging.path, {"a": "alive"})
        age(tmp_path)
        assert store.collect(DAY, now=LATER + 1) == []
        assert store.collect(DAY, now=LATER + DAY + 1) == [f".staging/sft/{dead.name}"]
        store.commit(staging, recipe(), {})
    assert seen(store, "sft") == {"a": "alive"}


def test_an_id_that_looks_like_a_version_is_not_taken_for_one(tmp_path):
    store = open_store(str(tmp_path))
    put(store, "events/0123456789abcdef", {"a": "kept"})
    age(tmp_path)
    assert store.collect(0, now=LATER + 1) == []
    assert seen(store, "events/0123456789abcdef") == {"a": "kept"}


def test_what_a_commit_links_stays_although_the_clock_jumps_in_between(tmp_path, monkeypatch):
    """The collection, for which the linked version is a day old, waits for the commit."""
    store = open_store(str(tmp_path))
    first = put(store, "trajectories/d1", {"task.json": "first"})
    put(store, "trajectories/d1", {"task.json": "second"})
    check, collections = versions.is_linked, []
    removed = threading.Thread(target=lambda: collections.extend(store.collect(0, now=LATER)))

    def collecting(*arguments):
        found = check(*arguments)
        if removed.ident is None:
            removed.start()
            removed.join(0.3)
        return found

    monkeypatch.setattr(store_module, "is_linked", collecting)
    put(store, "dataset", {}, {"trajectories/d1": first})
    removed.join()
    assert collections == []
    assert seen(store, "dataset") == {"trajectories/d1/task.json": "first"}
    assert store.verify("dataset") == []


def test_collections_at_the_same_time_remove_each_version_once(tmp_path):
    store = open_store(str(tmp_path))
    for number in range(30):
        put(store, f"events/d{number % 3}", {"a": str(number)})
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: store.collect(0, now=LATER), range(4)))
    names = [name for names in found for name in names if "@" in name]
    assert len(names) == len(set(names)) == 27
    assert [seen(store, f"events/d{n}") for n in range(3)] == [{"a": str(27 + n)} for n in range(3)]
    assert list((tmp_path / ".staging").rglob(".*")) == []
