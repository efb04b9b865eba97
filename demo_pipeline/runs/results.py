"""What became of a demonstration, of a stage, of a dataset: one status, and results as plain data.

Belongs here: the types that go from the code that builds to whoever asked for it, also from one
process to another, what they say in words, and counting them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.store.versions import CheckOutcome, VersionName

_PAUSE = 5.0  # seconds between two lines about progress
_DEMONSTRATIONS = {
    "aborted": "aborted demonstration",
    "broken": "damaged demonstration",
    "contaminated": "demonstration of a benchmark task",
    "failed": "failed demonstration",
    "incomplete": "demonstration with too many hidden actions",
    "quarantined": "quarantined demonstration",
    "unreadable": "unreadable demonstration",
}


class Status(StrEnum):
    """What became of an output, or of a demonstration by its last stage.

    `BUILT`, `CACHED`: it is there. `REJECTED`: the recording is at fault, as a quarantine record or
    a missing input says. `FAILED`: a defect of the code. `WAITING`: something passing stopped it,
    such as a full disk. `SUPERSEDED`: its upload changed meanwhile. `LOST`, of runs alone: it was
    cancelled or died, though the store may hold a result.
    """

    BUILT = "made"
    CACHED = "unchanged"
    REJECTED = "rejected"
    FAILED = "failed"
    WAITING = "waiting"
    SUPERSEDED = "superseded"
    LOST = "lost"

    @property
    def is_done(self) -> bool:
        """Whether the output is there."""
        return self in {Status.BUILT, Status.CACHED}


# The words of the command line and of the UI for a demonstration.
IN_TABLES: Mapping[Status, str] = {
    Status.BUILT: "done",
    Status.CACHED: "done",
    Status.REJECTED: "quarantined",
    Status.SUPERSEDED: "superseded",
    Status.WAITING: "waiting",
    Status.FAILED: "crashed",
}
IN_RUNS: Mapping[Status, str] = {**IN_TABLES, Status.REJECTED: "failed"}


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of building an output, without the list of its files.

    Attributes:
        stage: its name.
        output: its name in the store.
        status: `BUILT`: built and committed; `CACHED`: the current version has this recipe, and its
            files the SHA-256 of its manifest; `REJECTED`: a blocking check failed, and readers
            still see the version before.
        version: the current version; None when rejected.
        summary: what the build function returned.
        checks: the outcome of every check.
        files: their number.
        size: of all files together, bytes.
        cpu_seconds: of the process that built it.
    """

    stage: str
    output: str
    status: Status
    version: VersionName | None
    summary: Mapping[str, Any]
    checks: tuple[CheckOutcome, ...]
    files: int = 0
    size: int = 0
    cpu_seconds: float = field(default=0.0, compare=False)

    @property
    def demonstration(self) -> str:
        """Its id, when the output is of one."""
        return self.output.rpartition("/")[2]

    @property
    def content(self) -> str:
        """Fingerprint of the content; empty when rejected."""
        return self.version.content if self.version else ""

    @property
    def problems(self) -> list[Problem]:
        """What the checks found, errors before warnings."""
        found = [problem for outcome in self.checks for problem in outcome.problems]
        return sorted(found, key=lambda problem: problem.severity is not Severity.ERROR)


@dataclass(frozen=True, slots=True)
class DemonstrationResult:
    """How a demonstration came through its stages.

    Attributes:
        demonstration: its id.
        status: `BUILT` when any stage built something, `CACHED` when none did, else why it ended.
        stages: what the stages gave, in order, up to the one that gave nothing.
        stage: that gave nothing; empty when it is done.
        problems: why; for `WAITING` and `FAILED` one, in plain words.
        checks: the outcome of every check of that stage, when one of them rejected it.
    """

    demonstration: str
    status: Status
    stages: tuple[BuildResult, ...] = ()
    stage: str = ""
    problems: tuple[Problem, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()

    @property
    def reason(self) -> str:
        """The first problem in plain words; empty when it is done."""
        return self.problems[0].message if self.problems else ""

    @property
    def summary(self) -> Mapping[str, Any]:
        """Of its trajectory, with the `outcome` that the recorder noted; empty without one.

        `done`; `failed`: completed, and the task is not done; `aborted`: not completed.
        """
        made = {one.stage: one.summary for one in self.stages}
        if not self.status.is_done or "trajectories" not in made:
            return {}
        completed = made.get("raw_recordings", {}).get("status") == "completed"
        undone = "failed" if completed else "aborted"
        trajectory = made["trajectories"]
        return {**trajectory, "outcome": "done" if trajectory.get("success") else undone}


@dataclass(frozen=True)
class DatasetOutcome:
    """One built dataset: its asset, where it is, and what its stage counts, maybe by split.

    `left_out` says what it lacks, and why, such as `1 failed demonstration`; `bytes_written` counts
    no hard links. `told`: see `CommittedTrajectories`.
    """

    name: str
    path: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    bytes_written: int = 0


def left_out_words(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a dataset leaves out, from the summary of its stage; what counts 0 is not said."""
    for key in ("left_out", "excluded_trajectories"):
        for reason, count in summary.get(key, {}).items():
            if count:
                kind = _DEMONSTRATIONS.get(reason, f"demonstration ({reason.replace('_', ' ')})")
                yield f"{count} {kind if count == 1 else kind.replace('ion', 'ions', 1)}"
    units = [key for key in summary if key.startswith("excluded_")]
    for key in (*units, "hidden_actions"):
        reasons = {name.replace("_", " "): n for name, n in summary.get(key, {}).items() if n}
        if reasons and key != "excluded_trajectories":
            total, several = sum(reasons.values()), len(reasons) > 1
            unit = key.removeprefix("excluded_").replace("_", " ")
            why = ", ".join(f"{n} {name}" if several else name for name, n in reasons.items())
            yield f"{total} {unit.removesuffix('s') if total == 1 else unit} ({why})"


_RARE = ("failed", "superseded", "waiting", "crashed")


@dataclass
class BatchProgress:
    """How far a run over many demonstrations is; results are counted by the words of `IN_RUNS`."""

    total: int
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._counts, self._unchanged = Counter[str](), 0
        self._begun = self._said = self.clock()

    def add(self, result: DemonstrationResult) -> None:
        """Count a result."""
        self._counts[IN_RUNS[result.status]] += 1
        self._unchanged += result.status is Status.CACHED

    def due_line(self) -> str | None:
        """`12 of 40, 61 per minute, 27 s left`, every few seconds; None before that."""
        now, ended = self.clock(), self._counts.total()
        if now - self._said < _PAUSE:
            return None
        self._said, passed = now, now - self._begun
        pace = ""
        if ended:
            left = duration(passed / ended * (self.total - ended))
            pace = f", {60 * ended / passed:.0f} per minute, {left} left"
        return f"{ended} of {self.total}{pace}{self._others()}"

    def last_line(self) -> str:
        """`37 of 40 demonstrations done (2 up to date), 3 failed, 61 s`."""
        done = f"{self._counts['done']} of {self.total} demonstrations done"
        unchanged = f" ({self._unchanged} up to date)" if self._unchanged else ""
        return f"{done}{unchanged}{self._others()}, {self.clock() - self._begun:.0f} s"

    def numbers(self) -> dict[str, int]:
        """The counts by their names, those that are 0 left out but `done`."""
        rare = {name: self._counts[name] for name in _RARE if self._counts[name]}
        return {"done": self._counts["done"], "up_to_date": self._unchanged, **rare}

    def _others(self) -> str:
        return "".join(f", {self._counts[name]} {name}" for name in _RARE if self._counts[name])


def duration(seconds: float) -> str:
    """`42 s`, `7 min` or `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def contents(counts: Mapping[str, Any]) -> str:
    """`4 trajectories, 60 steps`, or `train 30, val 14` for counts by split."""
    parts: list[str] = []
    for name, count in counts.items():
        if isinstance(count, Mapping):
            parts += [f"{split} {number}" for split, number in count.items() if number]
        else:
            parts.append(counted(count, name))
    return ", ".join(parts)
