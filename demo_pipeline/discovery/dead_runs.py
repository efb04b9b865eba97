"""Which unfinished runs have no process any more.

Belongs here: the decision. A process on this machine is looked up; of a process on another machine
only its heartbeat is known, and it counts as dead when the heartbeat has stood still for
`RUN_LEASE_SECONDS` by the observer's own clock, so that clocks of two machines are never compared.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from demo_pipeline.files.processes import ProcessIdentity

BEAT_SECONDS = 30.0  # between two heartbeats of a process
RUN_LEASE_SECONDS = 300.0  # ten heartbeats: a short outage of the database kills nobody


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """A run that should have a living process.

    Attributes:
        run_id: Dagster's id.
        process: that executes it.
        beat: the newest heartbeat of the process, any text that changes; None without one.
    """

    run_id: str
    process: ProcessIdentity
    beat: str | None = None


@dataclass(frozen=True, slots=True)
class BeatSighting:
    """When an observer first saw a heartbeat.

    Attributes:
        beat: the heartbeat.
        boot: of the observer's machine; another boot has another clock.
        seconds: of that machine's monotonic clock.
    """

    beat: str
    boot: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DeadRuns:
    """The answer.

    Attributes:
        reasons: run id → why its process is known to be dead.
        sightings: run id → the heartbeat seen, to be given to the next call.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    sightings: Mapping[str, BeatSighting] = field(default_factory=dict)


def find_dead_runs(
    runs: Iterable[UnfinishedRun],
    here: ProcessIdentity,
    start_of: Callable[[int], str | None],
    sightings: Mapping[str, BeatSighting],
    seconds: float,
) -> DeadRuns:
    """Find the runs whose process is gone.

    Args:
        runs: that are not finished.
        here: the observing process.
        start_of: process id → start of the process, None when it has ended.
        sightings: of the last call on this machine.
        seconds: this machine's monotonic clock, the same for all its processes.
    """
    reasons: dict[str, str] = {}
    seen: dict[str, BeatSighting] = {}
    for run in runs:
        process = run.process
        if process.is_gone(here, start_of):
            reasons[run.run_id] = _reason(process, here)
        elif process.host != here.host and run.beat is not None:
            sighting = BeatSighting(run.beat, here.boot, seconds)
            before = sightings.get(run.run_id)
            if before is not None and (before.beat, before.boot) == (run.beat, here.boot):
                sighting = before
            seen[run.run_id] = sighting
            silent = seconds - sighting.seconds
            if silent >= RUN_LEASE_SECONDS:
                reasons[run.run_id] = f"{_name(process)} has not been heard of for {silent:.0f} s"
    return DeadRuns(reasons, seen)


def ended_with_machine(process: ProcessIdentity, here: ProcessIdentity) -> bool:
    """Whether a process of this machine ended because the machine was started again."""
    known = "-" not in {process.boot, here.boot}
    return known and process.host == here.host and process.boot != here.boot


def _reason(process: ProcessIdentity, here: ProcessIdentity) -> str:
    if ended_with_machine(process, here):
        return f"{_name(process)} ended when the machine was restarted"
    return f"{_name(process)} ended without a result: it was killed, or ran out of memory"


def _name(process: ProcessIdentity) -> str:
    return f"process {process.pid} on {process.host.partition('/')[0]}"
