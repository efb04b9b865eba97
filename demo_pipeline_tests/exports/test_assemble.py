"""The loop of all training exports: what it counts, and records of whole trajectories."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo_pipeline.exports.assemble import build_form
from demo_pipeline.exports.form import Excluded, File, Form, Row, Source
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import (
    CLICK,
    TABLE,
    make_trajectory,
    read_lines,
)
from demo_pipeline_tests.exports.forms import build_cudag, build_messages, build_sft

LINES = {"samples", "trajectories", "records", "excluded_trajectories", "excluded_samples"}
CUDAG = {"name", "trajectories", "records", "excluded_trajectories", "excluded_records"}


def _episodes(made_of: Source) -> Iterator[Row | Excluded]:
    """A whole trajectory as one record, unless it is long."""
    trajectory = made_of.trajectory
    assert set(made_of.rows) == {step.index for step in trajectory.steps}
    if len(trajectory.steps) > 2:
        yield Excluded("too_long")
    else:
        first = trajectory.steps[0].screenshot
        parts = {"line": {"id": trajectory.id}}
        yield Row(trajectory.id, made_of.candidate.instruction, first, parts, {})


EPISODES = Form(
    name="atif",
    asset="episodes",
    folder="episodes",
    description="",
    check="",
    code_version="1",
    settings=(),
    unit="episodes",
    exclusions=("too_long", "disk_full"),
    rows=_episodes,
    files=(File("line", "{split}.jsonl"), File("line", "all.jsonl")),
)


def test_whole_trajectories_are_exported_by_the_same_loop(tmp_path: Path) -> None:
    demos = [
        make_trajectory(tmp_path, f"demo{n}", [CLICK] * (3 if n == 4 else 2), instruction=f"Do {n}")
        for n in range(8)
    ]
    demos.append(make_trajectory(tmp_path, "failed", success=False))
    (demos[5].path / "steps" / "000" / "action.json").unlink()
    summary = build_form(EPISODES, demos, tmp_path / "out", DatasetSettings())
    names = [line["id"] for line in read_lines(tmp_path / "out" / "all.jsonl")]
    assert names == ["demo0", "demo1", "demo2", "demo3", "demo6", "demo7"]
    assert summary.excluded_records == {"too_long": 1, "disk_full": 0, "split_leak": 0}
    assert (summary.total, summary.trajectories) == (6, 6)
    assert summary.excluded_trajectories["failed"] == 1
    assert summary.excluded_trajectories["unreadable"] == 1
    assert {problem.demonstration for problem in summary.problems} == {"demo5"}


@pytest.mark.parametrize(
    ("build", "keys"),
    [
        (build_sft, LINES),
        (build_messages, LINES),
        (build_cudag, CUDAG | {"task_counts", "escaped", "empty_splits", "settings"}),
    ],
)
def test_the_summary_has_the_keys_that_manifests_show(
    tmp_path: Path, build, keys: set[str]
) -> None:
    demo = make_trajectory(tmp_path, "demo", TABLE)
    bad = make_trajectory(tmp_path, "bad")
    bad.provenance.unlink()
    shown = build([demo, bad], tmp_path / "out", DatasetSettings()).as_dict()
    assert set(shown) == keys | {"problems", "hidden_actions"}
    assert sum(shown["records"].values()) == shown.get("samples", len(TABLE) + 1)
    assert shown["excluded_trajectories"]["unreadable"] == 1
    assert str(shown["problems"][0]).startswith("bad: provenance.parquet: cannot be read")
