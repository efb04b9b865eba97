"""Crashed runs: each leaves a record with its stage and without typed text."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs import demonstrations, sensors
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.demonstration_runs import InstanceRuns
from demo_pipeline.runs.discovery import Ending
from demo_pipeline.runs.quarantine import (
    QuarantineRecord,
    list_quarantine,
    record_crash,
)
from demo_pipeline.runs.results import Status
from demo_pipeline.runs.stages import STAGES
from demo_pipeline_tests.defs.bench import Bench, bench, launched, materialized, ticked
from demo_pipeline_tests.uploads import TYPED, spoil_log, upload


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        upload(recording, one.uploads, "one")
        yield one


@pytest.fixture
def broken(made: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The stage `actions` has a defect whose message quotes typed text."""

    def build(*_: object) -> dict[str, object]:
        raise ZeroDivisionError(TYPED)

    stages = [replace(one, build=build) if one.name == "actions" else one for one in STAGES]
    monkeypatch.setattr(demonstrations, "STAGES", stages)
    return replace(made, definitions=build_defs(made.settings))


def standing(made: Bench) -> QuarantineRecord:
    [record] = list_quarantine(made.workspace.store)
    return record


def test_a_defect_is_recorded_with_its_stage_and_without_its_message(broken: Bench) -> None:
    broken.process("one")
    record = standing(broken)
    assert (record.stage, record.attempts) == ("actions", 1)
    [problem] = record.problems
    assert problem["code"] == "run_crashed"
    assert "ZeroDivisionError" in str(problem["message"])
    assert "retry_quarantined" in str(problem["remedy"])
    assert TYPED not in record.model_dump_json()


@pytest.mark.no_cover  # other tests run the same lines
def test_repeated_defects_are_counted_and_a_good_run_releases(
    made: Bench, broken: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempts in (1, 2):
        broken.process("one")
        assert standing(broken).attempts == attempts
    with monkeypatch.context() as patch:
        patch.setattr(demonstrations, "STAGES", STAGES)
        whole = replace(made, definitions=build_defs(made.settings))
        assert whole.process("one").success
    assert list_quarantine(made.workspace.store) == []


def killed(made: Bench, *begun: str) -> str:
    """Id of a run whose process was killed: stages were begun, and monitoring failed the run."""
    made.instance.add_dynamic_partitions("demonstrations", ["one"])
    run = made.instance.create_run_for_job(
        made.definitions.resolve_job_def("process_demonstration"),
        tags={"dagster/partition": "one"},
        status=dg.DagsterRunStatus.STARTED,
    )
    if begun:
        start = dg.DagsterEventType.STEP_START.value
        one = dg.DagsterEvent(start, run.job_name, step_key="demonstrations")
        made.instance.report_dagster_event(one, run.run_id)
    for stage in begun:
        made.instance.report_engine_event(f"{stage}: building {stage}/one, because …", run)
    made.instance.report_run_failed(run)
    return run.run_id


def ending(made: Bench, run_id: str) -> Ending:
    """How discovery takes the end of a run."""
    [ended] = InstanceRuns(made.instance, made.workspace).ended([run_id])
    return ended.ending


@pytest.mark.parametrize(
    ("begun", "stage", "said"),
    [
        (("raw_recordings", "events", "screenshots"), "screenshots", "killed, or out of memory"),
        ((), "raw_recordings", "ended before its first step"),
    ],
)
def test_a_killed_process_is_recorded_with_its_stage(
    made: Bench, begun: tuple[str, ...], stage: str, said: str
) -> None:
    run_id = killed(made, *begun)
    for _ in range(2):  # a tick may be killed before it noted the end
        assert ending(made, run_id) == (Status.BUILT, "")
        assert (standing(made).stage, standing(made).attempts) == (stage, 1)
    assert said in str(standing(made).problems[0]["message"])


def test_the_tick_records_a_killed_run_that_a_person_launched(made: Bench) -> None:
    killed(made, "raw_recordings", "events")
    for _ in range(2):
        ticked(made, "new_uploads")
        assert (standing(made).stage, standing(made).attempts) == ("events", 1)
    assert made.process("one").success
    ticked(made, "new_uploads")
    assert list_quarantine(made.workspace.store) == []


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (sqlite3.OperationalError(TYPED), Status.WAITING, "OperationalError"),
        (ZeroDivisionError(TYPED), Status.BUILT, "ZeroDivisionError"),
    ],
)
def test_an_error_of_dagster_itself_waits_when_it_passes(
    made: Bench,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    outcome: Status,
    said: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(demonstrations, "claim_run", fail)
    found = ending(made, made.process("one").run_id)
    records = "".join(one.model_dump_json() for one in list_quarantine(made.workspace.store))
    assert found.status is outcome
    assert said in found.reason + records
    assert TYPED not in found.reason + records


class TestTable:
    def test_it_is_requested_when_a_record_was_added_or_deleted(self, made: Bench) -> None:
        assert len(ticked(made, "quarantine_changed").requests) == 1
        self.write(made)
        assert ticked(made, "quarantine_changed").requests == ()
        spoil_log(made.uploads / "one")
        made.process("one")
        self.write(made)
        assert ticked(made, "quarantine_changed").requests == ()

    def test_it_is_requested_when_another_stage_or_attempt_failed(self, made: Bench) -> None:
        for stage in ("events", "screenshots", "screenshots"):
            record_crash(made.workspace, "one", stage, "KeyError")
            self.write(made)
        assert ticked(made, "quarantine_changed").requests == ()

    def test_a_failed_table_run_is_requested_again(
        self, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record_crash(made.workspace, "one", "events", "KeyError")
        [request] = ticked(made, "quarantine_changed").requests
        run = self.launch(made, request)
        assert "being written" in ticked(made, "quarantine_changed").skipped
        made.instance.report_run_failed(run)
        assert "attempt 1 failed" in ticked(made, "quarantine_changed").skipped
        monkeypatch.setattr(sensors, "_TABLE_INTERVAL", 0)
        self.write(made)
        assert "every record" in ticked(made, "quarantine_changed").skipped

    @staticmethod
    def launch(made: Bench, request: dg.RunRequest) -> dg.DagsterRun:
        job = made.definitions.resolve_job_def("report_quarantine")
        started = dg.DagsterRunStatus.STARTED
        return made.instance.create_run_for_job(job, tags=dict(request.tags), status=started)

    @staticmethod
    def write(made: Bench) -> None:
        [request] = ticked(made, "quarantine_changed").requests
        assert materialized(launched(made, request, "report_quarantine"))
