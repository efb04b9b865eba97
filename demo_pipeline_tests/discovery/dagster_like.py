"""Runs as Dagster keeps them: a key launches once, a run reads its upload some time later."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile

from demo_pipeline.runs.upload_decisions import EndedRuns, Launch, Request, RunOutcome


@dataclass
class Run:
    id: str
    fingerprint: str
    time: float
    read: float = float("inf")
    superseded: bool = False
    lost: bool = False
    waiting: bool = False

    @property
    def outcome(self) -> RunOutcome:
        if self.waiting:
            return RunOutcome.WAITING
        if self.lost:
            return RunOutcome.LOST
        return RunOutcome.SUPERSEDED if self.superseded else RunOutcome.LIVE


@dataclass
class Runs:
    """A `RunHistory`, and the launching of runs.

    Attributes:
        before: called before each question, with its name; may raise.
        by_id: runs, oldest first.
        waits_before: runs of others that ended waiting within the last hour.
    """

    before: Callable[[str], None] = lambda _: None
    by_id: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    waits_before: int = 0
    _ends: list[str] = field(default_factory=list)
    _keys: set[str] = field(default_factory=set)

    def last(self, id: str) -> Launch | None:  # noqa: A002
        self.before("last")
        runs = self.by_id.get(id)
        if not runs:
            return None
        lost = sum(run.lost and run.fingerprint == runs[-1].fingerprint for run in runs)
        waits = sum(1 for _ in takewhile(lambda run: run.waiting, reversed(runs)))
        return Launch(runs[-1].fingerprint, runs[-1].outcome, lost, waits, "the disk is full")

    def times(self, id: str, fingerprint: str) -> int:  # noqa: A002
        self.before("times")
        return sum(run.fingerprint == fingerprint for run in self.by_id.get(id, ()))

    def has_run(self, run_key: str) -> bool:
        self.before("has_run")
        return run_key in self._keys

    def recent_waits(self) -> int:
        self.before("recent_waits")
        return self.waits_before + sum(run.waiting for runs in self.by_id.values() for run in runs)

    def ended(self, token: str | None) -> EndedRuns:
        self.before("ended")
        return EndedRuns(tuple(self._ends[int(token or 0) :]), str(len(self._ends)))

    def lose(self, run: Run) -> None:
        """Cancel the run, or let it die without a record."""
        run.lost = True
        self._ends.append(run.id)

    def stop(self, run: Run) -> None:
        """Let something that passes by itself stop the run."""
        run.waiting = True
        self._ends.append(run.id)

    def launch(self, request: Request, time: float = 0.0) -> Run | None:
        """The run, None when there is one with this key."""
        if request.run_key in self._keys:
            return None
        run = Run(request.id, request.fingerprint, time)
        self._keys.add(request.run_key)
        self.by_id[request.id].append(run)
        return run
