"""Predictions in a bucket are found and scored as those in a folder."""

import pytest

from demo_pipeline.runs.evaluations import (
    Evaluation,
    list_evaluations,
    write_right_answers,
)
from demo_pipeline.runs.failures import RefusedError
from demo_pipeline_tests.building import run_evaluation
from demo_pipeline_tests.datasets.builders import CLICK, make_trajectory
from demo_pipeline_tests.datasets.stores import commit_trajectories
from demo_pipeline_tests.sample_workspace import open_workspace


def test_predictions_in_a_bucket_become_scores(tmp_path, moto_url):
    workspace = open_workspace(tmp_path, uploads=str(tmp_path), store=f"{moto_url}/scored")
    actions = [CLICK, ("type", {"text": "hunter2"})]
    commit_trajectories(workspace, [make_trajectory(tmp_path, "demo", actions)])
    assert list_evaluations(workspace)[0] == []
    with pytest.raises(RefusedError, match=r"evaluations/right/predictions\.jsonl is not"):
        run_evaluation(workspace, "right")
    path = tmp_path / "predictions.jsonl"
    write_right_answers(workspace, path, Evaluation(split="any"))
    objects = workspace.store.objects
    objects.put("evaluations/right/predictions.jsonl", path)
    objects.put("evaluations/right/evaluation.json", b'{"split": "any", "presets": ["cudag"]}')
    (found,), _ = list_evaluations(workspace)
    assert found.name == "right"
    result = run_evaluation(workspace, "right")
    assert (result.status, result.summary["score"], result.summary["steps"]) == ("made", 1.0, 3)
    assert all(outcome.passed for outcome in result.checks)
    assert run_evaluation(workspace, "right").status == "unchanged"
    assert "evaluation_scores/right" in workspace.store.outputs()
    objects.put("evaluations/right/predictions.jsonl", b"")
    again = run_evaluation(workspace, "right")
    assert (again.status, again.summary["score"]) == ("made", 0.0)
    assert not again.checks[0].passed
