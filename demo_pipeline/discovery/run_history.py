"""What is known of the runs that were launched for uploads, whoever launched them.

Belongs here: what discovery asks about runs, and what it makes of the answer. Who answers is the
caller's business.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MOST_LOST = 3  # runs for one upload that come to nothing, after which no other is launched


class RunOutcome(StrEnum):
    """What became of a run.

    `live`: it waits or is at work, or it failed so lately that its verdict may be on the way.
    `ended`: with a result, or with a quarantine record.
    `superseded`: without a result, because the upload had changed.
    `lost`: cancelled, or dead without a record.
    """

    LIVE = "live"
    ENDED = "ended"
    SUPERSEDED = "superseded"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that was launched for a demonstration.

    Attributes:
        fingerprint: of the upload it was launched for, 64 hex.
        outcome: what became of it.
        lost: how many runs for this fingerprint were cancelled or died; counted for a lost one.
    """

    fingerprint: str
    outcome: RunOutcome = RunOutcome.LIVE
    lost: int = 0

    @property
    def superseded(self) -> bool:
        """It ended without a result because the upload had changed."""
        return self.outcome is RunOutcome.SUPERSEDED

    @property
    def should_retry(self) -> bool:
        """It came to nothing, and not so often yet that another run would be in vain."""
        return self.outcome is RunOutcome.LOST and self.lost < MOST_LOST


@dataclass(frozen=True, slots=True)
class Ended:
    """Ids whose runs were cancelled or failed, and where to go on asking."""

    ids: tuple[str, ...]
    token: str | None


class RunHistory(Protocol):
    """What is known of runs. It outlives the ledger."""

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the field's word
        """The last run launched for this id; None when there was none."""
        ...

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        """How many runs were launched for this id and fingerprint."""
        ...

    def has_run(self, run_key: str) -> bool:
        """Whether a run with this key was launched."""
        ...

    def ended(self, token: str | None) -> Ended:
        """Some of those cancelled or failed since; one whose outcome may change comes again."""
        ...
