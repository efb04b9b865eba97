"""SFT samples (seed 001, section 6): a line a step, what was seen and what was done.

Belongs here: writing `samples.jsonl`. Pictures and trees are named by their path in the dataset, so
that a sample is small and nothing is copied.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo_pipeline.datasets.cudag_actions import is_off_screen
from demo_pipeline.datasets.selection import DatasetTrajectory, Row, load, select
from demo_pipeline.formats.desktopd import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.formats.desktopd_reader import StepFiles, Trajectory
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings

SAMPLES_FILE = "samples.jsonl"


@dataclass(frozen=True, slots=True)
class SftSummary:
    """What was written.

    Attributes:
        samples: lines.
        trajectories: that gave at least one line.
        excluded_trajectories: by reason: failed, contaminated, unreadable.
        excluded_samples: by reason: off_screen, missing_frame.
        problems: why unreadable trajectories are.
    """

    samples: int
    trajectories: int
    excluded_trajectories: dict[str, int]
    excluded_samples: dict[str, int]
    problems: tuple[Problem, ...]


def build_sft(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> SftSummary:
    """Write `samples.jsonl`, by trajectory id and step; one trajectory is in memory at a time.

    Paths are relative to the dataset root: `trajectories/<id>/steps/000/screenshot.png`. Steps off
    the screen or without a frame give no sample and stay in the history.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is made.
        settings: whether failed and benchmark demonstrations take part.
    """
    selection = select(trajectories, settings)
    excluded: Counter[str] = Counter(off_screen=0, missing_frame=0)
    left_out, problems = selection.excluded.copy(), list(selection.problems)
    written: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    # Lone surrogates, which no trainer's JSON reader takes, become "?".
    target = out / SAMPLES_FILE
    with target.open("w", encoding="utf-8", errors="replace", newline="\n") as lines:
        for candidate in selection.chosen:
            try:
                trajectory, rows = load(candidate.source)
            except DemonstrationError as error:
                problems.extend(error.problems)
                left_out["unreadable"] += 1
                continue
            for sample in samples(trajectory, rows, excluded):
                lines.write(json.dumps(sample, ensure_ascii=False) + "\n")
                written[trajectory.id] += 1
    return SftSummary(
        samples=written.total(),
        trajectories=len(written),
        excluded_trajectories=dict(left_out),
        excluded_samples=dict(excluded),
        problems=tuple(problems),
    )


def samples(
    trajectory: Trajectory, rows: Mapping[int, Row], excluded: Counter[str]
) -> Iterator[dict[str, Any]]:
    """Yield the samples of a trajectory; `excluded` is told of steps that give none."""
    history: list[dict[str, Any]] = []
    for step in trajectory.steps:
        action = step.action.model_dump(mode="json")
        reason = _exclusion(step, rows[step.index])
        if reason:
            excluded[reason] += 1
        else:
            folder = f"trajectories/{trajectory.id}/steps/{step.folder.name}"
            seen = {
                "instruction": trajectory.task.instruction,
                "screenshot": f"{folder}/{step.screenshot.name}",
                "ui_tree": f"{folder}/{step.ui_tree.name}",
                "history": history,
            }
            done = {"action": action, "reasoning": step.action.reasoning}
            yield {"input": seen, "output": done}
        history = [*history, action]


def _exclusion(step: StepFiles, row: Row) -> str:
    if is_off_screen(step.action, row, (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    missing = row["pts"] is None or not step.screenshot.is_file() or not step.ui_tree.is_file()
    return "missing_frame" if missing else ""
