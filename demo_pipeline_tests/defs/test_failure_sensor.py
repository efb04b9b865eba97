"""Crashed runs: each leaves a record with its stage and without typed text."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.storage.tags import WILL_RETRY_TAG

from demo_pipeline.defs import demonstrations, failure_sensor
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.failure_sensor import UnrecordedError, quarantine_failures, record_failure
from demo_pipeline.runs.quarantine import (
    QuarantineRecord,
    list_quarantine,
    read_quarantine,
    record_crash,
)
from demo_pipeline.runs.stages import STAGES
from demo_pipeline.store.errors import StorageError
from demo_pipeline_tests.defs.bench import Bench, Result, bench, launched, materialized, ticked
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


def told(made: Bench, run: dg.DagsterRun, event: dg.DagsterEvent) -> str:
    """The result of the sensor for a run that failed."""
    context = dg.build_run_status_sensor_context(
        sensor_name="quarantine_failures",
        dagster_event=event,
        dagster_instance=made.instance,
        dagster_run=run,
        resources={"workspace": made.workspace},
    ).for_run_failure()
    return record_failure(context, made.workspace)


def told_of(made: Bench, result: Result) -> str:
    run = made.instance.get_run_by_id(result.run_id)
    assert run is not None
    return told(made, run, result.get_run_failure_event())


def standing(made: Bench) -> QuarantineRecord:
    [record] = list_quarantine(made.workspace.store)
    return record


def test_a_crash_is_recorded_with_its_stage_and_without_its_message(broken: Bench) -> None:
    result = broken.process("one")
    assert list_quarantine(broken.workspace.store) == []
    assert "quarantined in actions" in told_of(broken, result)
    record = standing(broken)
    assert (record.stage, record.attempts) == ("actions", 1)
    [problem] = record.problems
    assert problem["code"] == "run_crashed"
    assert "ZeroDivisionError" in str(problem["message"])
    assert "retry_quarantined" in str(problem["remedy"])
    assert TYPED not in record.model_dump_json()


@pytest.mark.no_cover  # other tests run the same lines
def test_repeated_crashes_are_counted_and_a_good_run_releases(
    made: Bench, broken: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for attempts in (1, 2):
        told_of(broken, broken.process("one"))
        assert standing(broken).attempts == attempts
    with monkeypatch.context() as patch:
        patch.setattr(demonstrations, "STAGES", STAGES)
        whole = replace(made, definitions=build_defs(made.settings))
        assert whole.process("one").success
    assert list_quarantine(made.workspace.store) == []


def test_a_crash_that_the_run_recorded_counts_once(
    broken: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that the daemon launched records a defect itself, so that discovery need not wait."""
    origin = SimpleNamespace(repository_origin=SimpleNamespace(get_label=lambda: "a label"))
    monkeypatch.setattr(dg.DagsterRun, "remote_job_origin", origin)
    result = broken.process("one")
    assert standing(broken).attempts == 1
    assert "already recorded" in told_of(broken, result)
    assert standing(broken).attempts == 1


def test_a_failure_with_a_quarantine_record_is_not_recorded_again(made: Bench) -> None:
    spoil_log(made.uploads / "one")
    result = made.process("one")
    before = standing(made)
    assert "wrote the quarantine record" in told_of(made, result)
    assert standing(made) == before


def test_a_run_that_dagster_retries_is_not_recorded(broken: Bench) -> None:
    result = broken.process("one")
    broken.instance.add_run_tags(result.run_id, {WILL_RETRY_TAG: "true"})
    assert "Dagster retries" in told_of(broken, result)
    assert list_quarantine(broken.workspace.store) == []


@pytest.mark.no_cover  # other tests run the same lines
def test_an_old_failure_is_ignored_after_a_newer_run(
    made: Bench, broken: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = broken.process("one")
    monkeypatch.setattr(demonstrations, "STAGES", STAGES)
    assert replace(made, definitions=build_defs(made.settings)).process("one").success
    assert "a newer run than" in told_of(made, result)
    assert read_quarantine(made.workspace.store, "one") is None


def killed(made: Bench, *begun: str) -> tuple[dg.DagsterRun, dg.DagsterEvent]:
    """A run whose process was killed: stages were begun, and monitoring failed the run."""
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
    logs = made.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    event = logs[-1].dagster_event
    assert event is not None
    return run, event


@pytest.mark.parametrize(
    ("begun", "stage", "said"),
    [
        (("raw_recordings", "events", "screenshots"), "screenshots", "killed, or out of memory"),
        ((), "raw_recordings", "ended before its first step"),
    ],
)
def test_a_killed_process_is_recorded_with_its_running_step(
    made: Bench, begun: tuple[str, ...], stage: str, said: str
) -> None:
    assert f"quarantined in {stage}" in told(made, *killed(made, *begun))
    assert standing(made).stage == stage
    assert said in str(standing(made).problems[0]["message"])


def evaluated(made: Bench, cursor: str | None) -> str:
    """A tick of the sensor as the daemon makes it; the next cursor."""
    sensor = made.definitions.resolve_sensor_def(quarantine_failures.name)
    with dg.build_sensor_context(
        instance=made.instance,
        cursor=cursor,
        resources={"workspace": made.workspace},
        definitions=made.definitions,
    ) as context:
        return str(sensor.evaluate_tick(context).cursor)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Bench]:
    """Runs of this instance are found by their events."""
    with bench(tmp_path, kept=True) as one:
        yield one


def die(made: Bench, *keys: str) -> None:
    """Runs that failed with their machine."""
    made.instance.add_dynamic_partitions("demonstrations", list(keys))
    job = made.definitions.resolve_job_def("process_demonstration")
    for key in keys:
        tags, started = {"dagster/partition": key}, dg.DagsterRunStatus.STARTED
        run = made.instance.create_run_for_job(job, tags=tags, status=started)
        made.instance.report_run_failed(run)


def test_a_failure_that_could_not_be_recorded_is_read_again_in_the_next_tick(
    kept: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster skips a failure whose sensor raised anything but one of Dagster's errors."""
    cursor = evaluated(kept, None)
    die(kept, "a", "b")
    refused: list[str] = []

    def once(workspace, demonstration, *rest):
        if demonstration == "b" and not refused:
            refused.append(demonstration)
            raise StorageError("the bucket does not answer")
        return record_crash(workspace, demonstration, *rest)

    monkeypatch.setattr(failure_sensor, "record_crash", once)
    with pytest.raises(UnrecordedError, match="does not answer"):
        evaluated(kept, cursor)
    evaluated(kept, cursor)
    held = list_quarantine(kept.workspace.store)
    assert [(one.demonstration, one.attempts) for one in held] == [("a", 1), ("b", 1)]


def test_many_failures_at_once_are_recorded_in_one_tick(kept: Bench) -> None:
    cursor = evaluated(kept, None)
    die(kept, "a", "b", "c", "d")
    assert evaluated(kept, cursor) != cursor
    assert [one.demonstration for one in list_quarantine(kept.workspace.store)] == list("abcd")


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
        monkeypatch.setattr(failure_sensor, "_INTERVAL", 0)
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
