"""Runs that died: each leaves a record that says where, and none blames what was typed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.execution.plan.objects import StepSuccessData

from demo_pipeline.chain import STAGES
from demo_pipeline.defs import demonstrations
from demo_pipeline.defs.build import build_defs
from demo_pipeline.defs.failures import quarantine_failures
from demo_pipeline.defs.tags import WILL_RETRY_TAG
from demo_pipeline.storage.quarantine import QuarantineRecord, list_quarantine, read_quarantine
from demo_pipeline_tests.defs.bench import Bench, Result, bench, materialized, ticked
from demo_pipeline_tests.uploads import TYPED, spoil_log, upload


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        upload(recording, one.uploads, "one")
        yield one


@pytest.fixture
def broken(made: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The stage `actions` has a defect whose words quote what was typed."""

    def build(*_: object) -> dict[str, object]:
        raise ZeroDivisionError(TYPED)

    stages = [replace(one, build=build) if one.name == "actions" else one for one in STAGES]
    monkeypatch.setattr(demonstrations, "STAGES", stages)
    return replace(made, definitions=build_defs(made.settings))


def told(made: Bench, run: dg.DagsterRun, event: dg.DagsterEvent) -> str:
    """The sensor, told of a run that failed."""
    context = dg.build_run_status_sensor_context(
        sensor_name="quarantine_failures",
        dagster_event=event,
        dagster_instance=made.instance,
        dagster_run=run,
        resources={"pipeline": made.pipeline},
    ).for_run_failure()
    said = quarantine_failures(context)
    assert isinstance(said, dg.SkipReason)
    return said.skip_message or ""


def told_of(made: Bench, result: Result) -> str:
    run = made.instance.get_run_by_id(result.run_id)
    assert run is not None
    return told(made, run, result.get_run_failure_event())


def standing(made: Bench) -> QuarantineRecord:
    [record] = list_quarantine(made.pipeline.store)
    return record


def test_a_crash_is_recorded_with_its_stage_and_without_its_words(broken: Bench) -> None:
    result = broken.process("one")
    assert list_quarantine(broken.pipeline.store) == []
    assert "quarantined at actions" in told_of(broken, result)
    record = standing(broken)
    assert (record.stage, record.attempts) == ("actions", 1)
    [problem] = record.problems
    assert problem["code"] == "run_crashed"
    assert "ZeroDivisionError" in str(problem["message"])
    assert "retry_quarantined" in str(problem["remedy"])
    assert TYPED not in record.model_dump_json()


def test_a_crash_that_comes_again_is_counted_and_a_good_run_releases_it(
    made: Bench, broken: Bench
) -> None:
    for attempts in (1, 2):
        told_of(broken, broken.process("one"))
        assert standing(broken).attempts == attempts
    monkeypatched = demonstrations.STAGES
    demonstrations.STAGES = STAGES
    try:
        whole = replace(made, definitions=build_defs(made.settings))
        assert whole.process("one").success
    finally:
        demonstrations.STAGES = monkeypatched
    assert list_quarantine(made.pipeline.store) == []


def test_a_stage_that_gave_it_up_has_said_why_itself(made: Bench) -> None:
    spoil_log(made.uploads / "one")
    result = made.process("one")
    before = standing(made)
    assert "has said why" in told_of(made, result)
    assert standing(made) == before


def test_a_run_that_is_tried_once_more_is_not_over(broken: Bench) -> None:
    result = broken.process("one")
    broken.instance.add_run_tags(result.run_id, {WILL_RETRY_TAG: "true"})
    assert "once more" in told_of(broken, result)
    assert list_quarantine(broken.pipeline.store) == []


def test_a_failure_heard_of_late_does_not_blame_what_came_through_since(
    made: Bench, broken: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = broken.process("one")
    monkeypatch.setattr(demonstrations, "STAGES", STAGES)
    assert replace(made, definitions=build_defs(made.settings)).process("one").success
    assert "another run came after" in told_of(made, result)
    assert read_quarantine(made.pipeline.store, "one") is None


def killed(made: Bench, *begun: str) -> tuple[dg.DagsterRun, dg.DagsterEvent]:
    """A run whose process was killed: steps were begun, and monitoring failed the run."""
    made.instance.add_dynamic_partitions("demonstrations", ["one"])
    run = made.instance.create_run_for_job(
        made.definitions.resolve_job_def("process_demonstration"),
        tags={"dagster/partition": "one"},
        status=dg.DagsterRunStatus.STARTED,
    )
    start, success = dg.DagsterEventType.STEP_START, dg.DagsterEventType.STEP_SUCCESS
    for step in begun:
        one = dg.DagsterEvent(start.value, run.job_name, step_key=step)
        made.instance.report_dagster_event(one, run.run_id)
        if step != begun[-1]:
            done = StepSuccessData(duration_ms=1.0)
            one = dg.DagsterEvent(
                success.value, run.job_name, step_key=step, event_specific_data=done
            )
            made.instance.report_dagster_event(one, run.run_id)
    made.instance.report_run_failed(run)
    logs = made.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    event = logs[-1].dagster_event
    assert event is not None
    return run, event


@pytest.mark.parametrize(
    ("begun", "stage", "said"),
    [
        (("raw_recordings", "events", "screenshots"), "screenshots", "killed, or out of memory"),
        ((), "raw_recordings", "never began"),
    ],
)
def test_a_killed_process_is_recorded_at_the_step_it_was_in(
    made: Bench, begun: tuple[str, ...], stage: str, said: str
) -> None:
    assert f"quarantined at {stage}" in told(made, *killed(made, *begun))
    assert standing(made).stage == stage
    assert said in str(standing(made).problems[0]["message"])


def test_the_table_is_written_again_when_somebody_came_or_went(made: Bench) -> None:
    first = ticked(made, "quarantine_changed")
    assert len(first.requests) == 1
    assert ticked(made, "quarantine_changed", first.cursor).requests == ()
    spoil_log(made.uploads / "one")
    made.process("one")
    second = ticked(made, "quarantine_changed", first.cursor)
    assert len(second.requests) == 1
    assert materialized(made.run("report_quarantine"))
    assert ticked(made, "quarantine_changed", second.cursor).requests == ()
