"""Tests of the effects of a step: the change of the screen, and a later step that undid it."""

from typing import Any

import numpy as np
import pytest

from demo_pipeline.actions.action_tables import Action
from demo_pipeline.desktopd.models import PARAMETERS, ActionType, StepAction, TargetElement
from demo_pipeline.observation.frames.screenshot_files import ScreenshotFacts
from demo_pipeline.trajectories.step_effects import ShownScreen, change_between, steps_taken_back
from demo_pipeline.trajectories.steps import Step

GREY = np.full((135, 240), 200, np.uint8)
Box = tuple[int, int, int, int]


def painted(*boxes: Box, pointer: tuple[float, float] | None = None) -> ShownScreen:
    """Returns a screen with dark boxes, given as x, y, width and height in cells of 8 pixels."""
    picture = GREY.copy()
    for x, y, width, height in boxes:
        picture[y : y + height, x : x + width] = 40
    return ShownScreen(ScreenshotFacts(picture, black=False), [pointer] if pointer else [])


SCREEN = painted()


def test_the_box_is_that_of_the_largest_changed_part():
    clock = (230, 2, 4, 2)
    dialog = (50, 40, 30, 20)
    change = change_between(SCREEN, painted(clock, dialog))
    assert change == {
        "screen_changed": True,
        "changed_x": 400,
        "changed_y": 320,
        "changed_width": 240,
        "changed_height": 160,
    }


ARROW = (120, 50, 2, 3)  # the cells that the pointer covers at the position POINTED
POINTED = (962.0, 402.0)


def test_noise_is_not_a_change() -> None:
    noisy = ShownScreen(ScreenshotFacts(GREY - 3, black=False))
    change = change_between(SCREEN, noisy)
    assert change["screen_changed"] is False
    assert change["changed_x"] is None


def test_an_arriving_arrow_is_not_a_change_if_a_later_screenshot_shows_the_same_there() -> None:
    after = painted(ARROW, pointer=POINTED)
    assert change_between(SCREEN, after, None, SCREEN)["screen_changed"] is False


def test_a_leaving_arrow_is_not_a_change_if_an_earlier_screenshot_shows_the_same_there() -> None:
    before = painted(ARROW, pointer=POINTED)
    assert change_between(before, SCREEN, SCREEN)["screen_changed"] is False


@pytest.mark.parametrize("later", [None, painted(ARROW), painted(pointer=POINTED)])
def test_a_change_that_the_pointer_may_hide_is_unknown(later: ShownScreen | None) -> None:
    """The pointer may cover a radio button in every screenshot."""
    after = painted(ARROW, pointer=POINTED)
    assert change_between(SCREEN, after, None, later)["screen_changed"] is None


def test_a_button_that_is_lit_around_the_pointer_is_a_change() -> None:
    """A date button is 40 pixels wide, and the pointer covers only its middle."""
    after = painted((117, 47, 8, 6), pointer=POINTED)
    change = change_between(SCREEN, after, None, after)
    assert change["screen_changed"] is True
    assert (change["changed_x"], change["changed_y"]) == (8 * 117, 8 * 47)


def test_without_a_next_screenshot_the_change_is_unknown() -> None:
    assert set(change_between(SCREEN, None).values()) == {None}


def steps(*parts: tuple[str, dict[str, Any], str]) -> list[Step]:
    """Returns a step for each triple of an action type, parameters and a role of the target."""
    step_list = []
    for index, (kind, values, role) in enumerate(parts):
        target = (
            TargetElement.model_validate({"id": "node_1", "role": role, "name": "x"})
            if role
            else None
        )
        kind_of = ActionType(kind)
        written = StepAction(
            step_index=index,
            action_type=kind_of,
            parameters=PARAMETERS[kind_of].model_validate(values),
            target_element=target,
            reasoning="",
        )
        action = Action(kind, index, index, [], keys=values.get("keys", []))
        step_list.append(Step(action, written, {}, {}))
    return step_list


AT: dict[str, Any] = {"x": 1, "y": 1}
CLICK = ("click", {**AT, "button": "left"}, "button")
MENU = ("click", {**AT, "button": "left"}, "menu")
RIGHT = ("right_click", AT, "")
TYPED = ("type", {"text": "abc"}, "textfield")


def keys(*names: str) -> tuple[str, dict[str, Any], str]:
    return ("hotkey", {"keys": list(names)}, "")


def test_undo_undoes_only_the_edit_directly_before_it():
    assert steps_taken_back(steps(TYPED, keys("ctrl", "z"))) == {0: 1}
    pause = ("wait", {"seconds": 3.0}, "")
    assert steps_taken_back(steps(keys("ctrl", "v"), pause, keys("command", "z"))) == {0: 2}
    assert steps_taken_back(steps(TYPED, CLICK, keys("ctrl", "z"))) == {}
    assert steps_taken_back(steps(keys("ctrl", "c"), keys("ctrl", "z"))) == {}


def test_escape_undoes_the_opening_of_a_menu_if_no_item_was_chosen():
    assert steps_taken_back(steps(MENU, keys("down"), keys("esc"))) == {0: 2}
    assert steps_taken_back(steps(RIGHT, keys("esc"))) == {0: 1}
    assert steps_taken_back(steps(MENU, CLICK, keys("esc"))) == {}
    assert steps_taken_back(steps(TYPED, keys("esc"))) == {}
