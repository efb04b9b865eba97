"""Runs that something passing stopped: tried again with growing pauses, and without end."""

from pathlib import Path

import pytest

from demo_pipeline.runs.discovery import reconcile
from demo_pipeline.runs.discovery_table import DiscoveryTable, UploadState
from demo_pipeline.runs.failures import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    retry_pause,
)
from demo_pipeline.runs.results import Status
from demo_pipeline_tests.discovery.scene import STABLE, Scene

HOUR = 3600


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The run for a complete upload was stopped by a full disk."""
    made = Scene(tmp_path / "table.sqlite")
    made.upload("demo")
    assert [request.reason for request in made.go_on()] == ["new"]
    stop(made)
    return made


def stop(scene: Scene, name: str = "demo") -> None:
    scene.runs.by_id[name][-1].end(Status.WAITING)


def stopped_again(scene: Scene, seconds: float) -> list[float]:
    """Seconds after which each further run was launched; each is stopped at once."""
    launched = []
    for number in range(int(seconds / 30)):
        for request in scene.tick().requests:
            assert request.reason == "waiting"
            assert scene.runs.launch(request, scene.now)
            stop(scene, request.id)
            launched.append((number + 1) * 30.0)
    return launched


def test_pauses_double_up_to_half_an_hour() -> None:
    pauses = [retry_pause(attempts) for attempts in range(1, 8)]
    assert pauses == [60, 120, 240, 480, 960, 1800, 1800]
    assert retry_pause(10**6) == LONGEST_PAUSE_SECONDS
    assert retry_pause(0) == FIRST_PAUSE_SECONDS


@pytest.mark.no_cover  # other tests run the same lines
def test_it_is_tried_again_after_growing_pauses_and_never_given_up(scene: Scene) -> None:
    times = stopped_again(scene, 24 * HOUR)
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert gaps[0] >= FIRST_PAUSE_SECONDS
    assert gaps[:6] == sorted(gaps[:6])
    assert max(gaps) <= LONGEST_PAUSE_SECONDS + 60
    assert times[-1] > 23 * HOUR
    assert len([time for time in times if time <= HOUR]) <= 6


def test_the_pause_survives_a_restart_of_the_daemon(scene: Scene) -> None:
    """The table is opened anew at every tick; nothing of the pause is in the process."""
    scene.tick()
    assert scene.go_on(FIRST_PAUSE_SECONDS - 60) == []
    assert [request.reason for request in scene.go_on(120)] == ["waiting"]


def test_a_run_that_succeeds_ends_the_waiting(scene: Scene) -> None:
    assert [request.reason for request in scene.go_on(10 * STABLE)] == ["waiting"]
    assert scene.go_on(HOUR) == []
    assert scene.state("demo") is UploadState.ACCEPTED


def test_a_changed_upload_does_not_wait(scene: Scene) -> None:
    scene.upload("demo", "2")
    assert [request.reason for request in scene.go_on()][-1] == "changed"


def test_what_waits_is_pending_and_says_why(scene: Scene) -> None:
    scene.tick()
    with DiscoveryTable.open(scene.path) as table:
        counted = reconcile(table.by_id(), (), (), (), {"demo"})
        [waiting] = table.waiting()
    assert (waiting.id, waiting.reason, waiting.attempts) == ("demo", "the disk is full", 1)
    assert (counted.pending, counted.accepted, counted.balanced) == (1, 0, True)
    [problem] = counted.problems
    assert problem.severity == "warning"
    assert str(problem).startswith("demo: .: is waiting: the disk is full (nothing, if that passes")
