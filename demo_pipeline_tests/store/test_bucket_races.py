"""Commits and collections of one bucket at the same time, interleaved at every call."""

import threading
from functools import partial

import pytest

from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.store.bucket_bench import LATER, NEW, OLD, OUTPUT, Bench, old_after_new
from demo_pipeline_tests.store.faulty import Fault, FaultyObjects
from demo_pipeline_tests.store.making_outputs import put, recipe, seen
from demo_pipeline_tests.store.memory_objects import START, MemoryObjects


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


class Interrupted(FaultyObjects):
    """Calls `event` just before the n-th call."""

    def __init__(self, inner, call, event):
        super().__init__(inner)
        self.call, self.event = call, event

    def _begin(self, method, key):
        fault = super()._begin(method, key)
        if len(self.calls) == self.call:
            event, self.event = self.event, lambda: None
            event()
        return fault


class Race:
    """A commit and a collection of the same old version; one runs before a `call` of the other."""

    def __init__(self, bench, call):
        self.bench, self.call = bench, call
        self.objects = MemoryObjects(clock=lambda: LATER)
        self.objects.stored = dict(bench.before.stored)
        self.objects._etags = 1000
        self.answers = []

    def commit(self, objects=None):
        try:
            put(self.bench.machine(objects or self.objects), OUTPUT, NEW)
        except StorageError as error:
            self.answers.append(str(error))
        else:
            self.answers.append("")

    def collect(self, objects=None):
        self.bench.machine(objects or self.objects).collect(60, now=LATER)

    def run(self, first, second):
        """Whether the first reached its call."""
        interrupted = Interrupted(self.objects, self.call, second)
        first(interrupted)
        return len(interrupted.calls) >= self.call

    def sound(self):
        """Whether readers see a complete version; either process may give way."""
        reader = self.bench.machine(self.objects)
        assert seen(reader, OUTPUT) == (NEW if self.answers == [""] else OLD)
        assert not any(one.data.startswith(b"removing") for one in self.objects.stored.values())
        assert all("garbage collection is removing" in answer for answer in self.answers if answer)
        return reader.verify(OUTPUT) == []


@pytest.mark.parametrize("begun", ["collect", "commit"])
def test_a_commit_and_a_collection_of_the_same_version_never_damage_each_other(bench, begun):
    old_after_new(bench.machine(bench.before))
    answers = []
    for call in range(1, 1000):
        race = Race(bench, call)
        other = race.commit if begun == "collect" else race.collect
        interrupted = race.run(getattr(race, begun), other)
        assert race.sound()
        answers += race.answers
        if not interrupted:
            break
    assert call > 8
    assert any(answers) == (begun == "collect")
    assert "" in answers


def test_a_deletion_that_begins_during_a_commit_does_not_damage_it(bench):
    old_after_new(bench.machine(bench.before))
    counted = FaultyObjects(bench.bucket())
    bench.machine(counted).collect(60, now=LATER)
    puts = [n for n, (method, _) in enumerate(counted.calls) if method == "put"]
    begin = next(n for n in puts if counted.calls[n][1].startswith("retired/"))
    for call in range(1, 1000):
        race = Race(bench, begin + 1)
        reached, go = threading.Event(), threading.Event()
        slow = Interrupted(race.objects, call, partial(halt, reached, go))
        commit = threading.Thread(target=race.commit, args=[slow])
        race.run(race.collect, partial(start, commit, reached))
        go.set()
        commit.join()
        assert race.sound()
        if not reached.is_set():
            break
    assert call > 8


def halt(reached, go):
    reached.set()
    assert go.wait(30)


def start(thread, reached):
    """Let a thread run until it halts or ends."""
    thread.start()
    while thread.is_alive() and not reached.wait(0.01):
        pass


def test_a_deletion_whose_process_died_blocks_commits_for_some_minutes_only(bench):
    now = [START]
    objects = MemoryObjects(clock=lambda: now[0])
    old_after_new(bench.machine(objects))
    now[0] = LATER
    calls = FaultyObjects(objects)
    bench.machine(calls).collect(60, now=LATER + 1)
    deleted = [n for n, (method, _) in enumerate(calls.calls, 1) if method == "delete"]
    old_after_new(bench.machine(objects))
    now[0] = 2 * LATER
    dying = FaultyObjects(objects, Fault(deleted[1], "before", dies=True))
    with pytest.raises(StorageError):
        bench.machine(dying).collect(60, now=now[0])
    now[0] += 60
    with pytest.raises(StorageError, match="15 minutes at the latest"):
        put(bench.machine(objects), OUTPUT, NEW)
    assert seen(bench.machine(objects), OUTPUT) == OLD
    now[0] += 900
    put(bench.machine(objects), OUTPUT, NEW)
    assert seen(bench.machine(objects), OUTPUT) == NEW
    assert bench.machine(objects).verify(OUTPUT) == []


def test_a_version_that_a_commit_links_is_not_removed_meanwhile(bench):
    """At every call of a collection, for which the linked version is old, a commit links it."""
    store = bench.machine(bench.before)
    new = put(store, OUTPUT, NEW)
    put(store, OUTPUT, OLD)
    refused, linked = 0, 0
    for call in range(1, 1000):
        race = Race(bench, call)
        outcomes: list[str] = []

        def commit(objects=race.objects, outcomes=outcomes):
            machine = bench.machine(objects)
            with machine.stage("dataset") as staging:
                staging.folder.make(staging.folder.version(new.output, new.id))
                (staging.folder.version(new.output, new.id) / "manifest.json").write_bytes(
                    b"".join(new.manifest.chunks())
                )
                staging.link("d1", new)
                try:
                    machine.commit(staging, recipe(), {})
                except StorageError as error:
                    outcomes.append(str(error))
                else:
                    outcomes.append("")

        reached = race.run(race.collect, commit)
        reader = bench.machine(race.objects)
        assert seen(reader, OUTPUT) == OLD
        if outcomes == [""]:
            linked += 1
            assert seen(reader, "dataset") == {f"d1/{path}": text for path, text in NEW.items()}
            assert reader.verify("dataset") == []
        else:
            refused += 1
            assert all("removed" in text or "removing" in text for text in outcomes)
            assert reader.outputs() == [OUTPUT]
        if not reached:
            break
    assert linked > 5
    assert refused > 3
