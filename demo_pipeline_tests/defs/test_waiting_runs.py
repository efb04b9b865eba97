"""Trouble that passes by itself is never a recording's fault: its run waits, and says what for."""

import errno
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy.exc

from demo_pipeline.defs import demonstrations
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.dataset_assets import reconcile_uploads
from demo_pipeline.defs.demonstration_runs import open_table
from demo_pipeline.defs.tags import OUTCOME_TAG, WAITING_TAG
from demo_pipeline.problems import Problem
from demo_pipeline.runs import batch
from demo_pipeline.runs.batch import DemonstrationTask, process_patiently
from demo_pipeline.runs.failures import COMMAND_PAUSES, TransientError, transient_reason
from demo_pipeline.runs.quarantine import list_quarantine
from demo_pipeline.runs.results import BuildResult, Status
from demo_pipeline.runs.results import DemonstrationResult as Processed
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.store.errors import MissingOutput, StorageError
from demo_pipeline_tests.defs.bench import (
    Bench,
    Result,
    bench,
    failures,
    known,
    launched,
    make_due,
    ticked,
)
from demo_pipeline_tests.uploads import upload

FULL = "No space left on device"


def full_disk(*_: object) -> dict[str, object]:
    raise OSError(errno.ENOSPC, "write", "/a/path")


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        upload(recording, one.uploads, "one")
        one.catalogue()
        yield one


def with_stage(made: Bench, monkeypatch: pytest.MonkeyPatch, name: str, build: Any) -> Bench:
    stages = [replace(one, build=build) if one.name == name else one for one in STAGES]
    monkeypatch.setattr(demonstrations, "STAGES", stages)
    return replace(made, definitions=build_defs(made.settings))


def requested(made: Bench) -> dg.RunRequest:
    """What the sensor asks for, once two ticks saw the same upload."""
    for _ in range(3):
        found = ticked(made, "new_uploads").requests
        if found:
            return found[0]
    raise AssertionError


def run_of(made: Bench, result: Result) -> dg.DagsterRun:
    run = made.instance.get_run_by_id(result.run_id)
    assert run is not None
    return run


def waiting(made: Bench) -> list[tuple[str, str, int]]:
    with open_table(made.instance, made.workspace) as table:
        return [(one.id, one.reason, one.attempts) for one in table.waiting()]


def test_a_full_disk_lets_the_run_wait_and_quarantines_nothing(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = with_stage(made, monkeypatch, "events", full_disk)
    result = launched(full, requested(full))
    assert not result.success
    [said] = failures(result).values()
    assert FULL in str(said.description)
    assert run_of(full, result).tags[OUTCOME_TAG] == "waiting"
    assert run_of(full, result).tags[WAITING_TAG] == FULL
    assert list_quarantine(full.workspace.store) == []
    ticked(full, "new_uploads")
    row = known(full, "one")
    assert (row.cause, row.attempts, row.reason) == ("waiting", 1, FULL)
    assert "a defect" not in str(result.get_step_failure_events())


def test_a_run_whose_tag_could_not_be_written_waits_all_the_same(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = with_stage(made, monkeypatch, "events", full_disk)
    with monkeypatch.context() as patch:

        def fail(*_: object) -> None:
            raise sqlite3.OperationalError

        patch.setattr(type(full.instance), "add_run_tags", fail)
        patch.setattr(demonstrations, "claim_run", lambda *_: None)
        result = launched(full, requested(full))
    assert OUTCOME_TAG not in run_of(full, result).tags
    ticked(full, "new_uploads")
    assert waiting(full) == [("one", FULL, 1)]
    assert list_quarantine(full.workspace.store) == []


@pytest.mark.no_cover  # other tests run the same lines
def test_the_accounting_and_the_list_agree_on_what_waits(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = with_stage(made, monkeypatch, "events", full_disk)
    for _ in range(2):
        launched(full, requested(full))
        ticked(full, "new_uploads")
        make_due(full, "one")
    assert waiting(full) == [("one", FULL, 2)]
    counted = reconcile_uploads(full.instance, full.workspace)
    assert (counted.pending, counted.quarantined, counted.balanced) == (1, 0, True)
    assert FULL in str(counted.problems)
    monkeypatch.undo()
    good = replace(made, definitions=build_defs(made.settings))
    assert good.process("one").success
    ticked(good, "new_uploads")
    assert waiting(good) == []


def test_what_waited_goes_behind_new_uploads_in_the_queue(
    made: Bench, monkeypatch: pytest.MonkeyPatch, recording: Path
) -> None:
    full = with_stage(made, monkeypatch, "events", full_disk)
    launched(full, requested(full))
    ticked(full, "new_uploads")
    make_due(full, "one")
    again = requested(full)
    assert again.tags["demo_pipeline/reason"] == "waiting"
    assert again.tags["dagster/priority"] == "-1"
    upload(recording, full.uploads, "new")
    found = [one for _ in range(3) for one in ticked(full, "new_uploads").requests]
    fresh = next(one for one in found if one.partition_key == "new")
    assert "dagster/priority" not in fresh.tags


@pytest.mark.parametrize(
    ("number", "waits", "file"),
    [
        (errno.EIO, True, "meta.json"),
        (errno.EMFILE, True, "recording.mp4"),
        (errno.EACCES, False, "meta.json"),
        (errno.EACCES, False, "input_log.jsonl"),
        (errno.EACCES, False, "recording.mp4"),
    ],
)
def test_an_uploaded_file_is_at_fault_only_when_its_disk_is_not(
    made: Bench, monkeypatch: pytest.MonkeyPatch, number: int, waits: bool, file: str
) -> None:
    request, opened = requested(made), Path.open

    def fail(path: Path, *arguments: object, **options: object) -> object:
        if path.name == file and path.is_relative_to(made.uploads):
            raise OSError(number, "x")
        return opened(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", fail)
    result = launched(made, request)
    assert not result.success
    assert (run_of(made, result).tags.get(OUTCOME_TAG) == "waiting") is waits
    monkeypatch.undo()
    records = list_quarantine(made.workspace.store)
    assert [record.problems[0]["code"] for record in records] == ["unreadable_file"] * (not waits)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.EIO, "x"), "Input/output error"),
        (MemoryError(), "not enough memory"),
        (StorageError("the bucket does not answer"), "the bucket does not answer"),
        (TransientError(FULL), FULL),
        (TimeoutError(), "the connection failed"),
        (ZeroDivisionError(), None),
        (MissingOutput("events/one"), None),
        (sqlite3.OperationalError("no such table: x"), None),
    ],
)
def test_which_errors_pass_by_themselves(error: Exception, reason: str | None) -> None:
    assert transient_reason(error) == reason


def test_a_database_without_room_passes_too(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "one.sqlite")
    connection.execute("PRAGMA max_page_count = 2")
    connection.execute("CREATE TABLE one (data)")
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("INSERT INTO one VALUES (zeroblob(100000))")
    connection.close()
    wrapped = sqlalchemy.exc.OperationalError("INSERT", {}, caught.value)
    assert transient_reason(wrapped) == transient_reason(caught.value)
    assert transient_reason(wrapped) == "database or disk is full"


WAITS = (Problem("waiting", ".", FULL),)


class TestCommandLine:
    """The command line is patient for about a minute, then it says what waits."""

    @pytest.fixture
    def waits(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Ids that wait as long as they are in the list; nothing is started for them."""
        waiting: list[str] = []

        def run(
            _workspace: object, tasks: list[DemonstrationTask], workers: int, log: object
        ) -> Iterator[BuildResult | Processed]:
            assert workers
            assert log is None
            for key in (task.demonstration for task in tasks):
                waits = key in waiting
                status = Status.WAITING if waits else Status.BUILT
                yield Processed(key, status, problems=WAITS if waits else ())

        monkeypatch.setattr(batch, "process", run)
        return waiting

    def test_it_goes_on_when_there_is_room_again(self, made: Bench, waits: list[str]) -> None:
        paused: list[tuple[str, float]] = []

        def pause(reason: str, seconds: float) -> None:
            paused.append((reason, seconds))
            if len(paused) == 2:
                waits.clear()

        waits += ["b", "c"]
        tasks = [DemonstrationTask(key) for key in ("a", "b", "c", "d")]
        found = list(process_patiently(made.workspace, tasks, 1, pause))
        assert [one.demonstration for one in found] == ["a", "d", "b", "c"]
        assert {one.status for one in found} == {Status.BUILT}
        assert paused == [(FULL, COMMAND_PAUSES[0]), (FULL, COMMAND_PAUSES[1])]

    def test_what_still_waits_is_told_and_costs_few_attempts(
        self, made: Bench, waits: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tasks = [DemonstrationTask(str(number)) for number in range(100)]
        waits += [task.demonstration for task in tasks]
        tried: list[DemonstrationTask] = []
        once = batch.process

        def count(
            workspace: Any, part: list[DemonstrationTask], workers: int, log: Any
        ) -> Iterator[BuildResult | Processed]:
            tried.extend(part)
            return once(workspace, part, workers=workers, log=log)

        monkeypatch.setattr(batch, "process", count)
        found = list(process_patiently(made.workspace, tasks, 2, lambda *_: None))
        assert {(one.status, one.reason) for one in found} == {(Status.WAITING, FULL)}
        assert len(found) == 100
        assert len(tried) == 100 + 2 * len(COMMAND_PAUSES)

    def test_too_many_processes_let_those_wait_that_are_left(
        self, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise BlockingIOError(errno.EAGAIN, "fork")

        monkeypatch.setattr(batch, "_Worker", refuse)
        [found] = process_patiently(made.workspace, [DemonstrationTask("one")], 1, lambda *_: None)
        assert (found.demonstration, found.status) == ("one", Status.WAITING)
