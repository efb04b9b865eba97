"""Tests that the UI shows how many decisions reviewers made, but none of their texts."""

import dagster as dg

from demo_pipeline.defs.observed_assets import observed_reviews
from demo_pipeline.defs.resources import roots_resource
from demo_pipeline.review.review_store import Reviews, subject_of
from demo_pipeline_tests.sample_workspace import copy_of, open_workspace


def test_dagster_counts_the_decisions_and_shows_none_of_their_text(made_root, tmp_path):
    copy_of(made_root / "store", tmp_path / "store")
    workspace = open_workspace(tmp_path)
    folder, version = workspace.store.open("trajectories/first")
    subject = subject_of(version, "first")
    Reviews(workspace.store).make(subject, folder, "ann", "note", {"text": "hunter2"})
    Reviews(workspace.store).make(subject, folder, "ann", "bad_step", {"step": 0})
    job = dg.define_asset_job("observing", ["reviews"])
    defs = dg.Definitions(
        assets=[observed_reviews],
        jobs=[job],
        resources={"roots": roots_resource(workspace.settings)},
    )
    result = defs.resolve_job_def("observing").execute_in_process()
    [event] = [event for event in result.all_events if event.is_asset_observation]
    metadata = event.asset_observation_data.asset_observation.metadata
    counts = {name: value.value for name, value in metadata.items()}
    assert (counts["decisions"], counts["holds"], counts["bad_step"]) == (2, 2, 1)
    assert "hunter2" not in repr(event)
