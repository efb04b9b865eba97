"""Runs as Dagster keeps them: a key launches once, a run reads its upload some time later."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from demo_pipeline.runs.discovery import EndedRun, Ending, Request
from demo_pipeline.runs.results import Status


@dataclass
class Run:
    id: str
    fingerprint: str
    time: float
    read: float = float("inf")
    outcome: Status | None = None

    @property
    def superseded(self) -> bool:
        return self.outcome is Status.SUPERSEDED

    @property
    def lost(self) -> bool:
        return self.outcome is Status.LOST

    def end(self, outcome: Status) -> None:
        self.outcome = outcome


@dataclass
class Runs:
    """The `Runs` of discovery, and the launching of runs; a run is in the store once it is done.

    Attributes:
        before: called before each question, with its name; may raise.
        by_id: runs, oldest first.
        by_key: run, by the key of its request.
        claimed: ids that a command works on.
    """

    before: Callable[[str], None] = lambda _: None
    by_id: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    by_key: dict[str, Run] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)

    def launched(self, demonstration: str) -> dict[str, str]:
        self.before("launched")
        return {key: key for key, run in self.by_key.items() if run.id == demonstration}

    def live(self, demonstration: str) -> tuple[str, str | None] | None:
        self.before("live")
        for key, run in reversed(self.by_key.items()):
            if run.id == demonstration:
                return (key, run.fingerprint) if run.outcome is None else None
        return None

    def ended(self, runs: Sequence[str]) -> Iterator[EndedRun]:
        self.before("ended")
        for key in runs:
            run = self.by_key.get(key)
            if run is None:
                yield EndedRun(key, Ending(Status.LOST))
            elif run.outcome is not None:
                yield EndedRun(key, Ending(run.outcome, "the disk is full"))

    def settled(self, demonstration: str, fingerprint: str) -> bool:
        self.before("settled")
        done = [r for r in self.by_id.get(demonstration, ()) if r.outcome is Status.BUILT]
        return bool(done) and done[-1].fingerprint == fingerprint

    def launch(self, request: Request, time: float = 0.0) -> Run | None:
        """The run for a request; None when a run has its key."""
        if request.run_key in self.by_key:
            return None
        run = Run(request.id, request.fingerprint, time)
        self.by_key[request.run_key] = run
        self.by_id[request.id].append(run)
        return run
