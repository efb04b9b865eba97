"""The arithmetic that nothing is lost: listed = accepted + quarantined + pending + gone.

Belongs here: that sum, and the naming of what does not fit in it.
"""

from collections.abc import Collection
from dataclasses import dataclass

from demo_pipeline.discovery.decisions import State
from demo_pipeline.discovery.ledger import Ledger
from demo_pipeline.problems import Problem, Severity


@dataclass(frozen=True, slots=True)
class Accounting:
    """Every id once. What was requested and not yet launched is pending.

    Attributes:
        listed: ids that lie in the uploads, and those that once did.
        accepted: a run was launched for what lies there, and none of its stages gave up.
        quarantined: with a record, or several folders meet on the id.
        pending: incomplete, not yet quiet, or returned after it was gone.
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


def account(
    ledger: Ledger, quarantined: Collection[str], listed: Collection[str] | None
) -> Accounting:
    """Count every demonstration once.

    Args:
        ledger: what discovery knows.
        quarantined: ids with a standing record.
        listed: ids in the uploads, listed afresh; None: as the ledger knows them.
    """
    states = ledger.states()
    known_there = {key for key, state in states.items() if state is not State.GONE}
    colliding = ledger.collisions().keys()
    there = known_there if listed is None else set(listed) | colliding
    unknown = there - states.keys()
    gone = states.keys() - there
    held = (set(quarantined) | colliding) & (there - unknown)
    rest = there - unknown - held
    accepted = {key for key in rest if states[key] is State.ACCEPTED}
    return Accounting(
        listed=len(there | gone),
        accepted=len(accepted),
        quarantined=len(held),
        pending=len(rest - accepted),
        gone=len(gone),
        problems=(
            *map(_unknown, sorted(unknown)),
            *map(_vanished, sorted(gone & known_there)),
            *map(_nowhere, sorted(set(quarantined) - there - gone)),
        ),
    )


def _unknown(demonstration: str) -> Problem:
    return Problem(
        "unknown_upload",
        ".",
        "lies in the uploads and discovery does not know it",
        remedy="switch the sensor new_uploads on; if it is, wait for its next look",
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
