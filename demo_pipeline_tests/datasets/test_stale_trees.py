"""Exports use no target from a tree that differs from its screenshot."""

from pathlib import Path

import pytest

from demo_pipeline.datasets.stale_trees import without_stale_targets
from demo_pipeline.desktopd.models import PARAMETERS, ActionType, Role, StepAction, TargetElement
from demo_pipeline.desktopd.reader import StepFiles, Trajectory

TARGET = TargetElement(id="node_3", role=Role.BUTTON, name="Save")
CLICK = {"x": 10, "y": 20, "button": "left"}
DRAG = {"start_x": 1, "start_y": 2, "end_x": 30, "end_y": 40}
SCROLL = {"x": 5, "y": 6, "direction": "down", "amount": 2}


def exported(kind: ActionType, parameters: dict, sentence: str, agreement: str) -> StepFiles:
    action = StepAction(
        step_index=0,
        action_type=kind,
        parameters=PARAMETERS[kind].model_validate(parameters),
        target_element=TARGET,
        reasoning=sentence,
    )
    here = Path()
    step = StepFiles(0, here, here, here, action)
    trajectory = Trajectory("id", here, None, None, (step,), here)  # type: ignore[arg-type]
    row = {"tree_agreement": agreement, "target_x": 1}
    changed, rows = without_stale_targets(trajectory, {0: row})
    assert (rows[0]["target_x"] is None) == (agreement == "differs")
    return changed.steps[0]


@pytest.mark.parametrize(
    ("kind", "parameters", "said", "left"),
    [
        ("click", CLICK, 'Click the "Save" button.', "Click at (10, 20)."),
        ("drag", DRAG, 'Drag from the "Save" button to (30, 40).', "Drag from (1, 2) to (30, 40)."),
        ("scroll", SCROLL, 'Scroll down 2 notches in the "Save" list.', "Scroll down 2 notches."),
        ("type", {"text": "a"}, 'Type the text into the "Save" text field.', "Type the text."),
    ],
)
def test_the_sentence_says_the_place_instead(
    kind: str, parameters: dict, said: str, left: str
) -> None:
    step = exported(ActionType(kind), parameters, said, "differs")
    assert (step.action.target_element, step.action.reasoning) == (None, left)
    for agreement in ("agrees", "unknown"):
        step = exported(ActionType(kind), parameters, said, agreement)
        assert (step.action.target_element, step.action.reasoning) == (TARGET, said)
