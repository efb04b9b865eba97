"""Tests which steps of synthetic trajectories become questions for a model."""

import pytest

from demo_pipeline.datasets.splits import Split, plan_export
from demo_pipeline.evaluation.answer_forms import ANSWER_FORMS
from demo_pipeline.evaluation.rules import PRESETS
from demo_pipeline.evaluation.true_steps import StepRecord, each_true_step
from demo_pipeline.settings import DatasetSettings
from demo_pipeline_tests.datasets.builders import make_trajectory


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_a_true_key_of_another_name_is_the_key_of_the_right_answer(tmp_path, form):
    settings = DatasetSettings()
    records = list[StepRecord]()
    trajectory = make_trajectory(tmp_path, actions=[("hotkey", {"keys": ["CtrlLeft", "Return"]})])
    each_true_step(plan_export([trajectory], settings), settings, list(Split), records.append)
    record = records[0]
    answer_form = ANSWER_FORMS[form]
    answer = answer_form.decoder(settings)(answer_form.right(record), record.step.size)
    assert record.step.answer.actions == answer.actions
    assert PRESETS["cudag"](record.step, answer) == 1
