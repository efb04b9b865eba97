"""listed = accepted + quarantined + pending + gone, or a problem names what does not fit."""

from contextlib import contextmanager

import pytest

from demo_pipeline.runs.ledger import Ledger
from demo_pipeline.runs.reconciliation import UnfinishedUploads, reconcile, unfinished_uploads
from demo_pipeline.runs.upload_decisions import RunOutcome
from demo_pipeline_tests.discovery.scene import Scene


@pytest.fixture
def place(scene: Scene) -> Scene:
    """Two accepted, one pending, one gone, and two folders for one id."""
    for name in ("a", "b", "gone", "demo 1: login", "demo_1_login-3c66c2aa7243d1c231babae2"):
        scene.upload(name)
    scene.upload("pending", files=("meta.json",))
    scene.go_on()
    scene.delete("gone")
    scene.go_on()
    return scene


COLLIDING = "demo_1_login-3c66c2aa7243d1c231babae2"


@contextmanager
def ledger_of(scene):
    with Ledger.open(scene.path) as ledger:
        yield ledger


def figures(one):
    return one.listed, one.accepted, one.quarantined, one.pending, one.gone


@pytest.mark.parametrize("listed", [None, ["a", "b", "pending"], ["a", "b", "pending", COLLIDING]])
def test_every_id_is_counted_once(place, listed):
    with ledger_of(place) as ledger:
        found = reconcile(ledger, {"b"}, listed)
    assert figures(found) == (5, 1, 2, 1, 1)
    assert found.balanced
    assert found.problems == ()


def test_a_request_that_is_not_launched_is_pending(place):
    place.upload("late")
    place.tick()
    place.tick(61)
    with ledger_of(place) as ledger:
        assert reconcile(ledger, (), None).pending == 2


def test_a_corrected_upload_with_a_record_stays_quarantined_until_it_is_released(place):
    place.upload("b", "2")
    place.tick()
    with ledger_of(place) as ledger:
        assert figures(reconcile(ledger, {"b"}, None)) == (5, 1, 2, 1, 1)
        assert figures(reconcile(ledger, (), None)) == (5, 1, 1, 2, 1)


def test_an_upload_that_discovery_does_not_know_breaks_the_sum_and_is_named(place):
    with ledger_of(place) as ledger:
        found = reconcile(ledger, (), ["a", "b", "pending", "unseen"])
    assert not found.balanced
    assert [(each.code, each.demonstration) for each in found.problems] == [
        ("unknown_upload", "unseen")
    ]


def test_an_upload_that_arrived_after_the_last_tick_is_pending_and_not_an_error(place):
    with ledger_of(place) as ledger:
        found = reconcile(ledger, (), ["a", "b", "pending", "late"], recent_tick=True)
        assert ledger.last_tick() == place.now
    assert found.balanced
    assert found.pending == 2
    assert [(str(each.severity), each.demonstration) for each in found.problems] == [
        ("warning", "late")
    ]


class TestOutcomesOfRuns:
    def test_a_live_run_needs_no_trajectory_yet(self, place):
        assert unfinished_uploads(["a", "b"], {"a"}, place.runs) == UnfinishedUploads()

    def test_a_cancelled_run_that_is_retried_is_pending(self, place):
        place.runs.lose(place.runs.by_id["a"][-1])
        unfinished = unfinished_uploads(["a", "b"], {"a"}, place.runs)
        with ledger_of(place) as ledger:
            found = reconcile(ledger, (), None, unfinished)
        assert figures(found) == (5, 1, 1, 2, 1)
        assert found.balanced

    @pytest.mark.parametrize("made", [set(), {"a"}])
    def test_an_upload_cancelled_too_often_breaks_the_sum_and_is_named(self, place, made):
        for _ in range(3):
            place.runs.lose(place.runs.by_id["a"][-1])
            place.go_on()
        unfinished = unfinished_uploads(["a"], made, place.runs)
        with ledger_of(place) as ledger:
            found = reconcile(ledger, (), None, unfinished)
            held = reconcile(ledger, {"a"}, None, unfinished)
        assert not found.balanced
        assert [(each.code, each.demonstration) for each in found.problems] == [
            ("lost_upload", "a")
        ]
        assert held.balanced  # a record says why

    def test_a_deleted_run_counts_by_what_it_built(self, place):
        place.runs.by_id.clear()
        assert unfinished_uploads(["a", "b"], {"a"}, place.runs) == UnfinishedUploads(
            lost=frozenset("b")
        )

    def test_a_successful_run_that_built_nothing_is_named(self, place, monkeypatch):
        monkeypatch.setattr(type(place.runs.by_id["a"][-1]), "outcome", RunOutcome.ENDED)
        assert unfinished_uploads(["a", "b"], {"a"}, place.runs) == UnfinishedUploads(
            lost=frozenset("b")
        )


def test_an_upload_that_just_vanished_is_gone_and_named(place):
    with ledger_of(place) as ledger:
        found = reconcile(ledger, (), ["a", "pending"])
    assert figures(found) == (5, 1, 1, 1, 2)
    assert found.balanced
    assert [(str(each.severity), each.demonstration) for each in found.problems] == [
        ("warning", "b")
    ]


def test_an_upload_that_returned_is_pending(place):
    with ledger_of(place) as ledger:
        found = reconcile(ledger, (), ["a", "b", "pending", "gone"])
    assert figures(found) == (5, 2, 1, 2, 0)
    assert found.problems == ()


def test_a_quarantine_record_without_an_upload_is_named(place):
    with ledger_of(place) as ledger:
        found = reconcile(ledger, {"stranger", "gone"}, None)
    assert found.balanced
    assert [each.demonstration for each in found.problems] == ["stranger"]
