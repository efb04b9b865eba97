"""The results of building an output, a demonstration or a dataset, as plain data.

Results can be sent to another process. This module also formats them as text for people.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from demo_pipeline.files.shown_text import counted
from demo_pipeline.problems import Problem, Severity
from demo_pipeline.store.versions import CheckOutcome, Version, VersionName

# Maps the reason why a dataset leaves out a demonstration to a noun for messages.
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
# Maps the reason why a dataset leaves out a demonstration to a remedy for messages. Most reasons
# have no remedy.
LEFT_OUT_REMEDIES = {
    "unknown_outcome": "judge it with `demo-pipeline review`, or complete its meta.json",
}


class Status(StrEnum):
    """The status of an output after a build, or of a demonstration after its last stage.

    Attributes:
        BUILT: the output was built and committed.
        CACHED: the published version is up to date.
        REJECTED: the recording is at fault. Its quarantine record says why.
        FAILED: a defect of this package, or a transient error such as a full disk.
    """

    BUILT = "made"
    CACHED = "unchanged"
    REJECTED = "rejected"
    FAILED = "failed"

    @property
    def is_done(self) -> bool:
        """Whether the output exists and is up to date."""
        return self in {Status.BUILT, Status.CACHED}


# Maps the status of a demonstration to a word for the tables of the command line.
IN_TABLES: Mapping[Status, str] = {
    Status.BUILT: "done",
    Status.CACHED: "done",
    Status.REJECTED: "quarantined",
    Status.FAILED: "failed",
}


# Values of `Failure.why`: why a run failed.
REFUSED = "the recording is at fault"
TRANSIENT = "it may pass"
DEFECT = "a defect of the pipeline"


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The result of building an output.

    Attributes:
        output: the name of the output in the store.
        status: `BUILT` or `CACHED`.
        size: total bytes of all files.
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
        """Returns the result for a version that was just published or is still up to date."""
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
        """The id of the demonstration; meaningless for a dataset."""
        return self.output.rpartition("/")[2]

    @property
    def content(self) -> str:
        """The fingerprint of the content of the version."""
        return self.version.content

    @property
    def problems(self) -> list[Problem]:
        """The problems that the checks reported, errors before warnings."""
        problems: list[Problem] = []
        for outcome in self.checks:
            problems += outcome.problems
        return sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)


@dataclass(frozen=True, slots=True)
class DemonstrationResult:
    """The result of processing a demonstration.

    Attributes:
        status: `BUILT` if its outputs exist, otherwise `REJECTED` or `FAILED`.
        summary: the summary of its trajectory, plus the recorded outcome as `outcome`. Empty after
            a failure.
        stage: the stage that failed; empty without a failure.
        problems: why the stage failed.
    """

    demonstration: str
    status: Status
    summary: Mapping[str, Any] = field(default_factory=dict)
    stage: str = ""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class DatasetOutcome:
    """The result of building a dataset.

    Attributes:
        name: the name of the dataset's asset.
        path: the path or URL of the dataset.
        counts: the counts in the summary of the build. Each value is a number, or a dictionary from
            splits to numbers.
        left_out: phrases such as `1 failed demonstration`.
        told: sentences about duplicate uploads and changed splits.
        damaged: a sentence for each damaged file that kept a demonstration out of the dataset, with
            a command to rebuild the file.
        bytes_written: the bytes that the dataset adds to the store, without hard-linked files.
    """

    name: str
    path: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    bytes_written: int = 0


def left_out_words(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yields phrases that say how many demonstrations and records a dataset left out."""
    for key in ("left_out", "excluded_trajectories"):
        for reason, count in summary.get(key, {}).items():
            if count:
                yield _left_out_demonstrations(reason, count)
    units = [key for key in summary if key.startswith("excluded_")]
    for key in (*units, "hidden_actions"):
        reasons = {name: count for name, count in summary.get(key, {}).items() if count}
        if reasons and key != "excluded_trajectories":
            yield _left_out_units(key.removeprefix("excluded_").replace("_", " "), reasons)


def _left_out_demonstrations(reason: str, count: int) -> str:
    """Returns a phrase such as `2 failed demonstrations`, with a remedy if one is known."""
    kind = _DEMONSTRATIONS.get(reason, f"demonstration ({reason.replace('_', ' ')})")
    if count != 1:
        kind = kind.replace("ion", "ions", 1)
    remedy = LEFT_OUT_REMEDIES.get(reason, "")
    return f"{count} {kind} ({remedy})" if remedy else f"{count} {kind}"


def _left_out_units(unit: str, reasons: Mapping[str, int]) -> str:
    """Returns a phrase such as `3 samples (2 off screen, 1 split leak)`.

    Args:
        unit: the plural noun, such as `samples`.
        reasons: the number of units left out for each reason.
    """
    names = [name.replace("_", " ") for name in reasons]
    if len(reasons) > 1:
        counts = zip(reasons.values(), names, strict=True)
        names = [f"{count} {name}" for count, name in counts]
    total = sum(reasons.values())
    if total == 1:
        unit = unit.removesuffix("s")
    return f"{total} {unit} ({', '.join(names)})"


def contents(counts: Mapping[str, Any]) -> str:
    """Returns counts as text: `4 trajectories, 60 steps`, or `train 30, val 14` for splits."""
    parts: list[str] = []
    for name, count in counts.items():
        if isinstance(count, Mapping):
            parts += [f"{split} {number}" for split, number in count.items() if number]
        else:
            parts.append(counted(count, name))
    return ", ".join(parts)
