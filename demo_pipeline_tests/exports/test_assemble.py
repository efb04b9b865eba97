"""Tests of building a dataset of any export form: counts, and rows of whole trajectories."""

import pytest

from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import TABLE, make_trajectory
from demo_pipeline_tests.exports.forms import build_cudag, build_messages, build_sft

LINES = {"samples", "trajectories", "records", "excluded_trajectories", "excluded_samples"}
CUDAG = {"name", "trajectories", "records", "excluded_trajectories", "excluded_records"}


@pytest.mark.parametrize(
    ("build", "keys"),
    [
        (build_sft, LINES),
        (build_messages, LINES),
        (build_cudag, CUDAG | {"task_counts", "escaped", "empty_splits", "settings"}),
    ],
)
def test_the_summary_has_the_keys_that_manifests_show(tmp_path, build, keys):
    demo = make_trajectory(tmp_path, "demo", TABLE)
    bad = make_trajectory(tmp_path, "bad")
    bad.provenance.unlink()
    summary = build([demo, bad], tmp_path / "out", DatasetSettings()).as_dict()
    assert set(summary) == keys | {"problems", "hidden_actions"}
    assert sum(summary["records"].values()) == summary.get("samples", len(TABLE) + 1)
    assert summary["excluded_trajectories"]["unreadable"] == 1
    assert str(summary["problems"][0]).startswith("bad: provenance.parquet: cannot be read")
