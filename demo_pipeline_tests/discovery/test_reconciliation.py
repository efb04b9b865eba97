"""listed = accepted + quarantined + pending + gone, or a problem names what does not fit."""

import pytest

from demo_pipeline.runs.discovery import Reconciliation, reconcile
from demo_pipeline.runs.discovery_table import DiscoveryTable
from demo_pipeline.runs.results import Status
from demo_pipeline_tests.discovery.scene import Scene

COLLIDING = "demo_1_login-3c66c2aa7243d1c231babae2"


@pytest.fixture
def place(scene: Scene) -> Scene:
    """Two accepted, one pending, one gone, and two folders for one id."""
    for name in ("a", "b", "gone", "demo 1: login", COLLIDING):
        scene.upload(name)
    scene.upload("pending", files=("meta.json",))
    scene.go_on()
    scene.delete("gone")
    scene.go_on()
    return scene


def counted(
    scene, listed=("a", "b", "pending"), quarantined=(), built=(), **more
) -> Reconciliation:
    with DiscoveryTable.open(scene.path) as table:
        return reconcile(table.by_id(), table.collisions(), quarantined, built, listed, **more)


def figures(one):
    return one.listed, one.accepted, one.quarantined, one.pending, one.gone


def problems(one):
    return [(each.code, str(each.severity), each.demonstration) for each in one.problems]


def end(scene, name, outcome):
    scene.runs.by_id[name][-1].end(outcome)
    scene.tick()


@pytest.mark.parametrize("listed", [["a", "b", "pending"], ["a", "b", "pending", COLLIDING]])
def test_every_id_is_counted_once(place, listed):
    found = counted(place, listed, {"b"})
    assert figures(found) == (5, 1, 2, 1, 1)
    assert found.balanced
    assert found.problems == ()


def test_a_request_that_is_not_launched_is_pending(place):
    place.upload("late")
    place.tick()
    place.tick(61)
    assert counted(place, ["a", "b", "pending", "late"]).pending == 2


def test_a_corrected_upload_with_a_record_stays_quarantined_until_it_is_released(place):
    place.upload("b", "2")
    place.tick()
    assert figures(counted(place, quarantined={"b"})) == (5, 1, 2, 1, 1)
    assert figures(counted(place)) == (5, 1, 1, 2, 1)


@pytest.mark.parametrize("recent", [True, False])
def test_an_upload_that_discovery_does_not_know_is_named(place, recent):
    """It breaks the sum, unless it may have arrived after the last tick."""
    found = counted(place, ["a", "b", "pending", "late"], recent_tick=recent)
    assert found.balanced is recent
    assert found.pending == 1 + recent
    assert problems(found) == [("unknown_upload", "warning" if recent else "error", "late")]


class TestOutcomesOfRuns:
    def test_a_live_run_needs_no_output_yet(self, place):
        assert counted(place).problems == ()

    def test_a_cancelled_run_that_is_retried_is_pending(self, place):
        end(place, "a", Status.LOST)
        found = counted(place)
        assert figures(found) == (5, 1, 1, 2, 1)
        assert found.balanced

    @pytest.mark.parametrize("built", [(), ("a",)])
    def test_an_upload_cancelled_too_often_breaks_the_sum_and_is_named(self, place, built):
        for _ in range(3):
            end(place, "a", Status.LOST)
            place.go_on()
        found = counted(place, built=built)
        assert not found.balanced
        assert problems(found) == [("lost_upload", "error", "a")]
        assert counted(place, quarantined={"a"}, built=built).balanced  # a record says why

    def test_a_run_that_ended_counts_by_what_it_built(self, place):
        for name in ("a", "b"):
            end(place, name, Status.BUILT)
        assert problems(counted(place, built={"a"})) == [("lost_upload", "error", "b")]


def test_an_upload_that_just_vanished_is_gone_and_named(place):
    found = counted(place, ["a", "pending"])
    assert figures(found) == (5, 1, 1, 1, 2)
    assert found.balanced
    assert problems(found) == [("vanished_upload", "warning", "b")]


def test_an_upload_that_returned_is_pending(place):
    found = counted(place, ["a", "b", "pending", "gone"])
    assert figures(found) == (5, 2, 1, 2, 0)
    assert found.problems == ()


def test_a_quarantine_record_without_an_upload_is_named(place):
    found = counted(place, quarantined={"stranger", "gone"})
    assert found.balanced
    assert problems(found) == [("stray_quarantine", "warning", "stranger")]
