"""Many uploads at once share runs, and each of them keeps its own history."""

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import WILL_RETRY_TAG

from demo_pipeline.defs import demonstration_runs
from demo_pipeline.defs.dataset_assets import reconcile_uploads
from demo_pipeline.defs.demonstration_runs import (
    InstanceRuns,
    demonstrations_of,
    discovery_path,
    members_of,
    note_outcomes,
    open_table,
)
from demo_pipeline.defs.tags import OUTCOME_TAG, REASON_TAG
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery import Ending
from demo_pipeline.runs.failures import FIRST_PAUSE_SECONDS
from demo_pipeline.runs.quarantine import read_quarantine, record_crash, write_quarantine
from demo_pipeline.runs.results import Status
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.uploads import upload_listing_fingerprint
from demo_pipeline_tests.defs.bench import Bench, bench, failures, ticked
from demo_pipeline_tests.uploads import spoil_log, upload

KEYS = ("a", "b", "c", "d")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path, kept=True, batch_from=3, partitions_per_run=10) as one:
        yield one


def arrive(made: Bench, *names: str) -> None:
    """Uploads of which only the files' names matter."""
    for name in names:
        (made.uploads / name).mkdir(exist_ok=True)
        for file in RECORDING_FILES:
            (made.uploads / name / file).write_bytes(b"x")


def requested(made: Bench) -> list[dg.RunRequest]:
    """The requests of the first of three ticks that has some."""
    looks = [ticked(made, "new_uploads").requests for _ in range(3)]
    return next((list(found) for found in looks if found), [])


def created(
    made: Bench, request: dg.RunRequest, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED
) -> dg.DagsterRun:
    """The run that the daemon makes of a request."""
    assert request.job_name is not None
    job = made.definitions.resolve_job_def(request.job_name)
    return made.instance.create_run_for_job(job, tags=dict(request.tags), status=status)


def endings(made: Bench, run_id: str) -> dict[str, str]:
    """How a run ended for each of its members; empty while it lives."""
    ended = list(InstanceRuns(made.instance, made.workspace).ended([run_id]))
    return {key: one.members.get(key, one.ending).status for one in ended for key in KEYS}


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    then = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: then)


class TestRequests:
    def test_a_few_uploads_get_a_run_each(self, made: Bench) -> None:
        arrive(made, "a", "b")
        found = requested(made)
        assert [request.partition_key for request in found] == ["a", "b"]
        assert {request.job_name for request in found} == {"process_demonstration"}

    def test_many_uploads_share_one_run_that_names_each_upload(self, made: Bench) -> None:
        arrive(made, *KEYS)
        [request] = requested(made)
        assert (request.job_name, request.partition_key) == ("process_batch", None)
        assert request.tags[REASON_TAG] == "new"
        members = members_of(created(made, request))
        assert [member.demonstration for member in members] == list(KEYS)
        for member in members:
            listed = str(upload_listing_fingerprint(made.workspace.uploads, member.demonstration))
            assert member.fingerprint == listed
            assert member.run_key == f"{member.demonstration}@{listed[:16]}"

    def test_no_run_is_for_more_than_the_settings_say(self, tmp_path: Path) -> None:
        with bench(tmp_path, batch_from=3, partitions_per_run=2) as made:
            arrive(made, *KEYS, "e")
            found = requested(made)
            assert [request.partition_key for request in found] == [None, None, "e"]

    def test_with_one_partition_a_run_nothing_is_shared(self, tmp_path: Path) -> None:
        with bench(tmp_path, batch_from=2, partitions_per_run=1) as made:
            arrive(made, *KEYS)
            assert [request.partition_key for request in requested(made)] == list(KEYS)

    def test_what_is_launched_is_not_requested_again_also_without_the_table(
        self, made: Bench
    ) -> None:
        arrive(made, *KEYS)
        [request] = requested(made)
        [again] = requested(made)
        assert again.run_key == request.run_key
        created(made, request)
        assert requested(made) == []
        for file in discovery_path(made.instance, made.workspace).parent.iterdir():
            file.unlink()
        assert requested(made) == []
        arrive(made, "e")
        assert [one.partition_key for one in requested(made)] == ["e"]


class TestOutcomes:
    @pytest.fixture(autouse=True)
    def _launch(self, made: Bench) -> None:
        arrive(made, *KEYS)
        [request] = requested(made)
        self.run = created(made, request)
        assert requested(made) == []

    def test_each_member_has_the_outcome_that_the_run_noted(self, made: Bench) -> None:
        assert endings(made, self.run.run_id) == {}
        noted = {
            "b": Ending(Status.SUPERSEDED),
            "c": Ending(Status.WAITING, "No space left on device"),
            "d": Ending(Status.BUILT),
        }
        note_outcomes(made.instance, self.run.run_id, noted)
        made.instance.report_run_failed(self.run)
        wanted = (Status.BUILT, Status.SUPERSEDED, Status.WAITING, Status.BUILT)
        assert tuple(endings(made, self.run.run_id).values()) == wanted
        ticked(made, "new_uploads")
        with open_table(made.instance, made.workspace) as table:
            assert [(one.id, one.reason) for one in table.waiting()] == [
                ("c", "No space left on device")
            ]

    def test_one_that_waits_is_requested_again_after_its_pause(
        self, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        note_outcomes(made.instance, self.run.run_id, {"c": Ending(Status.WAITING, "full")})
        made.instance.report_run_failed(self.run)
        assert requested(made) == []
        later(monkeypatch, FIRST_PAUSE_SECONDS + 1)
        [again] = requested(made)
        assert (again.partition_key, again.tags[REASON_TAG]) == ("c", "waiting")

    @pytest.mark.parametrize("canceled", [True, False])
    def test_after_a_lost_run_only_what_it_had_not_done_is_requested(
        self, made: Bench, *, canceled: bool
    ) -> None:
        record_crash(made.workspace, "a", "events", "MemoryError")
        if canceled:
            made.instance.report_run_canceled(self.run)
        else:
            made.instance.report_run_failed(self.run)
        [again] = requested(made)
        assert demonstrations_of(created(made, again)) == ["b", "c", "d"]
        assert again.tags[REASON_TAG] == "lost"
        assert again.tags["dagster/priority"] == "-1"

    @pytest.mark.parametrize("corrected", [True, False])
    def test_a_record_of_the_files_before_a_correction_ends_no_lost_run(
        self, made: Bench, *, corrected: bool
    ) -> None:
        record_crash(made.workspace, "b", "screenshots", "MemoryError")
        if corrected:
            record = read_quarantine(made.workspace.store, "b")
            assert record is not None
            write_quarantine(made.workspace.store, record.model_copy(update={"fingerprint": "0"}))
        made.instance.report_run_canceled(self.run)
        [again] = requested(made)
        lost = {"a", "b", "c", "d"} if corrected else {"a", "c", "d"}
        assert set(demonstrations_of(created(made, again))) == lost

    def test_a_rejection_that_the_run_noted_ends_it_without_reading_the_upload(
        self, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        record_crash(made.workspace, "b", "screenshots", "MemoryError")
        note_outcomes(made.instance, self.run.run_id, {"b": Ending(Status.BUILT)})
        made.instance.report_run_failed(self.run)
        uploads = type(made.workspace.uploads)
        monkeypatch.setattr(uploads, "identity", lambda *_: pytest.fail("it was read"))
        assert requested(made) == []

    def test_a_run_that_dagster_retries_still_lives(self, made: Bench) -> None:
        made.instance.add_run_tags(self.run.run_id, {WILL_RETRY_TAG: "true"})
        made.instance.report_run_failed(self.run)
        assert endings(made, self.run.run_id) == {}

    def test_no_upload_is_lost_in_the_accounting(self, made: Bench) -> None:
        noted = dict.fromkeys(KEYS, Ending(Status.WAITING, "full"))
        note_outcomes(made.instance, self.run.run_id, noted)
        made.instance.report_run_failed(self.run)
        ticked(made, "new_uploads")
        counts = reconcile_uploads(made.instance, made.workspace)
        assert counts.balanced
        assert (counts.listed, counts.pending) == (4, 4)


def test_a_run_notes_what_became_of_each_member(made: Bench, recording: Path) -> None:
    for key in ("a", "b", "c"):
        upload(recording, made.uploads, key)
    spoil_log(made.uploads / "b")
    made.catalogue()
    [request] = requested(made)
    (made.uploads / "c" / "meta.json").touch()  # after it was listed
    result = made.run("process_batch", None, **request.tags)
    assert "1 of 3 demonstrations done, 1 failed, 1 superseded" in (
        failures(result)["all_stages"].description
    )
    run = made.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert OUTCOME_TAG not in run.tags
    outcomes = tuple(endings(made, run.run_id).values())[:3]
    assert outcomes == (Status.BUILT, Status.REJECTED, Status.SUPERSEDED)


def test_a_run_that_cannot_be_judged_is_said_once(
    made: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arrive(made, "a")
    [request] = requested(made)
    job = made.definitions.resolve_job_def("process_demonstration")
    tags = {**request.tags, "dagster/partition": "a"}
    run = made.instance.create_run_for_job(job, tags=tags)
    made.instance.report_run_failed(run)

    def refused(*_: object) -> None:
        raise StorageError("the bucket does not answer")

    monkeypatch.setattr(demonstration_runs, "is_quarantined", refused)
    for _ in range(2):
        assert endings(made, run.run_id) == {}
    [line] = [one.getMessage() for one in caplog.records if run.run_id in one.getMessage()]
    assert "the bucket does not answer" in line
