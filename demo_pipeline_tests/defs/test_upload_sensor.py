"""How uploads become partitions and runs: every complete upload exactly once."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.storage.tags import WILL_RETRY_TAG

from demo_pipeline.defs import demonstration_runs
from demo_pipeline.defs.command_reports import reported
from demo_pipeline.defs.demonstration_runs import discovery_path, open_table
from demo_pipeline.defs.sensors import build_new_uploads
from demo_pipeline.defs.tags import (
    MEMBERS_TAG,
    PARTITION_NAME_TAG,
)
from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.batch import DemonstrationTask
from demo_pipeline.runs.discovery_table import UploadState
from demo_pipeline.runs.quarantine import list_quarantine, read_quarantine, record_crash
from demo_pipeline.runs.results import Status
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.uploads import upload_listing_fingerprint
from demo_pipeline_tests.defs.bench import Bench, Ticked, bench, cancel, launched, ticked
from demo_pipeline_tests.uploads import upload


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as one:
        yield one


def arrive(made: Bench, name: str, *files: str, content: bytes = b"x") -> None:
    """An upload of which only the files' names matter."""
    (made.uploads / name).mkdir(parents=True, exist_ok=True)
    for file in files or RECORDING_FILES:
        (made.uploads / name / file).write_bytes(content)


def looked(made: Bench) -> Ticked:
    """Three ticks; returns the first that requests runs, else the last."""
    looks = [ticked(made, "new_uploads") for _ in range(3)]
    return next((one for one in looks if one.requests), looks[-1])


def known(made: Bench) -> list[str]:
    return list(made.instance.get_dynamic_partitions("demonstrations"))


def launch_all(made: Bench, found: Ticked) -> None:
    for request in found.requests:
        launched(made, request)


class TestOneRunAnUpload:
    def test_a_complete_upload_is_registered_and_requested_once(self, made: Bench) -> None:
        arrive(made, "one")
        arrive(made, "two")
        found = looked(made)
        assert sorted(map(str, found.keys)) == ["one", "two"]
        assert sorted(known(made)) == ["one", "two"]
        launch_all(made, found)
        assert looked(made).requests == ()
        arrive(made, "three")
        assert looked(made).keys == ["three"]

    def test_the_request_names_the_upload_it_is_for(self, made: Bench) -> None:
        arrive(made, "one")
        [request] = looked(made).requests
        listed = upload_listing_fingerprint(made.workspace.uploads, "one")
        assert str(listed) in request.tags[MEMBERS_TAG]
        assert request.run_key == f"one@{str(listed)[:16]}"

    def test_an_incomplete_upload_waits_until_its_last_file_is_there(self, made: Bench) -> None:
        arrive(made, "one", "meta.json", "input_log.jsonl")
        assert looked(made).requests == ()
        assert known(made) == []
        arrive(made, "one")
        assert looked(made).keys == ["one"]

    def test_a_changed_upload_and_a_restored_one_are_each_requested(self, made: Bench) -> None:
        keys = []
        shutil.copytree(_complete(made, "one"), made.uploads.parent / "first")
        for source in (None, b"other", "first"):
            if isinstance(source, bytes):
                arrive(made, "one", content=source)
            elif source:
                shutil.rmtree(made.uploads / "one")
                shutil.copytree(made.uploads.parent / source, made.uploads / "one")
            for _ in range(4):
                found = ticked(made, "new_uploads")
                launch_all(made, found)
                keys += [request.run_key for request in found.requests]
        assert len(keys) == 3
        assert len(set(keys)) == 3

    def test_a_run_that_was_not_launched_is_requested_again_with_the_same_key(
        self, made: Bench
    ) -> None:
        arrive(made, "one")
        [first] = looked(made).requests
        [again] = ticked(made, "new_uploads").requests
        assert again.run_key == first.run_key

    def test_a_lost_table_launches_nothing_twice(self, made: Bench) -> None:
        arrive(made, "one")
        launch_all(made, looked(made))
        path = discovery_path(made.instance, made.workspace)
        assert path.is_file()
        for file in path.parent.iterdir():
            file.unlink()
        assert looked(made).requests == ()

    def test_uploads_that_the_command_line_processed_are_not_requested(
        self, tmp_path: Path, recording: Path
    ) -> None:
        with bench(tmp_path) as made:
            upload(recording, made.uploads, "one")
            known_before = made.instance.add_dynamic_partitions("demonstrations", ["one"])
            assert known_before is None
            with reported(made.instance, made.workspace) as reporter:
                running = reporter.process([DemonstrationTask("one")], 1, lambda *_: None)
                assert [result.status for result in running] == [Status.BUILT]
            assert looked(made).requests == ()
            with open_table(made.instance, made.workspace) as table:
                assert table.by_id()["one"].state is UploadState.ACCEPTED
            (made.uploads / "one" / "meta.json").touch()
            assert looked(made).keys == []  # the bytes are those that were processed
            (made.uploads / "one" / "meta.json").write_bytes(b"{}")
            assert looked(made).keys == ["one"]


def _complete(made: Bench, name: str) -> Path:
    arrive(made, name)
    return made.uploads / name


class TestIds:
    def test_a_folder_with_an_unsafe_name_runs_under_its_safe_id(self, made: Bench) -> None:
        arrive(made, "my demo, take 2")
        [key] = looked(made).keys
        assert key is not None
        assert key.startswith("my_demo_take_2-")
        assert known(made) == [key]

    def test_two_folders_for_one_id_are_both_quarantined_until_one_is_renamed(
        self, made: Bench
    ) -> None:
        arrive(made, "a b")
        [twin] = [str(key) for key in looked(made).keys]
        arrive(made, twin)
        assert looked(made).requests == ()
        [record] = list_quarantine(made.workspace.store)
        assert record.demonstration == twin
        assert record.problems[0]["code"] == "id_collision"
        assert "a b" in str(record.problems[0]["file"])
        ticked(made, "new_uploads")
        assert list_quarantine(made.workspace.store) == [record]  # the same, not one more attempt

        shutil.rmtree(made.uploads / twin)
        requests = [request for _ in range(6) for request in ticked(made, "new_uploads").requests]
        assert {request.partition_key for request in requests} == {twin}
        assert read_quarantine(made.workspace.store, twin) is None


def test_missing_uploads_skip_the_tick(made: Bench) -> None:
    made.uploads.rmdir()
    found = ticked(made, "new_uploads")
    assert found.requests == ()
    assert "DEMO_PIPELINE_UPLOADS" in found.skipped


def test_the_sensor_is_on_and_its_cursor_is_for_people_only(made: Bench) -> None:
    assert build_new_uploads(30).default_status is dg.DefaultSensorStatus.RUNNING
    arrive(made, "one")
    assert len(str(looked(made).cursor)) < 1000
    assert ticked(made, "new_uploads", cursor="nonsense").keys == ["one"]


class TestRunsThatCameToNothing:
    @pytest.fixture(autouse=True)
    def _request(self, made: Bench) -> None:
        arrive(made, "one")
        [self.request] = looked(made).requests

    def die(self, made: Bench) -> dg.DagsterRun:
        """A run whose process ended without an event for a sensor."""
        job = made.definitions.resolve_job_def("process_demonstration")
        started = dg.DagsterRunStatus.STARTED
        tags = {**self.request.tags, PARTITION_NAME_TAG: "one"}
        run = made.instance.create_run_for_job(job, tags=tags, status=started)
        assert looked(made).requests == ()
        made.instance.report_run_failed(run)
        return run

    def test_a_cancelled_run_is_requested_again(self, made: Bench) -> None:
        cancel(made, self.request)
        [again] = looked(made).requests
        assert again.run_key == f"{self.request.run_key}#1"
        assert again.tags["demo_pipeline/reason"] == "lost"

    def test_a_crashed_run_quarantines_its_demonstration(self, made: Bench) -> None:
        self.die(made)
        assert looked(made).requests == ()
        [record] = list_quarantine(made.workspace.store)
        assert record.problems[0]["code"] == "run_crashed"

    def test_a_crash_is_not_recorded_of_an_upload_that_came_meanwhile(self, made: Bench) -> None:
        self.die(made)
        arrive(made, "one", content=b"another")
        [again] = looked(made).requests
        assert again.tags["demo_pipeline/reason"] == "changed"
        assert list_quarantine(made.workspace.store) == []

    def test_a_crash_that_cannot_be_recorded_is_judged_by_a_later_tick(
        self, made: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise StorageError("the bucket does not answer")

        self.die(made)
        with monkeypatch.context() as patch:
            patch.setattr(demonstration_runs, "record_crash", refuse)
            assert looked(made).requests == ()
        assert list_quarantine(made.workspace.store) == []
        assert looked(made).requests == ()
        assert [one.attempts for one in list_quarantine(made.workspace.store)] == [1]

    def test_a_crashed_run_with_a_record_is_not_requested_again(self, made: Bench) -> None:
        self.die(made)
        record_crash(made.workspace, "one", "events", "MemoryError")
        assert looked(made).requests == ()
        assert [one.attempts for one in list_quarantine(made.workspace.store)] == [1]

    def test_a_run_that_dagster_retries_is_not_requested_again(self, made: Bench) -> None:
        run = self.die(made)
        made.instance.add_run_tags(run.run_id, {WILL_RETRY_TAG: "true"})
        assert looked(made).requests == ()
        assert list_quarantine(made.workspace.store) == []

    def test_while_a_person_repeats_it_no_run_is_requested(self, made: Bench) -> None:
        self.die(made)
        job = made.definitions.resolve_job_def("process_demonstration")
        tags, started = {PARTITION_NAME_TAG: "one"}, dg.DagsterRunStatus.STARTED
        made.instance.create_run_for_job(job, tags=tags, status=started)
        assert looked(made).requests == ()
        assert list_quarantine(made.workspace.store) == []
