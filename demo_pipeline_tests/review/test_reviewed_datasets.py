"""Tests how approvals, rejections, corrections and settings decide what datasets contain."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo_pipeline.datasets.selection import select
from demo_pipeline.datasets.splits import plan_export, plan_splits
from demo_pipeline.files.parquet import read_rows
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.trajectory_loading import DatasetTrajectory
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.exports.forms import build_step_labels, validate_step_labels

ALL_TRAIN: dict[str, Any] = {"train_ratio": 1, "val_ratio": 0}


def corrected(trajectory: DatasetTrajectory, root: Path, **values: Any) -> DatasetTrajectory:
    """Returns a trajectory whose records say that people corrected it."""
    records = root / "records" / trajectory.id
    records.mkdir(parents=True, exist_ok=True)
    data = f"{json.dumps({**values, 'decisions': ['0' * 32]})}\n".encode()
    (records / "corrections.json").write_bytes(data)
    digests = {"corrections.json": hashlib.sha256(data).hexdigest()}
    return replace(trajectory, records=str(records), digests=digests)


def three(tmp_path: Path) -> list[DatasetTrajectory]:
    trajectories = [
        make_trajectory(tmp_path, name, shade=n) for n, name in enumerate(("a", "b", "c"))
    ]
    approved = replace(trajectories[0], review="approved")
    return [
        approved,
        replace(trajectories[1], review="rejected", rejected_for="unfinished"),
        trajectories[2],
    ]


@pytest.mark.parametrize(
    ("settings", "chosen", "left_out"),
    [
        ({}, "ac", {"rejected": 1}),
        ({"require_review": "none"}, "abc", {}),
        ({"require_review": "approved"}, "a", {"rejected": 1, "not_approved": 1}),
        ({"exclude": ("a", "unknown")}, "c", {"excluded": 1, "rejected": 1}),
    ],
)
def test_review_and_exclusion_leave_out_demonstrations_and_are_counted(
    tmp_path, settings, chosen, left_out
):
    selection = select(three(tmp_path), DatasetSettings(**settings))
    assert [trajectory.source.id for trajectory in selection.chosen] == list(chosen)
    assert {reason: n for reason, n in selection.excluded.items() if n} == left_out


def labels(
    tmp_path: Path, trajectories: Sequence[DatasetTrajectory], **settings: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
    """Builds the step labels of trajectories.

    Returns the labels of steps and of whole trajectories by id, and reason → number of left-out
    labels.
    """
    out = tmp_path / "out"
    summary = build_step_labels(trajectories, out, DatasetSettings(**{**ALL_TRAIN, **settings}))
    assert validate_step_labels(out) == []
    steps, whole = (
        {row["trajectory_id"]: row["labels"] for row in read_rows(out / name)}
        for name in ("train.parquet", "outcome/train.parquet")
    )
    return steps, whole, {name: n for name, n in summary.excluded_trajectories.items() if n}


def test_bad_steps_are_false_labels(tmp_path):
    done, failed = (
        corrected(
            make_trajectory(tmp_path, name, [CLICK] * 4, success=name == "done", shade=shade),
            tmp_path,
            bad_steps=[1, 2],
        )
        for name, shade in (("done", 0), ("failed", 9))
    )
    steps, whole, _ = labels(tmp_path, [done, failed])
    assert steps == {"done": [True, False, False, True], "failed": [True, False]}
    assert whole == {"done": [True], "failed": [False]}


@pytest.mark.parametrize(
    ("reason", "steps", "whole"),
    [
        ("unfinished", [True, False], [False]),
        ("many_errors", [True, False, True], [True]),
        ("private_data", None, None),
        ("other", None, None),
    ],
)
def test_a_rejected_demonstration_gives_labels_by_its_reason_and_nothing_else(
    tmp_path, reason, steps, whole
):
    recorded = make_trajectory(tmp_path, "demo", [CLICK] * 3)
    rejected = replace(recorded, review="rejected", rejected_for=reason)
    marked = replace(corrected(recorded, tmp_path, bad_steps=[1]), review="rejected")
    written = labels(tmp_path, [replace(marked, rejected_for=reason)])
    assert (written[0].get("demo"), written[1].get("demo")) == (steps, whole)
    written = labels(tmp_path, [rejected])
    assert (written[0].get("demo"), written[1].get("demo")) == (None, whole)
    assert written[2] == ({} if whole else {"rejected": 1})
    assert labels(tmp_path, [rejected], require_review="none")[0] == {"demo": [True] * 3}
    assert plan_export([rejected], DatasetSettings()).selection.chosen == ()


def test_with_approval_required_only_reviewed_demonstrations_give_labels(tmp_path):
    _, whole, left_out = labels(tmp_path, three(tmp_path), require_review="approved")
    assert whole == {"a": [True], "b": [False]}
    assert left_out == {"not_approved": 1}


def test_a_corrected_outcome_decides_whether_a_demonstration_is_included(tmp_path):
    done = corrected(make_trajectory(tmp_path, "done"), tmp_path, success=False)
    failed = corrected(make_trajectory(tmp_path, "failed", success=False), tmp_path, success=True)
    selection = select([done, failed], DatasetSettings())
    assert [trajectory.source.id for trajectory in selection.chosen] == ["failed"]
    assert selection.excluded["failed"] == 1


def test_a_demonstration_with_the_instruction_of_another_task_joins_its_split(tmp_path):
    """The other tasks keep their splits."""
    trajectories = [make_trajectory(tmp_path, f"d{n}", instruction=f"Task {n}") for n in range(30)]
    before = plan_splits(trajectories, DatasetSettings())[1].splits
    source = next(trajectory for trajectory in trajectories if before[trajectory.id] != "train")
    taught = next(trajectory for trajectory in trajectories if before[trajectory.id] == "train")
    number = trajectories.index(source)
    trajectories[number] = corrected(
        source, tmp_path, instruction=f"Task {trajectories.index(taught)}"
    )
    after = plan_splits(trajectories, DatasetSettings())[1].splits
    assert after[source.id] == after[taught.id]
    joined = {source.id, taught.id}
    assert {key: after[key] for key in before.keys() - joined} == {
        key: before[key] for key in before.keys() - joined
    }
    alone = corrected(source, tmp_path, instruction="Words that nobody else has")
    trajectories[number] = alone
    assert plan_splits(trajectories, DatasetSettings())[1].splits == before
