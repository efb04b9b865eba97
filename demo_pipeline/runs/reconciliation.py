"""The check that no upload is lost: listed = accepted + quarantined + pending + gone.

Belongs here: that sum, and the problems that name whatever does not fit into it.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from demo_pipeline.problems import Problem, Severity
from demo_pipeline.runs.ledger import Ledger
from demo_pipeline.runs.upload_decisions import RunHistory, RunOutcome, UploadState

_LOG = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Counts in which every id counts once. An id with a requested run is pending.

    Attributes:
        listed: ids in the uploads, and those that were there once.
        accepted: a run for the present files has built the trajectory, or is queued or running.
        quarantined: with a quarantine record, or several folders have the id.
        pending: not seen yet, incomplete, not yet stable, returned after it was gone, or to be run
            again because a run was lost or had to wait.
        gone: no longer in the uploads.
        problems: what does not fit. Only an error makes the sum wrong.
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
    """Accepted uploads whose last run built nothing.

    Attributes:
        again: discovery requests another run.
        lost: no other run follows.
        waiting: those of `again` that something passing stopped → what that is.
    """

    again: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    waiting: Mapping[str, str] = field(default_factory=dict)


def unfinished_uploads(
    accepted: Iterable[str], built: Collection[str], history: RunHistory
) -> UnfinishedUploads:
    """Find the accepted uploads whose last run built nothing.

    Args:
        accepted: ids of which it is not certain that their last run built a trajectory.
        built: ids with a committed trajectory.
        history: the runs that were launched.
    """
    again, lost, waiting = set(), set(), {}
    for key in accepted:
        try:
            last = history.last(key)
        except Exception as error:  # noqa: BLE001 - the others are counted whatever it is
            _LOG.debug("%s: its runs are read at the next count (%s)", key, type(error).__name__)
            again.add(key)
            continue
        if last is not None and (last.superseded or last.retry_after is not None):
            again.add(key)
            if last.outcome is RunOutcome.WAITING:
                waiting[key] = last.reason
        elif last is not None and last.outcome is RunOutcome.LIVE:
            continue
        elif key not in built or (last is not None and last.outcome is RunOutcome.LOST):
            lost.add(key)
    return UnfinishedUploads(frozenset(again), frozenset(lost), waiting)


def reconcile(
    ledger: Ledger,
    quarantined: Collection[str],
    listed: Collection[str] | None,
    unfinished: UnfinishedUploads = UnfinishedUploads(),
    *,
    recent_tick: bool = False,
) -> Reconciliation:
    """Count every demonstration once.

    Args:
        ledger: what discovery knows.
        quarantined: ids with a quarantine record.
        listed: ids in the uploads by a new listing; None: those in the ledger.
        unfinished: of the ids that the ledger has as accepted.
        recent_tick: discovery ticked a short time ago, so what it does not know has just arrived.
    """
    states = ledger.states()
    known_present = {key for key, state in states.items() if state is not UploadState.GONE}
    colliding = ledger.collisions().keys()
    present = known_present if listed is None else set(listed) | colliding
    unknown = present - states.keys()
    gone = states.keys() - present
    in_quarantine = (set(quarantined) | colliding) & (present - unknown)
    rest = present - unknown - in_quarantine
    launched = {key for key in rest if states[key] is UploadState.ACCEPTED}
    lost, waiting = launched & unfinished.lost, unfinished.waiting.keys()
    accepted = launched - unfinished.again - lost
    pending = rest - accepted - lost | (unknown if recent_tick else set())
    return Reconciliation(
        listed=len(present | gone),
        accepted=len(accepted),
        quarantined=len(in_quarantine),
        pending=len(pending),
        gone=len(gone),
        problems=(
            *(_unknown(key, recent_tick=recent_tick) for key in sorted(unknown)),
            *map(_lost, sorted(lost)),
            *(_waiting(key, unfinished.waiting[key]) for key in sorted(pending & waiting)),
            *map(_vanished, sorted(gone & known_present)),
            *map(_stray, sorted(set(quarantined) - present - gone)),
        ),
    )


def _unknown(demonstration: str, *, recent_tick: bool) -> Problem:
    if recent_tick:
        message = "arrived after the last tick of discovery"
        remedy = "nothing, unless this stays so"
    else:
        message = "is in the uploads, and discovery is not running"
        remedy = "switch on the sensor new_uploads, and check its ticks"
    return Problem(
        "unknown_upload",
        ".",
        message,
        remedy=remedy,
        severity=Severity.WARNING if recent_tick else Severity.ERROR,
        demonstration=demonstration,
    )


def _lost(demonstration: str) -> Problem:
    return Problem(
        "lost_upload",
        ".",
        "has no trajectory from its last run, which was cancelled, died or was deleted",
        remedy="check its runs in the UI, then process the demonstration again",
        demonstration=demonstration,
    )


def _waiting(demonstration: str, reason: str) -> Problem:
    return Problem(
        "waiting_upload",
        ".",
        f"is waiting: {reason}",
        remedy="nothing, if that passes: it is tried again with growing pauses, up to half an hour",
        severity=Severity.WARNING,
        demonstration=demonstration,
    )


def _vanished(demonstration: str) -> Problem:
    return Problem(
        "vanished_upload",
        ".",
        "is no longer in the uploads; discovery records that after two sweeps",
        remedy="nothing, if it was deleted on purpose; what was built from it stays",
        severity=Severity.WARNING,
        demonstration=demonstration,
    )


def _stray(demonstration: str) -> Problem:
    return Problem(
        "stray_quarantine",
        ".",
        "has a quarantine record and was never seen in the uploads",
        remedy="upload it, or delete its records, quarantine/<id>/ in the store",
        severity=Severity.WARNING,
        demonstration=demonstration,
    )
