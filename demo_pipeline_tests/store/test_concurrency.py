import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from demo_pipeline.store.store import open_store
from demo_pipeline_tests.store.making_outputs import put, seen

PROJECT = Path(__file__).resolve().parents[2]
WRITER = """
import sys
from demo_pipeline.store.store import open_store
from demo_pipeline_tests.store.making_outputs import put
store = open_store(sys.argv[1])
for turn in range(15):
    text = f"{sys.argv[2]}-{turn % 5}"
    put(store, "sft", {"a": text, "deep/b": text})
"""


def read_until(done, store):
    """How often an output was read before `done`, each time all of one commit."""
    reads, last = 0, False
    while not last:
        last = done.is_set()
        if store.outputs("sft"):
            assert len(set(seen(store, "sft").values())) == 1
            reads += 1
        time.sleep(0.001)
    return reads


def test_a_second_commit_waits_until_the_first_is_done(tmp_path, monkeypatch):
    order, replace = [], Path.replace

    def commit_too():
        put(open_store(str(tmp_path)), "sft", {"a": "2"})
        order.append("second")

    second = threading.Thread(target=commit_too)

    def start_the_second(path, target):
        if target == tmp_path / "sft" and not second.ident:
            second.start()
            second.join(0.3)
            order.append("first")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", start_the_second)
    put(open_store(str(tmp_path)), "sft", {"a": "1"})
    second.join()
    assert order == ["first", "second"]
    assert seen(open_store(str(tmp_path)), "sft") == {"a": "2"}


def test_readers_never_see_a_mixture_while_processes_commit_and_versions_are_collected(tmp_path):
    store, done = open_store(str(tmp_path)), threading.Event()
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read_until, done, store)
        writers = [subprocess.Popen([*command, name], env=environment) for name in "xyz"]
        try:
            while any(writer.poll() is None for writer in writers):
                store.collect(0, now=0)
                time.sleep(0.02)
            assert [writer.wait() for writer in writers] == [0, 0, 0]
        finally:
            done.set()
        assert reader.result() > 0
    assert store.verify("sft") == []
    assert len(list((tmp_path / ".versions/sft").iterdir())) == 15
