"""The results of a run from the command line, per demonstration and per dataset.

Belongs here: the types that the runs return and the console shows, and what they say in words.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_DEMONSTRATIONS = {
    "aborted": "aborted demonstration",
    "broken": "damaged demonstration",
    "contaminated": "demonstration of a benchmark task",
    "failed": "failed demonstration",
    "incomplete": "demonstration with too many hidden actions",
    "quarantined": "quarantined demonstration",
    "unreadable": "unreadable demonstration",
}
DemonstrationStatus = Literal["done", "quarantined", "superseded", "waiting", "crashed"]


@dataclass(frozen=True)
class DemonstrationOutcome:
    """The result of processing one demonstration.

    Attributes:
        demonstration: its id.
        status: `done`, `quarantined` (its input is at fault), `superseded` (the upload changed
            during the run), `waiting` (something passing stopped it, such as a full disk; it is
            tried again) or `crashed` (the run itself failed).
        summary: of its trajectory, with the `outcome` as recorded; empty unless `done`.
        reasons: why it is not done, one line each.
        again_alone: it waits because a stage exceeded its limits, and is tried again alone.
    """

    demonstration: str
    status: DemonstrationStatus
    summary: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    again_alone: bool = False


@dataclass(frozen=True)
class DatasetOutcome:
    """One built dataset.

    Attributes:
        name: of the asset.
        path: of the output, or its URL.
        counts: what its stage counts: a number, or numbers by split.
        left_out: what it leaves out, and why, such as `1 failed demonstration`.
        bytes_written: to the store; hard links in a folder count nothing.
    """

    name: str
    path: str
    counts: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    bytes_written: int = 0


def trajectory_summary(
    recording: Mapping[str, Any], trajectory: Mapping[str, Any]
) -> dict[str, Any]:
    """The summary of a trajectory with the `outcome` that the recorder noted.

    `done`; `failed`: completed, and the task is not done; `aborted`: not completed.
    """
    undone = "failed" if recording.get("status") == "completed" else "aborted"
    return {**trajectory, "outcome": "done" if trajectory.get("success") else undone}


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
