"""A table that is damaged, old or deleted never stops discovery for long."""

import sqlite3
from dataclasses import replace

import pytest

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery import tick
from demo_pipeline.runs.discovery_table import (
    DiscoveryTable,
    ObservedFile,
    Position,
    Upload,
    UploadState,
)
from demo_pipeline.runs.results import Status
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.names import safe_id
from demo_pipeline_tests.discovery.scene import Scene


@pytest.fixture
def known(scene: Scene) -> Scene:
    scene.upload("demo")
    assert len(scene.go_on()) == 1
    return scene


def is_whole_again(scene: Scene) -> bool:
    return scene.go_on() == [] and scene.state("demo") is UploadState.ACCEPTED


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + b"x" * 5000])
def test_a_damaged_file_is_renamed_and_created_again(known, damage):
    known.lose_table()
    known.path.write_bytes(damage)
    assert is_whole_again(known)
    aside = known.path.with_name("table.sqlite.damaged")
    assert not damage or aside.read_bytes() == damage


def test_a_page_that_was_overwritten_is_noticed(known):
    data = bytearray(known.path.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 64] = b"?" * 64
    known.path.write_bytes(data)
    assert is_whole_again(known)


def test_a_table_of_another_version_is_renamed(known):
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
    aside = sqlite3.connect(known.path.with_name("table.sqlite.damaged"))
    assert aside.execute("SELECT id FROM uploads WHERE wish IS NOT NULL").fetchall() == [("demo",)]
    aside.close()


def test_a_path_where_no_file_can_be_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="the table of uploads cannot be opened"):
        DiscoveryTable.open(tmp_path / "file" / "table.sqlite")


def test_a_table_closed_during_a_tick_is_a_storage_error(scene):
    with DiscoveryTable.open(scene.path) as table:
        pass
    with pytest.raises(StorageError, match="table"):
        tick(scene.bucket, table, scene.runs, scene.now, scene.settings)


def test_names_that_are_not_utf_8_are_kept(scene):
    name = "caf\udce9"
    with DiscoveryTable.open(scene.path) as table:
        files = tuple(ObservedFile(each, "etag", 2**40, 7.25) for each in RECORDING_FILES)
        table.mark_seen({name: reversed(files)})
        table.take_in("", 1.0, 1.5)
        [upload] = table.undecided(Position(2.0, 2.0, complete=1.5), 10)
        assert upload == Upload(name, safe_id(name), files=files, due=1.5)
        table.save([replace(upload, cause="new")])
        assert table.by_id() == {upload.id: replace(upload, cause="new")}


class TestCommands:
    """What `demo-pipeline run` notes, whether or not discovery has seen the upload."""

    def test_what_waits_is_listed_until_it_is_done(self, scene):
        scene.upload("demo")
        with DiscoveryTable.open(scene.path) as table:
            for attempts in (1, 2):
                table.note_waiting("demo", ["demo"], "f", "no room")
                [waiting] = table.waiting()
                assert (waiting.id, waiting.reason) == ("demo", "no room")
                assert waiting.attempts == attempts
            table.note_done(["demo"])
            assert table.waiting() == []

    def test_the_daemon_tries_again_what_waited_in_a_command(self, known):
        known.runs.by_id["demo"][-1].end(Status.BUILT)
        known.tick()
        fingerprint = known.row("demo").fingerprint
        with DiscoveryTable.open(known.path) as table:
            table.note_waiting("demo", ["demo"], fingerprint, "no room")
        assert known.tick().requests == ()
        known.runs.settled = lambda *_: False
        assert [each.reason for each in known.go_on(120)] == ["waiting"]
