"""The loop of all training exports: what it counts, and exporters of whole trajectories."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from demo_pipeline.datasets.export_loop import Excluded, export_records, plan_export
from demo_pipeline.datasets.selection import Candidate
from demo_pipeline.datasets.splits import Split
from demo_pipeline.desktopd.reader import Trajectory
from demo_pipeline.exports.cudag.dataset import build_cudag
from demo_pipeline.exports.messages import build_messages
from demo_pipeline.exports.sft import build_sft
from demo_pipeline.settings import DatasetSettings
from demo_pipeline.trajectories.provenance import ProvenanceRow
from demo_pipeline_tests.datasets.builders import CLICK, TABLE, make_trajectory

LINES = {"samples", "trajectories", "records", "excluded_trajectories", "excluded_samples"}
CUDAG = {"name", "trajectories", "records", "excluded_trajectories", "excluded_records"}


@dataclass(frozen=True)
class Episode:
    """A whole trajectory as one record."""

    id: str
    prompt: str
    screenshot: Path


@dataclass
class Episodes:
    """An exporter of whole trajectories that refuses long ones and cannot write `unwritable`."""

    unit: ClassVar[str] = "episodes"
    exclusions: ClassVar[tuple[str, ...]] = ("too_long", "disk_full")
    provenance_columns: ClassVar[tuple[str, ...]] = ("pts",)
    instruction_in_prompt: ClassVar[bool] = True
    unwritable: str = ""
    written: dict[Split, list[str]] = field(default_factory=dict)

    def records(
        self, candidate: Candidate, trajectory: Trajectory, rows: Mapping[int, ProvenanceRow]
    ) -> Iterator[Episode | Excluded]:
        assert all({"step_index", "pts"} <= set(row) for row in rows.values())
        if len(trajectory.steps) > 2:
            yield Excluded("too_long")
        else:
            first = trajectory.steps[0].screenshot
            yield Episode(trajectory.id, candidate.instruction, first)

    def write(self, split: Split, record: Episode) -> Excluded | None:
        if record.id == self.unwritable:
            return Excluded("disk_full")
        self.written.setdefault(split, []).append(record.id)
        return None


def test_whole_trajectories_are_exported_by_the_same_loop(tmp_path: Path) -> None:
    demos = [
        make_trajectory(tmp_path, f"demo{n}", [CLICK] * (3 if n == 4 else 2), instruction=f"Do {n}")
        for n in range(8)
    ]
    demos.append(make_trajectory(tmp_path, "failed", success=False))
    (demos[5].path / "steps" / "000" / "action.json").unlink()
    exporter = Episodes(unwritable="demo6")
    summary = export_records(plan_export(demos, DatasetSettings()), exporter)
    names = sorted(name for names in exporter.written.values() for name in names)
    assert names == ["demo0", "demo1", "demo2", "demo3", "demo7"]
    assert summary.records == {split: len(exporter.written.get(split, ())) for split in Split}
    assert summary.excluded_records == {"too_long": 1, "disk_full": 1, "split_leak": 0}
    assert (summary.total, summary.trajectories) == (5, 5)
    assert summary.excluded_trajectories["failed"] == 1
    assert summary.excluded_trajectories["unreadable"] == 1
    assert {problem.demonstration for problem in summary.problems} == {"demo5"}


def test_whole_trajectories_that_begin_alike_are_written_to_one_split(tmp_path: Path) -> None:
    demos = [make_trajectory(tmp_path, f"demo{n}") for n in range(6)]
    exporter = Episodes()
    summary = export_records(plan_export(demos, DatasetSettings()), exporter)
    assert len(exporter.written) == 1
    assert summary.excluded_records["split_leak"] == 6 - summary.total > 0


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
