"""Tests of marks and labels on screenshots: positions, kinds, and no typed text."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demo_pipeline.desktopd.models import PARAMETERS, ActionType, StepAction
from demo_pipeline.trajectories.overlay import DARK, _Rectangle, draw_action, label_of, place_label

GREY = 128


def action(kind: str, **parameters: Any) -> StepAction:
    given = PARAMETERS[ActionType(kind)].model_validate(parameters)
    return StepAction(step_index=0, action_type=ActionType(kind), parameters=given, reasoning="")


def blank() -> np.ndarray:
    return np.full((270, 480, 3), GREY, np.uint8)


def drawn(action: StepAction, box: tuple[int, int, int, int] | None = None) -> np.ndarray:
    picture = blank()
    draw_action(picture, action, 0.25, box)
    return picture


def near(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return np.abs(picture.astype(int) - colour).max(axis=2) < 40


@pytest.mark.parametrize(
    ("step_action", "label"),
    [
        (action("click", x=1, y=1), ""),
        (action("click", x=1, y=1, button="middle"), "middle"),
        (action("click", x=1, y=1, clicks=3), "triple"),
        (action("click", x=1, y=1, modifiers=["ctrl"]), "ctrl+left"),
        (action("right_click", x=1, y=1, modifiers=["shift"]), "shift+right"),
        (action("double_click", x=1, y=1), "double"),
        (action("drag", start_x=1, start_y=1, end_x=2, end_y=2), ""),
        (action("drag", start_x=1, start_y=1, end_x=2, end_y=2, button="right"), "right drag"),
        (action("scroll", x=1, y=1, direction="down", amount=3), "scroll down 3"),
        (action("type", text="my secret words"), "type(15 chars)"),
        (action("hotkey", keys=["ctrl", "c"]), "hotkey(ctrl+c)"),
        (action("wait", seconds=2.54), "wait(2.5 s)"),
    ],
)
def test_a_label_says_what_the_marks_do_not_show_and_no_typed_text(step_action, label):
    assert label_of(step_action) == label


Boxes = st.tuples(
    st.integers(-50, 1900), st.integers(-50, 1060), st.integers(0, 1990), st.integers(0, 1200)
)
Points = st.fixed_dictionaries({"x": st.integers(0, 1919), "y": st.integers(0, 1079)})


@settings(max_examples=60, deadline=None)
@given(Points, st.one_of(st.none(), Boxes))
def test_a_label_never_hides_the_point(point, box):
    picture = drawn(action("double_click", **point), box)
    x = min(479, round(point["x"] / 4))
    y = min(269, round(point["y"] / 4))
    assert tuple(picture[y, x]) != DARK
    assert (picture == DARK).all(axis=2).sum() > 300  # the label is drawn completely


def test_a_label_avoids_the_marks_and_stays_inside_the_picture():
    taken = _Rectangle(200, 100, 300, 150)
    picture = blank()
    place_label(picture, "type(3 chars)", [taken], 0.42)
    dark = (picture == DARK).all(axis=2)
    assert dark.any()
    assert not dark[taken.top : taken.bottom, taken.left : taken.right].any()
