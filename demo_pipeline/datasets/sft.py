"""SFT samples (seed 001, section 6): a line a step, what was seen and what was done.

Belongs here: the samples and their table. Pictures and trees are named by their path in the
dataset, so that a sample is small and nothing is copied.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from demo_pipeline.datasets.cudag_actions import is_off_screen
from demo_pipeline.datasets.selection import Candidate, DatasetTrajectory, Row, load, select
from demo_pipeline.datasets.split_files import SplitFiles, plain
from demo_pipeline.datasets.split_plan import CrossSplitGuard, plan_splits
from demo_pipeline.datasets.splits import Split
from demo_pipeline.formats.desktopd.reader import StepFiles, Trajectory
from demo_pipeline.formats.desktopd.vocabulary import CANVAS_HEIGHT, CANVAS_WIDTH
from demo_pipeline.problems import DemonstrationError, Problem
from demo_pipeline.settings import DatasetSettings

SAMPLES_FILE = "samples.jsonl"
_PROVENANCE = ("pts", "leak", "off_screen")
STEP_EXCLUSIONS = ("off_screen", "missing_frame", "leak", "split_leak")

# name, type, meaning. Parameters differ by action type, which tables cannot: those are JSON text.
_COLUMNS: tuple[tuple[str, pa.DataType, str], ...] = (
    ("trajectory_id", pa.string(), "demonstration id"),
    ("step_index", pa.int32(), "0-based, as in steps/NNN"),
    ("split", pa.string(), "train, val, test or held_out"),
    ("task_id", pa.string(), "of task.json"),
    ("application", pa.string(), "of task.json"),
    ("action_type", pa.string(), "seed 001 action type"),
    ("instruction", pa.string(), "input.instruction"),
    ("screenshot", pa.string(), "input.screenshot: path in the dataset"),
    ("ui_tree", pa.string(), "input.ui_tree: path in the dataset"),
    ("history", pa.string(), "input.history as JSON text: a list of actions"),
    ("action", pa.string(), "output.action as JSON text"),
    ("reasoning", pa.string(), "output.reasoning"),
)
SFT_SCHEMA = pa.schema(
    [
        pa.field(name, kind, nullable=False, metadata={"description": text})
        for name, kind, text in _COLUMNS
    ]
)


@dataclass(frozen=True, slots=True)
class SftSummary:
    """What was written.

    Attributes:
        samples: lines.
        trajectories: that gave at least one line.
        records: lines by split.
        excluded_trajectories: by reason: failed, contaminated, unreadable.
        excluded_samples: by reason, see `STEP_EXCLUSIONS`.
        problems: why unreadable trajectories are.
    """

    samples: int
    trajectories: int
    records: dict[str, int]
    excluded_trajectories: dict[str, int]
    excluded_samples: dict[str, int]
    problems: tuple[Problem, ...]


def build_sft(
    trajectories: Sequence[DatasetTrajectory], out: Path, settings: DatasetSettings
) -> SftSummary:
    """Write the samples, by trajectory id and step; one trajectory is in memory at a time.

    `samples.jsonl` and `samples.parquet` hold all; `train`, `val`, `test` and, where there are any,
    `held_out` hold the splits, the same as the CUDAG dataset's. Paths are relative to the dataset
    root: `trajectories/<id>/steps/000/screenshot.png`. Steps off the screen, without a frame or
    with a leaky one give no sample and stay in the history.

    Args:
        trajectories: committed and valid ones, in any order.
        out: directory to write into; it is made.
        settings: what takes part, and the splits.
    """
    selection = select(trajectories, settings)
    splits = plan_splits(selection, settings).splits
    sights = CrossSplitGuard.of(selection, splits)
    excluded: Counter[str] = Counter(dict.fromkeys(STEP_EXCLUSIONS, 0))
    left_out, problems = selection.excluded.copy(), list(selection.problems)
    written: set[str] = set()
    with SplitFiles(out, SFT_SCHEMA, "samples") as files:
        for candidate in selection.chosen:
            split = splits[candidate.source.id]
            try:
                trajectory, rows = load(candidate.source, _PROVENANCE)
            except DemonstrationError as error:
                problems.extend(error.problems)
                left_out["unreadable"] += 1
                continue
            for sample in samples(trajectory, rows, settings, excluded):
                if _leaks(sample, candidate, split, sights):
                    excluded["split_leak"] += 1
                    continue
                files.write(split, sample, _row(sample, trajectory, split))
                written.add(trajectory.id)
    return SftSummary(
        samples=files.counts.total(),
        trajectories=len(written),
        records={split.value: files.counts[split] for split in Split},
        excluded_trajectories=dict(left_out),
        excluded_samples=dict(excluded),
        problems=tuple(problems),
    )


def samples(
    trajectory: Trajectory,
    rows: Mapping[int, Row],
    settings: DatasetSettings,
    excluded: Counter[str],
) -> Iterator[dict[str, Any]]:
    """Yield the samples of a trajectory; `excluded` is told of steps that give none."""
    history: list[dict[str, Any]] = []
    for step in trajectory.steps:
        action = step.action.model_dump(mode="json")
        reason = _exclusion(step, rows[step.index], settings)
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


def _exclusion(step: StepFiles, row: Row, settings: DatasetSettings) -> str:
    if is_off_screen(step.action, row, (CANVAS_WIDTH, CANVAS_HEIGHT)):
        return "off_screen"
    missing = row["pts"] is None or not step.screenshot.is_file() or not step.ui_tree.is_file()
    if missing:
        return "missing_frame"
    return "leak" if row["leak"] and not settings.include_leaky else ""


def _leaks(
    sample: Mapping[str, Any], candidate: Candidate, split: Split, sights: CrossSplitGuard
) -> bool:
    seen = sample["input"]
    inside = str(seen["screenshot"]).removeprefix(f"trajectories/{candidate.source.id}/")
    prompt = f"{seen['instruction']}\n{json.dumps(seen['history'])}"
    return sights.leaks(candidate.instruction, prompt, candidate.source.path / inside, split)


def _row(sample: Mapping[str, Any], trajectory: Trajectory, split: Split) -> dict[str, Any]:
    """The sample as a row of `SFT_SCHEMA`."""
    seen, action = sample["input"], sample["output"]["action"]
    texts = {
        "trajectory_id": trajectory.id,
        "split": split.value,
        "task_id": trajectory.task.task_id,
        "application": trajectory.task.application,
        "action_type": action["action_type"],
        "instruction": seen["instruction"],
        "screenshot": seen["screenshot"],
        "ui_tree": seen["ui_tree"],
        "history": json.dumps(seen["history"], ensure_ascii=False),
        "action": json.dumps(action, ensure_ascii=False),
        "reasoning": sample["output"]["reasoning"],
    }
    return {"step_index": action["step_index"], **{k: plain(v) for k, v in texts.items()}}
