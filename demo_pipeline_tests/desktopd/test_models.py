from typing import Any

import pytest
from pydantic import ValidationError

from demo_pipeline.desktopd.models import (
    ActionType,
    ClickParameters,
    ElementState,
    Index,
    Metadata,
    Result,
    Role,
    StepAction,
    Task,
    points,
)
from demo_pipeline.files.base_model import check
from demo_pipeline.files.json_files import json_bytes, parse_json
from demo_pipeline_tests.desktopd import good_dataset as good


def test_the_vocabularies_have_the_documented_sizes():
    assert (len(Role), len(ElementState), len(ActionType)) == (34, 12, 8)


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (Task, good.task()),
        (Result, good.result()),
        (Index, good.index()),
        *((StepAction, action) for action in good.actions()),
        (Task, {**good.task(), "osworld_task_id": None, "note": {"kept": [1, None]}}),
        (Metadata, {"counts": {"left_out": 1}, "licence": "x"}),
    ],
)
def test_a_document_survives_a_round_trip(model, value):
    written = parse_json(json_bytes(model.model_validate(value)), "x")
    assert written.items() >= value.items()
    assert model.model_validate(written) == model.model_validate(value)
    assert model.model_validate(value).model_dump(mode="json") == written


def test_optional_parameters_are_written_only_when_given():
    plain = ClickParameters(x=1, y=2)
    triple = ClickParameters(x=1, y=2, clicks=3, modifiers=["ctrl"])
    assert json_bytes(plain, compact=True) == b'{"x":1,"y":2,"button":"left"}\n'
    assert json_bytes(triple, compact=True) == (
        b'{"x":1,"y":2,"button":"left","clicks":3,"modifiers":["ctrl"]}\n'
    )
    drag = {"start_x": 1, "start_y": 2, "end_x": 3, "end_y": 4}
    value = {"step_index": 0, "action_type": "drag", "parameters": drag, "reasoning": ""}
    action = StepAction.model_validate(value)
    assert action.model_dump()["parameters"] == drag


def test_other_writers_whole_floats_are_whole_numbers():
    action = {**good.actions()[0], "parameters": {"x": 500.0, "y": 300.0, "button": "left"}}
    assert points(StepAction.model_validate(action)) == [(500, 300)]


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("click", {"x": "500", "y": 300}),
        ("click", {"x": 1.5, "y": 300}),
        ("click", {"x": True, "y": 300}),
        ("click", {"x": 1, "y": 1, "button": "side"}),
        ("click", {"x": 1, "y": 1, "clicks": 4}),
        ("double_click", {"x": 1}),
        ("type", {}),
        ("hotkey", {"keys": []}),
        ("hotkey", {"keys": ["down"], "presses": 1}),
        ("hotkey", {"keys": ["down"], "presses": 2.5}),
        ("hotkey", {"keys": "ctrl"}),
        ("scroll", {"x": 1, "y": 1, "direction": "forward", "amount": 1}),
        ("scroll", {"x": 1, "y": 1, "direction": "up", "amount": 0}),
        ("drag", {"start_x": 1, "start_y": 1, "end_x": 1}),
        ("wait", {"seconds": 0}),
        ("wait", {"seconds": float("inf")}),
        ("wait", None),
        ("wait", ClickParameters(x=1, y=1)),
    ],
)
def test_parameters_are_those_of_the_type(kind, parameters):
    with pytest.raises(ValidationError, match="parameters"):
        StepAction(step_index=0, action_type=kind, parameters=parameters, reasoning="")


def test_a_rejected_text_is_not_repeated():
    typed: Any = {"text": ["hunter2"]}
    with pytest.raises(ValidationError) as caught:
        StepAction(step_index=0, action_type=ActionType.TYPE, parameters=typed, reasoning="")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", [[], {**good.index(), "trajectories": [7]}])
def test_the_error_for_a_value_that_is_no_object_names_no_class(value):
    _, [problem] = check(Index, value, "index.json")
    place = "trajectories[0]" if value else "document"
    assert problem.message == f"{place}: Input should be a valid dictionary"
