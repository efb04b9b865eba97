"""Runs of a demonstration that needs too much: tried once more alone, then quarantined."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from demo_pipeline.defs import demonstration_assets
from demo_pipeline.defs.code_location import build_defs
from demo_pipeline.defs.exceeded_runs import (
    ExceededLimit,
    exceeded_limit,
    mark_exceeded,
    quarantine_exceeded,
)
from demo_pipeline.defs.failure_sensor import record_failure
from demo_pipeline.defs.local_execution import process, register_uploads
from demo_pipeline.defs.partitions import register_partitions
from demo_pipeline.defs.tags import FINGERPRINT_TAG, OUTCOME_TAG, PARTITION_NAME_TAG
from demo_pipeline.defs.waiting_runs import waiting_demonstrations
from demo_pipeline.pipeline.quarantine import read_quarantine
from demo_pipeline.pipeline.runner import run_stage
from demo_pipeline.pipeline.stages import STAGES
from demo_pipeline.recording.recording_stages import RecordingInputs
from demo_pipeline.settings import LimitSettings
from demo_pipeline.stage import Summary
from demo_pipeline.storage.uploads.fingerprint import upload_listing_fingerprint
from demo_pipeline_tests.defs.bench import Bench, bench
from demo_pipeline_tests.uploads import upload

LITTLE = 0.05  # seconds; `screenshots` takes more
WORDS = "events needs more than 0.2 s of CPU time (limits.cpu_seconds)"


@pytest.fixture
def made(tmp_path: Path, recording: Path) -> Iterator[Bench]:
    """Two uploads."""
    with bench(tmp_path, kept=True) as one:
        for name in ("one", "two"):
            upload(recording, one.uploads, name)
        yield one


@pytest.fixture
def slow(made: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The stage `events` does not end, and may not use much CPU time."""

    def build(_context: RecordingInputs, _out: Path) -> Summary:
        end = time.process_time() + 60
        while time.process_time() < end:
            pass
        return {}

    stages = [replace(one, build=build) if one.name == "events" else one for one in STAGES]
    monkeypatch.setattr(demonstration_assets, "STAGES", stages)
    limits = LimitSettings(
        cpu_seconds=0.2, cpu_seconds_per_video_second=0, cpu_seconds_per_action=0
    )
    settings = made.settings.model_copy(update={"limits": limits})
    made.catalogue()
    register_partitions(made.instance, ["one"])
    built = Bench(settings, build_defs(settings), made.instance)
    run_stage(made.workspace, STAGES[0], "one")  # with the usual limits, so that it is unchanged
    run_stage(made.workspace, STAGES[0], "two")
    return built


def newest(instance: dg.DagsterInstance) -> dg.DagsterRun:
    return instance.get_runs(limit=1)[0]


def process_as_listed(made: Bench) -> None:
    """As a sensor does: the run is for the upload that is there now."""
    listed = upload_listing_fingerprint(made.workspace.uploads, "one")
    tags = {FINGERPRINT_TAG: str(listed)}
    made.run("process_demonstration", "one", only=("raw_recordings", "events"), **tags)


class TestInARun:
    def test_the_first_time_it_waits_and_says_what_for(self, slow: Bench) -> None:
        process_as_listed(slow)
        assert newest(slow.instance).tags[OUTCOME_TAG] == "waiting"
        [waiting] = waiting_demonstrations(slow.instance)
        assert (waiting.demonstration, waiting.reason) == ("one", WORDS)
        assert read_quarantine(slow.workspace.store, "one") is None

    @pytest.mark.no_cover  # other tests run the same lines
    def test_the_second_time_it_is_quarantined(self, slow: Bench) -> None:
        for _ in range(2):
            process_as_listed(slow)
        record = read_quarantine(slow.workspace.store, "one")
        assert record is not None
        assert record.problems[0]["message"] == f"{WORDS}, also alone in a process"
        assert waiting_demonstrations(slow.instance) == []

    @pytest.mark.no_cover  # other tests run the same lines
    def test_another_upload_and_a_retry_begin_anew(self, slow: Bench) -> None:
        process_as_listed(slow)
        meta = slow.uploads / "one" / "meta.json"
        meta.write_text(meta.read_text() + " ")
        process_as_listed(slow)
        assert read_quarantine(slow.workspace.store, "one") is None
        process_as_listed(slow)
        assert read_quarantine(slow.workspace.store, "one") is not None
        process_as_listed(slow)
        assert newest(slow.instance).tags[OUTCOME_TAG] == "waiting"


@pytest.mark.no_cover  # other tests run the same lines
def test_the_command_line_tries_it_alone_at_once(
    made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    register_uploads(made.workspace)
    pauses: list[str] = []
    made.catalogue()
    limits = LimitSettings(
        cpu_seconds=LITTLE, cpu_seconds_per_video_second=0, cpu_seconds_per_action=0
    )
    settings = made.settings.model_copy(update={"limits": limits})
    outcomes = list(process(settings, ["one"], 2, lambda reason, _: pauses.append(reason)))
    assert [(found.demonstration, found.status) for found in outcomes] == [("one", "quarantined")]
    assert "needs more than 0.05 s of CPU time" in outcomes[0].reasons[0]
    assert "also alone in a process" in outcomes[0].reasons[0]
    assert pauses == []


class TestAProcessThatHadToEnd:
    """The stage could not be stopped, so that its run has only the tag."""

    def ended(self, made: Bench) -> dg.DagsterRun:
        job = made.definitions.resolve_job_def("process_demonstration")
        run = made.instance.create_run_for_job(job, tags={PARTITION_NAME_TAG: "one"})
        mark_exceeded(made.instance, run.run_id, ExceededLimit("events", "needs more than it may"))
        made.instance.report_run_failed(run)
        return newest(made.instance)

    def test_the_command_line_quarantines_it(self, made: Bench) -> None:
        self.ended(made)
        reason = quarantine_exceeded(made.instance, made.workspace, "one")
        assert reason == "events: it needs more than it may"
        record = read_quarantine(made.workspace.store, "one")
        assert record is not None
        assert record.problems[0]["message"] == (
            "the run ended in events: it needs more than it may"
        )

    def test_the_sensor_quarantines_it_with_the_same_words(self, made: Bench) -> None:
        run = self.ended(made)
        event = next(
            entry.dagster_event
            for entry in made.instance.all_logs(run.run_id)
            if entry.dagster_event is not None and entry.dagster_event.is_run_failure
        )
        context = dg.build_run_status_sensor_context(
            "s", event, made.instance, run
        ).for_run_failure()
        record_failure(context, made.workspace)
        record = read_quarantine(made.workspace.store, "one")
        assert record is not None
        assert record.problems[0]["message"] == (
            "the run ended in events: it needs more than it may"
        )

    def test_a_tag_of_the_run_before_says_nothing(self, made: Bench) -> None:
        tags = dict(self.ended(made).tags)
        job = made.definitions.resolve_job_def("process_demonstration")
        again = made.instance.create_run_for_job(job, tags=tags)
        assert exceeded_limit(again) is None
        assert quarantine_exceeded(made.instance, made.workspace, "one") is None
