"""Tests that a new DAGSTER_HOME is completed after a kill, and never replaced once it is used."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs.local_instance import make_databases, opened_instance
from demo_pipeline_tests.faults.killed_homes import MAKE_HOME, make_home


def test_a_home_that_a_killed_process_left_is_made_whole(tmp_path, monkeypatch):
    whole = make_home(tmp_path)
    statements = int(whole.stdout)
    assert statements > 100
    for number in range(1, 9, 2):  # `make kills` tests more moments
        home = tmp_path / f"home{number}"
        home.mkdir()
        assert make_home(home, statements * number // 9).returncode == -signal.SIGKILL
        monkeypatch.setenv("DAGSTER_HOME", str(home))
        with opened_instance(home) as instance:
            instance.add_dynamic_partitions("demonstrations", ["a"])
        assert not [path for path in home.iterdir() if path.name.startswith(".")]


def half_made(home: Path) -> None:
    """Makes a home as older versions may have left it: empty tables, and no migration version."""
    make_databases(home)
    for name in ("history/runs/index.db", "history/runs.db", "schedules/schedules.db"):
        with closing(sqlite3.connect(home / name)) as database, database:
            database.execute("DELETE FROM alembic_version")
            for (table,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                database.execute(f'DELETE FROM "{table}"')  # noqa: S608
            database.execute("DROP TABLE IF EXISTS secondary_indexes")


def test_an_incomplete_home_of_an_older_version_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    half_made(tmp_path)
    with opened_instance(tmp_path) as instance:
        instance.add_dynamic_partitions("demonstrations", ["a"])


def test_what_was_recorded_is_never_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with opened_instance(tmp_path) as instance:
        instance.add_dynamic_partitions("demonstrations", ["kept"])
    inode = (tmp_path / "history/runs/index.db").stat().st_ino
    with opened_instance(tmp_path) as instance:
        assert instance.get_dynamic_partitions("demonstrations") == ["kept"]
    assert (tmp_path / "history/runs/index.db").stat().st_ino == inode


def test_two_commands_at_once_make_one_home(tmp_path):
    command = [sys.executable, "-c", MAKE_HOME, str(tmp_path), "0"]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_run_ids() == []


@pytest.mark.parametrize("name", ["history/runs.db", "history/runs/index.db"])
def test_a_damaged_database_is_left_for_a_person(tmp_path, name):
    make_databases(tmp_path)
    (tmp_path / name).write_bytes(b"no database at all, of some length")
    make_databases(tmp_path)
    assert (tmp_path / name).read_bytes().startswith(b"no database")
