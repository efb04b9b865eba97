"""A ledger that is damaged, old or deleted never stops discovery for long."""

import sqlite3
from dataclasses import replace

import pytest

from demo_pipeline.runs.discovery import tick
from demo_pipeline.runs.ledger import Ledger
from demo_pipeline.runs.upload_decisions import ObservedFile, UploadRecord, UploadState
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import safe_id
from demo_pipeline_tests.discovery.scene import Scene


@pytest.fixture
def known(scene: Scene) -> Scene:
    scene.upload("demo")
    assert len(scene.go_on()) == 1
    return scene


def request_and_fail(ledger: Ledger) -> None:
    with ledger.transaction():
        ledger.request_rerun("demo", "retry")
        _ = 1 / 0


def is_whole_again(scene: Scene) -> bool:
    return scene.go_on() == [] and scene.state("demo") is UploadState.ACCEPTED


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 5000])
def test_a_damaged_file_is_renamed_and_created_again(known, damage):
    known.lose_ledger()
    known.path.write_bytes(damage)
    assert is_whole_again(known)
    aside = known.path.with_name("ledger.sqlite.damaged")
    assert not damage or aside.read_bytes() == damage


def test_a_page_that_was_overwritten_is_noticed(known):
    data = bytearray(known.path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 64] = b"?" * 64
    known.path.write_bytes(data)
    assert is_whole_again(known)


def test_a_ledger_of_another_version_is_renamed(known):
    connection = sqlite3.connect(known.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    assert is_whole_again(known)


def test_another_version_with_a_requested_rerun_is_kept_for_people(known):
    known.request_rerun("demo", "retry")
    connection = sqlite3.connect(known.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    known.tick()
    aside = sqlite3.connect(known.path.with_name("ledger.sqlite.damaged"))
    assert aside.execute("SELECT id FROM wishes").fetchall() == [("demo",)]
    aside.close()


def test_a_path_where_no_file_can_be_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="the ledger of uploads cannot be opened"):
        Ledger.open(tmp_path / "file" / "ledger.sqlite")


def test_a_ledger_closed_during_a_tick_is_a_storage_error(scene):
    ledger = Ledger.open(scene.path)
    ledger.close()
    with pytest.raises(StorageError, match="ledger"):
        tick(scene.bucket, ledger, scene.runs, scene.now, scene.settings)


def test_a_failed_transaction_writes_nothing(scene):
    scene.upload("demo")
    scene.tick()
    with Ledger.open(scene.path) as ledger:
        with pytest.raises(ZeroDivisionError):
            request_and_fail(ledger)
        assert ledger.reruns("demo") == []


def test_names_that_are_not_utf_8_are_kept(scene):
    name = "caf\udce9"
    with Ledger.open(scene.path) as ledger:
        file = ObservedFile("meta.json", "etag", 2**40, 7)
        record = UploadRecord(name, "cafe", files=(file,), due=1.5)
        ledger.save([record])
        assert ledger.records([name, "other"]) == {name: record}
        assert ledger.due(2.0, 10, complete=False) == [record]


def test_a_folder_that_has_another_id_now_is_run_under_it(scene):
    scene.upload("upload.")
    launched = scene.go_on()
    with Ledger.open(scene.path) as ledger:
        record = ledger.records(["upload."])["upload."]
        ledger.save([replace(record, id="upload.")])  # as an earlier version wrote it
    assert [each.id for each in launched] == [safe_id("upload.")]
    assert scene.go_on() == []
    with Ledger.open(scene.path) as ledger:
        assert set(ledger.states()) == {safe_id("upload.")}
        assert ledger.collisions() == {}
