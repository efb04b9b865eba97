"""Tests the image sheet of wrong answers.

The sheet shows the person's action and the model's action. It never shows the text that they typed.
"""

from pathlib import Path

import cv2
import numpy as np

from demo_pipeline.evaluation.scoring import FailedStep, failures_sheet
from demo_pipeline.exports.answers import Answer, ForeignAction
from demo_pipeline_tests.datasets.builders import picture
from demo_pipeline_tests.evaluation.steps import EVERY_ACTION, answer, made_step


def size(data):
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert decoded is not None
    return decoded.shape[:2]


def click_step(tmp_path: Path):
    path = tmp_path / "screen.png"
    path.write_bytes(picture(1))
    return made_step(answer("click", x=5, y=5), screenshot=path, box=(1.0, 1.0, 9.0, 9.0))


def test_a_wrong_answer_is_a_row_with_the_persons_and_the_models_action(tmp_path):
    step = click_step(tmp_path)
    answers = [*EVERY_ACTION, Answer((ForeignAction("x"),)), Answer(()), None]
    failures = []
    for given in answers:
        problem = None if given else "missing"
        failures.append(FailedStep(step, given, problem))
    height, width = size(failures_sheet(failures))
    assert width == 2 * 480
    assert height > len(failures) * 270
    assert size(failures_sheet([]))


def test_text_that_a_model_writes_as_keys_is_not_drawn(tmp_path):
    """Labels contain key names, in which a model could hide text."""
    step = click_step(tmp_path)
    sheets = [
        failures_sheet([FailedStep(step, answer("hotkey", keys=keys), None)])
        for keys in (["hunter2"], ["sw0rdfish"], ["ctrl", "c"], ["ctrl", "v"])
    ]
    assert sheets[0] == sheets[1]
    assert len({sheets[0], sheets[2], sheets[3]}) == 3
