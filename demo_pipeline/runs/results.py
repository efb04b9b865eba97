"""What became of a demonstration, of a stage, of a dataset: one status, and results as plain data.

Belongs here: the types that go from the code that builds to whoever asked for it, also from one
process to another, what they say in words, and counting them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.store.versions import CheckOutcome, Version, VersionName

_DEMONSTRATIONS = {
    "aborted": "aborted demonstration",
    "broken": "damaged demonstration",
    "contaminated": "demonstration of a benchmark task",
    "failed": "failed demonstration",
    "incomplete": "demonstration with too many hidden actions",
    "quarantined": "quarantined demonstration",
    "unknown_outcome": "demonstration of unknown outcome",
    "unreadable": "unreadable demonstration",
}
# Remedies for reasons that do not name one themselves.
LEFT_OUT_REMEDIES = {
    "unknown_outcome": "judge it with `demo-pipeline review`, or complete its meta.json",
}


class Status(StrEnum):
    """What became of an output, or of a demonstration by its last stage.

    `BUILT`, `CACHED`: it is there. `REJECTED`: the recording is at fault, as a quarantine record
    says. `FAILED`: a defect of ours, or something that may pass, such as a full disk.
    """

    BUILT = "made"
    CACHED = "unchanged"
    REJECTED = "rejected"
    FAILED = "failed"

    @property
    def is_done(self) -> bool:
        """Whether the output is there."""
        return self in {Status.BUILT, Status.CACHED}


# The words of the command line for a demonstration.
IN_TABLES: Mapping[Status, str] = {
    Status.BUILT: "done",
    Status.CACHED: "done",
    Status.REJECTED: "quarantined",
    Status.FAILED: "failed",
}


# Why a run failed.
REFUSED = "the recording is at fault"
TRANSIENT = "it may pass"
DEFECT = "a defect of the pipeline"


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of building an output, without the list of its files.

    Attributes:
        stage: its name.
        output: its name in the store.
        status: `BUILT`: built and committed; `CACHED`: the published version has this recipe.
        version: the published version.
        summary: the summary of the build.
        checks: the outcome of every check.
        files: their number.
        size: of all files together, bytes.
    """

    stage: str
    output: str
    status: Status
    version: VersionName
    summary: Mapping[str, Any]
    checks: tuple[CheckOutcome, ...]
    files: int = 0
    size: int = 0

    @classmethod
    def of(cls, version: Version, status: Status) -> Self:
        """The result of a build that published a version, or left it as it is."""
        manifest = version.manifest
        return cls(
            stage=manifest.stage,
            output=version.output,
            status=status,
            version=version.name,
            summary=manifest.summary,
            checks=manifest.checks,
            files=len(manifest.files),
            size=manifest.size,
        )

    @property
    def demonstration(self) -> str:
        """Its id, when the output is of one."""
        return self.output.rpartition("/")[2]

    @property
    def content(self) -> str:
        """Fingerprint of the content."""
        return self.version.content

    @property
    def problems(self) -> list[Problem]:
        """What the checks found, errors before warnings."""
        found = [problem for outcome in self.checks for problem in outcome.problems]
        return sorted(found, key=lambda problem: problem.severity is not Severity.ERROR)


@dataclass(frozen=True, slots=True)
class DemonstrationResult:
    """What became of a demonstration.

    Attributes:
        demonstration: its id.
        status: `BUILT` when it is there, else why it is not.
        summary: of its trajectory, with its `outcome`; empty when it is not done.
        stage: that gave nothing; empty when it is done.
        problems: why.
    """

    demonstration: str
    status: Status
    summary: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class DatasetOutcome:
    """One built dataset: its asset, where it is, and what its stage counts, maybe by split.

    `left_out` says what it lacks, and why, such as `1 failed demonstration`; `damaged` names the
    damaged file of each broken demonstration, with the command that rebuilds it; `bytes_written`
    counts no hard links. `told`: see `CommittedTrajectories`.
    """

    name: str
    path: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    bytes_written: int = 0


def left_out_words(summary: Mapping[str, Any]) -> Iterator[str]:
    """What a dataset leaves out, from the summary of its stage; what counts 0 is not said."""
    for key in ("left_out", "excluded_trajectories"):
        for reason, count in summary.get(key, {}).items():
            if count:
                kind = _DEMONSTRATIONS.get(reason, f"demonstration ({reason.replace('_', ' ')})")
                remedy = LEFT_OUT_REMEDIES.get(reason, "")
                yield (
                    f"{count} {kind if count == 1 else kind.replace('ion', 'ions', 1)}"
                    f"{f' ({remedy})' if remedy else ''}"
                )
    units = [key for key in summary if key.startswith("excluded_")]
    for key in (*units, "hidden_actions"):
        reasons = {name.replace("_", " "): n for name, n in summary.get(key, {}).items() if n}
        if reasons and key != "excluded_trajectories":
            total = sum(reasons.values())
            several = len(reasons) > 1
            unit = key.removeprefix("excluded_").replace("_", " ")
            why = ", ".join(f"{n} {name}" if several else name for name, n in reasons.items())
            yield f"{total} {unit.removesuffix('s') if total == 1 else unit} ({why})"


def contents(counts: Mapping[str, Any]) -> str:
    """`4 trajectories, 60 steps`, or `train 30, val 14` for counts by split."""
    parts: list[str] = []
    for name, count in counts.items():
        if isinstance(count, Mapping):
            parts += [f"{split} {number}" for split, number in count.items() if number]
        else:
            parts.append(counted(count, name))
    return ", ".join(parts)
