import pytest

from demo_pipeline.problems import Problem
from demo_pipeline.runs.quarantine import (
    QuarantineRecord,
    list_quarantine,
    quarantine_demonstration,
    read_quarantine,
    release,
    write_quarantine,
)
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.store import open_store

A = "a" * 64
B = "b" * 64


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


def torn(demonstration, message="ends early"):
    return Problem(
        "torn", "input_log.jsonl", message, line=3, byte=120, demonstration=demonstration
    )


def record(demonstration, message="ends early", fingerprint=A, **values):
    return QuarantineRecord(
        demonstration=demonstration,
        stage="events",
        fingerprint=fingerprint,
        tool_version="1",
        problems=[torn(demonstration, message).as_dict()],
        **values,
    )


def held(store, fingerprint, stage="events"):
    return quarantine_demonstration(store, "d1", stage, fingerprint, [torn("d1")])


def test_records_are_read_as_written_one_per_demonstration(store, tmp_path):
    write_quarantine(store, record("d2"))
    write_quarantine(store, record("d1", "first"))
    write_quarantine(store, record("d1", "läuft"))
    assert read_quarantine(store, "d1") == record("d1", "läuft")
    assert list_quarantine(store) == [record("d1", "läuft"), record("d2")]
    path = tmp_path / f"quarantine/d1/{A[:16]}.json"
    before = path.read_bytes()
    write_quarantine(store, record("d1", "läuft"))
    assert path.read_bytes() == before


def test_only_the_newest_upload_of_a_demonstration_is_quarantined(store):
    held(store, A)
    held(store, None)
    held(store, B)
    assert store.list_documents("quarantine") == [f"quarantine/d1/{B[:16]}.json"]
    [standing] = list_quarantine(store)
    assert standing.fingerprint == B


def test_attempts_count_failures_of_one_stage_on_the_same_files(store):
    assert [held(store, A).attempts for _ in range(3)] == [1, 2, 3]
    assert held(store, A, "actions").attempts == 1
    assert held(store, B, "actions").attempts == 1
    assert held(store, B, "actions").attempts == 2
    release(store, "d1")
    assert held(store, B, "actions").attempts == 1


def test_after_a_crash_between_two_writes_the_newer_record_counts(store):
    for first, second in ((A, B), (B, A)):
        release(store, "d1")
        held(store, first)
        document = store.get_document(f"quarantine/d1/{first[:16]}.json")
        held(store, second)
        store.put_document(f"quarantine/d1/{first[:16]}.json", document)
        left = read_quarantine(store, "d1")
        assert left is not None
        assert left.fingerprint == second
        assert len(list_quarantine(store)) == 1
        held(store, second)
        assert len(store.list_documents("quarantine")) == 1


def test_a_released_demonstration_is_no_longer_quarantined(store):
    write_quarantine(store, record("d1"))
    assert release(store, "d1")
    assert not release(store, "d1")
    assert read_quarantine(store, "d1") is None
    assert list_quarantine(store) == []


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[" * 10_000])
def test_an_unreadable_record_still_quarantines_and_affects_no_other(store, data):
    key = "quarantine/d1/0123456789abcdef.json"
    write_quarantine(store, record("d2"))
    store.put_document(key, data)
    store.put_document("quarantine/notes.txt", b"a person's notes")
    store.put_document("quarantine/d3/notes.txt", b"a person's notes")
    torn_one, whole = list_quarantine(store)
    assert (torn_one.demonstration, torn_one.problems[0]["code"]) == ("d1", "unreadable_record")
    assert torn_one.problems[0]["file"] == key
    assert whole == record("d2")
    assert held(store, A).attempts == 1
    left = read_quarantine(store, "d1")
    assert left is not None
    assert left.problems[0]["code"] == "torn"


def test_ids_that_are_not_safe_are_refused(store):
    for call in (read_quarantine, release):
        with pytest.raises(StorageError, match="not a demonstration id"):
            call(store, "../d1")
    with pytest.raises(StorageError, match="not a demonstration id"):
        write_quarantine(store, record("a/b"))
