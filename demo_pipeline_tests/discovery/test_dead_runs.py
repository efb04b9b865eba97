"""Which runs have no process any more, without a clock of another machine."""

from dataclasses import replace

import pytest

from demo_pipeline.discovery.dead_runs import (
    BEAT_SECONDS,
    RUN_LEASE_SECONDS,
    BeatSighting,
    DeadRuns,
    UnfinishedRun,
    ended_with_machine,
    find_dead_runs,
)
from demo_pipeline.files.processes import ProcessIdentity

HERE = ProcessIdentity("here/1", 10, "100", "boot")
THERE = ProcessIdentity("there/2", 20, "200", "other")
ALIVE = {10: "100", 11: "110"}


def dead(
    *runs: UnfinishedRun, seen: dict[str, BeatSighting] | None = None, seconds: float = 0.0
) -> DeadRuns:
    return find_dead_runs(runs, HERE, ALIVE.get, seen or {}, seconds)


def test_only_the_run_without_its_process_is_dead() -> None:
    gone = UnfinishedRun("gone", replace(HERE, pid=12))
    another = UnfinishedRun("another", replace(HERE, pid=11, start="90"))
    living = UnfinishedRun("living", replace(HERE, pid=11, start="110"))
    found = dead(gone, another, living).reasons
    assert found.keys() == {"gone", "another"}
    assert "process 12 on here" in found["gone"]
    assert "killed" in found["gone"]


def test_after_a_restart_of_the_machine_every_run_of_it_is_dead() -> None:
    old = replace(HERE, pid=11, start="110", boot="before")
    assert "restarted" in dead(UnfinishedRun("old", old)).reasons["old"]
    assert ended_with_machine(old, HERE)
    assert not ended_with_machine(replace(HERE, pid=12), HERE)


class TestOnAnotherHost:
    def test_it_is_dead_when_its_heartbeat_stood_still_for_the_lease(self) -> None:
        run = UnfinishedRun("far", THERE, "beat 1")
        first = dead(run, seconds=1000)
        assert not first.reasons
        before = dead(run, seen=dict(first.sightings), seconds=1000 + RUN_LEASE_SECONDS - 1)
        assert not before.reasons
        after = dead(run, seen=dict(before.sightings), seconds=1000 + RUN_LEASE_SECONDS)
        assert "has not been heard of for 300 s" in after.reasons["far"]

    def test_a_heartbeat_that_goes_on_keeps_it_alive_for_ever(self) -> None:
        seen: dict[str, BeatSighting] = {}
        for number in range(100):
            run = UnfinishedRun("far", THERE, f"beat {number}")
            found = dead(run, seen=seen, seconds=number * BEAT_SECONDS * 3)
            assert not found.reasons
            seen = dict(found.sightings)

    def test_an_observer_that_was_restarted_has_another_clock(self) -> None:
        seen = {"far": BeatSighting("beat", "before", 0.0)}
        assert not dead(UnfinishedRun("far", THERE, "beat"), seen=seen, seconds=1e6).reasons

    def test_without_any_heartbeat_nothing_is_known(self) -> None:
        found = dead(UnfinishedRun("far", THERE), seconds=1e9)
        assert (found.reasons, found.sightings) == ({}, {})

    def test_sightings_of_ended_runs_are_forgotten(self) -> None:
        seen = {"ended": BeatSighting("beat", "boot", 0.0)}
        assert dead(UnfinishedRun("far", THERE, "beat"), seen=seen).sightings.keys() == {"far"}


@pytest.mark.parametrize("host", [HERE.host, THERE.host])
def test_a_process_whose_start_is_hidden_is_alive(host: str) -> None:
    run = UnfinishedRun("hidden", replace(HERE, host=host, pid=11, start="-"))
    assert not dead(run).reasons
