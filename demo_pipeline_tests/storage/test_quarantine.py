import pytest

from demo_pipeline.problems import Problem
from demo_pipeline.storage.errors import StorageError
from demo_pipeline.storage.quarantine import (
    QuarantineRecord,
    list_quarantine,
    problem_dicts,
    read_quarantine,
    release,
    write_quarantine,
)
from demo_pipeline.storage.store import open_store


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path))


def record(demonstration, message="ends early"):
    problem = Problem("torn", "input_log.jsonl", message, line=3, demonstration=demonstration)
    return QuarantineRecord(
        demonstration=demonstration,
        stage="events",
        fingerprint="ab",
        tool_version="1",
        problems=problem_dicts([problem]),
    )


def test_records_come_back_as_written_one_a_demonstration(store, tmp_path):
    write_quarantine(store, record("d2"))
    write_quarantine(store, record("d1", "first"))
    write_quarantine(store, record("d1", "läuft"))
    assert read_quarantine(store, "d1") == record("d1", "läuft")
    assert list_quarantine(store) == [record("d1", "läuft"), record("d2")]
    before = (tmp_path / "quarantine/d1.json").read_bytes()
    write_quarantine(store, record("d1", "läuft"))
    assert (tmp_path / "quarantine/d1.json").read_bytes() == before


def test_a_released_demonstration_is_no_longer_quarantined(store):
    write_quarantine(store, record("d1"))
    assert release(store, "d1")
    assert not release(store, "d1")
    assert read_quarantine(store, "d1") is None
    assert list_quarantine(store) == []


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b"[" * 10_000])
def test_a_torn_record_still_quarantines_and_costs_the_others_nothing(store, data):
    write_quarantine(store, record("d2"))
    store.put_document("quarantine/d1.json", data)
    store.put_document("quarantine/notes.txt", b"a person's notes")
    torn, whole = list_quarantine(store)
    assert (torn.demonstration, torn.problems[0]["code"]) == ("d1", "unreadable_record")
    assert whole == record("d2")


def test_ids_that_are_not_safe_are_refused(store):
    for call in (read_quarantine, release):
        with pytest.raises(StorageError, match="safe_id"):
            call(store, "../d1")
    with pytest.raises(StorageError, match="safe_id"):
        write_quarantine(store, record("a/b"))
