"""Tests of the provenance columns that contain the content of action.json."""

import pytest

from demo_pipeline.desktopd.models import StepAction
from demo_pipeline.trajectories.provenance import action_columns

_DRAG = {"start_x": 1, "start_y": 2, "end_x": 3, "end_y": 4}


@pytest.mark.parametrize(
    ("kind", "parameters", "columns"),
    [
        ("drag", _DRAG, {"x": 1, "y": 2, "end_x": 3, "end_y": 4}),
        ("hotkey", {"keys": ["ctrl", "s"]}, {"keys": ["ctrl", "s"]}),
        ("type", {"text": "a\ud800"}, {"text": "a?"}),
        (
            "scroll",
            {"x": 5, "y": 6, "direction": "up", "amount": 2},
            {"x": 5, "y": 6, "direction": "up", "amount": 2},
        ),
        ("wait", {"seconds": 1.0}, {}),
    ],
)
def test_the_columns_are_the_parameters_and_the_target(kind, parameters, columns):
    target = {"id": "node_1", "role": "button", "name": "Save"}
    document = {"step_index": 0, "action_type": kind, "parameters": parameters}
    action = StepAction.model_validate({**document, "target_element": target, "reasoning": "x"})
    filled = {name: value for name, value in action_columns(action).items() if value is not None}
    assert filled == {**columns, "target_role": "button", "target_name": "Save"}
