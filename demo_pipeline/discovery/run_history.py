"""The runs that were launched for uploads, as far as discovery needs to know them.

Belongs here: the questions that discovery asks about runs, and the values of the answers. The
orchestration layer implements `RunHistory`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from demo_pipeline.discovery.retry_pauses import retry_pause

MAX_LOST_RUNS = 3  # after so many lost runs for one upload no other is launched


class RunOutcome(StrEnum):
    """How a run ended.

    `live`: it is queued or running, or it failed so recently that its quarantine record may follow.
    `ended`: with a result, or with a quarantine record.
    `superseded`: without a result, because the upload had changed.
    `lost`: cancelled, or dead without a quarantine record.
    `waiting`: stopped by something that passes by itself, such as a full disk.
    """

    LIVE = "live"
    ENDED = "ended"
    SUPERSEDED = "superseded"
    LOST = "lost"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that was launched for a demonstration.

    Attributes:
        fingerprint: of the upload it was launched for, 64 hex.
        outcome: how it ended.
        lost: how many runs for this fingerprint were lost; only counted when this run was.
        waits: how many runs in a row ended waiting, this one included.
        reason: what a waiting run waits for, in plain words.
    """

    fingerprint: str
    outcome: RunOutcome = RunOutcome.LIVE
    lost: int = 0
    waits: int = 0
    reason: str = ""

    @property
    def superseded(self) -> bool:
        """Whether it ended without a result because the upload had changed."""
        return self.outcome is RunOutcome.SUPERSEDED

    @property
    def should_retry(self) -> bool:
        """Whether it was lost, and fewer than `MAX_LOST_RUNS` were."""
        return self.outcome is RunOutcome.LOST and self.lost < MAX_LOST_RUNS

    @property
    def retry_after(self) -> float | None:
        """Seconds from its end to the next run for the same upload; None when none follows."""
        if self.outcome is RunOutcome.WAITING:
            return retry_pause(self.waits)
        return 0.0 if self.should_retry else None


@dataclass(frozen=True, slots=True)
class EndedRuns:
    """Ids whose runs were cancelled or failed, and the token to continue from."""

    ids: tuple[str, ...]
    token: str | None


class RunHistory(Protocol):
    """The runs that were ever launched. It outlives the ledger."""

    def last(self, id: str) -> Launch | None:  # noqa: A002 - the field's word
        """The last run launched for this id; None when no run was."""
        ...

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        """How many runs were launched for this id and fingerprint."""
        ...

    def has_run(self, run_key: str) -> bool:
        """Whether a run with this key was launched."""
        ...

    def recent_waits(self) -> int:
        """How many runs ended waiting within the last hour."""
        ...

    def ended(self, token: str | None) -> EndedRuns:
        """Runs cancelled or failed since `token`; those that may still change are repeated."""
        ...
