"""Incidents with uploads, one a test."""

import json
import re

import pytest

from demo_pipeline.files.recording_files import RECORDING_FILES
from demo_pipeline.runs.discovery import EndedRun, Ending
from demo_pipeline.runs.discovery_table import UploadState, fingerprint_of
from demo_pipeline.runs.results import Status
from demo_pipeline.settings import DiscoverySettings
from demo_pipeline.store.errors import StorageError
from demo_pipeline.store.folder import Folder
from demo_pipeline_tests.discovery.bucket import Bucket
from demo_pipeline_tests.settings_constants import with_constants


def keys(requests):
    return [each.run_key for each in requests]


def end(scene, outcome):
    """The newest run ends, or goes on when the outcome is None."""
    scene.runs.by_id["demo"][-1].outcome = outcome


class TestUploading:
    def test_an_upload_is_requested_once_it_is_stable(self, scene):
        scene.upload("demo")
        assert scene.tick().requests == ()
        assert scene.tick(after=59).requests == ()
        [request] = scene.tick(after=2).requests
        fingerprint = fingerprint_of(scene.bucket.files("demo"))
        assert fingerprint is not None
        assert (request.id, request.fingerprint, request.reason) == ("demo", fingerprint, "new")
        assert request.run_key == f"demo@{fingerprint[:16]}"

    def test_every_change_restarts_the_wait(self, scene):
        for version in range(5):
            scene.upload("demo", str(version), ("recording.mp4",))
            scene.upload("demo", files=RECORDING_FILES[:2])
            assert scene.tick(after=50).requests == ()
        assert len(scene.tick(after=61).requests) == 1

    def test_a_file_that_went_back_and_forth_between_two_ticks_was_not_stable(self, scene):
        scene.upload("demo")
        scene.tick()
        scene.now += 40
        scene.upload("demo", "2", ("meta.json",))
        scene.upload("demo", "1", ("meta.json",))
        assert scene.tick(21).requests == ()
        assert len(scene.tick(61).requests) == 1

    def test_a_file_written_again_with_the_same_bytes_restarts_the_wait(self, scene):
        """Two of three files change, the third is written between: never 60 s without a change."""
        scene.upload("demo")
        assert len(scene.go_on()) == 1
        for file, version in zip(RECORDING_FILES, ("2", "1", "2"), strict=True):
            scene.upload("demo", version, (file,))
            assert scene.tick(25).requests == ()
            assert scene.tick(30).requests == ()
        [request] = scene.go_on()
        assert request.fingerprint == fingerprint_of(scene.bucket.files("demo"))

    @pytest.mark.no_cover  # other tests run the same lines
    def test_two_files_are_never_a_complete_upload(self, scene):
        scene.upload("demo", files=RECORDING_FILES[:2])
        assert scene.go_on(7200) == []
        assert scene.state("demo") is UploadState.PENDING
        scene.upload("demo", files=RECORDING_FILES[2:])
        assert len(scene.go_on()) == 1

    def test_a_marker_ends_the_first_upload_at_once_and_no_later_one(self, scene):
        scene.settings = DiscoverySettings(complete_marker="_COMPLETE")
        scene.upload("demo")
        scene.bucket.place("demo", "_COMPLETE", "marker")
        assert len(scene.launch(scene.tick())) == 1
        scene.tick()
        scene.upload("demo", "2", RECORDING_FILES[:1])  # the old marker is still there
        assert scene.tick().requests == ()
        scene.upload("demo", "2")
        assert scene.tick().requests == ()
        assert len(scene.go_on()) == 1

    def test_without_stable_seconds_a_complete_upload_runs_at_once(self, scene):
        scene.settings = DiscoverySettings(stable_seconds=0)
        scene.upload("demo")
        assert len(scene.tick().requests) == 1

    def test_the_length_of_a_slow_tick_does_not_count_as_stable(self, scene):
        """Begun at 0 and seen at 45 s, an upload is not yet stable for 60 s at 65 s."""
        scene.upload("demo")
        scene.seconds_a_request = 15
        scene.tick()
        scene.seconds_a_request = 0
        assert scene.tick(after=65).requests == ()
        assert len(scene.tick(after=41).requests) == 1


class TestLaunching:
    def test_a_request_that_is_not_launched_is_repeated_with_the_same_key(self, scene):
        scene.upload("demo")
        scene.tick()
        first, second = scene.tick(61), scene.tick()
        assert keys(first.requests) == keys(second.requests)
        assert scene.state("demo") is UploadState.REQUESTED
        scene.launch(second)
        assert scene.tick().requests == ()
        assert scene.state("demo") is UploadState.ACCEPTED
        assert scene.go_on(3600) == []

    def test_an_upload_that_changes_before_its_run_is_launched_waits_again(self, scene):
        scene.upload("demo")
        scene.tick()
        [stale] = scene.tick(61).requests
        scene.upload("demo", "2")
        [fresh] = scene.go_on()
        assert fresh.fingerprint != stale.fingerprint

    @pytest.mark.parametrize("outcome", [None, Status.BUILT])
    def test_a_run_launched_elsewhere_counts(self, scene, outcome):
        """`demo-pipeline run` processed the upload before the sensor, or another run does it."""
        scene.upload("demo")
        scene.go_on()
        end(scene, outcome)
        scene.lose_table()
        assert scene.go_on() == []
        assert scene.state("demo") is UploadState.ACCEPTED

    def test_pruning_the_run_history_requests_no_run(self, scene):
        scene.upload("demo")
        scene.go_on()
        end(scene, Status.BUILT)
        scene.tick()
        scene.runs.by_key.clear()
        scene.upload("demo", "2")
        scene.tick()
        scene.upload("demo")
        assert scene.go_on() == []

    def test_what_a_command_works_on_is_left_to_it(self, scene):
        scene.runs.claimed.add("demo")
        scene.upload("demo")
        assert scene.go_on() == []
        scene.runs.claimed.clear()
        assert [each.reason for each in scene.go_on()] == ["new"]


class TestUploadingAgain:
    @pytest.fixture(autouse=True)
    def _first(self, scene):
        scene.upload("demo")
        [self.first] = scene.go_on()
        end(scene, Status.BUILT)

    def test_a_new_version_is_run_and_so_is_the_return_to_the_old(self, scene):
        scene.upload("demo", "2", RECORDING_FILES[:1])
        [second] = scene.go_on()
        end(scene, Status.BUILT)
        scene.upload("demo", "1")
        [third] = scene.go_on()
        end(scene, Status.BUILT)
        assert second.reason == "changed"
        assert third.run_key == f"{self.first.run_key}#1"
        scene.upload("demo", "2", RECORDING_FILES[:1])
        assert keys(scene.go_on()) == [f"{second.run_key}#1"]

    def test_a_return_to_what_is_built_is_run_while_a_run_for_another_version_lives(self, scene):
        """The live run may have read its upload before, and build it afterwards."""
        scene.upload("demo", "2")
        assert len(scene.go_on()) == 1
        scene.upload("demo", "1")
        assert [each.reason for each in scene.go_on()] == ["changed"]

    def test_a_version_withdrawn_before_it_was_stable_is_not_run(self, scene):
        scene.upload("demo", "2")
        scene.tick()
        scene.upload("demo", "1")
        assert scene.go_on() == []
        assert scene.state("demo") is UploadState.ACCEPTED

    def test_the_same_bytes_under_new_etags_are_run(self, scene):
        scene.upload("demo", "1-in-two-parts")
        assert len(scene.go_on()) == 1

    def test_a_file_that_is_deleted_makes_it_pending_and_runs_nothing(self, scene):
        scene.delete("demo", RECORDING_FILES[:1])
        assert scene.go_on(1200) == []
        assert scene.state("demo") is UploadState.PENDING
        scene.upload("demo", "1", RECORDING_FILES[:1])
        assert scene.go_on() == []
        assert scene.state("demo") is UploadState.ACCEPTED

    def test_gone_after_two_sweeps_and_back_again(self, scene):
        scene.delete("demo")
        scene.tick()
        assert scene.state("demo") is UploadState.PENDING
        scene.tick()
        assert scene.state("demo") is UploadState.GONE
        assert scene.go_on(600) == []
        scene.upload("demo", "2")
        assert len(scene.go_on()) == 1
        assert scene.state("demo") is UploadState.ACCEPTED

    def test_an_upload_that_returns_unchanged_needs_no_run(self, scene):
        scene.delete("demo")
        scene.go_on()
        scene.upload("demo")
        assert scene.go_on() == []
        assert scene.state("demo") is UploadState.ACCEPTED

    @pytest.mark.parametrize("lost", [False, True])
    def test_a_superseded_run_is_repeated_though_the_upload_changed_back(self, scene, lost):
        """A was launched, its run read B, and A is uploaded again with the same ETags."""
        scene.upload("demo", "2")
        [second] = scene.go_on()
        end(scene, Status.SUPERSEDED)
        if lost:
            scene.lose_table()
        assert scene.tick().requests == ()  # it changed just now: it has to be stable first
        [again] = scene.go_on()
        assert again.run_key == f"{second.run_key}#1"
        assert again.reason == ("new" if lost else "superseded")
        assert scene.go_on(1200) == []

    def test_an_old_superseded_run_does_not_run_the_new_upload_twice(self, scene):
        scene.upload("demo", "2")
        assert len(scene.go_on()) == 1
        older = scene.runs.by_id["demo"][-1]
        scene.upload("demo", "3")
        assert len(scene.go_on()) == 1
        older.end(Status.SUPERSEDED)
        assert scene.go_on() == []

    def test_a_superseded_run_that_ended_before_it_was_confirmed(self, scene):
        scene.upload("demo", "2")
        scene.tick()
        [key] = scene.launch(scene.tick(61))
        end(scene, Status.SUPERSEDED)
        assert keys(scene.go_on()) == [f"{key}#1"]


class TestRunsThatCameToNothing:
    """A run was launched and accepted; then it was cancelled, or its machine died."""

    @pytest.fixture(autouse=True)
    def _first(self, scene):
        scene.upload("demo")
        [self.first] = scene.go_on()

    @staticmethod
    def lose(scene):
        end(scene, Status.LOST)

    def test_it_is_repeated_in_the_next_tick_and_only_once(self, scene):
        assert scene.go_on() == []
        self.lose(scene)
        found = scene.tick()
        assert [(each.run_key, each.reason) for each in found.requests] == [
            (f"{self.first.run_key}#1", "lost")
        ]
        scene.launch(found)
        assert scene.go_on(1200) == []
        assert scene.state("demo") is UploadState.ACCEPTED

    def test_it_was_lost_before_it_was_confirmed(self, scene):
        scene.upload("demo", "2")
        scene.tick()
        [key] = scene.launch(scene.tick(61))
        self.lose(scene)
        assert keys(scene.go_on()) == [f"{key}#1"]

    @pytest.mark.no_cover  # other tests run the same lines
    def test_the_third_loss_is_the_last_until_the_upload_changes(self, scene):
        for attempt in (1, 2):
            self.lose(scene)
            assert keys(scene.go_on()) == [f"{self.first.run_key}#{attempt}"]
        self.lose(scene)
        assert scene.go_on(3600) == []
        scene.upload("demo", "2")
        assert [each.reason for each in scene.go_on()] == ["changed"]
        self.lose(scene)
        assert [each.reason for each in scene.go_on()] == ["lost"]

    def test_what_was_lost_too_often_is_accepted_once_a_person_had_it_processed(self, scene):
        for _ in range(3):
            self.lose(scene)
            scene.go_on()
        scene.runs.settled = lambda *_: True
        assert scene.go_on(3600) == []
        assert scene.row("demo").cause == ""

    def test_a_retry_is_granted_also_after_that(self, scene):
        for _ in range(3):
            self.lose(scene)
            scene.go_on()
        scene.request_rerun("demo", "retry")
        assert [each.reason for each in scene.go_on()] == ["retry"]

    def test_it_was_lost_together_with_the_table(self, scene):
        scene.lose_table()
        self.lose(scene)
        assert keys(scene.go_on()) == [f"{self.first.run_key}#1"]

    def test_it_was_lost_after_the_table(self, scene):
        scene.lose_table()
        assert scene.go_on() == []
        self.lose(scene)
        assert [each.reason for each in scene.go_on()] == ["lost"]

    def test_a_run_that_was_deleted_is_lost(self, scene):
        scene.runs.by_key.clear()
        assert [each.reason for each in scene.go_on()] == ["lost"]

    def test_a_lost_run_that_came_to_its_last_output_is_not_repeated(self, scene):
        self.lose(scene)
        scene.runs.settled = lambda *_: True
        assert scene.go_on() == []
        assert scene.row("demo").cause == ""

    def test_a_repeated_run_is_followed(self, scene):
        """Dagster itself tries a run again whose process died."""
        second = scene.runs.by_key.pop(self.first.run_key)
        scene.runs.by_key["again"] = second
        moved = EndedRun(self.first.run_key, Ending(Status.LOST), successor="again")
        scene.runs.ended = lambda runs: [moved] if self.first.run_key in runs else []
        assert scene.go_on() == []
        assert scene.row("demo").run == "again"

    def test_the_end_of_an_older_run_changes_nothing(self, scene):
        older = scene.runs.by_id["demo"][-1]
        scene.upload("demo", "2")
        assert len(scene.go_on()) == 1
        older.end(Status.LOST)
        assert scene.go_on(1200) == []

    def test_an_upload_deleted_meanwhile_is_not_run(self, scene):
        self.lose(scene)
        scene.delete("demo")
        assert scene.go_on(1200) == []


class TestWishes:
    @pytest.fixture(autouse=True)
    def _first(self, scene):
        scene.upload("demo")
        [self.first] = scene.go_on()

    def test_a_retry_is_run_once_in_the_next_tick(self, scene):
        scene.request_rerun("demo", "retry")
        found = scene.tick()
        assert [(each.run_key, each.reason) for each in found.requests] == [
            (f"{self.first.run_key}#1", "retry")
        ]
        assert keys(scene.tick().requests) == keys(found.requests)  # not launched: asked again
        scene.launch(found)
        assert scene.go_on(1200) == []
        scene.request_rerun("demo", "retry")
        assert keys(scene.go_on()) == [f"{self.first.run_key}#2"]

    def test_two_requested_reruns_are_one_run(self, scene):
        scene.request_rerun("demo", "retry")
        scene.request_rerun("demo", "reprocess")
        assert len(scene.go_on()) == 1

    def test_a_rerun_requested_between_launch_and_confirmation_is_kept(self, scene):
        scene.request_rerun("demo", "retry")
        scene.launch(scene.tick())
        scene.request_rerun("demo", "retry")
        assert keys(scene.go_on()) == [f"{self.first.run_key}#2"]

    def test_a_corrected_upload_serves_the_requested_rerun(self, scene):
        scene.upload("demo", "2", RECORDING_FILES[:1])
        scene.request_rerun("demo", "retry")
        assert len(scene.go_on(1200)) == 1

    def test_a_requested_rerun_ends_when_the_upload_is_gone(self, scene):
        scene.delete("demo")
        scene.request_rerun("demo", "retry")
        assert scene.go_on(1200) == []
        scene.upload("demo")
        assert scene.go_on(1200) == []


class TestClock:
    def test_a_clock_set_back_costs_one_tick_and_shortens_no_wait(self, scene):
        scene.upload("demo")
        scene.tick()
        assert scene.tick(after=-86_400).requests == ()
        assert scene.tick(after=59).requests == ()
        assert len(scene.tick(after=2).requests) == 1


class TestListings:
    def test_pages_of_one_entry_in_any_order_find_everything(self, scene):
        scene.bucket = Bucket(page=1)
        for number in range(12):
            scene.upload(f"demo-{number}")
        assert len(scene.go_on(600)) == 12
        scene.upload("demo-3", "2", ("meta.json",))
        scene.delete("demo-4")
        assert [each.id for each in scene.go_on(900)] == ["demo-3"]
        assert scene.state("demo-4") is UploadState.GONE

    def test_a_folder_with_more_than_a_page_of_other_things(self, scene):
        scene.bucket = Bucket(page=5)
        for number in range(30):
            scene.bucket.place("demo", f"frames/{number}.png", "x")
        scene.upload("demo")
        assert len(scene.go_on(600)) == 1

    def test_a_refused_token_starts_the_listing_again(self, scene):
        now = [0.0]
        scene.bucket = Bucket(page=2, now=lambda: now[0], token_seconds=100)
        scene.settings = with_constants(DiscoverySettings, pages_per_tick=2)()
        for number in range(10):
            scene.upload(f"demo-{number}")
        scene.tick()
        now[0] = 1000.0
        assert "expired" in scene.tick().errors[0]
        assert scene.tick().errors == ()
        assert len(scene.go_on(1200)) == 10

    def test_hidden_and_loose_objects_are_not_demonstrations(self, scene):
        scene.upload(".trash")
        scene.upload("")
        scene.upload("demo", files=("deep/meta.json", "notes.txt"))
        assert scene.go_on() == []
        assert scene.state("demo") is UploadState.PENDING
        assert scene.state(".trash") is None

    def test_a_tick_is_bounded_and_the_rest_is_not_forgotten(self, scene):
        scene.settings = with_constants(DiscoverySettings, pages_per_tick=2, decisions_per_tick=7)(
            requests_per_tick=3, stable_seconds=30
        )
        scene.bucket = Bucket(page=4)
        for number in range(20):
            scene.upload(f"demo-{number:02}")
        launched: list[str] = []
        for _ in range(60):
            found = scene.tick()
            assert found.pages <= 2
            assert len(found.requests) <= 3
            launched += scene.launch(found)
        assert len(set(launched)) == len(launched) == 20

    def test_every_step_proceeds_when_time_runs_out(self, scene):
        scene.settings = with_constants(DiscoverySettings, seconds_per_tick=0.5)()
        scene.seconds_a_request = 1
        for number in range(5):
            scene.upload(f"demo-{number}")
        assert scene.tick().pages == 1
        assert len(scene.go_on(1200)) == 5

    def test_a_bucket_that_does_not_answer_is_reported_and_survived(self, scene):
        scene.upload("demo")
        scene.tick()

        def refuse(_):
            raise StorageError("the bucket does not answer")

        scene.bucket._before = refuse
        found = scene.tick(61)
        assert found.requests == ()
        assert set(found.errors) == {"the bucket does not answer"}
        scene.bucket._before = lambda _: None
        assert len(scene.go_on()) == 1


class TestNames:
    def test_neither_of_two_folders_with_one_id_is_run(self, scene):
        scene.upload("demo 1: login")
        scene.upload("demo_1_login-3c66c2aa7243d1c231babae2")
        scene.upload("other")
        assert [each.id for each in scene.go_on()] == ["other"]
        names = ("demo 1: login", "demo_1_login-3c66c2aa7243d1c231babae2")
        assert scene.tick().collisions == {"demo_1_login-3c66c2aa7243d1c231babae2": names}
        scene.delete("demo 1: login")
        assert len(scene.go_on(600)) == 1
        assert scene.tick().collisions == {}

    def test_a_name_that_is_not_utf_8_has_an_id_and_is_printable(self, scene, tmp_path):
        root = tmp_path / "uploads"
        folder = root / "caf\udce9"
        folder.mkdir(parents=True)
        for file in RECORDING_FILES:
            (folder / file).write_bytes(b"x")
        scene.objects = Folder(root)
        [request] = scene.go_on()
        assert re.fullmatch(r"caf-[0-9a-f]{24}", request.id)

    def test_links_between_local_folders_hide_no_change(self, scene, tmp_path):
        names = [f"demo_{number:02}" for number in range(8)]
        for name, neighbour in zip(names, [*names[1:], names[0]], strict=True):
            (tmp_path / name).mkdir()
            for file in RECORDING_FILES:
                (tmp_path / name / file).write_bytes(b"x")
            (tmp_path / name / "next").symlink_to(f"../{neighbour}")
        for name, neighbour in zip(names[1:], names, strict=False):
            (tmp_path / name / "previous").symlink_to(f"../{neighbour}")
        scene.objects, scene.settings = (
            Folder(tmp_path),
            with_constants(DiscoverySettings, pages_per_tick=2)(),
        )
        assert [each.id for each in scene.go_on()] == names
        (tmp_path / names[-1] / "recording.mp4").write_bytes(b"corrected")
        assert [each.id for each in scene.go_on()] == [names[-1]]


def test_the_cursor_is_short_and_for_people(scene):
    scene.upload("demo")
    scene.go_on()
    cursor = scene.tick().cursor
    assert json.loads(cursor) == {
        "accepted": 1,
        "gone": 0,
        "pending": 0,
        "requested": 0,
        "sweep": 9,
    }
