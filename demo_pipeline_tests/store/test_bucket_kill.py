"""Every object call of a commit, a read and a collection fails once; the bucket stays sound."""

import pytest

from demo_pipeline.store.bucket import BucketStore
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.store.bucket_bench import (
    LATER,
    NEW,
    OLD,
    OTHER,
    OUTPUT,
    Bench,
    old,
    old_after_new,
)
from demo_pipeline_tests.store.faulty import Fault, FaultyObjects
from demo_pipeline_tests.store.making_outputs import put, seen
from demo_pipeline_tests.store.memory_objects import keys


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def nothing(_store):
    """The bucket is empty before."""


def partly(store):
    """Another process died in the middle of the same commit."""
    put(store, OUTPUT, OLD)
    version = put(store, OUTPUT, NEW)
    put(store, OUTPUT, OLD)
    prefix = f"versions/{OUTPUT}/{version.id}/"
    store.objects.delete(f"{prefix}manifest.json")
    store.objects.delete(f"{prefix}content/a.txt")
    store.objects.put(f"{prefix}content/deep/b.txt", b"bad")


SCENARIOS = {
    "first": (nothing, None),
    "replace": (old, OLD),
    "return": (old_after_new, OLD),
    "partly": (partly, OLD),
}


def commit(store):
    put(store, OUTPUT, NEW)


def state_of(store):
    return seen(store, OUTPUT) if store.current(OUTPUT) else None


@pytest.mark.no_cover  # other tests run the same lines
@pytest.mark.parametrize(
    ("scenario", "kind", "dies"),
    [
        *((scenario, kind, True) for scenario in SCENARIOS for kind in ("before", "after")),
        ("replace", "before", False),
    ],
)
def test_a_commit_that_fails_at_any_call_leaves_old_or_new_and_the_next_one_works(
    bench, scenario, kind, dies
):
    prepare, before = SCENARIOS[scenario]
    prepare(bench.machine(bench.before))
    states = []
    for objects, failure in bench.broken(commit, kind, dies=dies):
        reader = bench.machine(objects)
        states.append(state_of(reader))
        assert states[-1] in (before, NEW)
        assert reader.outputs() == ([OUTPUT] if states[-1] else [])
        assert states[-1] == NEW or failure is not None
        version = put(bench.machine(objects), OUTPUT, NEW)
        assert seen(reader, OUTPUT) == NEW
        assert reader.verify(OUTPUT) == []
        reader.collect(0, now=LATER)
        assert reader.current(OUTPUT) == version
        folders = {key.split("/")[3] for key in keys(objects) if key.startswith("versions/")}
        assert folders == {version.id}
    assert len(states) >= 7
    assert states[0] == before
    assert states[-1] == NEW


@pytest.mark.parametrize("kind", ["before", "after"])
def test_after_a_read_that_fails_at_any_call_the_next_read_succeeds(bench, kind):
    store = bench.machine(bench.before)
    linked = put(store, OTHER, NEW)
    put(store, OUTPUT, OLD, {"other": linked})
    wanted = seen(store, OUTPUT)
    for call in range(1, 100):
        cache = bench.root / f"reader-{call}"
        faulty = FaultyObjects(bench.before, Fault(call, kind))
        reader = BucketStore(cache, faulty)
        try:
            assert seen(reader, OUTPUT) == wanted
        except StorageError:
            assert list(cache.glob(".staging/**/content")) == []
        else:
            break
        assert seen(reader, OUTPUT) == wanted
    assert call > 8


@pytest.mark.parametrize("kind", ["before", "after"])
def test_a_collection_that_fails_at_any_call_removes_nothing_that_is_needed(bench, kind):
    store = bench.machine(bench.before)
    old_after_new(store)
    kept = put(store, "dataset", {}, {"d1": store.current(OUTPUT)})
    states = set()
    for objects, _ in bench.broken(lambda one: one.collect(0, now=LATER), kind, dies=True):
        reader = bench.machine(objects)
        assert seen(reader, OUTPUT) == OLD
        assert reader.verify("dataset") == []
        states.add(sum(key.startswith("versions/") for key in keys(objects)))
        reader.collect(0, now=LATER)
        versions = {key.split("/")[-2] for key in keys(objects) if key.endswith("manifest.json")}
        assert versions == {reader.current(OUTPUT).id, kept.id}
        assert not any(one.data.startswith(b"removing") for one in objects.stored.values())
        assert seen(reader, OUTPUT) == OLD
    assert len(states) == 4
