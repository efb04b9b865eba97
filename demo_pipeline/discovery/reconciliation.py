"""The arithmetic that nothing is lost: listed = accepted + quarantined + pending + gone.

Belongs here: that sum, and the naming of what does not fit in it.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from demo_pipeline.discovery.decisions import UploadState
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.discovery.run_history import RunHistory, RunOutcome
from demo_pipeline.problems import Problem, Severity


@dataclass(frozen=True, slots=True)
class Accounting:
    """Every id once. What was requested and not yet launched is pending.

    Attributes:
        listed: ids that lie in the uploads, and those that once did.
        accepted: a run for what lies there has made its trajectory, or is queued or at work.
        quarantined: with a record, or several folders meet on the id.
        pending: not seen yet, incomplete, not yet quiet, returned after it was gone, or to be run
            again because a run came to nothing.
        gone: no longer in the uploads.
        problems: what does not fit. An error makes the sum wrong.
    """

    listed: int
    accepted: int
    quarantined: int
    pending: int
    gone: int
    problems: tuple[Problem, ...]

    @property
    def balanced(self) -> bool:
        """Whether the sum is right."""
        return self.listed == self.accepted + self.quarantined + self.pending + self.gone


@dataclass(frozen=True, slots=True)
class UnfinishedUploads:
    """Accepted uploads whose last run made nothing.

    Attributes:
        again: another run follows by itself.
        lost: nothing follows.
    """

    again: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()


def unfinished_uploads(
    accepted: Iterable[str], made: Collection[str], launched: RunHistory
) -> UnfinishedUploads:
    """Ask what became of the last run of each.

    Args:
        accepted: those of which it is not certain that their last run made a trajectory.
        made: ids with a committed trajectory.
        launched: what is known of runs.
    """
    again, lost = set(), set()
    for key in accepted:
        last = launched.last(key)
        if last is not None and (last.superseded or last.should_retry):
            again.add(key)
        elif last is not None and last.outcome is RunOutcome.LIVE:
            continue
        elif key not in made or (last is not None and last.outcome is RunOutcome.LOST):
            lost.add(key)
    return UnfinishedUploads(frozenset(again), frozenset(lost))


def account(
    ledger: Ledger,
    quarantined: Collection[str],
    listed: Collection[str] | None,
    doubted: UnfinishedUploads = UnfinishedUploads(),
    *,
    watched: bool = False,
) -> Accounting:
    """Count every demonstration once.

    Args:
        ledger: what discovery knows.
        quarantined: ids with a standing record.
        listed: ids in the uploads, listed afresh; None: as the ledger knows them.
        doubted: of those that the ledger has as accepted.
        watched: discovery looked a short while ago, so that what it does not know has only come.
    """
    states = ledger.states()
    known_there = {key for key, state in states.items() if state is not UploadState.GONE}
    colliding = ledger.collisions().keys()
    there = known_there if listed is None else set(listed) | colliding
    unknown = there - states.keys()
    gone = states.keys() - there
    held = (set(quarantined) | colliding) & (there - unknown)
    rest = there - unknown - held
    taken = {key for key in rest if states[key] is UploadState.ACCEPTED}
    lost = taken & doubted.lost
    accepted = taken - doubted.again - lost
    pending = rest - accepted - lost | (unknown if watched else set())
    return Accounting(
        listed=len(there | gone),
        accepted=len(accepted),
        quarantined=len(held),
        pending=len(pending),
        gone=len(gone),
        problems=(
            *(_unknown(key, watched=watched) for key in sorted(unknown)),
            *map(_lost, sorted(lost)),
            *map(_vanished, sorted(gone & known_there)),
            *map(_nowhere, sorted(set(quarantined) - there - gone)),
        ),
    )


def _unknown(demonstration: str, *, watched: bool) -> Problem:
    if watched:
        said, remedy = "has come since discovery last looked", "nothing, unless it stays so"
    else:
        said = "lies in the uploads and discovery does not look"
        remedy = "switch the sensor new_uploads on, and see its ticks"
    return Problem(
        "unknown_upload",
        ".",
        said,
        remedy=remedy,
        severity=Severity.WARNING if watched else Severity.ERROR,
        demonstration=demonstration,
    )


def _lost(demonstration: str) -> Problem:
    return Problem(
        "lost_upload",
        ".",
        "has no trajectory of its last run, which was cancelled, died or was deleted",
        remedy="look at its runs in the UI, then materialise its partition from raw_recordings on",
        demonstration=demonstration,
    )


def _vanished(demonstration: str) -> Problem:
    return Problem(
        "vanished_upload",
        ".",
        "is no longer in the uploads, which discovery notes after two sweeps",
        remedy="nothing, if it was deleted on purpose; what was made from it stays",
        severity=Severity.WARNING,
        demonstration=demonstration,
    )


def _nowhere(demonstration: str) -> Problem:
    return Problem(
        "stray_quarantine",
        ".",
        "has a quarantine record and was never seen in the uploads",
        remedy="release it, or upload it",
        severity=Severity.WARNING,
        demonstration=demonstration,
    )
