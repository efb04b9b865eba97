import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo_pipeline.store.store import open_store
from demo_pipeline_tests.store import killing
from demo_pipeline_tests.store.killing import DOCUMENT, NEW, OLD, OUTPUT
from demo_pipeline_tests.store.making_outputs import put, seen

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Scenario → the stores in which a process died, in the order of the call at which it died."""
    root = tmp_path_factory.mktemp("killed")
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    subprocess.run([sys.executable, killing.__file__, str(root)], check=True, env=environment)
    return {
        name: sorted((root / name).iterdir(), key=lambda path: int(path.name))
        for name in killing.SCENARIOS
    }


@pytest.mark.parametrize(
    ("scenario", "before"),
    [("first", None), ("replace", OLD), ("hardlinks", OLD), ("return", OLD), ("repair", None)],
)
def test_a_process_that_dies_anywhere_leaves_old_or_new_and_the_next_commit_works(
    killed, scenario, before
):
    states = []
    for root in killed[scenario]:
        store = open_store(str(root))
        state = seen(store, OUTPUT) if store.current(OUTPUT) else None
        assert state in (before, NEW), root
        states.append(state)
        version = put(store, OUTPUT, NEW)
        assert seen(store, OUTPUT) == NEW, root
        assert store.verify(OUTPUT) == [], root
        store.collect(0, now=1e12)
        assert store.current(OUTPUT) == version, root
        assert leftovers(root) == [], root
    assert len(states) >= 15
    assert states[0] == before
    assert states[-1] == NEW
    assert states == sorted(states, key=lambda state: state == NEW)


def test_a_document_is_old_or_new_whenever_its_writer_dies(killed):
    states = []
    for root in killed["document"]:
        store = open_store(str(root))
        states.append(store.get_document(DOCUMENT))
        store.put_document(DOCUMENT, b"next")
        assert store.get_document(DOCUMENT) == b"next"
        assert store.list_documents("quarantine") == [DOCUMENT]
    assert set(states) == {b"old", b"new"}


def test_a_collection_that_dies_removes_nothing_that_is_needed(killed):
    assert len(killed["collect"]) > 3
    for root in killed["collect"]:
        store = open_store(str(root))
        assert seen(store, OUTPUT) == OLD
        assert store.verify(OUTPUT) == []
        store.collect(0, now=1e12)
        assert leftovers(root) == []
        assert len(list((root / ".versions" / OUTPUT).iterdir())) == 1


def leftovers(root):
    """Unfinished files and folders that are left."""
    return list((root / ".staging").rglob(".*"))
