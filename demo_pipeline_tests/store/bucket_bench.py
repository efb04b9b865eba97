"""Copies of a bucket, for tests with one fault in each copy."""

import shutil

from demo_pipeline.store.bucket import BucketStore
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.store.faulty import Fault, FaultyObjects
from demo_pipeline_tests.store.making_outputs import put
from demo_pipeline_tests.store.memory_objects import START, MemoryObjects

OLD = {"a.txt": "old", "deep/b.txt": "old"}
NEW = {"a.txt": "new", "deep/b.txt": "new"}
OUTPUT, OTHER = "events/d1", "events/d2"
LATER = START + 1e6


class Bench:
    """Copies of a bucket, and machines with an empty cache."""

    def __init__(self, tmp_path):
        self.root, self.count = tmp_path, 0
        self.before = MemoryObjects()

    def machine(self, objects):
        self.count += 1
        return BucketStore(self.root / str(self.count), objects)

    def bucket(self):
        objects = MemoryObjects()
        objects.stored = dict(self.before.stored)
        objects._etags = self.before._etags
        return objects

    def broken(self, work, kind, *, dies):
        """For each call: the bucket in which `work` met a fault at that call, and its error."""
        for call in range(1, 1000):
            objects = self.bucket()
            faulty = FaultyObjects(objects, Fault(call, kind, dies=dies))
            failure = None
            try:
                work(self.machine(faulty))
            except StorageError as error:
                failure = error
            yield objects, failure
            if len(faulty.calls) < call:
                return
            shutil.rmtree(self.root / str(self.count))
        raise AssertionError("it never ends")


def old(store):
    put(store, OUTPUT, OLD)


def old_after_new(store):
    """The new version exists already, and the old version is published again."""
    put(store, OUTPUT, NEW)
    put(store, OUTPUT, OLD)
